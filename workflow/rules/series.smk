# ROI series to one array per atlas, and the folds that all models share.


rule rois:
    output:
        rois=layout.rois("{atlas}"),
    localrule: True
    conda:
        "../envs/learning.yaml"
    shell:
        f"python -m bolt rois {CONFIG} --atlas {{wildcards.atlas}} {FILES} {LOGGED}"


rule cache:
    input:
        # waited for, and found by the scan table: too many for a command
        lambda wildcards: checkpoints.index.get() and run.scan_series(wildcards.atlas),
        scans=layout.scans,
        rois=layout.rois("{atlas}"),
        quality=layout.quality if run.judged else [],
    output:
        manifest=layout.cache("{atlas}") / "manifest.json",
        series=layout.cache("{atlas}") / "series.npy",
        index=layout.cache("{atlas}") / "index.tsv",
        rois=layout.cache("{atlas}") / "rois.tsv",
        exclusions=layout.cache("{atlas}") / "exclusions.tsv",
        warnings=layout.cache("{atlas}") / "warnings.tsv",
    conda:
        "../envs/learning.yaml"
    resources:
        **run.resources("cache"),
    params:
        files=lambda wildcards: run.series_stamps,
    shell:
        f"python -m bolt cache {CONFIG} --atlas {{wildcards.atlas}} {FILES} {LOGGED}"


rule exclusions:
    input:
        scans=layout.scans,
        caches=run.of_caches("manifest.json"),
        exclusions=run.of_caches("exclusions.tsv"),
        warnings=run.of_caches("warnings.tsv"),
    output:
        exclusions=layout.exclusions,
        warnings=layout.warnings,
    conda:
        "../envs/learning.yaml"
    shell:
        f"python -m bolt exclusions {CONFIG} {FILES} {LOGGED}"


rule folds:
    input:
        scans=layout.scans,
        exclusions=layout.exclusions,
        caches=run.of_caches("manifest.json"),
    output:
        folds=layout.folds,
    conda:
        "../envs/learning.yaml"
    shell:
        f"python -m bolt folds {CONFIG} {FILES} {LOGGED}"


rule series:
    input:
        run.caches(),
        layout.exclusions,
