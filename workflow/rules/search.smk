# Hyper-parameters by validation scans alone: one job a model and fold, which goes on where it was stopped; then the
# model's configuration with what they chose. `snakemake search`; docs/search.md says how to use what it writes.


rule search_fold:
    input:
        cache=layout.cache("{atlas}") / "manifest.json",
        folds=layout.folds,
    output:
        best=layout.study("{atlas}", "{model}", "{fold}") / "best.json",
        trials=layout.study("{atlas}", "{model}", "{fold}") / "trials.tsv",
    log:
        layout.log("search_fold", "{atlas}/{model}/fold-{fold}"),
    benchmark:
        layout.benchmark("search_fold", "{atlas}/{model}/fold-{fold}")
    conda:
        "../envs/learning.yaml"
    threads: 1
    resources:
        gres=lambda wildcards: run.gpu(wildcards.model),
        mem_mb=lambda wildcards, attempt: 8000 * attempt,
        runtime=lambda wildcards, attempt: 1440 * attempt,
    params:
        **run.settings("search"),
        model=lambda wildcards: run.searched_code(wildcards.model),
    shell:
        "python -m bolt search --config {params.config} --atlas {wildcards.atlas} --model {wildcards.model}"
        " --fold {wildcards.fold} --threads {threads} > {log} 2>&1 || (cat {log} >&2; exit 1)"


rule choose:
    input:
        lambda wildcards: [
            layout.study(wildcards.atlas, wildcards.model, fold) / "best.json"
            for fold in run.config.folds_searched(wildcards.model, wildcards.scheme)
        ],
    output:
        layout.choice("{atlas}", "{scheme}", "{model}"),
    log:
        layout.log("choose", "{atlas}/{scheme}/{model}"),
    benchmark:
        layout.benchmark("choose", "{atlas}/{scheme}/{model}")
    wildcard_constraints:
        scheme="per-fold|paper",
    conda:
        "../envs/learning.yaml"
    params:
        **run.settings("search"),
        model=lambda wildcards: run.searched_code(wildcards.model),
    shell:
        "python -m bolt search --config {params.config} --atlas {wildcards.atlas} --model {wildcards.model}"
        " --scheme {wildcards.scheme} > {log} 2>&1 || (cat {log} >&2; exit 1)"
