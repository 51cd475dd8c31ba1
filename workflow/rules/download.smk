# Files that are published, or kept in a bucket: one job a file, few at a time. With resources.smk the only rules that use the network.
# A status file is the output, not the data: what has arrived is kept, so that another attempt goes on from there.

if run.dataset.downloaded and run.subjects_table != run.dataset.subjects_table:

    rule download_table:
        input:
            run.own_tables,
        output:
            run.subjects_table,
        log:
            layout.log("download_table"),
        benchmark:
            layout.benchmark("download_table")
        localrule: True
        conda:
            "../envs/imaging.yaml"
        resources:
            downloads=1,
        params:
            config=layout.config,
            listed=run.listed,
        shell:
            "python -m bolt download --config {params.config} > {log} 2>&1 || (cat {log} >&2; exit 1)"


if run.dataset.downloaded:

    rule download:
        output:
            status=run.download_status("{scan}"),
        log:
            layout.log("download", "{scan}"),
        benchmark:
            layout.benchmark("download", "{scan}")
        localrule: True
        conda:
            "../envs/imaging.yaml"
        resources:
            downloads=1,
            attempt=lambda wildcards, attempt: attempt,
        params:
            config=layout.config,
        shell:
            "python -m bolt download --config {params.config} --scan {wildcards.scan}"
            " --attempt {resources.attempt} > {log} 2>&1"
