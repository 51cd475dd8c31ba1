# Published files, or those of a bucket: one job for an image, or for several ready series; few at a time. With
# resources.smk the only rules that use the network. The output is a status file, not the data: Snakemake deletes outputs
# before it runs a job again, and interrupted downloads resume.


if run.dataset.downloaded and run.subjects_table != run.dataset.subjects_table:

    rule download_table:
        input:
            run.own_tables,
        output:
            run.subjects_table,
        localrule: True
        conda:
            "../envs/imaging.yaml"
        resources:
            downloads=1,
        params:
            listed=run.listed,
        shell:
            f"python -m bolt download {CONFIG} {LOGGED}"


if run.dataset.downloaded and run.dataset.ready_series:

    rule download_series:
        output:
            done=run.series_batch("{batch}"),
        localrule: True
        conda:
            "../envs/imaging.yaml"
        resources:
            **run.resources("download"),
            downloads=1,
        params:
            scans=lambda wildcards: run.scans_of_batch(wildcards.batch),
        shell:
            f"python -m bolt download {CONFIG} --scan {{params.scans:q}} {FILES} --attempt "
            f"{{resources.attempt}} > {{log}} 2>&1"

elif run.dataset.downloaded:

    rule download:
        output:
            status=run.download_status("{scan}"),
        localrule: True
        conda:
            "../envs/imaging.yaml"
        resources:
            **run.resources("download"),
            downloads=1,
        shell:
            f"python -m bolt download {CONFIG} --scan {{wildcards.scan}} {FILES} --attempt "
            f"{{resources.attempt}} > {{log}} 2>&1"
