# Which scans are excluded by the configured cut-offs. Ready series are judged only where a cut-off can be known of them.


if run.judged:

    rule quality:
        input:
            scans=layout.scans,
            series=lambda wildcards: checkpoints.index.get() and run.scan_series(),
            ratings=run.config.quality.ratings or [],
        output:
            layout.quality,
        conda:
            "../envs/imaging.yaml"
        resources:
            **run.resources("quality"),
        shell:
            f"python -m bolt quality {CONFIG} {LOGGED}"

    # a rule of its own, so that a changed page trains no model again
    rule quality_pages:
        input:
            layout.quality,
        output:
            layout.quality_page,
        conda:
            "../envs/imaging.yaml"
        resources:
            **run.resources("quality_pages"),
        shell:
            f"python -m bolt quality-pages {CONFIG} {LOGGED}"
