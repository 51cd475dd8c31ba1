# One job per model, seed and fold; or per model and seed, with all folds in one process: of models that are fitted at once,
# because a process takes longer to start than they to fit, and of all where `folds: side_by_side` asks for it. On a
# cluster short trainings share a job, and long ones a GPU (`group`); the profile sets how many.


if run.trained_together:
    folds = run.config.folds.of("")

    rule train_folds:
        input:
            cache=CACHE,
            folds=layout.folds,
            given=run.given,
        output:
            predictions=[RUN.fold(fold) / "predictions.tsv" for fold in folds],
            checkpoint=[RUN.fold(fold) / "checkpoint.safetensors" for fold in folds],
            status=[RUN.fold(fold) / "status.json" for fold in folds],
        wildcard_constraints:
            model="|".join(run.trained_together),
        conda:
            "../envs/learning.yaml"
        resources:
            **run.resources("train", times=len(folds)),
        params:
            folds=folds,
        shell:
            f"python -m bolt train {OF_RUN} --fold {{params.folds}} {FILES} "
            f"{THREADS} {GUARDED}"


if run.trained_apart:

    rule train_fold:
        input:
            cache=CACHE,
            folds=layout.folds,
            given=run.given,
        output:
            predictions=FOLD / "predictions.tsv",
            checkpoint=FOLD / "checkpoint.safetensors",
            status=FOLD / "status.json",
        wildcard_constraints:
            model="|".join(run.trained_apart),
        group:
            lambda wildcards: run.training_group(workflow, wildcards)
        conda:
            "../envs/learning.yaml"
        resources:
            **run.resources("train"),
        shell:
            f"python -m bolt train {OF_FOLD} {FILES} {THREADS} {GUARDED}"


rule evaluate:
    input:
        cache=CACHE,
        folds=layout.folds,
        predictions=run.every_fold("predictions.tsv"),
    output:
        metrics=RUN.folder / "metrics.tsv",
        summary=RUN.folder / "summary.json",
        balanced=RUN.folder / "balanced.tsv",
    conda:
        "../envs/learning.yaml"
    shell:
        f"python -m bolt evaluate {OF_RUN} {FILES} {LOGGED}"
