"""Pictures by which a person judges a subject within a minute."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ants
import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt
import numpy as np
from sklearn.cluster import KMeans

from bolt.files import atomic, read_table
from bolt.preprocess import images
from bolt.preprocess.confounds import HEAD_RADIUS
from bolt.preprocess.measures import MOVED
from bolt.preprocess.registration import warp

BRAIN, WHITE = "#e4572e", "#17a2b8"
"""Colours of the contours: edge of the brain, edge of the white matter."""
FRAME = 12.0
"""mm shown around the brain."""
PIXEL = 1.5
"""mm of a pixel of the pictures."""
SLICES = 7


def draw_anatomical(
    paths: Mapping[str, Path], template: Path, figures: Path, prefix: str, space: str, numbers: Mapping[str, Any]
) -> None:
    """Two pictures: the brain mask on the T1w, and the T1w in template space under the template's contours."""
    t1w, mask = images.read(paths["t1w"]), images.read(paths["mask"])
    _mosaic(
        t1w,
        [(mask, BRAIN), (white_matter(t1w, mask), WHITE)],
        f"Brain mask (orange) and white matter (blue) on the T1w · {numbers['brain_ml']:.0f} ml",
        figures / f"{prefix}desc-brainmask_T1w.png",
    )
    head, brain = images.read(template / "T1w.nii.gz"), images.read(template / "brain_mask.nii.gz")
    _mosaic(
        images.read(paths["warped"]),
        [(brain, BRAIN), (white_matter(head, brain), WHITE)],
        f"T1w in {space} under the template's brain (orange) and white matter (blue) · "
        f"correlation {numbers['template_correlation']:.2f}",
        figures / f"{prefix}space-{space}_desc-normalisation_T1w.png",
    )


def draw_functional(
    paths: Mapping[str, Path], template: Path, figures: Path, scan_id: str, space: str, numbers: Mapping[str, Any]
) -> None:
    """Three pictures: BOLD under the T1w's contours, mean BOLD under the template's contours, head motion."""
    t1w, mask = images.read(paths["t1w"]), images.read(paths["t1w_mask"])
    data, affine = images.load(paths["native_reference"])
    to_t1w = np.linalg.inv(images.read_matrix(paths["bold_to_t1w"]))  # the file maps points of the T1w to the BOLD
    bold = warp(t1w, images.to_ants(data, to_t1w @ affine), [])
    _mosaic(
        bold,
        [(mask, BRAIN), (white_matter(t1w, mask), WHITE)],
        f"BOLD reference under the T1w's brain (orange) and white matter (blue) · "
        f"Dice {numbers['coregistration_mask_dice']:.2f}",
        figures / f"{scan_id}_desc-coregistration_boldref.png",
        around=mask,
    )
    head, brain = images.read(template / "T1w.nii.gz"), images.read(template / "brain_mask.nii.gz")
    _mosaic(
        images.read(paths["reference"]),
        [(brain, BRAIN), (white_matter(head, brain), WHITE)],
        f"Mean BOLD in {space} under the template's brain (orange) and white matter (blue) · "
        f"{100 * numbers['template_brain_covered']:.0f} % of the brain acquired",
        figures / f"{scan_id}_space-{space}_desc-normalisation_boldref.png",
        around=brain,
    )
    draw_motion(paths["confounds"], figures / f"{scan_id}_desc-motion_timeseries.png", numbers)


def draw_motion(confounds: Path, path: Path, numbers: Mapping[str, Any]) -> None:
    """Translations, rotations (as mm on Power's sphere), framewise displacement and DVARS over the volumes."""
    table = read_table(confounds)
    figure, axes = plt.subplots(4, 1, figsize=(9, 7), sharex=True, layout="constrained")
    for axis, colour in zip("xyz", ("#c0392b", "#27ae60", "#2471a3"), strict=True):
        axes[0].plot(table[f"trans_{axis}"], color=colour, label=axis, linewidth=1)
        axes[1].plot(HEAD_RADIUS * table[f"rot_{axis}"], color=colour, label=axis, linewidth=1)
    axes[0].legend(loc="upper right", ncols=3, frameon=False, fontsize=8)
    axes[2].fill_between(table.index, table["framewise_displacement"].fillna(0), color="#555555", linewidth=0)
    axes[2].axhline(MOVED, color=BRAIN, linewidth=0.8, linestyle="--")
    axes[3].plot(table["std_dvars"], color="#555555", linewidth=1)
    labels = ("Translation (mm)", "Rotation (mm at 50 mm)", "FD (mm)", "Standardised DVARS")
    for axis, label in zip(axes, labels, strict=True):
        axis.set_ylabel(label, fontsize=8)
        axis.spines[["top", "right"]].set_visible(False)
        axis.margins(x=0)
    axes[2].set_ylim(0, max(1.0, 1.1 * numbers["max_fd"]))
    axes[3].set_xlabel("Volume")
    figure.suptitle(
        f"Head motion · mean FD {numbers['mean_fd']:.2f} mm, largest {numbers['max_fd']:.2f} mm", fontsize=10
    )
    _save(figure, path)


