# How far may the explanation be trusted?


rule train_permuted:
    input:
        cache=CACHE,
        folds=layout.folds,
        predictions=run.compared_fold("predictions.tsv"),
        status=run.compared_fold("status.json"),
    output:
        checkpoint=RUN.permuted / "checkpoint.safetensors",
        predictions=RUN.permuted / "predictions.tsv",
        status=RUN.permuted / "status.json",
    log:
        layout.log("train_permuted", RUN_NAME),
    benchmark:
        layout.benchmark("train_permuted", RUN_NAME)
    conda:
        "../envs/learning.yaml"
    threads: 1
    resources:
        **run.resources("train_permuted"),
    params:
        **run.params("train_permuted"),
        model=lambda wildcards: run.model_code(wildcards.model),
    shell:
        f"python -m bolt train-permuted {OF_RUN} {THREADS} {GUARDED}"


rule train_again:
    input:
        cache=CACHE,
        folds=layout.folds,
        status=run.compared_fold("status.json"),
    output:
        checkpoint=RUN.retrained / "checkpoint.safetensors",
        predictions=RUN.retrained / "predictions.tsv",
        status=RUN.retrained / "status.json",
    log:
        layout.log("train_again", RUN_NAME),
    benchmark:
        layout.benchmark("train_again", RUN_NAME)
    conda:
        "../envs/learning.yaml"
    threads: 1
    resources:
        **run.resources("train_again"),
    params:
        **run.params("train_again"),
        model=lambda wildcards: run.model_code(wildcards.model),
    shell:
        f"python -m bolt train-again {OF_RUN} {THREADS} {GUARDED}"


rule sanity:
    input:
        cache=CACHE,
        importance=run.every_fold("importance.tsv"),
        permuted=run.permuted_model,
        retrained=run.retrained_models,
    output:
        RUN.explanation / "sanity.tsv",
    log:
        layout.log("sanity", RUN_NAME),
    benchmark:
        layout.benchmark("sanity", RUN_NAME)
    conda:
        "../envs/learning.yaml"
    threads: 1
    resources:
        **run.resources("sanity"),
    params:
        **run.params("sanity"),
        model=lambda wildcards: run.model_code(wildcards.model),
    shell:
        f"python -m bolt sanity {OF_RUN} {THREADS} {LOGGED}"


rule faithfulness_fold:
    input:
        cache=CACHE,
        checkpoint=FOLD / "checkpoint.safetensors",
        predictions=FOLD / "predictions.tsv",
        importance=FOLD / "importance.tsv",
    output:
        curves=FOLD / "faithfulness_curves.npy",
        index=FOLD / "faithfulness_curves.tsv",
    log:
        layout.log("faithfulness_fold", FOLD_NAME),
    benchmark:
        layout.benchmark("faithfulness_fold", FOLD_NAME)
    conda:
        "../envs/learning.yaml"
    threads: 1
    resources:
        **run.resources("faithfulness_fold"),
    params:
        **run.params("faithfulness_fold"),
        model=lambda wildcards: run.model_code(wildcards.model),
    shell:
        f"python -m bolt faithfulness-fold {OF_FOLD} {THREADS} {GUARDED}"


rule faithfulness:
    input:
        curves=run.every_fold("faithfulness_curves.tsv"),
    output:
        areas=RUN.explanation / "faithfulness_areas.tsv",
        curves=RUN.explanation / "faithfulness.tsv",
    log:
        layout.log("faithfulness", RUN_NAME),
    benchmark:
        layout.benchmark("faithfulness", RUN_NAME)
    conda:
        "../envs/learning.yaml"
    resources:
        **run.resources("faithfulness"),
    params:
        **run.params("faithfulness"),
    shell:
        f"python -m bolt faithfulness {OF_RUN} {LOGGED}"


rule stability:
    input:
        cache=CACHE,
        coefficients=run.every_seed("coefficients.npy"),
        importance=run.every_fold("importance.tsv"),
    output:
        RUN.explanation / "stability.tsv",
    log:
        layout.log("stability", RUN_NAME),
    benchmark:
        layout.benchmark("stability", RUN_NAME)
    conda:
        "../envs/learning.yaml"
    resources:
        **run.resources("stability"),
    params:
        **run.params("stability"),
    shell:
        f"python -m bolt stability {OF_RUN} {LOGGED}"
