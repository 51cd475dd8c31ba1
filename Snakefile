# From raw 4D fMRI to the moments and regions that decided.
#
#   snakemake --cores 8                                                     the phantom, as config/config.yaml ships
#   snakemake --cores 8 --configfile config/examples/own_bids.yaml          your own data
#
# Rules declare; `python -m bolt <command>` computes. docs/architecture.md shows how the pieces fit.
import sys

from snakemake.resources import Resource

sys.path.insert(0, workflow.basedir)

from bolt.io.places import link_package, refuse_other_snakefile

refuse_other_snakefile(workflow.basedir)

from bolt.models.suitability import minimum_volumes
from bolt.io.disk_space import tell_if_full
from bolt.config.layout import ORACLE
from bolt.jobs.ledger import refresh_ledger
from bolt.workflow.lock import hold
from bolt.io.names import FOLDER, NAME, PREFIX
from bolt.workflow.estimate import announce_after_dry_run
from bolt.workflow.disk_check import check_preprocessing_room
from bolt.workflow.slurm import cancel_at_exit
from bolt.workflow.run import shell_prefix, start, tell_jobs, use_own_interpreter

if not workflow.overwrite_configfiles:

    configfile: f"{workflow.basedir}/config/config.yaml"


run = start(config, workflow.configfiles, checked=not workflow.is_main_process)
hold([run.layout.results, run.layout.work], sys.argv)


onstart:
    run.save_config()
    link_package(run.layout.work)
    tell_jobs(workflow.execution_settings.retries, limited=workflow.non_local_exec)


onsuccess:
    refresh_ledger(run.layout.ledger)


onerror:
    cancel_at_exit(log)
    tell_if_full([run.layout.results, run.layout.work])
    refresh_ledger(run.layout.ledger)


layout = run.layout
use_own_interpreter()
shell.prefix(shell_prefix(run.layout.work))

if run.config.container:

    container: run.config.container


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
    experiment=NAME,


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


if "downloads" not in workflow.global_resources:
    # files fetched at once: be polite to public servers
    workflow.register_resource("downloads", Resource("downloads", 4))
given = workflow.resource_settings
check_preprocessing_room(run, sys.argv, max(given.cores or 1, given.nodes or 1))
announce_after_dry_run(run, sys.argv)


rule all:
    default_target: True
    input:
        layout.report,


rule train:
    input:
        run.predictions(),


rule tables:
    input:
        run.metrics(),
        run.truth(),


rule figures:
    input:
        run.explanations(),
        run.explanation_page(),


rule search:
    input:
        lambda wildcards: run.choices(),
