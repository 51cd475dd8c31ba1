# The paper's tables and figures, and further experiments (config/experiments): lists of runs that `train_fold` makes. The
# tables span all datasets that have runs of them, and are in results/paper.


rule measure_complexity:
    output:
        layout.complexity("{experiment}", "{atlas}"),
    log:
        layout.log("measure_complexity", "{experiment}/{atlas}"),
    benchmark:
        layout.benchmark("measure_complexity", "{experiment}/{atlas}")
    conda:
        "../envs/learning.yaml"
    threads: 1
    resources:
        **run.resources("complexity"),
    params:
        **run.params("complexity"),
        experiment=lambda wildcards: run.experiment_settings(wildcards.experiment),
    shell:
        f"python -m bolt complexity {CONFIG} --name {{wildcards.experiment}} --atlas "
        f"{{wildcards.atlas}} {THREADS} {LOGGED}"


rule take_spectra:
    input:
        layout.cache("{atlas}") / "manifest.json",
    output:
        spectra=layout.spectra("{experiment}", "{atlas}"),
        bands=layout.bands("{experiment}", "{atlas}"),
    log:
        layout.log("take_spectra", "{experiment}/{atlas}"),
    benchmark:
        layout.benchmark("take_spectra", "{experiment}/{atlas}")
    conda:
        "../envs/learning.yaml"
    resources:
        **run.resources("spectra"),
    params:
        **run.params("spectra"),
        experiment=lambda wildcards: run.experiment_settings(wildcards.experiment),
    shell:
        f"python -m bolt spectra {CONFIG} --name {{wildcards.experiment}} --atlas "
        f"{{wildcards.atlas}} {LOGGED}"


rule experiment:
    input:
        run.experiment_inputs,
    output:
        table=layout.experiment("{experiment}"),
        text=layout.experiment("{experiment}").with_suffix(".md"),
    log:
        layout.log("experiment", "{experiment}"),
    benchmark:
        layout.benchmark("experiment", "{experiment}")
    conda:
        "../envs/learning.yaml"
    resources:
        **run.resources("experiment"),
    params:
        **run.params("experiment"),
        experiment=lambda wildcards: run.experiment_settings(wildcards.experiment),
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
