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
            mem_mb=2000,
        params:
            **run.settings("quality"),
        shell:
            "python -m bolt quality --config {params.config} > {log} 2>&1 || (cat {log} >&2; exit 1)"
