# One job a model, fold and seed (or a model and seed); `variant` is <space>-<denoise>, or the demo's oracle. On a cluster
# short trainings share a job, and long ones a GPU (`group`); the profile says how many.

if run.config.folds.side_by_side:

    rule train_folds:
        input:
            cache=layout.cache("{atlas}", "{variant}") / "manifest.json",
            folds=layout.folds,
        output:
            run.in_every_fold("predictions.tsv"),
            run.in_every_fold("checkpoint.safetensors"),
            run.in_every_fold("status.json"),
        log:
            layout.log("train_folds", "{atlas}/{variant}/{model}/seed-{seed}"),
        benchmark:
            layout.benchmark("train_folds", "{atlas}/{variant}/{model}/seed-{seed}")
        conda:
            "../envs/learning.yaml"
        threads: 1
        resources:
            gres=lambda wildcards: run.gpu(wildcards.model),
            attempt=lambda wildcards, attempt: attempt,
            mem_mb=lambda wildcards, attempt: 16000 * attempt,
            runtime=lambda wildcards, attempt: run.minutes(wildcards.model)
            * run.config.folds.outer
            * attempt,
        params:
            **run.settings("train"),
            model=lambda wildcards: run.model_code(wildcards.model),
            folds=run.config.folds.of(""),
        shell:
            "python -m bolt train --config {params.config} --atlas {wildcards.atlas} --variant {wildcards.variant}"
            " --model {wildcards.model} --seed {wildcards.seed} --fold {params.folds} --threads {threads}"
            " --attempt {resources.attempt} --limits {resources.mem_mb} {resources.runtime} > {log} 2>&1"

else:

    rule train_fold:
        input:
            cache=layout.cache("{atlas}", "{variant}") / "manifest.json",
            folds=layout.folds,
        output:
            predictions=layout.run("{atlas}", "{model}", "{seed}", "{variant}").fold("{fold}")
            / "predictions.tsv",
            checkpoint=layout.run("{atlas}", "{model}", "{seed}", "{variant}").fold("{fold}")
            / "checkpoint.safetensors",
            status=layout.run("{atlas}", "{model}", "{seed}", "{variant}").fold("{fold}")
            / "status.json",
        log:
            layout.log(
                "train_fold", "{atlas}/{variant}/{model}/seed-{seed}/fold-{fold}"
            ),
        benchmark:
            layout.benchmark(
                "train_fold", "{atlas}/{variant}/{model}/seed-{seed}/fold-{fold}"
            )
        group:
            lambda wildcards: run.training_group(workflow, wildcards)
        conda:
            "../envs/learning.yaml"
        threads: 1
        resources:
            trainings=1,
            gres=lambda wildcards: run.gpu(wildcards.model),
            attempt=lambda wildcards, attempt: attempt,
            mem_mb=lambda wildcards, attempt: 8000 * attempt,
            runtime=lambda wildcards, attempt: run.minutes(wildcards.model) * attempt,
        params:
            **run.settings("train"),
            model=lambda wildcards: run.model_code(wildcards.model),
        shell:
            "python -m bolt train --config {params.config} --atlas {wildcards.atlas} --variant {wildcards.variant}"
            " --model {wildcards.model} --seed {wildcards.seed} --fold {wildcards.fold} --threads {threads}"
            " --attempt {resources.attempt} --limits {resources.mem_mb} {resources.runtime} > {log} 2>&1"


rule evaluate:
    input:
        lambda wildcards: run.fold_files(wildcards, "predictions.tsv"),
    output:
        metrics=layout.run("{atlas}", "{model}", "{seed}", "{variant}").folder / "metrics.tsv",
        summary=layout.run("{atlas}", "{model}", "{seed}", "{variant}").folder
        / "summary.json",
    log:
        layout.log("evaluate", "{atlas}/{variant}/{model}/seed-{seed}"),
    benchmark:
        layout.benchmark("evaluate", "{atlas}/{variant}/{model}/seed-{seed}")
    conda:
        "../envs/learning.yaml"
    params:
        **run.settings("evaluate"),
    shell:
        "python -m bolt evaluate --config {params.config} --atlas {wildcards.atlas} --variant {wildcards.variant}"
        " --model {wildcards.model} --seed {wildcards.seed} > {log} 2>&1 || (cat {log} >&2; exit 1)"
