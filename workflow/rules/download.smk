# Published files, or those of a bucket: one job per scan, few at a time. With resources.smk the only rules that use the
# network. The output is a status file, not the data: Snakemake deletes outputs before it runs a job again, and
# interrupted downloads resume.


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


if run.dataset.downloaded:

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
