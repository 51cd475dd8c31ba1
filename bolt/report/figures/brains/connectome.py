"""The strongest connections on a glass brain."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import nibabel as nib
import numpy as np
import pandas as pd
from nilearn import plotting

from bolt.report.figures.brains.regions import centres
from bolt.report.figures.connections import colour_map
from bolt.report.figures.style import INK, WIDTH, canvas

PANEL = 2.1  # inches: height of a class


def plot_connectome(table: pd.DataFrame, image: nib.Nifti1Image, classes: Sequence[str], out: Path) -> None:
    """Draw the given rows of ``connections.tsv``, a brain per class.

    Parameters
    ----------
    table : DataFrame
        At least one row.
    image : label image of the atlas
    classes : sequence of str
        In the order of their colours.
    out : Path
    """
    largest, panels = table["r"].abs().max(), list(table.groupby("class", sort=False))
    height = PANEL * len(panels)
    with canvas(out, width=WIDTH, height=height, layout=None) as figure:
        for row, (name, rows) in enumerate(panels):
            values = sorted({*rows["value_a"], *rows["value_b"]})
            matrix = np.zeros((len(values), len(values)))
            for a, b, r in rows[["value_a", "value_b", "r"]].itertuples(index=False):
                i, j = values.index(a), values.index(b)
                matrix[i, j] = matrix[j, i] = r
            top = 1 - row * PANEL / height
            axes = figure.add_axes((0, top - PANEL / height, 0.9, 0.9 * PANEL / height))
            plotting.plot_connectome(
                matrix,
                centres(image, np.array(values, int)),
                axes=axes,
                display_mode="lyrz",
                node_size=10,
                node_color=INK,
                edge_cmap=colour_map(classes, str(name)),
                edge_vmin=-largest,
                edge_vmax=largest,
                edge_kwargs={"linewidth": 1.2},
                colorbar=row == 0,
                annotate=True,
            )
            figure.text(0.01, top - 0.02, str(name), va="top", fontweight="bold", fontsize=9)
