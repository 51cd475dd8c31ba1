"""The selected regions on a brain: glass brain and fsaverage5 surfaces side by side.

The meshes are those that nilearn ships, so nothing is downloaded. Vertices find their ROI through the
MNI coordinates of fsaverage; ROIs away from the cortex (cerebellum, deep nuclei) appear on the glass
brain only.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pandas as pd
from matplotlib.colors import ListedColormap
from nilearn import datasets, plotting, surface
from numpy.typing import NDArray
from scipy.ndimage import distance_transform_edt

from bolt.explain.regions import paint
from bolt.report.style import INK, MUTED, WIDTH, canvas, class_colours

VIEWS = (("left", "lateral"), ("left", "medial"), ("right", "lateral"), ("right", "medial"))
LISTED = 10  # ROIs named beside the picture
LETTERS = 40  # of a name
BAND = 2.9  # inches: height of a row of brains that is as wide as the figure
LINE_HEIGHT = 0.155  # inches
REACH = 4.0  # mm


def plot_regions(table: pd.DataFrame, image: nib.Nifti1Image, classes: Sequence[str], out: Path) -> None:
    """Draw the selected ROIs of every class: two classes share a brain, more get a row each.

    Parameters
    ----------
    table : DataFrame
        ``roi_weights.tsv`` (`bolt.explain.regions.ROI_COLUMNS`).
    image : label image of the atlas
    classes : sequence of str
    out : Path
        PNG; an SVG is written beside it.
    """
    selected = table[table["selected"]]
    colours = class_colours(classes)
    two = len(classes) == 2
    rows = [list(classes)] if two else [[c] for c in classes]
    width = 1.0 if two else 0.62
    tall = BAND * width  # inches of one row of brains
    key = 0.45 + LINE_HEIGHT * max(len(_listing(selected, c)) for c in classes) if two else 0.0
    total = len(rows) * tall + key
    codes = [_codes(selected, image, row) for row in rows]
    nearest = _rois_of_vertices(image)
    with canvas(out, width=WIDTH, height=total, layout=None) as figure:
        for i, row in enumerate(rows):
            top = 1 - i * tall / total
            _draw_row(figure, (top, tall / total, width), codes[i], nearest, [colours[c] for c in row])
            if not two:
                _key(figure, 0.65, top - 0.1 / total, selected, row[0], colours[row[0]])
        for c, left in zip(classes if two else (), (0.03, 0.52), strict=False):
            _key(figure, left, (key - 0.05) / total, selected, c, colours[c])


def _codes(selected: pd.DataFrame, image: nib.Nifti1Image, classes: Sequence[str]) -> nib.Nifti1Image:
    """Label image with 1, 2... where the ROIs selected for the first, second... class are."""
    labels = np.asanyarray(image.dataobj)
    values = np.unique(labels[labels != 0]).astype(int)
    numbers = np.zeros(len(values), dtype=np.int16)
    for code, name in enumerate(classes, start=1):
        numbers[np.isin(values, selected.loc[selected["class"] == name, "value"])] = code
    return paint(image, values, numbers)


def _draw_row(
    figure: Any,
    band: tuple[float, float, float],
    codes: nib.Nifti1Image,
    nearest: dict[str, NDArray[np.integer]],
    colours: Sequence[str],
) -> None:
    """A glass brain above four surface views, in a band (top, height, width) of a figure."""
    top, height, width = band
    glass = figure.add_axes((0.0, top - 0.49 * height, width, 0.48 * height))
    display = plotting.plot_glass_brain(None, axes=glass, display_mode="lyrz", annotate=False, alpha=0.5)
    display.annotate(size=8 if width < 1 else 10)
    data = np.asanyarray(codes.dataobj)
    for code, colour in enumerate(colours, start=1):
        if (data == code).any():
            part = nib.Nifti1Image((data == code).astype(np.float32), codes.affine)
            display.add_overlay(part, threshold=0.5, cmap=ListedColormap([colour]), vmin=0, vmax=1)
    flat = np.append(data.ravel(), 0)  # index -1: no ROI within reach
    for i, (side, view) in enumerate(VIEWS):
        square = width / 4 * figure.get_figwidth() / figure.get_figheight()  # as high as it is wide
        axis = figure.add_axes((i * width / 4, top - 0.77 * height - square / 2, width / 4, square), projection="3d")
        axis.patch.set_visible(False)
        _draw_surface(axis, flat[nearest[side]].astype(float), side, view, colours)
        figure.text(
            (i + 0.5) * width / 4, top - 0.5 * height, f"{side} {view}", color=MUTED, fontsize=8, ha="center", va="top"
        )


@cache
def _meshes() -> Any:
    return datasets.fetch_surf_fsaverage("fsaverage5")


def _rois_of_vertices(image: nib.Nifti1Image) -> dict[str, NDArray[np.integer]]:
    """For each vertex, halfway between white matter and pial surface, the nearest voxel (flat index)
    of any ROI within `REACH` mm, or -1: so parcels meet at their true borders, and a sphere that
    lies just below the cortex still shows."""
    labels = np.asanyarray(image.dataobj)
    distance, place = distance_transform_edt(
        labels == 0, sampling=nib.affines.voxel_sizes(image.affine), return_indices=True
    )
    nearest = {}
    for side in ("left", "right"):
        pial, white = (surface.load_surf_mesh(_meshes()[f"{s}_{side}"]).coordinates for s in ("pial", "white"))
        voxels = nib.affines.apply_affine(np.linalg.inv(image.affine), (pial + white) / 2).round().astype(int)
        inside = ((voxels >= 0) & (voxels < labels.shape)).all(axis=1)
        i, j, k = np.where(inside[:, None], voxels, 0).T
        found = np.ravel_multi_index(tuple(place[:, i, j, k]), labels.shape)
        nearest[side] = np.where(inside & (distance[i, j, k] <= REACH), found, -1)
    return nearest


def _draw_surface(axis: Any, texture: NDArray[np.floating], side: str, view: str, colours: Sequence[str]) -> None:
    meshes = _meshes()
    plotting.plot_surf_roi(
        meshes[f"infl_{side}"],
        np.where(texture > 0, texture, np.nan),
        hemi=side,
        view=view,
        bg_map=meshes[f"sulc_{side}"],
        bg_on_data=False,
        cmap=ListedColormap(list(colours)),
        vmin=1,
        vmax=max(len(colours), 2),
        colorbar=False,
        axes=axis,
        engine="matplotlib",
    )
    axis.set_box_aspect(None, zoom=1.2)
    for artist in axis.collections:
        artist.set_rasterized(True)  # twenty thousand triangles do not belong in an SVG


def _listing(selected: pd.DataFrame, name: str) -> list[str]:
    """Names of the class's ROIs with their networks, best first."""
    rows = selected[selected["class"] == name].sort_values("rank")
    lines = []
    for _, row in rows.head(LISTED).iterrows():
        network = row["network"] if isinstance(row["network"], str) else ""
        known = network and network.lower() not in str(row["name"]).lower()
        line = f"{row['rank']}. {row['name']}" + (f" ({network})" if known else "")
        lines.append(line if len(line) <= LETTERS else line[: LETTERS - 1] + "…")
    if len(rows) > LISTED:
        lines.append(f"and {len(rows) - LISTED} more")
    return lines or ["no ROI"]


def _key(figure: Any, left: float, top: float, selected: pd.DataFrame, name: str, colour: str) -> None:
    """Colour key with the ROIs of one class, as text from (left, top) downwards."""
    below = top - 0.22 / figure.get_figheight()
    figure.text(left, top, "■", color=colour, fontsize=11, va="top")
    figure.text(left + 0.025, top, f"speaks for {name}", color=INK, fontsize=9, fontweight="bold", va="top")
    figure.text(left + 0.025, below, "\n".join(_listing(selected, name)), fontsize=8, va="top", linespacing=1.35)
