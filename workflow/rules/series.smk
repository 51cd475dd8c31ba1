# ROI series to one array an atlas, and the folds that all models share.


rule cache:
    input:
        scans=layout.scans,
        series=lambda wildcards: checkpoints.index.get() and run.scan_series(),
        quality=layout.quality if run.judged else [],
    output:
        manifest=layout.cache("{atlas}") / "manifest.json",
        index=layout.cache("{atlas}") / "index.tsv",
        exclusions=layout.cache("{atlas}") / "exclusions.tsv",
        warnings=layout.cache("{atlas}") / "warnings.tsv",
    log:
        layout.log("cache", "{atlas}"),
    benchmark:
        layout.benchmark("cache", "{atlas}")
    conda:
        "../envs/learning.yaml"
    resources:
        mem_mb=lambda wildcards, attempt: 4000 * attempt,
    params:
        **run.settings("cache"),
    shell:
        "python -m bolt cache --config {params.config} --atlas {wildcards.atlas} > {log} 2>&1"
        " || (cat {log} >&2; exit 1)"


rule folds:
    input:
        [layout.cache(atlas) / "exclusions.tsv" for atlas in run.config.atlas_places],
        scans=layout.scans,
    output:
        folds=layout.folds,
        exclusions=layout.exclusions,
        warnings=layout.warnings,
    log:
        layout.log("folds"),
    benchmark:
        layout.benchmark("folds")
    conda:
        "../envs/learning.yaml"
    params:
        **run.settings("folds"),
    shell:
        "python -m bolt folds --config {params.config} > {log} 2>&1 || (cat {log} >&2; exit 1)"


rule series:
    input:
        [layout.cache(atlas) / "manifest.json" for atlas in run.config.atlas_places],
        layout.folds,
