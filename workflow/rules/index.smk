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
            **run.resources("simulate"),
        params:
            **run.params("simulate"),
        shell:
            f"python -m bolt simulate {CONFIG} {THREADS} {LOGGED}"


checkpoint index:
    input:
        run.tables_of_index,
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
        **run.resources("index"),
    params:
        **run.params("index"),
        files=lambda wildcards: run.files(),
        minimum_volumes=lambda wildcards: run.minimum_volumes(),
    shell:
        f"python -m bolt index {CONFIG} --minimum-volumes {{params.minimum_volumes}} {LOGGED}"


run.index = checkpoints.index