def white_matter(t1w: ants.ANTsImage, mask: ants.ANTsImage) -> ants.ANTsImage:
    """The brightest of three classes (k-means) within the brain: good enough to draw its edge."""
    data, inside = t1w.numpy(), mask.numpy() > 0.5
    values = data[inside]
    sample = np.clip(values[:: max(1, len(values) // 20_000)], *np.quantile(values, [0.01, 0.99]))
    centres = np.sort(KMeans(3, n_init=3, random_state=0).fit(sample[:, None]).cluster_centers_.ravel())
    white = inside & (data > centres[1:].mean())
    return ants.smooth_image(t1w.new_image_like(white.astype(np.float32)), 0.7)


def _mosaic(
    image: ants.ANTsImage,
    contours: list[tuple[ants.ANTsImage, str]],
    title: str,
    path: Path,
    around: ants.ANTsImage | None = None,
) -> None:
    """Axial, coronal and sagittal slices around the brain, with contours at one half.

    All slices of a view are one strip, so that a picture takes a fraction of the time of a plot a slice.
    """
    first = contours[0][0] if around is None else around
    places = images.apply(images.affine_of(first), np.argwhere(first.numpy() > 0.5))
    low, high = places.min(axis=0), places.max(axis=0)
    affine = np.diag([PIXEL, PIXEL, PIXEL, 1.0])
    affine[:3, 3] = low - FRAME
    shape = tuple(np.ceil((high - low + 2 * FRAME) / PIXEL).astype(int))
    canvas = images.to_ants(np.zeros(shape), affine)
    shown, *edges = (warp(canvas, layer, []).numpy() for layer in (image, *(contour for contour, _ in contours)))
    heights = [shape[1] / shape[0], shape[2] / shape[0], shape[2] / shape[1]]  # of the strips, as shares of their width
    size = (13.0, 13.0 / SLICES * sum(heights) + 0.7)
    figure, axes = plt.subplots(3, 1, figsize=size, height_ratios=heights, layout="constrained")
    bright = np.quantile(shown[shown > 0], 0.995)
    for axis, k in zip(axes, (2, 1, 0), strict=True):
        cuts = np.linspace(FRAME, shape[k] * PIXEL - FRAME, SLICES + 2)[1:-1]
        at = np.round(cuts / PIXEL).astype(int)
        axis.imshow(_strip(shown, k, at), cmap="gray", vmin=0, vmax=bright, interpolation="bilinear")
        for edge, (_, colour) in zip(edges, contours, strict=True):
            axis.contour(_strip(edge, k, at), levels=[0.5], colors=colour, linewidths=0.7)
        axis.axis("off")
        sides = ("P", "A") if k == 0 else ("L", "R")
        for text, x, align in ((sides[0], 0.003, "left"), (sides[1], 0.997, "right")):
            axis.text(x, 0.9, text, color="white", ha=align, fontsize=9, transform=axis.transAxes)
        coordinates = (low - FRAME)[k] + PIXEL * at
        for i, coordinate in enumerate(coordinates):
            label = f"{'xyz'[k]} = {coordinate:.0f}"
            axis.text(
                (i + 0.5) / SLICES, 0.01, label, color="#bbbbbb", ha="center", fontsize=7, transform=axis.transAxes
            )
    figure.suptitle(title, fontsize=12)
    _save(figure, path)


def _strip(data: np.ndarray, axis: int, at: np.ndarray) -> np.ndarray:
    """Slices of a RAS volume side by side, superior or anterior up; the left of the head is on the left."""
    return np.hstack([np.take(data, index, axis=axis).T[::-1] for index in at])


def _save(figure: plt.Figure, path: Path) -> None:
    with atomic(path) as temporary:
        figure.savefig(temporary, dpi=110, facecolor="white", metadata={"Software": None})
    plt.close(figure)
