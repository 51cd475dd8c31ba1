"""The networks of the selected regions, and how much they vary between folds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bolt.report.figures.style import INK, LINE, MUTED, WIDTH, canvas, class_colours

BAR = 0.15  # inches per class


def plot_networks(table: pd.DataFrame, classes: Sequence[str], out: Path) -> None:
    """Draw the share of selected ROIs and the mean importance of networks, with sd over folds (``networks.tsv``)."""
    share = table.groupby("network")["mean_selection_frequency"].max().sort_values(ascending=False, kind="stable")
    networks, colours = list(share.index), class_colours(classes)
    overall = 100 * (table["mean_selection_frequency"] * table["n_rois"]).sum() / table["n_rois"].sum()
    height = len(networks) * (BAR * len(classes) + 0.16) + 0.85
    measures = (
        ("mean_selection_frequency", "selection_sd", 100, "ROIs selected (%)"),
        ("mean_importance", "importance_sd", 1, "mean importance (odds ratio − 1)"),
    )
    with canvas(out, width=WIDTH, height=height) as figure:
        for axes, (mean, sd, factor, label) in zip(figure.subplots(1, 2, sharey=True), measures, strict=True):
            for i, name in enumerate(classes):
                rows = table[table["class"] == name].set_index("network").reindex(networks)
                _bars(axes, rows[mean] * factor, rows[sd] * factor, i, len(classes), colours[name], name)
            axes.set_xlabel(label)
            axes.set_yticks(np.arange(len(networks)), networks)
            axes.grid(axis="x", color=LINE, linewidth=0.6)
            axes.set_axisbelow(True)
            axes.locator_params(axis="x", nbins=5)
            axes.margins(y=0.02)
        left, right = figure.axes
        left.invert_yaxis()
        left.set_xlim(left=0)
        left.axvline(overall, color=MUTED, linestyle="--", linewidth=1)
        right.axvline(0, color=MUTED, linewidth=0.8)
        handles, names = left.get_legend_handles_labels()
        figure.legend(handles, names, loc="outside upper left", ncols=4)


def _bars(axes: Any, values: pd.Series, spread: pd.Series, i: int, n: int, colour: str, name: str) -> None:
    step = 0.8 / n
    places = np.arange(len(values)) + (i - (n - 1) / 2) * step
    axes.barh(
        places, values, step * 0.9, xerr=spread, color=colour, label=name, error_kw={"ecolor": INK, "elinewidth": 0.8}
    )
