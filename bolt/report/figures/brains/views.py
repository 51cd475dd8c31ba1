"""The strongest connections on a glass brain.

Interactive brain maps: nilearn's HTML viewers, each in one self-contained file.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

import nibabel as nib
import numpy as np
import pandas as pd
from nilearn import plotting
from nilearn.surface import PolyData, PolyMesh, SurfaceImage

from bolt.explain.weights import paint
from bolt.io.files import write_text
from bolt.report.figures.brains.cortex import labels_of_vertices, meshes
from bolt.report.figures.brains.maps import centres, is_drawn
from bolt.report.figures.style import DIVERGING, INK, WIDTH, canvas
from bolt.report.figures.trust import colour_map

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


def write_views(
    table: pd.DataFrame, image: nib.Nifti1Image, classes: Sequence[str], stem: Path
) -> dict[str, list[Path]]:
    """Write ``<stem>_volume.html`` and ``<stem>_cortex.html`` per class (of ``roi_weights.tsv``), two classes in one.

    Colours are regression weights: of all ROIs in the volume, of the selected ROIs on the cortex. With two classes, red
    favours the first and blue the second, as in the figures.

    Returns
    -------
    dict
        Classes shown to their files: the volume's, the cortex's.
    """
    together = len(classes) == 2
    views = {}
    for i, name in enumerate(classes[:1] if together else classes):
        rows = table[table["class"] == name]
        both = table[is_drawn(table) & table["class"].isin(classes if together else [name])]
        chosen = rows["weight"].where(rows["value"].isin(both["value"]), 0)
        number = "" if together else f"-{i + 1}"
        files = [stem.with_name(f"{stem.name}_{part}{number}.html") for part in ("volume", "cortex")]
        title = escape(f"red: {classes[0]}, blue: {classes[1]}" if together else name)
        write_text(_volume(image, rows["value"], rows["weight"], title), files[0])
        write_text(_cortex(image, rows["value"], chosen, title), files[1])
        views[" and ".join(classes) if together else name] = files
    return views


def _volume(image: nib.Nifti1Image, values: pd.Series, weights: pd.Series, title: str) -> str:
    painted = paint(image, values.to_numpy(int), weights.to_numpy(np.float32))
    view = plotting.view_img(
        painted, threshold=None, cmap=DIVERGING, title=title, resampling_interpolation="nearest", opacity=0.75
    )
    return str(view.html)


def _cortex(image: nib.Nifti1Image, values: pd.Series, weights: pd.Series, title: str) -> str:
    """Return both inflated hemispheres; vertices get their ROIs as in the figures (`labels_of_vertices`)."""
    of_value = dict(zip(values.astype(int), weights.astype(float), strict=True))
    vertices = labels_of_vertices(image).items()
    numbers = {side: pd.Series(labels).map(of_value).fillna(0).to_numpy() for side, labels in vertices}
    mesh = PolyMesh(**{side: meshes()[f"infl_{side}"] for side in numbers})
    depth = PolyData(**{side: meshes()[f"sulc_{side}"] for side in numbers})
    shown = np.abs(weights[weights != 0])
    view = plotting.view_surf(
        surf_mesh=mesh,
        surf_map=SurfaceImage(mesh=mesh, data=PolyData(**numbers)),
        bg_map=SurfaceImage(mesh=mesh, data=depth),
        hemi="both",
        threshold=float(shown.min()) * 0.999 if len(shown) else 1e-6,
        cmap=DIVERGING,
        vmax=float(shown.max()) if len(shown) else 1.0,
        title=title,
        title_fontsize=16,
        colorbar_fontsize=12,
    )
    return str(view.html)
