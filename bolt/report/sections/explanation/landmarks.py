"""Are the important moments enough to tell the class? The landmark regressions, and their curve."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd
from matplotlib.axes import Axes

from bolt.config import Config, Dataset, Model
from bolt.config.layout import Layout
from bolt.evaluate.classes import METRICS
from bolt.experiments.entries import paper_table
from bolt.io.files import read_table
from bolt.report.figures.style import INK, MANY, MUTED, canvas
from bolt.report.html import Block, Picture, Table, Text, figure_folder
from bolt.report.tables.readable import DASH, NAMES, percent

KINDS = {
    ("fitted", "important"): "important",
    ("inner", "important"): "important, training scans by models that did not see them",
    ("none", "random"): "random",
}
"""Importance and tokens of a group of rows to what tables call it."""
JUDGED = {"token": "a single volume", "scan": "a scan, by vote", "subject": "a subject, by vote"}
SHOWN = {"subject": MANY[0], "token": MANY[1]}
"""Levels of the curve and their colours."""
MEANING = (
    "If important volumes did no better than random ones, the weights would not point at moments that tell the classes "
    "apart by themselves. The model may still be right: it sees how regions vary together within windows, of which a "
    "single volume, the activity of all regions at one moment, knows nothing."
)
FITTED = (
    "The weights of training scans come from the model that was fitted to them, so their landmarks may be moments it "
    "has learned by heart; test scans are new to it in every row."
)
ASK = " 'explain: inner_folds' adds a row with weights of training scans from models that did not see them."
INNER = (
    " In the row 'training scans by models that did not see them' that is taken away: where it agrees with the first "
    "row, learning by heart plays no part."
)


class Curve(NamedTuple):
    """What is drawn of one dataset: title, ``subsets.tsv``, ``landmarks.tsv``, and a guess's accuracy at equal odds."""

    title: str
    subsets: pd.DataFrame
    landmarks: pd.DataFrame
    chance: float


def landmarks_blocks(
    config: Config, dataset: Dataset, layout: Layout, atlas: str, model: Model, seed: int, stem: str
) -> list[Block]:
    """Are the important volumes better than random ones, and the more important ones better than the less so?"""
    out = layout.run(atlas, model, seed).explanation
    if not (out / "landmarks.tsv").is_file():
        return []
    table = read_landmarks(out / "landmarks.tsv")
    caption = (
        f"Logistic regression on the {config.explain.tokens} most important volumes of each scan against as many "
        f"random ones ({config.explain.random_draws} draws), fitted on training scans, judged on test scans; per cent, "
        "mean ± sd over folds."
    )
    frame = landmark_table(table, paper_of(config.dataset_name))
    blocks: list[Block] = [Table(frame, caption, out / "landmarks.tsv"), Text(MEANING)]
    blocks.append(Text(FITTED + (INNER if "inner" in set(table["importance"]) else ASK)))
    subsets = read_landmarks(out / "subsets.tsv") if (out / "subsets.tsv").is_file() else pd.DataFrame()
    if len(subsets):
        picture = figure_folder(layout) / f"{stem}_subsets.png"
        draw_curves([Curve("", subsets, table, 1 / len(dataset.classes or [1]))], picture)
        caption = (
            f"Left: accuracy of the regression when it sees {config.explain.tokens} volumes further down the list, "
            "from the most important ones (0) on; bands: ± sd of folds. Right: how important they are, as a multiple "
            "of the scan's smallest weight. Where importance means anything, both fall."
        )
        blocks.append(Picture(picture, caption))
    return blocks


def read_landmarks(file: Path) -> pd.DataFrame:
    """``landmarks.tsv`` or ``subsets.tsv``."""
    return read_table(file, text=("fold", "importance", "tokens", "level"))


def paper_of(dataset: str) -> pd.DataFrame:
    """The paper's own values of a dataset, in shares: tokens, metric, mean, sd; without rows of another dataset."""
    table = read_table(paper_table("landmarks"))
    own = table[table["dataset"] == dataset]
    return own.assign(mean=own["mean_percent"] / 100, sd=own["sd_percent"] / 100)[["tokens", "metric", "mean", "sd"]]


