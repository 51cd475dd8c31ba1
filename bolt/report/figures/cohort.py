"""Who is in a dataset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from bolt.report.figures.style import INK, canvas, class_colours


def cohort(scans: pd.DataFrame, classes: Sequence[str], out: Path) -> None:
    """Draw the label against site, sex, age and head motion, as far as they are known."""
    colours = class_colours(classes)
    panels = [("site", "Scans by site"), ("sex", "Scans by sex"), ("age", "Age"), ("mean_fd", "Head motion")]
    panels = [(c, t) for c, t in panels if c in scans and scans[c].notna().any()]
    panels = panels or [("task", "Scans")]
    units = {"age": "years", "mean_fd": "mean FD (mm)"}
    names = [column for column, _ in panels]
    many_sites = len(names) > 1 and "site" in names and scans["site"].nunique() > 4  # these get a row of their own
    others = [name for name in names if name != "site"] if many_sites else names
    rows: Any = [["site"] * len(others), others] if many_sites else [others]
    with canvas(out, height=4.6 if many_sites else 2.6) as figure:
        axes = figure.subplot_mosaic(rows)
        for column, title in panels:
            axis = axes[column]
            if column in units:
                _strip(axis, scans, column, colours)
                axis.set_ylabel(units[column])
            else:
                _counts(axis, scans, column, colours)
            axis.set_title(title)
        handles = [axes[names[0]].plot([], [], "s", color=c, label=name)[0] for name, c in colours.items()]
        figure.legend(handles=handles, loc="outside lower center", ncols=min(len(classes), 7))


def _counts(axis: Axes, scans: pd.DataFrame, column: str, colours: Mapping[str, str]) -> None:
    table = pd.crosstab(scans[column].fillna("unknown").astype(str), scans["label"].astype(str))
    shown = table.loc[table.sum(axis=1).sort_values(ascending=False, kind="stable").index[:30]]
    bottom = np.zeros(len(shown))
    for name, colour in colours.items():
        heights = shown[name].to_numpy() if name in shown else np.zeros(len(shown))
        bars = axis.bar(np.arange(len(shown)), heights, bottom=bottom, color=colour, width=0.7)
        if len(shown) <= 5:
            texts = [str(h) if h > 0.06 * shown.sum(axis=1).max() else "" for h in heights]  # only where it fits
            axis.bar_label(bars, texts, label_type="center", color="white", fontsize=8)
        bottom += heights
    slanted = len(shown) > 4 or sum(map(len, shown.index)) > 16
    axis.set_xticks(range(len(shown)), shown.index)
    if slanted:
        axis.tick_params(axis="x", labelsize=7.5)
        axis.set_xticks(range(len(shown)), shown.index, rotation=45, ha="right", rotation_mode="anchor")
    axis.set_ylabel("scans")
    axis.yaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    if len(table) > len(shown):
        axis.set_xlabel(f"{len(table) - len(shown)} smaller ones not shown")


def _strip(axis: Axes, scans: pd.DataFrame, column: str, colours: Mapping[str, str]) -> None:
    random = np.random.default_rng(0)
    for i, (name, colour) in enumerate(colours.items()):
        values = pd.to_numeric(scans.loc[scans["label"].astype(str) == name, column], errors="coerce").dropna()
        size, alpha = (3, 0.55) if len(values) < 200 else (2, 0.35)
        axis.plot(i + random.uniform(-0.22, 0.22, len(values)), values, "o", ms=size, alpha=alpha, mew=0, color=colour)
        if len(values):
            axis.hlines(values.median(), i - 0.32, i + 0.32, color=INK, lw=1.6, zorder=3)
    axis.set_xticks([])
    axis.set_xlim(-0.6, len(colours) - 0.4)
    known = pd.to_numeric(scans[column], errors="coerce").dropna()
    if column == "mean_fd" and known.min() > 0 and known.max() > 8 * known.median():  # a few large values
        axis.set_yscale("log")
        axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    elif column == "mean_fd":
        axis.set_ylim(bottom=0)
