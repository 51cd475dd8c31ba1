# Raw images to template space: one job per T1w, one job per scan. On a cluster these and the parcellation of the subject's
# scans are one job (`group`), with a few scans side by side.

# The 4D image is deleted after parcellation, unless the configuration keeps it; native output has none.
bold = layout.bold("{scan}", "{folder}")
bold = bold if run.config.preprocess.keep_bold else temp(bold)
bold = [] if layout.native else bold


rule anatomical:
    input:
        t1w=lambda wildcards: run.t1w(wildcards.folder),
        template=rules.template.output,
    output:
        **layout.anatomical_files("{folder}", "{prefix}_"),
        status=layout.anatomical_status("{folder}", "{prefix}_"),
    group:
        lambda wildcards: run.subject_group(workflow, wildcards.folder.split("/")[0])
    conda:
        "../envs/imaging.yaml"
    threads: run.config.preprocess.threads
    resources:
        **run.resources("anatomical"),
    params:
        images=lambda wildcards: run.stamps(run.t1w(wildcards.folder)),
    shell:
        f"python -m bolt anatomical {CONFIG} --folder {{wildcards.folder}} {FILES} "
        f"{THREADS} {GUARDED}"


rule functional:
    input:
        bold=lambda wildcards: run.scans.bold[wildcards.scan],
        sbref=lambda wildcards: run.sbref(wildcards.scan),
        anatomical=lambda wildcards: run.anatomical_outputs(wildcards.scan),
        template=rules.template.output,
    output:
        bold=bold,
        mask=layout.mask("{scan}", "{folder}"),
        confounds=layout.confounds("{scan}", "{folder}"),
        status=layout.functional_status("{scan}", "{folder}"),
    group:
        lambda wildcards: run.subject_group(workflow, wildcards.folder.split("/")[0])
    conda:
        "../envs/imaging.yaml"
    resources:
        **run.resources("functional"),
        scans=1,
    shell:
        f"python -m bolt functional {CONFIG} --scan {{wildcards.scan}} {FILES} {THREADS} {GUARDED}"
