"""The stages behind the commands: which room works on which files.

A stage of one scan or one fold that meets bad data says so in its ``status.json``, leaves its outputs empty, and lets
the night go on (`bolt.jobs.outcome`). A stage over the whole dataset raises instead.
"""

from __future__ import annotations

import argparse

from bolt.cli.data import DataStages
from bolt.cli.experiments import ExperimentStages
from bolt.cli.landmarks import LandmarkStages
from bolt.cli.models import ModelStages
from bolt.cli.scans import ScanStages
from bolt.cli.search import SearchStages
from bolt.cli.trust import TrustStages
from bolt.io.places import ROOT
from bolt.io.resource_errors import in_words


class Stages(DataStages, ScanStages, ModelStages, LandmarkStages, ExperimentStages, SearchStages, TrustStages):
    """Every command of `bolt.cli.main` is a method here, its options the method's `options`."""


def run(options: argparse.Namespace) -> None:
    """Run the stage of a command."""
    if options.command == "check-folds":
        from bolt.folds.check import check_folds

        return check_folds(options)
    if options.command == "models":
        from bolt.cli.model_table import show_models

        return show_models(options.into)
    if options.command == "atlases":
        from bolt.cli.atlas_table import show_atlases

        return show_atlases(options.config)
    if options.command == "where":
        return print(ROOT)
    if options.command == "parcellate" and options.image is not None:
        from bolt.cli.parcellate_image import parcellate_by_hand

        return parcellate_by_hand(options)
    if options.command == "explain" and options.checkpoint is not None:
        from bolt.cli.explain_scan import explain_by_hand

        return explain_by_hand(options)
    stages = Stages(options)
    with in_words(stages.layout.results, stages.layout.work):
        getattr(stages, options.command.replace("-", "_"))()
