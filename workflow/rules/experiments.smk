# The paper's tables and figures, and further experiments (config/experiments): lists of runs that `train_fold` makes. The
# tables span all datasets that have runs of them, and are in results/paper.


rule measure_complexity:
    output:
        costs=layout.complexity("{experiment}", "{atlas}"),
    conda:
        "../envs/learning.yaml"
    resources:
        **run.resources("measure_complexity"),
    shell:
        f"python -m bolt measure-complexity {CONFIG} --name {{wildcards.experiment}} --atlas "
        f"{{wildcards.atlas}} {FILES} {THREADS} {LOGGED}"


rule take_spectra:
    input:
        # which volumes are kept stands beside them
        lambda wildcards: checkpoints.index.get() and run.scan_series(wildcards.atlas),
        cache=layout.cache("{atlas}") / "manifest.json",
    output:
        spectra=layout.spectra("{experiment}", "{atlas}"),
        bands=layout.bands("{experiment}", "{atlas}"),
    conda:
        "../envs/learning.yaml"
    resources:
        **run.resources("take_spectra"),
    shell:
        f"python -m bolt take-spectra {CONFIG} --name {{wildcards.experiment}} --atlas "
        f"{{wildcards.atlas}} {FILES} {LOGGED}"


rule experiment:
    input:
        run.experiment_inputs,
    output:
        table=layout.experiment("{experiment}"),
        text=layout.experiment("{experiment}").with_suffix(".md"),
    conda:
        "../envs/learning.yaml"
    resources:
        **run.resources("experiment"),
    shell:
        f"python -m bolt experiment {CONFIG} --name {{wildcards.experiment}} {LOGGED}"


# each experiment by its name: `snakemake ablation`
for name in run.experiments:

    rule:
        name:
            name
        input:
            layout.experiment(name),


rule paper:
    input:
        run.tables_of("paper"),


rule extras:
    input:
        run.tables_of("extras"),
