"""Tables with the rows and columns of the paper's, filled with the numbers found here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd

from bolt.config import Experiment
from bolt.evaluate.classes import METRICS
from bolt.experiments.entries import Entry
from bolt.report.tables.baselines import sees_brain
from bolt.report.tables.markup import Sheet
from bolt.report.tables.numbers import DASH, EXPLAINED, decimal, marked, notes_of, reconstructed, scope_text

DATASETS = {"hcp_rest": "HCP-Rest", "hcp_task": "HCP-Task", "abide1": "ABIDE-I"}
"""The paper's datasets, in the order of its tables."""
ATLASES = {"schaefer400": "Schaefer", "aal116": "AAL"}
"""The paper's atlases, in the order of its tables."""
METRIC_HEADINGS = {"accuracy": "Acc. (%)", "recall": "Rec. (%)", "precision": "Prec. (%)", "auc": "AUC (%)"}
MARKS = {"yes": "✓", "no": "✗", "global": "✓ (G)", "local": "✓ (L)"}
"""Values of the paper's columns to what its tables print."""
CAPTION = (
    "As in the paper: per cent, mean ± standard deviation over test folds; bold: the best row{of} "
    "that has all its folds."
)

Place = tuple[str, str]
"""Dataset and atlas."""


def dataset_titles(entries: Iterable[Entry]) -> dict[str, str]:
    """Return what the paper calls each dataset; its own name if it is none of the paper's, and both if two are."""
    papers = {entry.dataset: entry.paper_dataset for entry in entries}
    titles = {}
    for name, paper in papers.items():
        alone = list(papers.values()).count(paper) == 1
        titles[name] = DATASETS[paper] + ("" if alone else f" ({name})") if paper else name
    return titles


def in_papers_order(entries: Sequence[Entry], datasets: Iterable[str] = DATASETS) -> list[Entry]:
    """Sort entries as the paper does: its datasets, then others; within them its atlases, then others."""
    orders = list(datasets), list(ATLASES)

    def place(entry: Entry) -> tuple[int, ...]:
        names = entry.paper_dataset, entry.atlas
        return tuple(o.index(n) if n in o else len(o) for n, o in zip(names, orders, strict=True))

    return sorted(entries, key=place)


def as_in_paper(experiment: Experiment, entries: Sequence[Entry], results: pd.DataFrame) -> list[Sheet]:
    """Return an experiment's tables with the rows and columns of the paper's; none if it is no table of the paper.

    Parameters
    ----------
    experiment : Experiment
    entries : sequence of Entry
        Of all datasets and atlases.
    results : DataFrame
        `bolt.experiments.results.RESULT_COLUMNS`.
    """
    rows = in_papers_order([entry for entry in entries if entry.paper and entry.classes])
    if experiment.paper is None or not rows:
        return []
    values = results.set_index(["dataset", "atlas", "row", "metric"])
    return _by_settings(experiment, rows, values) if experiment.paper.columns else _by_method(experiment, rows, values)


def _by_settings(experiment: Experiment, entries: Sequence[Entry], values: pd.DataFrame) -> list[Sheet]:
    """Return a table per dataset: a row per atlas and setting, the settings in columns of their own."""
    assert experiment.paper is not None
    sheets = []
    for dataset, title in dataset_titles(entries).items():
        rows, bold = [], set()
        here = [entry for entry in entries if entry.dataset == dataset]
        best = _best(here, values)
        for i, entry in enumerate(here):
            settings = {
                heading: MARKS.get(entry.paper[column], entry.paper[column])
                for column, heading in experiment.paper.columns.items()
            }
            rows.append({"Atlas": ATLASES.get(entry.atlas, entry.atlas), **settings, **_numbers(entry, values)})
            bold |= {(i, METRIC_HEADINGS[m]) for m in METRICS if _key(entry, m) in best}
        caption = CAPTION.format(of=" of each atlas")
        notes = [*notes_of(_reconstructed(here)), *_missing(here, values)]
        sheets.append(Sheet(f"{experiment.paper.shows}: {title}", pd.DataFrame(rows), caption, bold, notes))
    return sheets


