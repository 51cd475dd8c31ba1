# Templates and atlases. `snakemake resources` fetches beforehand what is not there; no other rule needs the network then.


rule template:
    output:
        **layout.template_files,
    log:
        layout.log("template"),
    benchmark:
        layout.benchmark("template")
    conda:
        "../envs/imaging.yaml"
    resources:
        mem_mb=2000,
    params:
        **run.settings("template"),
    shell:
        "python -m bolt template --config {params.config} > {log} 2>&1"


rule resources:
    log:
        layout.log("resources"),
    conda:
        "../envs/imaging.yaml"
    params:
        config=layout.config,
    shell:
        "python -m bolt resources --config {params.config} 2>&1 | tee {log}"
