"""All models side by side: test metrics with their intervals."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bolt.config import Config, Dataset, Model
from bolt.config.layout import Layout
from bolt.experiments.entries import Entry
from bolt.experiments.results import gather, paired_tests
from bolt.io.files import read_json, read_table
from bolt.models.registry import inputs_of
from bolt.report.figures.style import INK, MANY, canvas
from bolt.report.html import Block, Picture, Run, Table, Text, figure_folder, run_title
from bolt.report.sections.floor import floor_sentence, is_floor
from bolt.report.tables import readable
from bolt.report.tables.experiment import paired


def comparison(config: Config, dataset: Dataset, layout: Layout, models: list[Model]) -> Run | None:
    """A table and a picture of every run that was judged; None where there are not two."""
    found = {}
    for atlas in config.atlas_places:
        for model in models:
            for seed in config.seeds:
                folder = layout.run(atlas, model, seed).folder
                pooled = read_json(folder / "summary.json")["pooled"] if (folder / "summary.json").is_file() else None
                if pooled:
                    metrics = read_table(folder / "metrics.tsv", text=("fold", "state"))
                    found[run_title(config, atlas, model, seed)] = (metrics, pooled)
    if len(found) < 2:
        return None
    words = floor_words(config, models, found) if dataset.classes else []
    percent = "Per cent. " if dataset.classes else ""
    caption = (
        f"{percent}All test scans together, with 95 % bootstrap intervals over subjects (or families), and mean ± "
        "standard deviation over folds. Every model has the same folds; one with fewer folds was tested on fewer scans."
    )
    run = Run("All models side by side", [*words, Table(readable.comparison(found), caption)])
    if dataset.classes:
        picture = figure_folder(layout) / "comparison.png"
        draw(found, picture)
        run.performance.append(
            Picture(picture, "All test scans with 95 % intervals (bars) and single folds (dots); dashed: no skill.")
        )
    for atlas in config.atlas_places:
        run.performance += _tests(config, dataset, layout, atlas, models)
    return run


def _tests(config: Config, dataset: Dataset, layout: Layout, atlas: str, models: list[Model]) -> list[Block]:
    """Paired tests of every model against BolT (the first one configured; else the first model)."""
    reference = _reference(models)
    entries = [
        Entry(
            dataset=dataset.name,
            atlas=atlas,
            row=model.name,
            model=model,
            folders=[layout.run(atlas, model, seed).folder for seed in config.seeds],
            folds=config.folds.of(model.name),
            classes=dataset.classes or [],
        )
        for model in models
    ]
    tests = paired_tests(entries, [gather(entry) for entry in entries], reference.name)
    if tests.empty:
        return []
    sheet = paired("", tests)
    notes = f" {'. '.join(sheet.notes)}." if sheet.notes else ""
    return [Table(sheet.frame, f"{atlas}: tests against {reference.name}. {sheet.caption}{notes}")]


def _reference(models: list[Model]) -> Model:
    return next((model for model in models if model.model == "bolt"), models[0])


def floor_words(
    config: Config, models: list[Model], found: Mapping[str, tuple[pd.DataFrame, Mapping[str, Any]]]
) -> list[Block]:
    """A warning for each model without a brain that does as well as models with one; BolT is asked first."""
    first = _reference(models)
    brains = sorted((m for m in models if inputs_of(m.model) != "covariates"), key=lambda m: m is not first)
    blocks: list[Block] = []
    for atlas, floor, seed in product(config.atlas_places, filter(is_floor, models), config.seeds):
        title = run_title(config, atlas, floor, seed)
        if title not in found:
            continue
        titles = {model.name: run_title(config, atlas, model, seed) for model in brains}
        others = {name: found[own][1] for name, own in titles.items() if own in found}
        said = {name: floor_sentence(title, found[title][1], name, pooled) for name, pooled in others.items()}
        said = {name: sentence for name, sentence in said.items() if sentence}
        if said:
            name, *rest = said
            more = f" The same is true of {', '.join(rest)}." if rest else ""
            blocks.append(Text(said[name] + more, warning=True))
    return blocks


def draw(runs: Mapping[str, tuple[pd.DataFrame, Mapping[str, Any]]], out: Path) -> None:
    """Accuracy and AUC of several runs, a line each: all test scans with 95 % intervals, and folds.

    Parameters
    ----------
    runs : mapping
        Title to ``metrics.tsv`` and the ``pooled`` of ``summary.json``.
    out : Path
    """
    with canvas(out, height=1.0 + 0.38 * len(runs)) as figure:
        axes = figure.subplots(1, 2, sharey=True)
        for axis, metric, title in zip(axes, ("accuracy", "auc"), ("Accuracy", "AUC"), strict=True):
            for i, (table, pooled) in enumerate(runs.values()):
                folds = table.loc[table["state"] == "ok", metric]
                axis.plot(folds, np.full(len(folds), i + 0.2), "o", ms=3.5, mew=0, alpha=0.5, color=MANY[0])
                value = pooled[metric]
                if value["value"] is not None:
                    axis.hlines(i - 0.1, value["low"], value["high"], color=INK, lw=1.6)
                    axis.plot(value["value"], i - 0.1, "D", ms=5, color=INK)
                null = pooled["majority_accuracy"] if metric == "accuracy" else 0.5
                axis.vlines(null, i - 0.4, i + 0.4, color=MANY[1], ls="--", lw=1.2)
            axis.set(ylim=(len(runs) - 0.5, -0.5), xlim=(-0.03, 1.03), title=title)
        axes[0].set_yticks(range(len(runs)), list(runs))
