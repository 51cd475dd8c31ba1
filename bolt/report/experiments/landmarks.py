"""Landmark regressions of all datasets: tables beside the paper's, and a figure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from bolt.config import Experiment
from bolt.evaluate.classes import METRICS
from bolt.experiments.entries import Entry
from bolt.experiments.results import due, gather
from bolt.explain.landmarks import LANDMARK_COLUMNS, SUBSET_COLUMNS, with_means
from bolt.io.errors import DataError
from bolt.io.files import holds_something, write_table
from bolt.report.experiments.paper_layout import ATLASES, METRIC_HEADINGS, dataset_titles, in_papers_order, two_decimals
from bolt.report.figures.landmarks import Curve, draw_curves
from bolt.report.tables.explanation import landmark_table, paper_of, read_landmarks
from bolt.report.tables.markup import Sheet, write_sheets
from bolt.report.tables.numbers import joined, scope_text

WHERE: dict[str, Any] = {
    "dataset": "Dataset",
    "atlas": "Atlas",
    "row": "What the experiment's file calls the model that is explained",
}
KEYS = {name: LANDMARK_COLUMNS[name] for name in ("importance", "tokens", "level")}
COLUMNS: dict[str, Any] = {
    **WHERE,
    **KEYS,
    "metric": "accuracy, recall, precision (of the positive class, or macro average) or auc",
    "mean": "Mean over folds (and seeds)",
    "sd": "Standard deviation over them (ddof 0)",
    "n_folds": "Folds (and seeds)",
    "expected_folds": "Folds of the cross-validation, times seeds",
    "paper_mean": "The paper's mean over folds",
    "paper_sd": "The paper's standard deviation over folds",
    "difference": "mean - paper_mean",
}


FIGURE_ORDER = ("hcp_task", "hcp_rest", "abide1")
"""Datasets in the order of the paper's figure."""
PAPERS_VOLUMES = {"important": "LR (Important)", "random": "LR (Random)"}
"""Volumes of the paper's table, and its headings."""


def write_landmark_experiment(experiment: Experiment, entries: list[Entry], out: Path) -> None:
    """Join the landmark regressions of all datasets as tables, text and figure; entries not yet explained are skipped.

    Raises
    ------
    DataError
        Nothing is explained.
    """
    rows, curves, subsets, sheets, explained = [], [], [], [], []
    scopes: dict[str, str] = {}
    titles = dataset_titles(entries)
    for entry in in_papers_order(entries, FIGURE_ORDER):
        tables = _over_seeds(entry, "landmarks.tsv", list(KEYS))
        if tables is None:
            continue
        paper = paper_of(entry.paper_dataset, entry.atlas)
        rows.append(_rows(entry, tables, paper))
        explained.append((entry, tables))
        title = f"{titles[entry.dataset]}, {entry.atlas}" + (f", {entry.row}" if len(experiment.rows) > 1 else "")
        caption = (
            "Mean ± standard deviation over folds; accuracy, recall and precision in per cent. The paper does not "
            "state whether volumes or subjects are classified, and has random volumes as its only control."
        )
        scope = tested(entry)
        shown = landmark_table(tables, paper, expected=_expected(entry))
        sheets.append(Sheet(title, shown, caption, notes=[scope] if scope else []))
        scopes[title] = scope
        curve = _over_seeds(entry, "subsets.tsv", ["offset", "level"])
        if curve is not None and len(curve):
            curves.append(Curve(title, curve, tables, 1 / len(entry.classes)))
            subsets.append(curve.assign(dataset=entry.dataset, atlas=entry.atlas, row=entry.row))
    if not rows:
        raise DataError(
            f"no run of experiment '{experiment.name}' has been explained",
            hint=f"Ask for the target '{experiment.name}'",
        )
    if curves:
        draw_curves(curves, out / f"{experiment.name}.png")
    empty = pd.DataFrame(columns=[*WHERE, *SUBSET_COLUMNS])
    subset_table = pd.concat(subsets)[[*WHERE, *SUBSET_COLUMNS]] if subsets else empty
    write_table(subset_table, out / f"{experiment.name}_subsets.tsv", {**WHERE, **SUBSET_COLUMNS})
    notes = joined(scopes)
    sheets = [*_as_in_paper(experiment, explained, notes), *sheets]
    about = ". ".join(["Accuracy and importance against rank of importance", *notes])
    figures = {f"{experiment.name}.png": about} if curves else {}
    write_sheets(experiment, sheets, out, figures)
    write_table(pd.concat(rows, ignore_index=True), out / f"{experiment.name}.tsv", COLUMNS)


