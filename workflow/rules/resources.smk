# Templates and atlases. `snakemake resources` is the only target that touches the network.


rule template:
    output:
        t1w=layout.template / "T1w.nii.gz",
        mask=layout.template / "brain_mask.nii.gz",
    log:
        layout.log("template"),
    benchmark:
        layout.benchmark("template")
    params:
        **run.settings("template"),
    resources:
        mem_mb=2000,
    conda:
        "../envs/imaging.yaml"
    shell:
        "python -m bolt template --config {layout.config} > {log} 2>&1"


rule resources:
    log:
        layout.log("resources"),
    conda:
        "../envs/imaging.yaml"
    shell:
        "python -m bolt resources --config {layout.config} 2>&1 | tee {log}"
