"""The stages behind the commands: which room works on which files.

A stage of one scan or one fold that meets bad data says so in its ``status.json``, leaves its outputs empty, and lets
the night go on (`bolt.outcome`). A stage over the whole dataset raises instead.
"""

from __future__ import annotations

import argparse

from bolt.shortage import in_words
from bolt.stages._data import DataStages
from bolt.stages._experiments import ExperimentStages
from bolt.stages._landmarks import LandmarkStages
from bolt.stages._models import ModelStages
from bolt.stages._scans import ScanStages
from bolt.stages._search import SearchStages
from bolt.stages._trust import TrustStages


class Stages(DataStages, ScanStages, ModelStages, LandmarkStages, ExperimentStages, SearchStages, TrustStages):
    """Every command of `bolt.cli` is a method here, its options the method's `options`."""


def run(options: argparse.Namespace) -> None:
    """Run the stage of a command."""
    if options.command == "check-folds":
        from bolt.check_folds import check_folds

        return check_folds(options)
    if options.command == "models":
        from bolt.model_table import show_models

        return show_models(options.into)
    if options.command == "parcellate" and options.image is not None:
        from bolt.by_hand import parcellate_by_hand

        return parcellate_by_hand(options)
    if options.command == "explain" and options.checkpoint is not None:
        from bolt.explain_by_hand import explain_by_hand

        return explain_by_hand(options)
    stages = Stages(options)
    with in_words(stages.layout.results, stages.layout.work):
        getattr(stages, options.command.replace("-", "_"))()
