# 4D image to ROI series: all atlases in one pass, one job a scan.


rule parcellate:
    input:
        unpack(lambda wildcards: run.parcellate_inputs(wildcards.scan)),
    output:
        [layout.series_file("{scan}", atlas) for atlas in run.config.atlas_places],
        status=layout.series_status("{scan}"),
    log:
        layout.log("parcellate", "{scan}"),
    benchmark:
        layout.benchmark("parcellate", "{scan}")
    # before more images are made: each is deleted once its means are taken
    priority: 1
    conda:
        "../envs/imaging.yaml"
    resources:
        attempt=lambda wildcards, attempt: attempt,
        mem_mb=lambda wildcards, attempt: 1500 * attempt,
        runtime=lambda wildcards, attempt: 20 * attempt,
    params:
        **run.settings("parcellate"),
        scan=lambda wildcards: run.scan_settings(wildcards.scan),
    shell:
        "python -m bolt parcellate --config {params.config} --scan {wildcards.scan}"
        " --attempt {resources.attempt} > {log} 2>&1"
