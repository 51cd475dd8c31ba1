"""What runs are called on pages, how much of the study they were tested on, and where their figures are."""

from __future__ import annotations

from pathlib import Path

from bolt.config.layout import Layout, ModelRun
from bolt.config.study import Study
from bolt.io.files import read_json
from bolt.report.numbers import scope_of


def run_title(study: Study, run: ModelRun) -> str:
    """Return what a run is called for readers: its model, and atlas and seed if there are several."""
    atlas = f" on {run.atlas}" if len(study.config.atlas_places) > 1 else ""
    seed = f", seed {run.seed}" if len(study.config.seeds) > 1 else ""
    return f"{study.models[run.model].shown}{atlas}{seed}"


def run_scope(run: ModelRun) -> str:
    """Return how many of all folds and scans a run was tested on; empty if on all, or if it was not evaluated."""
    summary = run.folder / "summary.json"
    return scope_of(read_json(summary)) if summary.is_file() else ""


def run_anchor(run: ModelRun) -> str:
    """Return the HTML anchor of a run, with which the names of its figures begin."""
    return f"{run.atlas}_{run.model}_seed-{run.seed}"


def figure_folder(layout: Layout) -> Path:
    """Return the folder of the report's own figures."""
    return layout.report.parent / "figures"


def run_figure(study: Study, run: ModelRun, name: str) -> Path:
    """Return the PNG file of one figure of a run."""
    return figure_folder(study.layout) / f"{run_anchor(run)}_{name}.png"
