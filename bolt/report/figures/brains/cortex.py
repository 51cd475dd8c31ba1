"""An atlas's ROIs on the inflated fsaverage5 cortex, whose meshes nilearn ships.

Vertices are assigned to ROIs by MNI coordinates; ROIs away from the cortex (cerebellum, deep nuclei) get none.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

import nibabel as nib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from nilearn import datasets, plotting, surface
from numpy.typing import NDArray
from scipy.ndimage import distance_transform_edt

SIDES = ("left", "right")
REACH = 4.0  # mm
DPI = 300


@cache
def meshes() -> Any:
    """Return nilearn's fsaverage5: white, pial and inflated meshes, and sulcal depth."""
    return datasets.fetch_surf_fsaverage("fsaverage5")


def filled(image: nib.Nifti1Image, reach: float = REACH) -> NDArray[np.integer]:
    """Return the labels (X, Y, Z), with background voxels within `reach` mm given to the nearest ROI."""
    labels = np.asanyarray(image.dataobj).astype(int)
    sizes = nib.affines.voxel_sizes(image.affine)
    distance, place = distance_transform_edt(labels == 0, sampling=sizes, return_indices=True)
    return np.where(distance <= reach, labels[tuple(place)], 0)


@lru_cache(maxsize=4)
def labels_of_vertices(image: nib.Nifti1Image) -> dict[str, NDArray[np.integer]]:
    """Return the label value of each vertex per hemisphere, 0 for none.

    A vertex takes the nearest ROI within `REACH` mm of the point halfway between white matter and pial surface, so
    parcels meet at their true borders, and a sphere just below the cortex is still visible.
    """
    labels = filled(image)
    return {side: _labels_at(labels, image.affine, _midway(side)) for side in SIDES}


def _midway(side: str) -> NDArray[np.floating]:
    pial, white = (surface.load_surf_mesh(meshes()[f"{s}_{side}"]).coordinates for s in ("pial", "white"))
    return np.asarray(pial + white) / 2


def _labels_at(
    labels: NDArray[np.integer], affine: NDArray[np.floating], points: NDArray[np.floating]
) -> NDArray[np.integer]:
    voxels = nib.affines.apply_affine(np.linalg.inv(affine), points).round().astype(int)
    inside = ((voxels >= 0) & (voxels < labels.shape)).all(axis=1)
    return np.where(inside, labels[tuple(np.where(inside[:, None], voxels, 0).T)], 0)


def cortex_view(
    codes: NDArray[np.integer], side: str, view: str, colours: Sequence[str], inches: float
) -> NDArray[np.uint8]:
    """Render one hemisphere on a transparent background, `inches` wide and three quarters as high in print.

    Parameters
    ----------
    codes : int array (vertices,)
        0: no colour; n: the n-th of `colours`.
    side : {"left", "right"}
    view : {"lateral", "medial"}

    Returns
    -------
    uint8 array (height, width, 4)
    """
    figure = Figure(figsize=(inches, inches), dpi=DPI, facecolor="none")
    canvas = FigureCanvasAgg(figure)
    axes: Any = figure.add_axes((0, 0, 1, 1), projection="3d", facecolor="none")
    plotting.plot_surf_roi(
        meshes()[f"infl_{side}"],
        np.where(codes > 0, codes, np.nan).astype(float),
        hemi=side,
        view=view,
        bg_map=meshes()[f"sulc_{side}"],
        bg_on_data=False,
        cmap=ListedColormap(list(colours)),
        vmin=1,
        vmax=max(len(colours), 2),
        colorbar=False,
        axes=axes,
        engine="matplotlib",
    )
    axes.set_box_aspect(None, zoom=1.45)
    canvas.draw()
    picture = np.asarray(canvas.buffer_rgba())
    return picture[picture.shape[0] // 8 : -picture.shape[0] // 8].copy()
