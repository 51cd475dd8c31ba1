# Are the most important volumes enough to tell the class? Where `explain: inner_folds` asks for them, models of the
# same settings explain the training scans that they did not see.


rule inner_folds:
    input:
        folds=layout.folds,
        scans=layout.scans,
        caches=[
            layout.cache(atlas) / "manifest.json" for atlas in run.config.atlas_places
        ],
    output:
        [layout.inner_folds(fold) for fold in range(run.config.folds.outer)],
    log:
        layout.log("inner_folds"),
    benchmark:
        layout.benchmark("inner_folds")
    conda:
        "../envs/learning.yaml"
    params:
        **run.settings("inner_folds"),
    shell:
        "python -m bolt inner-folds --config {params.config} > {log} 2>&1 || (cat {log} >&2; exit 1)"


rule train_inner:
    input:
        cache=layout.cache("{atlas}", "{variant}") / "manifest.json",
        folds=layout.inner_folds("{fold}"),
    output:
        predictions=layout.run("{atlas}", "{model}", "{seed}", "{variant}").inner("{fold}")
        / "fold-{inner}/predictions.tsv",
        checkpoint=layout.run("{atlas}", "{model}", "{seed}", "{variant}").inner("{fold}")
        / "fold-{inner}/checkpoint.safetensors",
        status=layout.run("{atlas}", "{model}", "{seed}", "{variant}").inner("{fold}")
        / "fold-{inner}/status.json",
    log:
        layout.log(
            "train_inner",
            "{atlas}/{variant}/{model}/seed-{seed}/fold-{fold}/inner-{inner}",
        ),
    benchmark:
        layout.benchmark(
            "train_inner",
            "{atlas}/{variant}/{model}/seed-{seed}/fold-{fold}/inner-{inner}",
        )
    conda:
        "../envs/learning.yaml"
    threads: 1
    resources:
        gres=lambda wildcards: run.gpu(wildcards.model),
        attempt=lambda wildcards, attempt: attempt,
        mem_mb=lambda wildcards, attempt: 8000 * attempt,
        runtime=lambda wildcards, attempt: run.minutes(wildcards.model) * attempt,
    params:
        **run.settings("train"),
        model=lambda wildcards: run.model_code(wildcards.model),
    shell:
        "python -m bolt train-inner --config {params.config} --atlas {wildcards.atlas} --variant {wildcards.variant}"
        " --model {wildcards.model} --seed {wildcards.seed} --fold {wildcards.fold} --inner {wildcards.inner}"
        " --threads {threads} --attempt {resources.attempt} --limits {resources.mem_mb} {resources.runtime} > {log} 2>&1"


rule explain_inner:
    input:
        cache=layout.cache("{atlas}", "{variant}") / "manifest.json",
        checkpoints=lambda wildcards: run.inner_files(
            wildcards, "checkpoint.safetensors"
        ),
        statuses=lambda wildcards: run.inner_files(wildcards, "status.json"),
    output:
        importance=layout.run("{atlas}", "{model}", "{seed}", "{variant}").inner("{fold}")
        / "importance.npy",
        index=layout.run("{atlas}", "{model}", "{seed}", "{variant}").inner("{fold}")
        / "importance.tsv",
    log:
        layout.log("explain_inner", "{atlas}/{variant}/{model}/seed-{seed}/fold-{fold}"),
    benchmark:
        layout.benchmark(
            "explain_inner", "{atlas}/{variant}/{model}/seed-{seed}/fold-{fold}"
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
        "python -m bolt explain-inner --config {params.config} --atlas {wildcards.atlas} --variant {wildcards.variant}"
        " --model {wildcards.model} --seed {wildcards.seed} --fold {wildcards.fold} --threads {threads}"
        " --attempt {resources.attempt} --limits {resources.mem_mb} {resources.runtime} > {log} 2>&1"


rule regress_landmarks:
    input:
        cache=layout.cache("{atlas}", "{variant}") / "manifest.json",
        importance=lambda wildcards: run.fold_files(wildcards, "importance.tsv"),
        predictions=lambda wildcards: run.fold_files(wildcards, "predictions.tsv"),
        inner=lambda wildcards: run.inner_importance(wildcards),
    output:
        landmarks=layout.run("{atlas}", "{model}", "{seed}", "{variant}").explanation
        / "landmarks.tsv",
        subsets=layout.run("{atlas}", "{model}", "{seed}", "{variant}").explanation
        / "subsets.tsv",
        coefficients=layout.run("{atlas}", "{model}", "{seed}", "{variant}").explanation
        / "coefficients.npy",
    log:
        layout.log("regress_landmarks", "{atlas}/{variant}/{model}/seed-{seed}"),
    benchmark:
        layout.benchmark("regress_landmarks", "{atlas}/{variant}/{model}/seed-{seed}")
    conda:
        "../envs/learning.yaml"
    resources:
        mem_mb=lambda wildcards, attempt: 8000 * attempt,
        runtime=lambda wildcards, attempt: 240 * attempt,
    params:
        **run.settings("landmarks"),
    shell:
        "python -m bolt landmarks --config {params.config} --atlas {wildcards.atlas} --variant {wildcards.variant}"
        " --model {wildcards.model} --seed {wildcards.seed} > {log} 2>&1 || (cat {log} >&2; exit 1)"
