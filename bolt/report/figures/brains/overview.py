"""The explanation in one picture: regions on the cortex, importance over time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import nibabel as nib
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bolt.report.figures.brains.regions import Brain, centres, is_drawn
from bolt.report.figures.series import draw_importance, time_unit
from bolt.report.figures.style import MUTED, WIDTH, canvas, class_colours

HEIGHT = 2.5  # inches


def plot_overview(
    table: pd.DataFrame | None,
    image: nib.Nifti1Image | None,
    classes: Sequence[str],
    importance: NDArray[np.floating],
    tokens: NDArray[np.integer],
    tr: float,
    out: Path,
    *,
    title: str,
    volumes: NDArray[np.integer] | None = None,
) -> None:
    """Draw ``roi_weights.tsv`` (with more than two classes, the first) and importance (T,) of one scan.

    Without a table or the image of its atlas, only importance is drawn. Other parameters as in
    `bolt.report.figures.series.time_course`.
    """
    with_brain = table is not None and image is not None
    with canvas(out, width=WIDTH, height=HEIGHT, layout=None) as figure:
        left = 0.5 if with_brain else 0.09
        axis = figure.add_axes((left, 0.19, 0.98 - left, 0.59))
        draw_importance(axis, importance, tokens, tr, volumes=volumes)
        axis.set_xlabel(time_unit(tr))
        figure.text(left, 0.97, title, fontsize=8.5, color=MUTED, va="top")
        if table is None or image is None:
            return
        shown = list(classes) if len(classes) == 2 else list(classes[:1])
        colours = class_colours(classes)
        selected = table[is_drawn(table) & table["class"].isin(shown)].copy()
        selected["centre"] = centres(image, selected["value"].to_numpy(int))
        Brain(selected, image, shown, colours).surfaces(figure, (0.02, 0.12, 2.85, 2.1), 2)
        for i, name in enumerate(shown):
            figure.text(0.03 + 0.2 * i, 0.02, f"■ {name}", fontsize=8.5, color=colours[name])
