# One job per model, seed and fold; or per model and seed, with all folds side by side. On a cluster short trainings share
# a job, and long ones a GPU (`group`); the profile sets how many.


if run.config.folds.side_by_side:
    folds = run.config.folds.of("")

    rule train_folds:
        input:
            cache=CACHE,
            folds=layout.folds,
        output:
            [RUN.fold(fold) / "predictions.tsv" for fold in folds],
            [RUN.fold(fold) / "checkpoint.safetensors" for fold in folds],
            [RUN.fold(fold) / "status.json" for fold in folds],
        log:
            layout.log("train_folds", RUN_NAME),
        benchmark:
            layout.benchmark("train_folds", RUN_NAME)
        conda:
            "../envs/learning.yaml"
        threads: 1
        resources:
            **run.resources("train", times=run.config.folds.outer),
        params:
            **run.params("train"),
            model=lambda wildcards: run.model_code(wildcards.model),
            folds=folds,
        shell:
            f"python -m bolt train {OF_RUN} --fold {{params.folds}} {THREADS} {GUARDED}"

else:

    rule train_fold:
        input:
            cache=CACHE,
            folds=layout.folds,
        output:
            predictions=FOLD / "predictions.tsv",
            checkpoint=FOLD / "checkpoint.safetensors",
            status=FOLD / "status.json",
        log:
            layout.log("train_fold", FOLD_NAME),
        benchmark:
            layout.benchmark("train_fold", FOLD_NAME)
        group:
            lambda wildcards: run.training_group(workflow, wildcards)
        conda:
            "../envs/learning.yaml"
        threads: 1
        resources:
            **run.resources("train"),
            trainings=1,
        params:
            **run.params("train"),
            model=lambda wildcards: run.model_code(wildcards.model),
        shell:
            f"python -m bolt train {OF_FOLD} {THREADS} {GUARDED}"


rule evaluate:
    input:
        run.every_fold("predictions.tsv"),
    output:
        metrics=RUN.folder / "metrics.tsv",
        summary=RUN.folder / "summary.json",
    log:
        layout.log("evaluate", RUN_NAME),
    benchmark:
        layout.benchmark("evaluate", RUN_NAME)
    conda:
        "../envs/learning.yaml"
    params:
        **run.params("evaluate"),
    shell:
        f"python -m bolt evaluate {OF_RUN} {LOGGED}"
