# How far may the explanation be believed?


rule train_permuted:
    input:
        cache=layout.cache("{atlas}", "{variant}") / "manifest.json",
        folds=layout.folds,
        predictions=lambda wildcards: run.permuted_fold(wildcards, "predictions.tsv"),
        status=lambda wildcards: run.permuted_fold(wildcards, "status.json"),
    output:
        checkpoint=layout.run("{atlas}", "{model}", "{seed}", "{variant}").permuted
        / "checkpoint.safetensors",
        predictions=layout.run("{atlas}", "{model}", "{seed}", "{variant}").permuted
        / "predictions.tsv",
        status=layout.run("{atlas}", "{model}", "{seed}", "{variant}").permuted
        / "status.json",
    log:
        layout.log("train_permuted", "{atlas}/{variant}/{model}/seed-{seed}"),
    benchmark:
        layout.benchmark("train_permuted", "{atlas}/{variant}/{model}/seed-{seed}")
    conda:
        "../envs/learning.yaml"
    threads: 1
    resources:
        gres=lambda wildcards: run.gpu(wildcards.model),
        attempt=lambda wildcards, attempt: attempt,
        mem_mb=lambda wildcards, attempt: 8000 * attempt,
        runtime=lambda wildcards, attempt: run.minutes(wildcards.model) * attempt,
    params:
        **run.settings("train_permuted"),
        model=lambda wildcards: run.model_code(wildcards.model),
    shell:
        "python -m bolt train-permuted --config {params.config} --atlas {wildcards.atlas} --variant {wildcards.variant}"
        " --model {wildcards.model} --seed {wildcards.seed} --threads {threads}"
        " --attempt {resources.attempt} --limits {resources.mem_mb} {resources.runtime} > {log} 2>&1"


rule sanity:
    input:
        cache=layout.cache("{atlas}", "{variant}") / "manifest.json",
        importance=lambda wildcards: run.fold_files(wildcards, "importance.tsv"),
        permuted=lambda wildcards: run.permuted(wildcards),
    output:
        layout.run("{atlas}", "{model}", "{seed}", "{variant}").explanation / "sanity.tsv",
    log:
        layout.log("sanity", "{atlas}/{variant}/{model}/seed-{seed}"),
    benchmark:
        layout.benchmark("sanity", "{atlas}/{variant}/{model}/seed-{seed}")
    conda:
        "../envs/learning.yaml"
    threads: 1
    resources:
        mem_mb=lambda wildcards, attempt: 4000 * attempt,
        runtime=lambda wildcards, attempt: 240 * attempt,
    params:
        **run.settings("sanity"),
        model=lambda wildcards: run.model_code(wildcards.model),
    shell:
        "python -m bolt sanity --config {params.config} --atlas {wildcards.atlas} --variant {wildcards.variant}"
        " --model {wildcards.model} --seed {wildcards.seed} --threads {threads} > {log} 2>&1 || (cat {log} >&2; exit 1)"


rule faithfulness_fold:
    input:
        cache=layout.cache("{atlas}", "{variant}") / "manifest.json",
        checkpoint=layout.run("{atlas}", "{model}", "{seed}", "{variant}").fold("{fold}")
        / "checkpoint.safetensors",
        predictions=layout.run("{atlas}", "{model}", "{seed}", "{variant}").fold("{fold}")
        / "predictions.tsv",
        importance=layout.run("{atlas}", "{model}", "{seed}", "{variant}").fold("{fold}")
        / "importance.tsv",
    output:
        curves=layout.run("{atlas}", "{model}", "{seed}", "{variant}").fold("{fold}")
        / "faithfulness_curves.npy",
        index=layout.run("{atlas}", "{model}", "{seed}", "{variant}").fold("{fold}")
        / "faithfulness_curves.tsv",
    log:
        layout.log(
            "faithfulness_fold", "{atlas}/{variant}/{model}/seed-{seed}/fold-{fold}"
        ),
    benchmark:
        layout.benchmark(
            "faithfulness_fold", "{atlas}/{variant}/{model}/seed-{seed}/fold-{fold}"
        )
    conda:
        "../envs/learning.yaml"
    threads: 1
    resources:
        attempt=lambda wildcards, attempt: attempt,
        mem_mb=lambda wildcards, attempt: 4000 * attempt,
        runtime=lambda wildcards, attempt: 240 * attempt,
    params:
        **run.settings("faithfulness_fold"),
        model=lambda wildcards: run.model_code(wildcards.model),
    shell:
        "python -m bolt faithfulness-fold --config {params.config} --atlas {wildcards.atlas}"
        " --variant {wildcards.variant} --model {wildcards.model} --seed {wildcards.seed} --fold {wildcards.fold}"
        " --threads {threads} --attempt {resources.attempt} --limits {resources.mem_mb} {resources.runtime} > {log} 2>&1"


rule faithfulness:
    input:
        curves=lambda wildcards: run.fold_files(wildcards, "faithfulness_curves.tsv"),
    output:
        areas=layout.run("{atlas}", "{model}", "{seed}", "{variant}").explanation
        / "faithfulness_areas.tsv",
        curves=layout.run("{atlas}", "{model}", "{seed}", "{variant}").explanation
        / "faithfulness.tsv",
    log:
        layout.log("faithfulness", "{atlas}/{variant}/{model}/seed-{seed}"),
    benchmark:
        layout.benchmark("faithfulness", "{atlas}/{variant}/{model}/seed-{seed}")
    conda:
        "../envs/learning.yaml"
    resources:
        mem_mb=lambda wildcards, attempt: 2000 * attempt,
    params:
        **run.settings("faithfulness"),
    shell:
        "python -m bolt faithfulness --config {params.config} --atlas {wildcards.atlas} --variant {wildcards.variant}"
        " --model {wildcards.model} --seed {wildcards.seed} > {log} 2>&1 || (cat {log} >&2; exit 1)"


rule stability:
    input:
        coefficients=lambda wildcards: run.seed_files(wildcards, "coefficients.npy"),
        importance=lambda wildcards: run.fold_files(wildcards, "importance.tsv"),
    output:
        layout.run("{atlas}", "{model}", "{seed}", "{variant}").explanation
        / "stability.tsv",
    log:
        layout.log("stability", "{atlas}/{variant}/{model}/seed-{seed}"),
    benchmark:
        layout.benchmark("stability", "{atlas}/{variant}/{model}/seed-{seed}")
    conda:
        "../envs/learning.yaml"
    resources:
        mem_mb=lambda wildcards, attempt: 4000 * attempt,
    params:
        **run.settings("stability"),
    shell:
        "python -m bolt stability --config {params.config} --atlas {wildcards.atlas} --variant {wildcards.variant}"
        " --model {wildcards.model} --seed {wildcards.seed} > {log} 2>&1 || (cat {log} >&2; exit 1)"
