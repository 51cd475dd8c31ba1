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
        params:
            **run.settings("simulate"),
        threads: workflow.cores
        resources:
            mem_mb=4000,
        conda:
            "../envs/imaging.yaml"
        shell:
            "python -m bolt simulate --config {layout.config} --threads {threads} > {log} 2>&1"


checkpoint index:
    input:
        run.subjects_table,
    output:
        layout.scans,
    log:
        layout.log("index"),
    benchmark:
        layout.benchmark("index")
    params:
        **run.settings("index"),
    resources:
        mem_mb=2000,
    conda:
        "../envs/imaging.yaml"
    shell:
        "python -m bolt index --config {layout.config} > {log} 2>&1 || (cat {log} >&2; exit 1)"
