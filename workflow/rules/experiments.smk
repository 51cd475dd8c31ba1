# The paper's tables and other experiments (config/experiments): lists of runs that `train_fold` makes. The tables span
# all datasets that have begun, and lie in results/paper.


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
        mem_mb=lambda wildcards, attempt: 8000 * attempt,
        runtime=lambda wildcards, attempt: 120 * attempt,
    params:
        **run.settings("complexity"),
        experiment=lambda wildcards: run.experiment_settings(wildcards.experiment),
    shell:
        "python -m bolt complexity --config {params.config} --name {wildcards.experiment} --atlas {wildcards.atlas}"
        " --threads {threads} > {log} 2>&1 || (cat {log} >&2; exit 1)"


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
        mem_mb=lambda wildcards, attempt: 4000 * attempt,
    params:
        **run.settings("spectra"),
        experiment=lambda wildcards: run.experiment_settings(wildcards.experiment),
    shell:
        "python -m bolt spectra --config {params.config} --name {wildcards.experiment} --atlas {wildcards.atlas}"
        " > {log} 2>&1"
        " || (cat {log} >&2; exit 1)"


rule experiment:
    input:
        lambda wildcards: run.experiment_inputs(wildcards.experiment),
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
        mem_mb=lambda wildcards, attempt: 4000 * attempt,
    params:
        **run.settings("experiment"),
        experiment=lambda wildcards: run.experiment_settings(wildcards.experiment),
    shell:
        "python -m bolt experiment --config {params.config} --name {wildcards.experiment} > {log} 2>&1"
        " || (cat {log} >&2; exit 1)"


# each experiment by its name: `snakemake ablation`
for name in run.experiments:

    rule:
        name:
            name
        input:
            layout.experiment(name),


rule paper:
    input:
        run.paper(),