def landmark_table(table: pd.DataFrame, paper: pd.DataFrame) -> pd.DataFrame:
    """For people: per cent, mean ± sd over folds, the paper's values below.

    Parameters
    ----------
    table : DataFrame
        ``landmarks.tsv``.
    paper : DataFrame
        From `paper_of`.
    """
    keys = ["fold", "importance", "tokens", "level"]
    indexed = table[table["fold"].isin(["mean", "sd"])].set_index(keys).sort_index()
    apart = not indexed.xs("scan", level="level")[list(METRICS)].equals(
        indexed.xs("subject", level="level")[list(METRICS)]
    )
    levels = [level for level in ("subject", "scan", "token") if level != "scan" or apart]
    rows = []
    for level in levels:
        for (importance, tokens), name in KINDS.items():
            if ("mean", importance, tokens, level) in indexed.index:
                mean, sd = (indexed.loc[(fold, importance, tokens, level)] for fold in ("mean", "sd"))
                values = {NAMES.get(m, m): f"{percent(mean[m])} ± {percent(sd[m])}" for m in METRICS}
                rows.append(
                    {"what is judged": JUDGED[level], "volumes": name, **values, "folds": f"{mean['n_test']:.0f}"}
                )
    for tokens, own in paper.groupby("tokens", sort=False):
        known = own.set_index("metric")
        values = {NAMES.get(m, m): f"{percent(known.at[m, 'mean'])} ± {percent(known.at[m, 'sd'])}" for m in METRICS}
        rows.append({"what is judged": "the paper", "volumes": str(tokens), **values, "folds": DASH})
    return pd.DataFrame(rows)


def draw_curves(curves: Sequence[Curve], out: Path) -> None:
    """The paper's figure of subset indices, a row a dataset: accuracy with the spread of folds, and the score.

    Parameters
    ----------
    curves : sequence of Curve
    out : Path
        Ends in ``.png``.
    """
    with canvas(out, height=0.5 + 2.5 * len(curves)) as figure:
        grid = figure.subplots(len(curves), 2, squeeze=False, sharex="row")
        for (left, right), curve in zip(grid, curves, strict=True):
            _accuracy(left, curve)
            _score(right, curve)
            left.set_title(curve.title)
            for axis in (left, right):
                axis.margins(x=0.01)
        for axis in grid[-1]:
            axis.set_xlabel("subset index (0: most important)")
        handles, labels = grid[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=4)


def _means(table: pd.DataFrame, level: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Mean and sd over folds by offset."""
    own = table[table["level"] == level]
    mean, sd = (own[own["fold"] == name].set_index("offset").sort_index() for name in ("mean", "sd"))
    return mean, sd


def _accuracy(axis: Axes, curve: Curve) -> None:
    random = curve.landmarks[(curve.landmarks["tokens"] == "random") & (curve.landmarks["fold"] == "mean")]
    for level, colour in SHOWN.items():
        mean, sd = _means(curve.subsets, level)
        values, spread = 100 * mean["accuracy"], 100 * sd["accuracy"]
        axis.fill_between(mean.index, values - spread, values + spread, color=colour, alpha=0.18, lw=0)
        axis.plot(
            mean.index, values, color=colour, lw=1.6, label=f"{level}s" if level == "subject" else "single volumes"
        )
    axis.axhline(
        100 * random.set_index("level").at["subject", "accuracy"],
        color=INK, ls="--", lw=1.0, label="random volumes, subjects",
    )  # fmt: skip
    axis.axhline(100 * curve.chance, color=MUTED, ls=":", lw=1.2, label="a guess at equal odds")
    axis.set_ylabel("accuracy (%)")


def _score(axis: Axes, curve: Curve) -> None:
    mean, sd = _means(curve.subsets, "subject")
    axis.fill_between(mean.index, mean["score"] - sd["score"], mean["score"] + sd["score"], color=INK, alpha=0.15, lw=0)
    axis.plot(mean.index, mean["score"], color=INK, lw=1.6)
    axis.set_ylim(bottom=0)
    axis.set_ylabel("importance (× smallest weight)")
