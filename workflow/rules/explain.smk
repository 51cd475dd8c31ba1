# Which moments and which regions decided.


rule explain_fold:
    input:
        cache=layout.cache("{atlas}", "{variant}") / "manifest.json",
        checkpoint=layout.run("{atlas}", "{model}", "{seed}", "{variant}").fold("{fold}")
        / "checkpoint.safetensors",
        status=layout.run("{atlas}", "{model}", "{seed}", "{variant}").fold("{fold}")
        / "status.json",
    output:
        importance=layout.run("{atlas}", "{model}", "{seed}", "{variant}").fold("{fold}")
        / "importance.npy",
        index=layout.run("{atlas}", "{model}", "{seed}", "{variant}").fold("{fold}")
        / "importance.tsv",
    log:
        layout.log("explain_fold", "{atlas}/{variant}/{model}/seed-{seed}/fold-{fold}"),
    benchmark:
        layout.benchmark(
            "explain_fold", "{atlas}/{variant}/{model}/seed-{seed}/fold-{fold}"
        )
    conda:
        "../envs/learning.yaml"
    threads: 1
    resources:
        attempt=lambda wildcards, attempt: attempt,
        mem_mb=lambda wildcards, attempt: 4000 * attempt,
        runtime=lambda wildcards, attempt: 60 * attempt,
    params:
        **run.settings("explain"),
        model=lambda wildcards: run.model_code(wildcards.model),
    shell:
        "python -m bolt explain --config {params.config} --atlas {wildcards.atlas} --variant {wildcards.variant}"
        " --model {wildcards.model} --seed {wildcards.seed} --fold {wildcards.fold} --threads {threads}"
        " --attempt {resources.attempt} --limits {resources.mem_mb} {resources.runtime} > {log} 2>&1"


rule regions:
    input:
        cache=layout.cache("{atlas}", "{variant}") / "manifest.json",
        coefficients=layout.run("{atlas}", "{model}", "{seed}", "{variant}").explanation
        / "coefficients.npy",
    output:
        weights=layout.run("{atlas}", "{model}", "{seed}", "{variant}").explanation
        / "roi_weights.tsv",
    log:
        layout.log("regions", "{atlas}/{variant}/{model}/seed-{seed}"),
    benchmark:
        layout.benchmark("regions", "{atlas}/{variant}/{model}/seed-{seed}")
    conda:
        "../envs/imaging.yaml"
    resources:
        mem_mb=lambda wildcards, attempt: 4000 * attempt,
    params:
        **run.settings("regions"),
    shell:
        "python -m bolt regions --config {params.config} --atlas {wildcards.atlas} --variant {wildcards.variant}"
        " --model {wildcards.model} --seed {wildcards.seed} > {log} 2>&1 || (cat {log} >&2; exit 1)"


rule tasks:
    input:
        cache=layout.cache("{atlas}", "{variant}") / "manifest.json",
        importance=lambda wildcards: run.fold_files(wildcards, "importance.tsv"),
    output:
        tasks=layout.run("{atlas}", "{model}", "{seed}", "{variant}").explanation
        / "tasks.tsv",
    log:
        layout.log("tasks", "{atlas}/{variant}/{model}/seed-{seed}"),
    benchmark:
        layout.benchmark("tasks", "{atlas}/{variant}/{model}/seed-{seed}")
    conda:
        "../envs/imaging.yaml"
    resources:
        mem_mb=lambda wildcards, attempt: 4000 * attempt,
    params:
        **run.settings("tasks"),
    shell:
        "python -m bolt tasks --config {params.config} --atlas {wildcards.atlas} --variant {wildcards.variant}"
        " --model {wildcards.model} --seed {wildcards.seed} > {log} 2>&1 || (cat {log} >&2; exit 1)"
