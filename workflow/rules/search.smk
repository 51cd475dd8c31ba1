# Hyper-parameters by validation scans alone: one job per model and fold, which resumes where it was stopped; then the
# model's configuration with the values chosen. docs/hyperparameters.md describes how to use `snakemake search`.


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
        **run.resources("search"),
    params:
        **run.params("search"),
        model=lambda wildcards: run.searched_code(wildcards.model),
    shell:
        f"python -m bolt search {CONFIG} --atlas {{wildcards.atlas}} --model "
        f"{{wildcards.model}} --fold {{wildcards.fold}} {THREADS} {LOGGED}"


rule choose:
    input:
        run.searched_folds,
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
        **run.params("search"),
        model=lambda wildcards: run.searched_code(wildcards.model),
    shell:
        f"python -m bolt search {CONFIG} --atlas {{wildcards.atlas}} --model "
        f"{{wildcards.model}} --scheme {{wildcards.scheme}} {LOGGED}"


rule choose_shared:
    input:
        run.shared_studies,
    output:
        layout.shared_choice("{model}"),
    log:
        layout.log("choose_shared", "{model}"),
    benchmark:
        layout.benchmark("choose_shared", "{model}")
    conda:
        "../envs/learning.yaml"
    params:
        **run.params("choose_shared"),
        model=lambda wildcards: run.searched_code(wildcards.model),
    shell:
        f"python -m bolt choose-shared {CONFIG} --model {{wildcards.model}} {LOGGED}"
