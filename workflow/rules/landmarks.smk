# Are the most important volumes enough to tell the classes apart? Where `explain: inner_folds` asks for them, models with
# the same settings explain the training scans that they did not see.


rule inner_folds:
    input:
        folds=layout.folds,
        scans=layout.scans,
        caches=run.of_caches("manifest.json"),
    output:
        folds=[layout.inner_folds(fold) for fold in range(run.config.folds.outer)],
    conda:
        "../envs/learning.yaml"
    shell:
        f"python -m bolt inner-folds {CONFIG} {FILES} {LOGGED}"


rule train_inner:
    input:
        cache=CACHE,
        folds=layout.inner_folds("{fold}"),
    output:
        predictions=INNER / "fold-{inner}/predictions.tsv",
        checkpoint=INNER / "fold-{inner}/checkpoint.safetensors",
        status=INNER / "fold-{inner}/status.json",
    conda:
        "../envs/learning.yaml"
    resources:
        **run.resources("train_inner"),
    shell:
        f"python -m bolt train-inner {OF_FOLD} --inner {{wildcards.inner}} "
        f"{FILES} {THREADS} {GUARDED}"


rule explain_inner:
    input:
        cache=CACHE,
        checkpoints=run.every_inner_fold("checkpoint.safetensors"),
        statuses=run.every_inner_fold("status.json"),
    output:
        importance=INNER / "importance.npy",
        controls=INNER / "importance_controls.npy",
        index=INNER / "importance.tsv",
    conda:
        "../envs/learning.yaml"
    resources:
        **run.resources("explain_inner"),
    shell:
        f"python -m bolt explain-inner {OF_FOLD} {FILES} {THREADS} {GUARDED}"


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
    conda:
        "../envs/learning.yaml"
    resources:
        **run.resources("regress_landmarks"),
    shell:
        f"python -m bolt regress-landmarks {OF_RUN} {FILES} {LOGGED}"
