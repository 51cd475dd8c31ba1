# Templates and atlases. `snakemake resources` fetches beforehand what is not there; no other rule needs the network then.
# On a cluster both run on the login node, where there is one.


rule template:
    output:
        **layout.template_files,
    log:
        layout.log("template"),
    benchmark:
        layout.benchmark("template")
    localrule: True
    conda:
        "../envs/imaging.yaml"
    resources:
        mem_mb=lambda wildcards, attempt: 2000 * attempt,
    params:
        **run.settings("template"),
    shell:
        "python -m bolt template --config {params.config} > {log} 2>&1"


rule resources:
    log:
        layout.log("resources"),
    localrule: True
    conda:
        "../envs/imaging.yaml"
    params:
        config=layout.config,
    shell:
        "python -m bolt resources --config {params.config} 2>&1 | tee {log}"
