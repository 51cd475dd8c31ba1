"""Matrices of connections: how strongly each goes with the prediction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bolt.report.figures.style import DIVERGING, LINE, WIDTH, canvas

COLUMNS = 3
MOST_NAMES = 40  # networks that are named on the axes


def colour_map(classes: Sequence[str], name: str) -> str:
    """Return the colours of correlations with the log odds of a class: its own colour is positive."""
    return f"{DIVERGING[:-2]}" if len(classes) == 2 and classes[0] != name else DIVERGING


def plot_network_matrices(table: pd.DataFrame, classes: Sequence[str], out: Path) -> None:
    """Draw the mean correlation of each pair of networks, with the number of significant ones.

    Parameters
    ----------
    table : DataFrame
        ``connection_networks.tsv``.
    classes : sequence of str
        In the order of their colours.
    out : Path
    """
    networks = sorted(set(table["network_a"]) | set(table["network_b"]))
    matrices, counts = {}, {}
    for name, rows in table.groupby("class", sort=False):
        values = np.full((len(networks), len(networks)), np.nan)
        number = np.zeros(values.shape, int)
        a, b = (rows[f"network_{end}"].map(networks.index).to_numpy(int) for end in "ab")
        for i, j in ((a, b), (b, a)):
            values[i, j], number[i, j] = rows["mean_r"], rows["n_significant"]
        matrices[str(name)], counts[str(name)] = values, number
    _draw(matrices, classes, out, networks, counts)


def plot_roi_matrices(correlations: Mapping[str, NDArray[np.floating]], classes: Sequence[str], out: Path) -> None:
    """Draw the correlation of every connection, in the order of the atlas.

    Parameters
    ----------
    correlations : dict
        Class to the strict upper triangle, row by row (``connections.npy``).
    classes, out
        As in `plot_network_matrices`.
    """
    matrices = {}
    for name, values in correlations.items():
        n_rois = round((1 + np.sqrt(1 + 8 * len(values))) / 2)
        matrices[name] = np.zeros((n_rois, n_rois))
        matrices[name][np.triu_indices(n_rois, k=1)] = values
        matrices[name] += matrices[name].T
    _draw(matrices, classes, out, [], {})


def _draw(
    matrices: Mapping[str, NDArray[np.floating]],
    classes: Sequence[str],
    out: Path,
    names: Sequence[str],
    counts: Mapping[str, NDArray[np.integer]],
) -> None:
    """Draw a panel per class, all with the same scale."""
    columns = min(COLUMNS, len(matrices))
    rows = -(-len(matrices) // columns)
    named = names if len(names) <= MOST_NAMES else []
    side = 4.2 if columns == 1 else WIDTH / columns
    largest = max(float(np.nanmax(np.abs(values))) for values in matrices.values()) or 1.0
    width = min(WIDTH, side * columns + 1.4)
    with canvas(out, width=width, height=side * rows + (0.9 if named else 0.2)) as figure:
        panels = figure.subplots(rows, columns, squeeze=False)
        for axes in panels.flat[len(matrices) :]:
            axes.axis("off")
        for number, (axes, (name, values)) in enumerate(zip(panels.flat, matrices.items(), strict=False)):
            picture = axes.imshow(values, cmap=colour_map(classes, name), vmin=-largest, vmax=largest)
            axes.set_title(name)
            axes.spines[:].set_visible(False)
            axes.tick_params(length=0, labelsize=7)
            places = np.arange(len(named))
            axes.set_xticks(places, named, rotation=90)
            axes.set_yticks(places, named if number % columns == 0 else [])
            if not named:
                axes.set(xticks=[], yticks=[], xlabel="ROIs in the order of the atlas")
            _write_counts(axes, counts.get(name))
            if number == len(matrices) - 1 or columns == 1:
                bar = figure.colorbar(picture, ax=list(panels.flat), shrink=0.7 / rows, aspect=18)
                bar.set_label("correlation with the log odds")
                bar.outline.set_edgecolor(LINE)


def _write_counts(axes: Any, counts: NDArray[np.integer] | None) -> None:
    """Write the number of significant connections into each cell that has some."""
    if counts is not None:
        for i, j in np.argwhere(counts > 0):
            axes.text(j, i, counts[i, j], ha="center", va="center", fontsize=6)
