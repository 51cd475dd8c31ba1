"""Tables of the explanation page.

Landmark regressions as read from files, and the paper's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd

from bolt.config.study import paper_table
from bolt.evaluate.scores import METRICS
from bolt.explain.tasks import COURSE
from bolt.explain.trust.faithfulness import CONTROLS
from bolt.explain.trust.similarity import GONE
from bolt.explain.weights import CONTROL_WEIGHTS, UNBIASED
from bolt.io.files import read_table, read_yaml
from bolt.report.html import filled
from bolt.report.numbers import DASH, decimal, interval, mean_sd, metric_name, shown_as

TASK_KEYS = list(COURSE)
NAMES: dict[str, Any] = read_yaml(Path(__file__).parents[1] / "explanation.yaml")
ORDERS: dict[str, str] = NAMES["orders"]
CONTROL_NAMES: dict[str, str] = NAMES["control_names"]
REPLACED_BY: dict[str, str] = NAMES["replaced_by"]
SANITY_CHECKS: dict[str, str] = NAMES["sanity_checks"]
SUMMARIES = ("mean", "lowest", "highest")
"""Rows of ``stability.tsv`` over all pairs."""


def landmark_table(table: pd.DataFrame, paper: pd.DataFrame, *, expected: int) -> pd.DataFrame:
    """Return mean ± sd over folds of the landmark regressions (``landmarks.tsv``), the paper's values below.

    `expected` are all folds of the cross-validation, of each seed in the table.
    """
    keys = ["fold", "importance", "tokens", "level"]
    indexed = table[table["fold"].isin(["mean", "sd"])].set_index(keys).sort_index()
    by_scan, by_subject = (indexed.xs(level, level="level")[list(METRICS)] for level in ("scan", "subject"))
    rows = []
    for level, level_name in NAMES["levels"].items():
        if level == "scan" and by_scan.equals(by_subject):
            continue
        for (tokens, volumes), importance in product(NAMES["volumes"].items(), ("fitted", "none", "inner")):
            if ("mean", importance, tokens, level) not in indexed.index:
                continue
            mean, sd = (indexed.loc[(fold, importance, tokens, level)] for fold in ("mean", "sd"))
            name = NAMES["unseen"].format(volumes=volumes) if importance == "inner" else volumes
            values = {metric_name(m): mean_sd(mean[m], sd[m], shown_as(m)) for m in METRICS}
            folds = f"{mean['n_test']:.0f} of {expected}"
            rows.append({"prediction per": level_name, "volumes": name, **values, "folds": folds})
    for tokens, part in paper.groupby("tokens", sort=False):
        known = part.set_index("metric")
        values = {metric_name(m): mean_sd(known.at[m, "mean"], known.at[m, "sd"], shown_as(m)) for m in METRICS}
        rows.append({"prediction per": "the paper", "volumes": str(tokens), **values, "folds": DASH})
    return pd.DataFrame(rows)


def selected_rois(table: pd.DataFrame) -> pd.DataFrame:
    """Return the selected ROIs of every class (``roi_weights.tsv``), and in which controls a weight keeps its sign."""
    selected = table[table["selected"].astype(bool)].to_dict("records")
    for row in selected:
        row["agreeing"] = [name for name in UNBIASED if row[CONTROL_WEIGHTS[name]] * row["weight"] > 0]
    return filled("selected_rois", selected, controls=UNBIASED)


def sign_counts(table: pd.DataFrame) -> str:
    """State for how many selected ROIs the weight keeps its sign in both unbiased controls, and in each control."""
    selected = table[table["selected"].astype(bool)]
    kept = {name: (selected[column] * selected["weight"] > 0).sum() for name, column in CONTROL_WEIGHTS.items()}
    counts = ", ".join(f"{kept[name]} with {NAMES['control_volumes'][name]}" for name in UNBIASED)
    turned = f"{kept['wrong class']} with volumes chosen for the wrong class, which are expected to reverse it"
    return f"{selected['sign_agrees'].astype(bool).sum()} of {len(selected)} ({counts}; {turned})"


def alignment_table(aligned: pd.DataFrame) -> pd.DataFrame:
    """Return how importance is distributed over event types (``tasks_alignment.tsv``)."""
    keys = list(aligned[TASK_KEYS].itertuples(index=False, name=None))
    names = task_titles(list(dict.fromkeys(keys)))
    return filled("alignment", aligned.assign(title=[names[key] for key in keys]))


def task_titles(keys: Sequence[tuple[str, str, str]]) -> dict[tuple[str, str, str], str]:
    """Name each class, task and run by what tells it apart from the others of its class."""
    named = {}
    for name, task, run in keys:
        same_class = [key for key in keys if key[0] == name]
        parts = [name]
        parts += [task] if task and task != name and len({key[1] for key in same_class}) > 1 else []
        parts += [f"run {run}"] if run and len({key[2] for key in same_class if key[1] == task}) > 1 else []
        named[name, task, run] = " · ".join(parts)
    return named


def stability_table(table: pd.DataFrame) -> pd.DataFrame:
    """Return agreement between folds and between seeds: a row per class, and one for importance."""
    groups = table.groupby(["between", "what", "class"], sort=False, dropna=False)
    rows = []
    for (between, what, name), part in groups:
        summary = part[part["one"].isin(SUMMARIES)].set_index("one")
        n_pairs = len(part) - len(summary)
        pairs = f"{n_pairs} pair{'s' * (n_pairs != 1)} of {between}"
        if what == "halves":
            pairs = f"{n_pairs} split{'s' * (n_pairs != 1)}{' (two seeds)' if between == 'seeds' else ''}"
        kind = NAMES["agreement"][what] + ("" if pd.isna(name) else f", {name}")
        rows.append({"kind": kind, "pairs": pairs, "summary": summary, "mean": summary.loc["mean"]})
    return filled("stability", rows, bound=_null, spread=_mean_and_range)


def _null(mean: Any, high: Any) -> str:
    return DASH if pd.isna(mean) else f"{decimal(mean)} [{decimal(high)}]"


def _mean_and_range(values: pd.Series) -> str:
    if values["lowest"] == values["highest"]:
        return decimal(values["mean"])
    return interval(values["mean"], values["lowest"], values["highest"], decimal)


def sanity_table(table: pd.DataFrame) -> pd.DataFrame:
    """Return the outcome of the sanity checks, over all folds and per fold (``sanity.tsv``)."""
    rows: list[dict[Any, Any]] = []
    for end in table[table["verdict"].notna()].itertuples():
        same = table["check"] == end.check
        if pd.notna(end.step):
            same &= table["step"] == end.step
        rows += table[same].assign(end=end.check).to_dict("records")
    return filled("sanity", rows, checks=SANITY_CHECKS, verdicts=NAMES["sanity_verdicts"], gone=GONE)


def area_table(areas: pd.DataFrame) -> pd.DataFrame:
    """Return the area under each curve and its differences from the controls (``faithfulness_areas.tsv``)."""
    rows = areas.to_dict("records")
    for row in rows:
        better = {control: row[f"better_than_{control}"] for control in CONTROLS}
        beaten = ", ".join(control for control, answer in better.items() if answer == "yes") or "none"
        row["beaten"] = DASH if all(map(pd.isna, better.values())) else beaten
    shown = {"three": lambda value: decimal(value, 3), "gain": lambda value: decimal(value, 3, "+")}
    return filled("areas", rows, orders=ORDERS, replaced_by=REPLACED_BY, **shown)


def read_landmarks(file: Path) -> pd.DataFrame:
    """Read ``landmarks.tsv`` or ``subsets.tsv``."""
    return read_table(file, text=("fold", "importance", "tokens", "level"))


def paper_of(dataset: str | None, atlas: str) -> pd.DataFrame:
    """Return the paper's own values as shares: tokens, metric, mean, sd; empty for what the paper does not have.

    Parameters
    ----------
    dataset : str or None
        Which of the paper's datasets, the key `paper` of a dataset's file.
    atlas : str
    """
    table = read_table(paper_table("landmarks"))
    values = table[(table["dataset"] == dataset) & (table["atlas"] == atlas)]
    values = values.assign(mean=values["mean_percent"] / 100, sd=values["sd_percent"] / 100)
    return values[["tokens", "metric", "mean", "sd"]]
