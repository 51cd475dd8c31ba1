# Which time points and which regions drive the prediction.


rule explain_fold:
    input:
        cache=CACHE,
        checkpoint=FOLD / "checkpoint.safetensors",
        status=FOLD / "status.json",
    output:
        importance=FOLD / "importance.npy",
        controls=FOLD / "importance_controls.npy",
        index=FOLD / "importance.tsv",
        untrained=run.untrained_importance(FOLD),
    log:
        layout.log("explain_fold", FOLD_NAME),
    benchmark:
        layout.benchmark("explain_fold", FOLD_NAME)
    conda:
        "../envs/learning.yaml"
    threads: 1
    resources:
        **run.resources("explain"),
    params:
        **run.params("explain"),
        model=lambda wildcards: run.model_code(wildcards.model),
    shell:
        f"python -m bolt explain-fold {OF_FOLD} {THREADS} {GUARDED}"


rule regions:
    input:
        cache=CACHE,
        coefficients=RUN.explanation / "coefficients.npy",
        controls=RUN.explanation / "coefficients_controls.npy",
    output:
        weights=RUN.explanation / "roi_weights.tsv",
    log:
        layout.log("regions", RUN_NAME),
    benchmark:
        layout.benchmark("regions", RUN_NAME)
    conda:
        "../envs/imaging.yaml"
    resources:
        **run.resources("regions"),
    params:
        **run.params("regions"),
    shell:
        f"python -m bolt regions {OF_RUN} {LOGGED}"


rule connections:
    input:
        cache=CACHE,
        predictions=run.every_fold("predictions.tsv"),
    output:
        connections=RUN.explanation / "connections.tsv",
        networks=RUN.explanation / "connection_networks.tsv",
        matrices=RUN.explanation / "connections.npy",
    log:
        layout.log("connections", RUN_NAME),
    benchmark:
        layout.benchmark("connections", RUN_NAME)
    conda:
        "../envs/imaging.yaml"
    resources:
        **run.resources("connections"),
    params:
        **run.params("connections"),
    shell:
        f"python -m bolt connections {OF_RUN} {LOGGED}"


rule tasks:
    input:
        cache=CACHE,
        importance=run.every_fold("importance.tsv"),
        untrained=run.every_fold("importance_untrained.tsv"),
    output:
        tasks=RUN.explanation / "tasks.tsv",
    log:
        layout.log("tasks", RUN_NAME),
    benchmark:
        layout.benchmark("tasks", RUN_NAME)
    conda:
        "../envs/imaging.yaml"
    resources:
        **run.resources("tasks"),
    params:
        **run.params("tasks"),
    shell:
        f"python -m bolt tasks {OF_RUN} {LOGGED}"
