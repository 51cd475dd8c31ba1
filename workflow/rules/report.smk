# The pages of the report; those of the explanation have a rule of their own, so that a change elsewhere redraws no brain.


rule explanation:
    input:
        run.explanations(),
        run.truth(),
        run.explained_metrics(),
    output:
        report(
            [layout.explanation_page, layout.trust_page],
            caption="../report/explanation.rst",
            category="Explanation",
        ),
    log:
        layout.log("explanation"),
    benchmark:
        layout.benchmark("explanation")
    conda:
        "../envs/learning.yaml"
    resources:
        **run.resources("explanation"),
    params:
        **run.params("explanation"),
    shell:
        f"python -m bolt explanation {CONFIG} {LOGGED}"


rule report:
    input:
        run.metrics(),
        run.explanation_pages(),
        run.truth(),
        layout.folds,
        layout.exclusions,
        layout.quality_page if run.judged else [],
    output:
        report(layout.report_pages, caption="../report/index.rst", category="Report"),
    log:
        layout.log("report"),
    benchmark:
        layout.benchmark("report")
    conda:
        "../envs/learning.yaml"
    resources:
        **run.resources("report"),
    params:
        **run.params("report"),
    shell:
        f"python -m bolt report {CONFIG} {LOGGED}"
