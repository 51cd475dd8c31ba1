# Everything on one page.


rule report:
    input:
        run.metrics(),
        run.explanations(),
        run.truth(),
        layout.folds,
        layout.exclusions,
        layout.quality_page if run.judged else [],
    output:
        report(layout.report, caption="../report/index.rst", category="Report"),
    log:
        layout.log("report"),
    benchmark:
        layout.benchmark("report")
    conda:
        "../envs/learning.yaml"
    resources:
        mem_mb=4000,
    params:
        **run.settings("report"),
    shell:
        "python -m bolt report --config {params.config} > {log} 2>&1 || (cat {log} >&2; exit 1)"
