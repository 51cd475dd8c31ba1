# ROI series to one array per atlas, and the folds that all models share.


rule cache:
    input:
        scans=layout.scans,
        series=lambda wildcards: checkpoints.index.get()
        and run.scan_series(wildcards.atlas),
        quality=layout.quality if run.judged else [],
    output:
        manifest=layout.cache("{atlas}") / "manifest.json",
        series=layout.cache("{atlas}") / "series.npy",
        index=layout.cache("{atlas}") / "index.tsv",
        rois=layout.cache("{atlas}") / "rois.tsv",
        exclusions=layout.cache("{atlas}") / "exclusions.tsv",
        warnings=layout.cache("{atlas}") / "warnings.tsv",
    log:
        layout.log("cache", "{atlas}"),
    benchmark:
        layout.benchmark("cache", "{atlas}")
    conda:
        "../envs/learning.yaml"
    resources:
        **run.resources("cache"),
    params:
        **run.params("cache"),
    shell:
        f"python -m bolt cache {CONFIG} --atlas {{wildcards.atlas}} {LOGGED}"


rule exclusions:
    input:
        [layout.cache(atlas) / "exclusions.tsv" for atlas in run.config.atlas_places],
        [layout.cache(atlas) / "warnings.tsv" for atlas in run.config.atlas_places],
        [layout.cache(atlas) / "manifest.json" for atlas in run.config.atlas_places],
        scans=layout.scans,
    output:
        exclusions=layout.exclusions,
        warnings=layout.warnings,
    log:
        layout.log("exclusions"),
    benchmark:
        layout.benchmark("exclusions")
    conda:
        "../envs/learning.yaml"
    params:
        **run.params("exclusions"),
    shell:
        f"python -m bolt exclusions {CONFIG} {LOGGED}"


rule folds:
    input:
        [layout.cache(atlas) / "manifest.json" for atlas in run.config.atlas_places],
        exclusions=layout.exclusions,
        scans=layout.scans,
    output:
        folds=layout.folds,
    log:
        layout.log("folds"),
    benchmark:
        layout.benchmark("folds")
    conda:
        "../envs/learning.yaml"
    params:
        **run.params("folds"),
    shell:
        f"python -m bolt folds {CONFIG} {LOGGED}"


rule series:
    input:
        run.caches(),
        layout.exclusions,
