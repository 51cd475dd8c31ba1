# 4D image to ROI series: all atlases in one pass, one job a scan. It takes seconds, so on a cluster jobs are joined: with
# its subject's preprocessing, or with those of other scans (`group-components` in the profile), a few side by side.


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
    group:
        lambda wildcards: run.parcellate_group(workflow, wildcards.scan)
    conda:
        "../envs/imaging.yaml"
    resources:
        scans=1,
        attempt=lambda wildcards, attempt: attempt,
        mem_mb=lambda wildcards, attempt: 1500 * attempt,
        runtime=lambda wildcards, attempt: 10 * attempt,
    params:
        **run.settings("parcellate"),
        scan=lambda wildcards: run.scan_settings(wildcards.scan),
    shell:
        "python -m bolt parcellate --config {params.config} --scan {wildcards.scan}"
        " --attempt {resources.attempt} --limits {resources.mem_mb} {resources.runtime} > {log} 2>&1"
