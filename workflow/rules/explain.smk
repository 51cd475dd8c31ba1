# Which time points and which regions drive the prediction, and which connections go with it.


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
    conda:
        "../envs/learning.yaml"
    resources:
        **run.resources("explain_fold"),
    shell:
        f"python -m bolt explain-fold {OF_FOLD} {FILES} {THREADS} {GUARDED}"


rule regions:
    input:
        cache=CACHE,
        coefficients=RUN.explanation / "coefficients.npy",
        controls=RUN.explanation / "coefficients_controls.npy",
    output:
        weights=RUN.explanation / "roi_weights.tsv",
    conda:
        "../envs/imaging.yaml"
    resources:
        **run.resources("regions"),
    shell:
        f"python -m bolt regions {OF_RUN} {FILES} {LOGGED}"


rule connections:
    input:
        cache=CACHE,
        predictions=run.every_fold("predictions.tsv"),
    output:
        connections=RUN.explanation / "connections.tsv",
        networks=RUN.explanation / "connection_networks.tsv",
        matrices=RUN.explanation / "connections.npy",
        regions=RUN.explanation / "connection_regions.tsv",
        stability=RUN.explanation / "connection_stability.tsv",
    conda:
        "../envs/imaging.yaml"
    resources:
        **run.resources("connections"),
    shell:
        f"python -m bolt connections {OF_RUN} {FILES} {LOGGED}"


rule tasks:
    input:
        # found by the scan table
        lambda wildcards: checkpoints.index.get() and run.events(),
        cache=CACHE,
        importance=run.every_fold("importance.tsv"),
        untrained=run.every_fold("importance_untrained.tsv"),
    output:
        tasks=RUN.explanation / "tasks.tsv",
    conda:
        "../envs/imaging.yaml"
    resources:
        **run.resources("tasks"),
    shell:
        f"python -m bolt tasks {OF_RUN} {FILES} {LOGGED}"
