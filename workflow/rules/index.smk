# Where the scans come from, and the one checkpoint: after it the DAG knows them.


if run.dataset.source == "phantom":

    rule simulate:
        output:
            run.dataset.path / "dataset_description.json",
            run.dataset.path / "participants.tsv",
        conda:
            "../envs/imaging.yaml"
        threads: 8
        resources:
            **run.resources("simulate"),
        shell:
            f"python -m bolt simulate {CONFIG} {THREADS} {LOGGED}"


checkpoint index:
    input:
        run.tables_of_index,
        run.own_tables,
    output:
        layout.scans,
    conda:
        "../envs/imaging.yaml"
    resources:
        **run.resources("index"),
    params:
        files=lambda wildcards: files_of(run.dataset),
    shell:
        f"python -m bolt index {CONFIG} {LOGGED}"


run.index = checkpoints.index
