"""Rows that differ in one number, as curves: means over folds with their 95 % intervals against that number."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator

from bolt.evaluate.classes import METRICS
from bolt.evaluate.numbers import NUMBER_METRICS
from bolt.experiments.entries import Entry
from bolt.report.figures.style import INK, MANY, canvas
from bolt.report.tables.readable import NAMES

WIDE = 5  # largest over smallest value from which the axis is logarithmic
APART = 0.012  # of the axis: lines of one value stand side by side


def draw_curves(results: pd.DataFrame, entries: Sequence[Entry], out: Path, *, key: str = "") -> None:
    """Draw a sweep: a row of panels a dataset and atlas, a panel a metric, a colour a line.

    Parameters
    ----------
    results : DataFrame
        `bolt.experiments.results.RESULT_COLUMNS`.
    entries : sequence of Entry
        The same rows, each with its ``line`` and ``value``.
    out : Path
        PNG; an SVG is written beside it.
    key : str
        What is changed, as the experiment's file names it.
    """
    places = {entry.row: (entry.line, entry.value) for entry in entries}
    table = results.assign(
        line=[places[row][0] for row in results["row"]], value=[places[row][1] for row in results["row"]]
    )
    if key == "train_share":
        table["value"] *= 100
    words = {"train_share": "training subjects (%)"}.get(key, key.split(".")[-1].replace("_", " "))
    colours = {line: MANY[i % len(MANY)] for i, line in enumerate(dict.fromkeys(table["line"]))}
    parts = list(table.groupby(["dataset", "atlas"], sort=False))
    with canvas(out, width=10.5, height=2.7 * len(parts) + 0.5) as figure:
        rows = figure.subfigures(len(parts), 1, squeeze=False)[:, 0]
        for place, ((dataset, atlas), part) in zip(rows, parts, strict=True):
            metrics = METRICS if "accuracy" in set(part["metric"]) else NUMBER_METRICS
            place.suptitle(f"{dataset}, {atlas}", x=0.01, ha="left", fontweight="bold", fontsize=10.5)
            for axis, metric in zip(place.subplots(1, len(metrics), squeeze=False)[0], metrics, strict=True):
                title = NAMES.get(metric, metric.capitalize())
                axis.set_title(title if metric in NUMBER_METRICS else f"{title} (%)")
                axis.set_xlabel(words)
                _panel(axis, part[part["metric"] == metric], colours, 1 if metric in NUMBER_METRICS else 100)
        axis = figure.axes[0]
        keys = [axis.plot([], [], "D-", ms=4, lw=1.6, color=colour, label=line)[0] for line, colour in colours.items()]
        if table["paper_mean"].notna().any():
            keys.append(axis.plot([], [], "o", ms=5.5, mfc="none", mec=INK, label="the paper's mean over folds")[0])
        if (table["n_folds"] < table["expected_folds"]).any():
            keys.append(axis.plot([], [], "D:", ms=4, mfc="white", color=INK, label="folds are missing")[0])
        keys.append(axis.plot([], [], "--", lw=0.9, color=INK, label="no skill")[0])
        figure.legend(handles=keys, loc="outside lower center", ncols=6, title="mean over folds, 95 % interval")


def _panel(axis: Axes, part: pd.DataFrame, colours: dict[str, str], scale: int) -> None:
    """One metric: whole rows are joined by a solid line, those without all folds are hollow and dotted."""
    values = np.array(sorted(part["value"].unique()))
    log = values[0] > 0 and values[-1] / values[0] >= WIDE
    first, last = (np.log10(values[[0, -1]])) if log else values[[0, -1]]
    shift = APART * (last - first)
    lines = [line for line in colours if line in set(part["line"])]
    for i, line in enumerate(lines):
        own, colour = part[part["line"] == line].sort_values("value"), colours[line]
        moved = shift * (i - (len(lines) - 1) / 2)
        x = (own["value"] * 10**moved if log else own["value"] + moved).to_numpy()
        mean, low, high, paper = (scale * own[name].to_numpy(float) for name in ("mean", "low", "high", "paper_mean"))
        whole = (own["n_folds"] == own["expected_folds"]).to_numpy()
        axis.plot(x, np.where(whole, mean, np.nan), "-", lw=1.6, color=colour, zorder=3)
        axis.plot(x, mean, ":", lw=1.2, color=colour, zorder=2)
        axis.vlines(x[whole], low[whole], high[whole], color=colour, lw=1.2, alpha=0.7, zorder=2)
        axis.vlines(x[~whole], low[~whole], high[~whole], color=colour, lw=1.2, ls=":", zorder=2)
        axis.plot(x[whole], mean[whole], "D", ms=4, color=colour, mew=0, zorder=4)
        axis.plot(x[~whole], mean[~whole], "D", ms=4, mfc="white", mec=colour, zorder=4)
        axis.plot(x, paper, "o", ms=5.5, mfc="none", mec=colour, mew=1.1, zorder=3)
    for level in sorted({round(scale * level, 1) for level in part["no_skill"].dropna()}):
        axis.axhline(level, color=INK, ls="--", lw=0.9, zorder=1)
    if log:
        axis.set_xscale("log")
    axis.set_xticks(values, [f"{value:g}" for value in values])
    axis.xaxis.set_minor_locator(NullLocator())
