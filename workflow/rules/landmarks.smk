# Are the most important volumes enough to tell the classes apart? Where `explain: inner_folds` asks for them, models with
# the same settings explain the training scans that they did not see.


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
        **run.params("inner_folds"),
    shell:
        f"python -m bolt inner-folds {CONFIG} {LOGGED}"


rule train_inner:
    input:
        cache=CACHE,
        folds=layout.inner_folds("{fold}"),
    output:
        predictions=INNER / "fold-{inner}/predictions.tsv",
        checkpoint=INNER / "fold-{inner}/checkpoint.safetensors",
        status=INNER / "fold-{inner}/status.json",
    log:
        layout.log("train_inner", f"{FOLD_NAME}/inner-{{inner}}"),
    benchmark:
        layout.benchmark("train_inner", f"{FOLD_NAME}/inner-{{inner}}")
    conda:
        "../envs/learning.yaml"
    threads: 1
    resources:
        **run.resources("train_inner"),
    params:
        **run.params("train_inner"),
        model=lambda wildcards: run.model_code(wildcards.model),
    shell:
        f"python -m bolt train-inner {OF_FOLD} --inner {{wildcards.inner}} {THREADS} {GUARDED}"


rule explain_inner:
    input:
        cache=CACHE,
        checkpoints=run.every_inner_fold("checkpoint.safetensors"),
        statuses=run.every_inner_fold("status.json"),
    output:
        importance=INNER / "importance.npy",
        controls=INNER / "importance_controls.npy",
        index=INNER / "importance.tsv",
    log:
        layout.log("explain_inner", FOLD_NAME),
    benchmark:
        layout.benchmark("explain_inner", FOLD_NAME)
    conda:
        "../envs/learning.yaml"
    threads: 1
    resources:
        **run.resources("explain_inner"),
    params:
        **run.params("explain_inner"),
        model=lambda wildcards: run.model_code(wildcards.model),
    shell:
        f"python -m bolt explain-inner {OF_FOLD} {THREADS} {GUARDED}"


rule regress_landmarks:
    input:
        cache=CACHE,
        importance=run.every_fold("importance.tsv"),
        controls=run.every_fold("importance_controls.npy"),
        predictions=run.every_fold("predictions.tsv"),
        inner=run.inner_importance,
    output:
        landmarks=RUN.explanation / "landmarks.tsv",
        tests=RUN.explanation / "landmark_tests.tsv",
        subsets=RUN.explanation / "subsets.tsv",
        coefficients=RUN.explanation / "coefficients.npy",
        controls=RUN.explanation / "coefficients_controls.npy",
    log:
        layout.log("regress_landmarks", RUN_NAME),
    benchmark:
        layout.benchmark("regress_landmarks", RUN_NAME)
    conda:
        "../envs/learning.yaml"
    resources:
        **run.resources("landmarks"),
    params:
        **run.params("landmarks"),
    shell:
        f"python -m bolt landmarks {OF_RUN} {LOGGED}"
