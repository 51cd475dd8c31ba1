# Templates and atlases. `snakemake resources` downloads what is missing; afterwards no rule needs the network but those
# of download.smk. On a cluster both run on the login node.


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
        **run.resources("template"),
    params:
        **run.params("template"),
    shell:
        f"python -m bolt template {CONFIG} > {{log}} 2>&1"


rule resources:
    log:
        layout.log("resources"),
    localrule: True
    conda:
        "../envs/imaging.yaml"
    params:
        config=layout.config,
    shell:
        f"python -m bolt resources {CONFIG} 2>&1 | tee {{log}}"
