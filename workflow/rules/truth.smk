# The demo measures itself. These are the only rules that open the phantom's truth, and nothing but the report
# and the explanation page reads what they make.

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
        conda:
            "../envs/imaging.yaml"
        params:
            **run.settings("oracle_cache"),
        shell:
            "python -m bolt oracle-cache --config {params.config} --atlas {wildcards.atlas} > {log} 2>&1"

    rule truth:
        input:
            run.metrics(),
            run.metrics(ORACLE),
            run.regions(),
            run.regions(ORACLE),
        output:
            layout.tables / "truth.tsv",
        log:
            layout.log("truth"),
        benchmark:
            layout.benchmark("truth")
        conda:
            "../envs/imaging.yaml"
        params:
            **run.settings("truth"),
        shell:
            "python -m bolt truth --config {params.config} > {log} 2>&1 || (cat {log} >&2; exit 1)"
