# BolT: from raw 4D fMRI to the time points and regions that drive the prediction.
#
#   snakemake --cores 8                                                     the phantom, as config/config.yaml ships
#   snakemake --cores 8 --configfile config/examples/own_bids.yaml          your own data
#
# Rules declare; `python -m bolt <command>` computes. What a stage reads, costs and asks for is in its record
# (bolt/workflow/stages); docs/architecture.md shows how the pieces fit.
import sys

from snakemake.utils import min_version

min_version("9.0")

sys.path.insert(0, workflow.basedir)

from bolt.io.places import link_package, refuse_other_snakefile, shipped_configuration

refuse_other_snakefile(workflow.basedir)

from bolt.config.layout import ORACLE
from bolt.io.resource_errors import report_full_disks
from bolt.io.names import FOLDER, NAME, PREFIX
from bolt.jobs.ledger import refresh, write_ledger
from bolt.jobs.run_crate import write_run_crate
from bolt.workflow import snakemake as internals
from bolt.workflow.estimate import announce_after_dry_run, seconds_of_rules
from bolt.workflow.lock import changes_nothing, hold
from bolt.workflow.start import shell_prefix, start, tell_jobs, use_own_interpreter
from bolt.workflow.watched import files_of

internals.plan_quickly()
internals.plan_anew_after_a_checkpoint()
internals.announce_interruption()

if not internals.has_configfile(workflow):

    configfile: shipped_configuration(anywhere=internals.has_workdir(workflow))


run = start(
    config,
    internals.configfiles(workflow),
    checked=not internals.plans_the_run(workflow),
    targets=internals.targets(sys.argv[1:]),
    jobs=internals.jobs_at_once(workflow),
)
layout = run.layout
hold([layout.results, layout.work], sys.argv)
progress = internals.follow_progress(
    workflow, seconds_of_rules(run), runs=not changes_nothing(sys.argv)
)
use_own_interpreter()
shell.prefix(shell_prefix(layout.work))

if run.config.container:

    container: run.config.container


onstart:
    run.save_config()
    link_package(layout.work)
    tell_jobs(
        internals.retries(workflow),
        limited=internals.has_scheduler(workflow),
        learns=run.learns,
    )
    internals.announce(progress, workflow, layout.results)


onsuccess:
    internals.INTERRUPTED.clear()
    refresh("the ledger", write_ledger, layout.ledger)
    refresh(
        "ro-crate-metadata.json", write_run_crate, layout.results, run.dataset.name
    )
    progress.conclude(run.where_to_look(), internals.log_files(workflow))


onerror:
    internals.cancel_at_exit(log)
    report_full_disks([layout.results, layout.work])
    refresh("the ledger", write_ledger, layout.ledger)
    progress.conclude(internals.remedy(), internals.log_files(workflow))


wildcard_constraints:
    folder=FOLDER,
    prefix=PREFIX,
    scan=NAME,
    atlas=NAME,
    variant=NAME,
    model=NAME,
    seed=r"\d+",
    fold=r"\d+",
    inner=r"\d+",
    batch=r"\d+",
    experiment=NAME,


# A run of a model: its files, and the options that name it. `variant` is <space>-<denoise>, or the demo's oracle.
RUN = layout.run("{atlas}", "{model}", "{seed}", "{variant}")
FOLD = RUN.fold("{fold}")
INNER = RUN.inner("{fold}")
CACHE = RUN.cache / "manifest.json"
CONFIG = "--config {params.config}"
OF_RUN = (
    "--config {params.config} --atlas {wildcards.atlas} --variant {wildcards.variant}"
    " --model {wildcards.model} --seed {wildcards.seed}"
)
OF_FOLD = f"{OF_RUN} --fold {{wildcards.fold}}"
THREADS = "--threads {threads}"
# What the rule declares by name, as options: --input cache=… folds=… --output metrics=…
FILES = "{params.named:q}"
# Jobs of one scan or fold record their own failure, and know what they may take; the others show theirs.
GUARDED = "--attempt {resources.attempt} --limits {resources.mem_mb} {resources.runtime} > {log} 2>&1"
LOGGED = "> {log} 2>&1 || (cat {log} >&2; exit 1)"


include: "workflow/rules/resources.smk"
include: "workflow/rules/download.smk"
include: "workflow/rules/index.smk"
include: "workflow/rules/preprocess.smk"
include: "workflow/rules/parcellate.smk"
include: "workflow/rules/quality.smk"
include: "workflow/rules/series.smk"
include: "workflow/rules/train.smk"
include: "workflow/rules/search.smk"
include: "workflow/rules/landmarks.smk"
include: "workflow/rules/explain.smk"
include: "workflow/rules/trust.smk"
include: "workflow/rules/truth.smk"
include: "workflow/rules/report.smk"
include: "workflow/rules/experiments.smk"


# log, benchmark, and the params that run a stage again: every rule has them, so they are given here
internals.complete_rules(workflow, run)


# files downloaded at once: be polite to public servers
internals.limit(workflow, "downloads", 4)
if not internals.has_scheduler(workflow):
    at_once = internals.trainings_at_once(run.config.device)
    internals.limit(workflow, "trainings", at_once)
announce_after_dry_run(run, sys.argv)


rule all:
    default_target: True
    input:
        [layout.report, *run.kept()]
        if run.dataset.label is not None
        else rules.series.input,


rule train:
    input:
        run.caches(),
        run.predictions(),


rule tables:
    input:
        run.caches(),
        run.predictions(),
        run.metrics(),
        run.truth(),


rule figures:
    input:
        run.caches(),
        run.explanations(),
        run.explanation_pages(),


rule search:
    input:
        lambda wildcards: run.choices(),
