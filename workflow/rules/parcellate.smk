# 4D image to ROI series: all atlases in one pass, one job per scan. It takes seconds, so on a cluster jobs are joined: with
# the subject's preprocessing, or with those of other scans (`group-components` in the profile).


rule parcellate:
    input:
        unpack(lambda wildcards: run.parcellate_inputs(wildcards.scan)),
    output:
        series=[
            layout.series_file("{scan}", atlas) for atlas in run.config.atlas_places
        ],
        status=layout.series_status("{scan}"),
    # before more images are made: each is deleted after its parcellation
    priority: 1
    group:
        lambda wildcards: run.parcellate_group(workflow, wildcards.scan)
    conda:
        "../envs/imaging.yaml"
    resources:
        **run.resources("parcellate"),
        scans=1,
    shell:
        f"python -m bolt parcellate-scan {CONFIG} --scan {{wildcards.scan}} {FILES} {GUARDED}"
