# The demo judges itself. These are the only rules that open the phantom's truth, and nothing but the report and the
# explanation page reads what they make.


if run.dataset.source == "phantom":

    rule oracle_cache:
        input:
            index=layout.cache("{atlas}") / "index.tsv",
            rois=layout.rois("{atlas}"),
        output:
            manifest=layout.cache("{atlas}", ORACLE) / "manifest.json",
        conda:
            "../envs/imaging.yaml"
        shell:
            f"python -m bolt oracle-cache {CONFIG} --atlas {{wildcards.atlas}} {FILES} {LOGGED}"

    rule truth:
        input:
            run.metrics(),
            run.metrics(ORACLE),
            run.regions(),
            run.regions(ORACLE),
        output:
            layout.tables / "truth.tsv",
        conda:
            "../envs/imaging.yaml"
        shell:
            f"python -m bolt truth {CONFIG} {LOGGED}"
