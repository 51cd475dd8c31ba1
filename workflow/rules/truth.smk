# The demo measures itself. These are the only rules that open the phantom's truth, and nothing but the report
# reads what they make.

if run.dataset.source == "phantom":

    rule oracle_cache:
        input:
            index=layout.cache("{atlas}") / "index.tsv",
        output:
            manifest=layout.cache("{atlas}", ORACLE) / "manifest.json",
        log:
            layout.log("oracle_cache", "{atlas}"),
        benchmark:
            layout.benchmark("oracle_cache", "{atlas}")
        params:
            **run.settings("truth"),
        conda:
            "../envs/imaging.yaml"
        shell:
            "python -m bolt oracle-cache --config {layout.config} --atlas {wildcards.atlas} > {log} 2>&1"

    rule truth:
        input:
            run.metrics(),
            run.metrics(ORACLE),
            run.explanations(),
            run.explanations(ORACLE),
        output:
            layout.tables / "truth.tsv",
        log:
            layout.log("truth"),
        benchmark:
            layout.benchmark("truth")
        params:
            **run.settings("truth"),
        conda:
            "../envs/imaging.yaml"
        shell:
            "python -m bolt truth --config {layout.config} > {log} 2>&1 || (cat {log} >&2; exit 1)"
