# Who is left out, by the cut-offs of the configuration. Ready series are judged only where one of these is known of them.

if run.judged:

    rule quality:
        input:
            scans=layout.scans,
            series=lambda wildcards: checkpoints.index.get() and run.scan_series(),
        output:
            layout.quality,
        log:
            layout.log("quality"),
        benchmark:
            layout.benchmark("quality")
        conda:
            "../envs/imaging.yaml"
        resources:
            mem_mb=lambda wildcards, attempt: 2000 * attempt,
        params:
            **run.settings("quality"),
        shell:
            "python -m bolt quality --config {params.config} > {log} 2>&1 || (cat {log} >&2; exit 1)"

    # Pages are a rule of their own, so that mending them trains no model again.
    rule quality_pages:
        input:
            layout.quality,
        output:
            layout.quality_page,
        log:
            layout.log("quality_pages"),
        benchmark:
            layout.benchmark("quality_pages")
        conda:
            "../envs/imaging.yaml"
        resources:
            mem_mb=lambda wildcards, attempt: 2000 * attempt,
        params:
            **run.settings("quality_pages"),
        shell:
            "python -m bolt quality-pages --config {params.config} > {log} 2>&1 || (cat {log} >&2; exit 1)"
