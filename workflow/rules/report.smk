# Everything on one page.


rule report:
    input:
        run.metrics(),
        run.explanations(),
        run.truth(),
        layout.folds,
        layout.exclusions,
    output:
        report(layout.report, caption="../report/index.rst", category="Report"),
    log:
        layout.log("report"),
    benchmark:
        layout.benchmark("report")
    params:
        **run.settings("report"),
    resources:
        mem_mb=4000,
    conda:
        "../envs/imaging.yaml"
    shell:
        "python -m bolt report --config {layout.config} > {log} 2>&1 || (cat {log} >&2; exit 1)"