def _by_method(experiment: Experiment, entries: Sequence[Entry], values: pd.DataFrame) -> list[Sheet]:
    """Return a table per atlas: a row per method (reconstructed ones with †), the metrics of each dataset in turn."""
    assert experiment.paper is not None
    sheets = []
    for atlas in dict.fromkeys(entry.atlas for entry in entries):
        here = [entry for entry in entries if entry.atlas == atlas]
        titles = dataset_titles(here)
        names, best = list(dict.fromkeys(entry.row for entry in here)), _best(here, values)
        unknown = _reconstructed(here)
        rows: dict[str, dict[str, str]] = {name: {"": marked(name, unknown)} for name in names}
        bold = set()
        for entry in here:
            for metric, (heading, text) in zip(METRICS, _numbers(entry, values).items(), strict=True):
                column = f"{titles[entry.dataset]}: {heading}"
                rows[entry.row][column] = text
                bold |= {(names.index(entry.row), column)} if _key(entry, metric) in best else set()
        frame = pd.DataFrame(list(rows.values())).fillna(DASH)
        title = f"{experiment.paper.shows}: {ATLASES.get(atlas, atlas)} atlas"
        caption = " ".join([CAPTION.format(of=" of each dataset"), *([EXPLAINED] if unknown else [])])
        sheets.append(Sheet(title, frame, caption, bold, [*notes_of(unknown), *_missing(here, values)]))
    return sheets


def _reconstructed(entries: Sequence[Entry]) -> dict[str, str]:
    return reconstructed({entry.row: entry.model.fidelity for entry in entries})


def two_decimals(mean: Any, sd: Any) -> str:
    """Return mean ± standard deviation in per cent with two decimals, as the paper has them."""
    return DASH if pd.isna(mean) else f"{decimal(100 * mean)} ± {decimal(100 * sd)}"


def _key(entry: Entry, metric: str) -> tuple[str, str, str, str]:
    return entry.dataset, entry.atlas, entry.row, metric


def _numbers(entry: Entry, values: pd.DataFrame) -> dict[str, str]:
    """Return the row's metrics by their headings."""
    found = [values.loc[_key(entry, metric)] for metric in METRICS]
    return {METRIC_HEADINGS[m]: two_decimals(v["mean"], v["sd"]) for m, v in zip(METRICS, found, strict=True)}


def _best(entries: Sequence[Entry], values: pd.DataFrame) -> set[tuple[str, str, str, str]]:
    """Return the keys of the best complete rows of each dataset, atlas and metric, including ties after rounding."""
    best: set[tuple[str, str, str, str]] = set()
    places: dict[Place, list[Entry]] = {}
    for entry in entries:
        places.setdefault((entry.dataset, entry.atlas), []).append(entry)
    for rivals in places.values():
        for metric in METRICS:
            means = {}
            for entry in filter(lambda rival: sees_brain(rival.model), rivals):
                found = values.loc[_key(entry, metric)]
                if found["n_folds"] == found["expected_folds"] and pd.notna(found["mean"]):
                    means[_key(entry, metric)] = round(100 * float(found["mean"]), 2)
            best |= {key for key, mean in means.items() if len(means) > 1 and mean == max(means.values())}
    return best


def _scope(value: pd.Series) -> str:
    return scope_text(*(int(value[name]) for name in ("n_folds", "expected_folds", "n_scans", "n_all_scans")))


def _missing(entries: Sequence[Entry], values: pd.DataFrame) -> list[str]:
    """State which rows lack folds."""
    lines, titles = [], dataset_titles(entries)
    for entry in entries:
        accuracy = values.loc[_key(entry, "accuracy")]
        if entry.note or accuracy["n_folds"] < accuracy["expected_folds"]:
            folds = entry.note or _scope(accuracy)
            lines.append(f"{titles[entry.dataset]}, {ATLASES.get(entry.atlas, entry.atlas)}, {entry.row}: {folds}")
    return lines
