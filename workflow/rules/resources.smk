# Templates and atlases. `snakemake resources` downloads what is missing; afterwards no rule needs the network but those
# of download.smk. On a cluster both run on the login node.


rule template:
    output:
        **layout.template_files,
    localrule: True
    conda:
        "../envs/imaging.yaml"
    resources:
        **run.resources("template"),
    shell:
        f"python -m bolt template {CONFIG} > {{log}} 2>&1"


rule resources:
    localrule: True
    conda:
        "../envs/imaging.yaml"
    shell:
        f"python -m bolt resources {CONFIG} 2>&1 | tee {{log}}"