def _expected(entry: Entry) -> int:
    """Return the folds of the cross-validation, times seeds."""
    return entry.outer * len(entry.explanations)


def tested(entry: Entry) -> str:
    """Return how much of the dataset was tested by the models that are explained."""
    predictions, missing = gather(entry)
    scans = (
        predictions.loc[kept, "scan_id"].nunique() if len(predictions) else 0
        for kept in (predictions["role"] == "test", slice(None))
    )
    return scope_text(len(due(entry)) - len(missing), len(due(entry)), *scans)


def _as_in_paper(
    experiment: Experiment, explained: Sequence[tuple[Entry, pd.DataFrame]], notes: list[str]
) -> list[Sheet]:
    """Return the regressions on important and on random volumes as the paper's table has them."""
    if experiment.paper is None:
        return []
    tables = {id(entry): table for entry, table in explained}
    titles = dataset_titles(entry for entry, _ in explained)
    rows: list[dict[str, str]] = []
    bold = set()
    for entry in in_papers_order([entry for entry, _ in explained]):
        table = tables[id(entry)]
        table = table[(table["level"] == "token") & (table["importance"] != "inner")]
        table = table[table["fold"].isin(["mean", "sd"])].set_index(["fold", "tokens"]).sort_index()
        for metric, heading in METRIC_HEADINGS.items():
            means = {tokens: table.loc[("mean", tokens), metric] for tokens in PAPERS_VOLUMES}
            cells = {
                column: two_decimals(means[tokens], table.loc[("sd", tokens), metric])
                for tokens, column in PAPERS_VOLUMES.items()
            }
            bold.add((len(rows), PAPERS_VOLUMES[max(means, key=means.__getitem__)]))
            names = [titles[entry.dataset], *([] if entry.atlas in ATLASES else [entry.atlas])]
            name = ", ".join([*names, *([entry.row] if len(experiment.rows) > 1 else [])])
            rows.append({"": f"{name}: {heading}", **cells})
    caption = (
        "As in the paper: logistic regressions that classify single volumes, per cent, mean ± standard deviation over "
        "test folds (and seeds, if there are several); bold: the better one."
    )
    return [Sheet(f"{experiment.paper.shows.split(' and ')[0]}", pd.DataFrame(rows), caption, bold, notes)]


def _over_seeds(entry: Entry, name: str, keys: list[str]) -> pd.DataFrame | None:
    """Join a table of all seeds, with mean and sd over folds and seeds; None if no seed has it."""
    files = [folder / name for folder in entry.explanations if holds_something(folder / name)]
    if not files:
        return None
    table = pd.concat([read_landmarks(file) for file in files], ignore_index=True)
    return with_means(table[~table["fold"].isin(["mean", "sd"])], keys)


def _rows(entry: Entry, table: pd.DataFrame, paper: pd.DataFrame) -> pd.DataFrame:
    """Return `COLUMNS` of one entry."""
    mean, sd = (
        table[table["fold"] == fold].melt([*KEYS, "n_test"], list(METRICS), "metric", fold) for fold in ("mean", "sd")
    )
    known = paper.rename(columns={"mean": "paper_mean", "sd": "paper_sd"})
    both = mean.merge(sd.drop(columns="n_test"), on=[*KEYS, "metric"]).merge(known, on=["tokens", "metric"], how="left")
    return both.rename(columns={"n_test": "n_folds"}).assign(
        dataset=entry.dataset,
        atlas=entry.atlas,
        row=entry.row,
        expected_folds=_expected(entry),
        difference=both["mean"] - both["paper_mean"],
    )[list(COLUMNS)]
