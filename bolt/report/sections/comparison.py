"""All models side by side, tested against each other and against baselines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from bolt.config import Model
from bolt.config.layout import ModelRun
from bolt.config.study import Study
from bolt.experiments.entries import Entry
from bolt.experiments.results import Gathered, gather, paired_tests, sites, summaries
from bolt.models.registry import inputs_of
from bolt.report.experiments.experiment import paired
from bolt.report.figures import performance as figures
from bolt.report.figures.performance import MOST, draw_sites, has_sites
from bolt.report.html import Block, Chapter, Picture, Table, Text
from bolt.report.runs import figure_folder, run_scope, run_title
from bolt.report.tables import readable
from bolt.report.tables.baselines import baseline_warning, sees_covariates_only
from bolt.report.tables.numbers import (
    DASH,
    KIND_OF_INTERVAL_OF_NUMBERS,
    KINDS_OF_INTERVALS,
    LEGEND,
    WITHIN_FOLDS,
    joined,
    marked,
    reconstructed,
)

CAPTION = (
    "All test scans with 95 % intervals, and mean ± standard deviation over folds. {within}All models have the "
    "same folds; a model with fewer folds was tested on fewer scans. {kinds}"
)
SEEDS = (
    "All {n} seeds: mean with its 95 % interval, which includes the variation between seeds; standard deviation over "
    "folds of the means over seeds (ddof 0), and over seeds of the means over folds (ddof 1)."
)
Compared = tuple[list[Entry], list[Gathered]]
"""All models on one atlas, and their predictions by all seeds."""
SITES = (
    f"Test scans of each site, the largest on top; at most {MOST} models. Some of many sites always look bad by chance."
)
PICTURE = "All test scans (AUC: within folds) with 95 % intervals (bars) and single folds (dots); dashed: no skill."


def comparison(study: Study, rows: Mapping[str, Compared] | None = None) -> Chapter | None:
    """Compare all evaluated runs; None if there are fewer than two. `rows` are those of `gathered`, read before."""
    found = {run_title(study, run): readable.read_evaluated(run.folder) for run in study.runs}
    evaluated = {title: metrics for title, metrics in found.items() if metrics}
    if len(evaluated) < 2:
        return None
    rows = rows or gathered(study)
    scopes = joined({run_title(study, run): run_scope(run) for run in study.runs if run_title(study, run) in evaluated})
    tested: list[Block] = [Text(f"{'. '.join(scopes)}.", warning=True)] if scopes else []
    side_by_side = _with_fidelity(study, readable.comparison(evaluated))
    blocks: list[Block] = [Table(side_by_side, CAPTION.format(within="", kinds=KIND_OF_INTERVAL_OF_NUMBERS))]
    if study.dataset.classes:
        picture = figure_folder(study.layout) / "comparison.png"
        unknown = reconstructed({run_title(study, run): study.models[run.model].fidelity for run in study.runs})
        figures.comparison({marked(title, unknown): found for title, found in evaluated.items()}, picture)
        table = Table(
            side_by_side,
            "Accuracy, recall and precision in per cent. "
            + CAPTION.format(within=f"{positive_class(study)}{WITHIN_FOLDS} ", kinds=KINDS_OF_INTERVALS),
        )
        warnings = [block for of_atlas in rows.values() for block in baseline_warnings(study, *of_atlas)]
        blocks = [*warnings, table, Picture(picture, f"{PICTURE} {LEGEND}." if unknown else PICTURE)]
    blocks += _sites(study, rows)
    if len(study.config.seeds) > 1:
        numbers = pd.concat([summaries(*row) for of_atlas in rows.values() for row in zip(*of_atlas, strict=True)])
        blocks.append(Table(readable.seeds(numbers), SEEDS.format(n=len(study.config.seeds))))
    tests = [block for atlas, of_atlas in rows.items() for block in _tests(study, atlas, *of_atlas)]
    return Chapter("All models side by side", tested + blocks + _reconstructed_notes(study) + tests)


def positive_class(study: Study) -> str:
    """Say of which class recall and precision are."""
    classes = study.dataset.classes or []
    return f"Recall and precision are those of {classes[-1]}. " if len(classes) == 2 else ""


def _sites(study: Study, rows: Mapping[str, Compared]) -> list[Block]:
    """Draw the models at each site, if there are several sites."""
    found = [sites(*row) for of_atlas in rows.values() for row in zip(*of_atlas, strict=True)]
    by_site = pd.concat([table for table in found if len(table)] or found[:1], ignore_index=True)
    if not has_sites(by_site):
        return []
    picture = figure_folder(study.layout) / "sites.png"
    draw_sites(by_site, picture, reference=reference(study).shown, unknown=_reconstructed(study))
    return [Picture(picture, SITES)]


def _with_fidelity(study: Study, table: pd.DataFrame) -> pd.DataFrame:
    """Add to a table of runs (by title) how close each model is to the method that it is named after."""
    models = {run_title(study, run): study.models[run.model] for run in study.runs}
    levels = [fidelity.level if (fidelity := models[title].fidelity) else DASH for title in table[""]]
    table.insert(1, "fidelity", levels)
    return table


def _reconstructed(study: Study) -> dict[str, str]:
    """Return the reconstructed models, and what was reconstructed of each."""
    return reconstructed({model.shown: model.fidelity for model in study.models.values()})


def _reconstructed_notes(study: Study) -> list[Block]:
    """State which models are reconstructed, and what of them."""
    notes = _reconstructed(study).items()
    return [Text(f"{name} is reconstructed, not the original method: {note}") for name, note in notes]


def gathered(study: Study) -> dict[str, Compared]:
    """Return all models on each atlas, and their predictions by all seeds."""
    return {atlas: _gathered(study, atlas) for atlas in study.config.atlas_places}


def _gathered(study: Study, atlas: str) -> Compared:
    entries = [
        Entry(
            dataset=study.dataset.name,
            atlas=atlas,
            row=model.shown,
            model=model,
            folders=[study.layout.run(atlas, model, seed).folder for seed in study.config.seeds],
            folds=study.config.folds.of(model.name),
            classes=study.dataset.classes or [],
            outer=study.config.folds.outer,
        )
        for model in study.models.values()
    ]
    return entries, [gather(entry) for entry in entries]


def _tests(study: Study, atlas: str, entries: Sequence[Entry], gathered: Sequence[Gathered]) -> list[Block]:
    """Test every model against the reference."""
    name = reference(study).shown
    tests = paired_tests(entries, gathered, name)
    if tests.empty:
        return []
    sheet = paired("", tests)
    notes = f" {'. '.join(sheet.notes)}." if sheet.notes else ""
    return [Table(sheet.frame, f"{atlas}: tests against {name}. {sheet.caption}{notes}")]


def reference(study: Study) -> Model:
    """Return the first configured BolT model, else the first model."""
    models = list(study.models.values())
    return next((model for model in models if model.model == "bolt"), models[0])


def reference_run(study: Study) -> ModelRun:
    """Return the run that the first screen is about: of the reference, with the first atlas and seed."""
    return next(run for run in study.runs if study.models[run.model] is reference(study))


def baseline_warnings(study: Study, entries: Sequence[Entry], gathered: Sequence[Gathered]) -> list[Block]:
    """Warn of each baseline without brain data that models with it do not outperform, the reference first.

    `entries` are the models on one atlas.
    """
    several = len(study.config.atlas_places) > 1
    blocks: list[Block] = []
    for baseline in entries:
        if not sees_covariates_only(baseline.model):
            continue
        tests = paired_tests(entries, gathered, baseline.row)
        differences = ["difference", "pooled_difference"]
        tests[differences] = -tests[differences].astype(float)  # model minus baseline
        warnings: dict[str, str] = {}
        for entry in entries:
            if inputs_of(entry.model.model) != "covariates":
                warning = baseline_warning(baseline.row, entry.row, tests[tests["row"] == entry.row])
                warnings |= {entry.row: warning} if warning else {}
        if warnings:
            first, *others = sorted(warnings, key=lambda name: name != reference(study).shown)
            also = f" The same is true of {', '.join(others)}." if others else ""
            place = f"{baseline.atlas}: " if several else ""
            blocks.append(Text(f"{place}{warnings[first]}{also}", warning=True))
    return blocks
