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
    conda:
        "../envs/learning.yaml"
    resources:
        **run.resources("train_permuted"),
    shell:
        f"python -m bolt train-permuted {OF_RUN} {FILES} {THREADS} {GUARDED}"


rule train_again:
    input:
        cache=CACHE,
        folds=layout.folds,
        status=run.compared_fold("status.json"),
    output:
        checkpoint=RUN.retrained / "checkpoint.safetensors",
        predictions=RUN.retrained / "predictions.tsv",
        status=RUN.retrained / "status.json",
    conda:
        "../envs/learning.yaml"
    resources:
        **run.resources("train_again"),
    shell:
        f"python -m bolt train-again {OF_RUN} {FILES} {THREADS} {GUARDED}"


rule sanity:
    input:
        cache=CACHE,
        importance=run.every_fold("importance.tsv"),
        permuted=run.permuted_model,
        retrained=run.retrained_models,
    output:
        sanity=RUN.explanation / "sanity.tsv",
    conda:
        "../envs/learning.yaml"
    resources:
        **run.resources("sanity"),
    shell:
        f"python -m bolt sanity {OF_RUN} {FILES} {THREADS} {LOGGED}"


rule faithfulness_fold:
    input:
        cache=CACHE,
        checkpoint=FOLD / "checkpoint.safetensors",
        predictions=FOLD / "predictions.tsv",
        importance=FOLD / "importance.tsv",
    output:
        curves=FOLD / "faithfulness_curves.npy",
        index=FOLD / "faithfulness_curves.tsv",
    conda:
        "../envs/learning.yaml"
    resources:
        **run.resources("faithfulness_fold"),
    shell:
        f"python -m bolt faithfulness-fold {OF_FOLD} {FILES} {THREADS} {GUARDED}"


rule faithfulness:
    input:
        curves=run.every_fold("faithfulness_curves.tsv"),
    output:
        areas=RUN.explanation / "faithfulness_areas.tsv",
        curves=RUN.explanation / "faithfulness.tsv",
    conda:
        "../envs/learning.yaml"
    resources:
        **run.resources("faithfulness"),
    shell:
        f"python -m bolt faithfulness {OF_RUN} {FILES} {LOGGED}"


rule stability:
    input:
        cache=CACHE,
        coefficients=run.every_seed("coefficients.npy"),
        importance=run.every_fold("importance.tsv"),
        predictions=run.every_fold("predictions.tsv"),
    output:
        stability=RUN.explanation / "stability.tsv",
    conda:
        "../envs/learning.yaml"
    resources:
        **run.resources("stability"),
    shell:
        f"python -m bolt stability {OF_RUN} {FILES} {LOGGED}"
