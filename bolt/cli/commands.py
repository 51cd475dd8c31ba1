"""Which function does a command's work."""

from __future__ import annotations

import argparse

from bolt.io.places import ROOT
from bolt.io.resource_errors import explain_shortages
from bolt.workflow.stages import STAGES


def run(options: argparse.Namespace) -> None:
    """Run a command."""
    if options.command == "check-folds":
        from bolt.folds.check import check_folds

        return check_folds(options)
    if options.command == "models":
        from bolt.cli.model_table import show_models

        return show_models(options.into)
    if options.command == "atlases":
        from bolt.cli.atlas_table import show_atlases

        return show_atlases(options.config)
    if options.command == "describe-atlas":
        from bolt.atlases.naming import describe_names

        n_rois = describe_names(options.file, options.out)
        return print(f"{options.out}: {n_rois} ROIs; use it with 'atlases: [{options.out}]'")
    if options.command == "where":
        return print(ROOT)
    if options.command == "parcellate" and options.image is not None:
        from bolt.cli.parcellate_image import parcellate_image

        return parcellate_image(options)
    if options.command == "explain" and options.checkpoint is not None:
        from bolt.cli.explain_scan import explain_given_scan

        return explain_given_scan(options)
    from bolt.workflow.job import Job

    job = Job(options)
    with explain_shortages(job.layout.results, job.layout.work):
        STAGES[job.stage].work(job)
