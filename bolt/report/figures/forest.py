"""All rows of an experiment as a forest plot: means over folds with their 95 % intervals."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bolt.evaluate.classes import METRICS
from bolt.evaluate.numbers import NUMBER_METRICS
from bolt.report.figures.style import INK, MANY, MUTED, canvas
from bolt.report.tables.numbers import LEGEND, MARK, METRIC_NAMES, RECONSTRUCTED, TOO_FEW

ROW = 0.27  # inches of height
STRIPE = "#f2f4f7"
BEHIND = {"facecolor": "white", "alpha": 0.8, "edgecolor": "none", "pad": 0.4}  # of numbers at an edge
WIDEST = 0.6  # share of the scale, and
BULK = 12  # interquartile ranges, up to which an axis shows everything
REACH = 5  # interquartile ranges to either side of the bulk otherwise


def draw(results: pd.DataFrame, out: Path, *, reference: str = "") -> None:
    """Draw `RESULT_COLUMNS`: a panel per dataset and metric, a line per row (bold: `reference`)."""
    atlases = {atlas: MANY[i % len(MANY)] for i, atlas in enumerate(dict.fromkeys(results["atlas"]))}
    parts = list(results.groupby("dataset", sort=False))
    heights = [part["row"].nunique() * ROW + 0.75 for _, part in parts] or [1.0]
    with canvas(out, width=10.5, height=sum(heights) + 0.6) as figure:
        rows: Any = figure.subfigures(len(parts), 1, height_ratios=heights, squeeze=False)[:, 0] if parts else []
        for place, (dataset, part) in zip(rows, parts, strict=True):
            metrics = METRICS if "accuracy" in set(part["metric"]) else NUMBER_METRICS
            place.suptitle(dataset, x=0.01, ha="left", fontweight="bold", fontsize=10.5)
            axes = place.subplots(1, len(metrics), sharey=True, squeeze=False)[0]
            for axis, metric in zip(axes, metrics, strict=True):
                _panel(axis, part[part["metric"] == metric], atlases)
                set_metric_title(axis, metric)
            _names(axes[0], part, reference)
        if figure.axes:
            result_legend(figure, results, atlases, missing=":")


def set_metric_title(axis: Axes, metric: str) -> None:
    """Title a panel with its metric and unit."""
    title = METRIC_NAMES.get(metric, metric.capitalize())
    axis.set_title(title if metric in NUMBER_METRICS else f"{title} (%)")


def result_legend(figure: Figure, results: pd.DataFrame, colours: Mapping[str, str], *, missing: str) -> None:
    """Explain colours and marks below a figure; `missing` is the line format of rows with missing folds."""
    axis = figure.axes[0]
    keys = [axis.plot([], [], "D-", ms=4, lw=1.6, color=colour, label=name)[0] for name, colour in colours.items()]
    if results["paper_mean"].notna().any():
        keys.append(axis.plot([], [], "o", ms=5, mfc="none", mec=INK, label="the paper's mean over folds")[0])
    if (results["n_folds"] < results["expected_folds"]).any():
        keys.append(axis.plot([], [], missing, ms=4, mfc="white", lw=1.6, color=INK, label="folds are missing")[0])
    keys.append(axis.plot([], [], "--", lw=0.9, color=INK, label="no skill")[0])
    title = "mean over folds, 95 % interval"
    if RECONSTRUCTED in set(results.get("fidelity", ())):
        title += f"; {LEGEND}"
    figure.legend(handles=keys, loc="outside lower center", ncols=6, title=title)


def _panel(axis: Axes, part: pd.DataFrame, atlases: dict[str, str]) -> None:
    order = list(dict.fromkeys(part["row"]))
    scale = 1 if part["metric"].iloc[0] in NUMBER_METRICS else 100
    for i in range(0, len(order), 2):
        axis.axhspan(i - 0.5, i + 0.5, color=STRIPE, lw=0, zorder=0)
    drawn = [atlas for atlas in atlases if atlas in set(part["atlas"])]
    offsets = dict(zip(drawn, np.linspace(-0.18, 0.18, len(drawn)) if len(drawn) > 1 else [0.0], strict=True))
    limits = _limits(axis, part, scale)
    for value in part.itertuples():
        _mark(axis, value, order.index(value.row) + offsets[value.atlas], atlases[value.atlas], scale, limits)
    axis.set_ylim(len(order) - 0.5, -0.5)
    axis.tick_params(axis="y", length=0)


def _mark(axis: Axes, value: Any, y: float, colour: str, scale: int, limits: tuple[float, float]) -> None:
    """Draw a row's mean, interval and the paper's mean: arrows for longer intervals, numbers for means off the axis."""
    low, high = limits
    mean, paper = scale * value.mean, scale * value.paper_mean
    edge = axis.get_yaxis_transform()
    if low <= mean <= high:
        start, end = scale * value.low, scale * value.high
        if np.isnan(start):
            right = mean > (low + high) / 2  # the words are to the left, so that they are on the axis
            place: Any = {"xytext": (-5 if right else 5, 0), "ha": "right" if right else "left", "va": "center"}
            axis.annotate(TOO_FEW, (mean, y), textcoords="offset points", fontsize=6, color=colour, **place)
        dots = "-" if value.n_folds == value.expected_folds else ":"
        axis.hlines(y, max(start, low), min(end, high), color=colour, lw=1.6, ls=dots, zorder=2)
        axis.plot(mean, y, "D", ms=3.6, color=colour, mew=0, zorder=4)
        for beyond, place, shape in ((start < low, 0.012, "<"), (end > high, 0.988, ">")):
            if beyond:
                axis.plot(place, y, shape, ms=4.5, color=colour, mew=0, transform=edge, zorder=4)
    if low <= paper <= high:
        axis.plot(paper, y, "o", ms=5, mfc="none", mec=colour, mew=1.1, zorder=3)
    named = (("", mean), ("paper ", paper))  # NaN is beyond neither end
    below = ", ".join(f"{name}{number:.3g}" for name, number in named if number < low)
    above = ", ".join(f"{name}{number:.3g}" for name, number in named if number > high)
    look: Any = {"va": "center", "fontsize": 6.5, "color": colour, "bbox": BEHIND, "zorder": 5, "transform": edge}
    if below:
        axis.text(0.01, y, f"◂ {below}", ha="left", **look)
    if above:
        axis.text(0.99, y, f"{above} ▸", ha="right", **look)


def _limits(axis: Axes, part: pd.DataFrame, scale: int) -> tuple[float, float]:
    """Set limits that show every interval, or only the bulk where a few rows are far off; draw the no-skill line."""
    seen = scale * part[["low", "high", "mean", "paper_mean"]].to_numpy(float)
    seen, means = seen[np.isfinite(seen)], scale * part["mean"].dropna().to_numpy()
    levels = sorted({round(scale * level, 1) for level in part["no_skill"].dropna()})
    if not len(means):
        return -np.inf, np.inf
    first, last = np.percentile(means, [25, 75])
    inside = np.array([*seen, *levels])
    if np.ptp(inside) > max(BULK * (last - first), WIDEST * scale):
        reach = max(REACH * (last - first), 0.2 * scale)
        inside = inside[(inside >= first - reach) & (inside <= last + reach)]
    low, high = inside.min(), inside.max()
    margin = 0.06 * (high - low) or 0.01 * scale
    axis.set_xlim(low - margin, high + margin)
    for level in levels:
        if low <= level <= high:
            axis.axvline(level, color=INK, ls="--", lw=0.9, zorder=1)
    if levels and not low <= levels[0] <= high:
        words = f"no skill: {levels[0]:g}"
        axis.set_xlabel(f"← {words}" if levels[0] < low else f"{words} →", fontsize=7.5, color=MUTED)
    return low - margin, high + margin


def _names(axis: Axes, part: pd.DataFrame, reference: str) -> None:
    order = list(dict.fromkeys(part["row"]))
    axis.set_yticks(range(len(order)), [_name(row, part[part["row"] == row]) for row in order])
    for row, label in zip(order, axis.get_yticklabels(), strict=True):
        label.set_fontweight("bold" if row == reference else "normal")


def _name(row: str, values: pd.DataFrame) -> str:
    """Return the row's name, with a dagger if it is reconstructed, and the number of its folds if some are missing."""
    folds = values.groupby("atlas", sort=False)[["n_folds", "expected_folds"]].max()  # undefined metrics have fewer
    lacking = folds[folds["n_folds"] < folds["expected_folds"]]
    row += f" {MARK}" if RECONSTRUCTED in set(values.get("fidelity", ())) else ""
    if not values["expected_folds"].any():
        return f"{row} (not applicable)"
    counts = ", ".join(dict.fromkeys(f"{line.n_folds} of {line.expected_folds}" for line in lacking.itertuples()))
    return f"{row} ({counts} folds)" if counts else row
