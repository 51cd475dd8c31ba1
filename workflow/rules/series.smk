# ROI series to one array an atlas, and the folds that all models share.


def series_of_all_scans(wildcards):
    checkpoints.index.get()
    return run.series_statuses()


rule cache:
    input:
        scans=layout.scans,
        series=series_of_all_scans,
    output:
        manifest=layout.cache("{atlas}") / "manifest.json",
        index=layout.cache("{atlas}") / "index.tsv",
        exclusions=layout.cache("{atlas}") / "exclusions.tsv",
    log:
        layout.log("cache", "{atlas}"),
    benchmark:
        layout.benchmark("cache", "{atlas}")
    params:
        **run.settings("cache"),
    resources:
        mem_mb=4000,
    conda:
        "../envs/learning.yaml"
    shell:
        "python -m bolt cache --config {layout.config} --atlas {wildcards.atlas} > {log} 2>&1"
        " || (cat {log} >&2; exit 1)"


rule folds:
    input:
        [layout.cache(atlas) / "exclusions.tsv" for atlas in run.config.atlas_places],
        scans=layout.scans,
    output:
        folds=layout.folds,
        exclusions=layout.exclusions,
    log:
        layout.log("folds"),
    benchmark:
        layout.benchmark("folds")
    params:
        **run.settings("folds"),
    conda:
        "../envs/learning.yaml"
    shell:
        "python -m bolt folds --config {layout.config} > {log} 2>&1 || (cat {log} >&2; exit 1)"


rule series:
    input:
        [layout.cache(atlas) / "manifest.json" for atlas in run.config.atlas_places],
        layout.folds,
