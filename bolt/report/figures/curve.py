"""Sweeps as curves: means over folds with their 95 % intervals against the setting that varies."""

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
from bolt.report.figures.forest import result_legend, set_metric_title
from bolt.report.figures.style import INK, MANY, canvas
from bolt.report.tables.numbers import RECONSTRUCTED, marked

LOGARITHMIC_FROM = 5  # ratio of the largest to the smallest value; shares of the subjects are always linear
OFFSET = 0.012  # of the axis, between points of several lines at one value
MARGIN = 0.08  # of the axis, on both sides of the values; all of them are on it, trained or not


def draw_curves(results: pd.DataFrame, entries: Sequence[Entry], out: Path, *, key: str = "") -> None:
    """Draw a sweep of the setting `key`: a row of panels per dataset and atlas, a panel per metric, a colour per line.

    `results` are `RESULT_COLUMNS`; `entries` are the same rows, each with its ``line`` and ``value``.
    """
    places = {entry.row: (entry.line, entry.value) for entry in entries}
    table = results.assign(
        line=[places[row][0] for row in results["row"]], value=[places[row][1] for row in results["row"]]
    )
    of_share = key == "train_share"
    if of_share:
        table["value"] *= 100
    setting = "training subjects (%)" if of_share else key.split(".")[-1].replace("_", " ")
    colours = {line: MANY[i % len(MANY)] for i, line in enumerate(dict.fromkeys(table["line"]))}
    parts = list(table.groupby(["dataset", "atlas"], sort=False))
    with canvas(out, width=10.5, height=2.7 * len(parts) + 0.5) as figure:
        rows = figure.subfigures(len(parts), 1, squeeze=False)[:, 0]
        for place, ((dataset, atlas), part) in zip(rows, parts, strict=True):
            metrics = METRICS if "accuracy" in set(part["metric"]) else NUMBER_METRICS
            place.suptitle(f"{dataset}, {atlas}", x=0.01, ha="left", fontweight="bold", fontsize=10.5)
            for axis, metric in zip(place.subplots(1, len(metrics), squeeze=False)[0], metrics, strict=True):
                set_metric_title(axis, metric)
                axis.set_xlabel(setting)
                scale = 1 if metric in NUMBER_METRICS else 100
                _panel(axis, part[part["metric"] == metric], colours, scale, linear=of_share)
        unknown = set(table.loc[table["fidelity"] == RECONSTRUCTED, "line"])
        result_legend(figure, table, {marked(line, unknown): colour for line, colour in colours.items()}, missing="D:")


def _panel(axis: Axes, part: pd.DataFrame, colours: dict[str, str], scale: int, linear: bool = False) -> None:
    """Draw one metric: complete rows are joined by a solid line, rows with missing folds are hollow and dotted."""
    values = np.array(sorted(part["value"].unique()))
    log = not linear and values[0] > 0 and values[-1] / values[0] >= LOGARITHMIC_FROM
    first, last = (np.log10(values[[0, -1]])) if log else values[[0, -1]]
    shift = OFFSET * (last - first)
    lines = [line for line in colours if line in set(part["line"])]
    for i, line in enumerate(lines):
        rows, colour = part[part["line"] == line].sort_values("value"), colours[line]
        moved = shift * (i - (len(lines) - 1) / 2)
        x = (rows["value"] * 10**moved if log else rows["value"] + moved).to_numpy()
        mean, low, high, paper = (scale * rows[name].to_numpy(float) for name in ("mean", "low", "high", "paper_mean"))
        complete = (rows["n_folds"] == rows["expected_folds"]).to_numpy()
        axis.plot(x, np.where(complete, mean, np.nan), "-", lw=1.6, color=colour, zorder=3)
        axis.plot(x, mean, ":", lw=1.2, color=colour, zorder=2)
        axis.vlines(x[complete], low[complete], high[complete], color=colour, lw=1.2, alpha=0.7, zorder=2)
        axis.vlines(x[~complete], low[~complete], high[~complete], color=colour, lw=1.2, ls=":", zorder=2)
        axis.plot(x[complete], mean[complete], "D", ms=4, color=colour, mew=0, zorder=4)
        axis.plot(x[~complete], mean[~complete], "D", ms=4, mfc="white", mec=colour, zorder=4)
        axis.plot(x, paper, "o", ms=5.5, mfc="none", mec=colour, mew=1.1, zorder=3)
    for level in sorted({round(scale * level, 1) for level in part["no_skill"].dropna()}):
        axis.axhline(level, color=INK, ls="--", lw=0.9, zorder=1)
    margin = MARGIN * (last - first) or 0.5
    left, right = first - margin, last + margin
    if log:
        axis.set_xscale("log")
    axis.set_xlim((10**left, 10**right) if log else (left, right))
    axis.set_xticks(values, [f"{value:g}" for value in values])
    axis.xaxis.set_minor_locator(NullLocator())
