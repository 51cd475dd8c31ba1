# Hyper-parameters by validation scans alone: one job per model and fold, which resumes where it was stopped; then the
# model's configuration with the values chosen. docs/hyperparameters.md describes how to use `snakemake search`.


rule search_fold:
    input:
        cache=layout.cache("{atlas}") / "manifest.json",
        folds=layout.folds,
    output:
        best=layout.study("{atlas}", "{model}", "{fold}") / "best.json",
        trials=layout.study("{atlas}", "{model}", "{fold}") / "trials.tsv",
    conda:
        "../envs/learning.yaml"
    resources:
        **run.resources("search_fold"),
    shell:
        f"python -m bolt search-fold {CONFIG} --atlas {{wildcards.atlas}} --model "
        f"{{wildcards.model}} --fold {{wildcards.fold}} {FILES} {THREADS} {LOGGED}"


rule choose:
    input:
        best=run.searched_folds,
    output:
        choice=layout.choice("{atlas}", "{scheme}", "{model}"),
    wildcard_constraints:
        scheme="per-fold|paper",
    conda:
        "../envs/learning.yaml"
    shell:
        f"python -m bolt choose {CONFIG} --atlas {{wildcards.atlas}} --model "
        f"{{wildcards.model}} --scheme {{wildcards.scheme}} {FILES} {LOGGED}"


rule choose_shared:
    input:
        run.searched_folds,
    output:
        choice=layout.shared_choice("{model}"),
    conda:
        "../envs/learning.yaml"
    shell:
        f"python -m bolt choose-shared {CONFIG} --model {{wildcards.model}} {FILES} {LOGGED}"
