# Everything on one page, and why the models decided as they did on another.


rule explanation:
    input:
        run.explanations(),
        run.truth(),
        [
            layout.run(*one).folder / "metrics.tsv"
            for one in run.runs()
            if run.explained(one[1])
        ],
    output:
        report(
            layout.explanation_page,
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
        mem_mb=lambda wildcards, attempt: 4000 * attempt,
    params:
        **run.settings("explanation"),
    shell:
        "python -m bolt explanation --config {params.config} > {log} 2>&1 || (cat {log} >&2; exit 1)"


rule report:
    input:
        run.metrics(),
        run.explanation_page(),
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
        mem_mb=lambda wildcards, attempt: 4000 * attempt,
    params:
        **run.settings("report"),
    shell:
        "python -m bolt report --config {params.config} > {log} 2>&1 || (cat {log} >&2; exit 1)"
