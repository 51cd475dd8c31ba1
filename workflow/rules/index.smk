# Where the scans come from, and the one checkpoint: after it the DAG knows them.

if run.dataset.source == "phantom":

    rule simulate:
        output:
            run.dataset.path / "dataset_description.json",
            run.dataset.path / "participants.tsv",
        log:
            layout.log("simulate"),
        benchmark:
            layout.benchmark("simulate")
        conda:
            "../envs/imaging.yaml"
        threads: 8
        resources:
            mem_mb=lambda wildcards, attempt: 4000 * attempt,
        params:
            **run.settings("simulate"),
        shell:
            "python -m bolt simulate --config {params.config} --threads {threads} > {log} 2>&1"


checkpoint index:
    input:
        run.subjects_table,
        run.own_tables,
    output:
        layout.scans,
    log:
        layout.log("index"),
    benchmark:
        layout.benchmark("index")
    conda:
        "../envs/imaging.yaml"
    resources:
        mem_mb=lambda wildcards, attempt: 2000 * attempt,
    params:
        **run.settings("index"),
        files=lambda wildcards: run.files(),
        minimum_volumes=lambda wildcards: minimum_volumes(run.config),
    shell:
        "python -m bolt index --config {params.config} --minimum-volumes {params.minimum_volumes} > {log} 2>&1"
        " || (cat {log} >&2; exit 1)"
