# The pages of the report; those of the explanation have a rule of their own, so that a change elsewhere redraws no brain.


rule explanation:
    input:
        run.explanations(),
        run.truth(),
        [each.folder / "metrics.tsv" for each in run.connected_runs()],
    output:
        report(
            [layout.explanation_page, layout.trust_page],
            caption="../report/explanation.rst",
            category="Explanation",
        ),
    conda:
        "../envs/learning.yaml"
    resources:
        **run.resources("explanation"),
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
    conda:
        "../envs/learning.yaml"
    resources:
        **run.resources("report"),
    shell:
        f"python -m bolt report {CONFIG} {LOGGED}"
