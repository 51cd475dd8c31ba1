"""Carpet plot: small groups of voxels over time, by tissue, below head motion.

After Power (2017, doi:10.1016/j.neuroimage.2016.08.009).
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import matplotlib

from bolt.preprocess.antspy import ants

matplotlib.use("agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from bolt.io.files import read_table, write_bytes
from bolt.io.streams import iter_volumes
from bolt.preprocess import images
from bolt.preprocess.quality.measures import HEAD_RADIUS, MOVED, OUTLIER

ROWS = {1: ("grey matter", "#c9a400", 260), 2: ("white matter", "#1598b0", 110), 3: ("CSF", "#8e5bb5", 50)}
"""Name, colour and maximal number of rows of each tissue, by its label in the segmentation."""
NEIGHBOURS = 30
"""Voxels that are averaged in a row, at most: noise of single voxels would hide what many of them share."""
LIMIT = 2.5
"""Standard deviations from the mean shown as black and white."""
DPI = 100


def draw_carpet(paths: Mapping[str, Path], out: Path, numbers: Mapping[str, Any]) -> None:
    """Draw head motion, displacement and DVARS, and below them the brain's voxels, as WebP.

    The voxels are taken from the 4D image in template space, or from the raw file if there is none.

    Parameters
    ----------
    paths : mapping
        confounds, dseg and forward; bold and mask, or raw, native_mask and bold_to_t1w.
    out : path
    numbers : mapping
        mean_fd and max_fd.
    """
    bold, labels = _tissues_on_bold(paths)
    values, rows = sample(iter_volumes(bold), labels)
    table = read_table(paths["confounds"])
    figure, axes = plt.subplots(
        5, 1, figsize=(12.6, 8), sharex=True, height_ratios=[1, 1, 1, 1, 4], layout="constrained"
    )
    _draw_motion(table, axes, numbers)
    image = axes[4].imshow(
        values,
        cmap="gray",
        vmin=-LIMIT,
        vmax=LIMIT,
        aspect="auto",
        interpolation="nearest",
        extent=(-0.5, values.shape[1] - 0.5, len(values), 0),
    )
    start = 0
    for label, count in rows.items():
        colour = ROWS[label][1]
        axes[4].axhspan(start, start + count, xmax=0.004, color=colour)
        axes[4].axhline(start + count, color=colour, linewidth=1)
        start += count
    middles = np.cumsum(list(rows.values())) - np.asarray(list(rows.values())) / 2
    axes[4].set_yticks(middles, [ROWS[label][0] for label in rows], fontsize=8)
    axes[4].set_xlabel("Volume")
    figure.colorbar(image, ax=axes[4], fraction=0.02, pad=0.01).set_label("SD (detrended)", fontsize=8)
    voxels = "voxels in template space" if "bold" in paths else "native voxels, not motion-corrected"
    figure.suptitle(
        f"Head motion: mean FD {numbers['mean_fd']:.2f} mm, maximum {numbers['max_fd']:.2f} mm · {voxels}", fontsize=11
    )
    write_bytes(to_webp(figure, quality=55), out)


def to_webp(figure: plt.Figure, **encoding: int) -> bytes:
    """Render and close a figure; `encoding` are options of Pillow's WebP encoder."""
    stream = io.BytesIO()
    figure.savefig(stream, format="webp", dpi=DPI, facecolor=figure.get_facecolor(), pil_kwargs=encoding)
    plt.close(figure)
    return stream.getvalue()


def sample(volumes: Iterable[np.ndarray], labels: np.ndarray) -> tuple[np.ndarray, dict[int, int]]:
    """Average groups of neighbouring voxels, spread evenly over each tissue.

    Parameters
    ----------
    volumes : iterable of T (X, Y, Z) arrays
    labels : (X, Y, Z) array
        1, 2, 3: grey matter, white matter, cerebrospinal fluid; 0 elsewhere.

    Returns
    -------
    values : (N, T) array
        Linearly detrended, in standard deviations; tissues in order.
    rows : dict
        Label to number of rows; tissues whose voxels are all constant are omitted.
    """
    groups = []
    for label, (_, _, most) in ROWS.items():
        voxels = np.flatnonzero(labels.ravel() == label)
        n_rows = min(most, len(voxels))
        width = min(NEIGHBOURS, len(voxels) // max(n_rows, 1))
        starts = np.linspace(0, len(voxels) - width, n_rows).astype(int)
        groups.append(voxels[starts[:, None] + np.arange(width)])
    chosen_labels = np.repeat(list(ROWS), [len(group) for group in groups])
    groups = [group for group in groups if len(group)]
    means = [[volume.ravel()[group].mean(axis=1, dtype=np.float64) for group in groups] for volume in volumes]
    values = np.stack([np.concatenate(rows) for rows in means], axis=1)
    time = np.arange(values.shape[1]) - (values.shape[1] - 1) / 2
    values -= values.mean(axis=1, keepdims=True)
    values -= np.outer(values @ time / max((time**2).sum(), 1), time)
    sd = values.std(axis=1)
    varies = sd > 0
    rows = {label: int((chosen_labels[varies] == label).sum()) for label in ROWS}
    return values[varies] / sd[varies, None], {label: count for label, count in rows.items() if count}


def _tissues_on_bold(paths: Mapping[str, Path]) -> tuple[Path, np.ndarray]:
    """Return the path of the 4D image, and the tissue labels on its grid."""
    tissues, transforms = images.read(paths["dseg"]), []
    if "bold" in paths:
        bold, transforms = paths["bold"], [str(paths["forward"])]
        mask, affine = images.load(paths["mask"])
    else:  # express the scanner's grid in T1w space; the transform maps points of the T1w to the BOLD
        bold = paths["raw"]
        mask, affine = images.load(paths["native_mask"])
        affine = np.linalg.inv(images.read_matrix(paths["bold_to_t1w"])) @ affine
    labels = ants.apply_transforms(images.to_ants(mask, affine), tissues, transforms, "nearestNeighbor").numpy()
    return bold, np.rint(labels) * (mask > 0)


def _draw_motion(table: pd.DataFrame, axes: np.ndarray, numbers: Mapping[str, Any]) -> None:
    """Draw translations, rotations (mm on Power's sphere), framewise displacement and DVARS over volumes."""
    for axis, colour in zip("xyz", ("#c0392b", "#27ae60", "#2471a3"), strict=True):
        axes[0].plot(table[f"trans_{axis}"], color=colour, label=axis, linewidth=1)
        axes[1].plot(HEAD_RADIUS * table[f"rot_{axis}"], color=colour, label=axis, linewidth=1)
    axes[0].legend(loc="upper right", ncols=3, frameon=False, fontsize=8)
    axes[2].fill_between(table.index, table["framewise_displacement"].fillna(0), color="#555555", linewidth=0)
    axes[2].axhline(MOVED, color="#e4572e", linewidth=0.8, linestyle="--")
    axes[2].set_ylim(0, max(1.0, 1.1 * numbers["max_fd"]))
    axes[3].plot(table["std_dvars"], color="#555555", linewidth=1)
    axes[3].axhline(OUTLIER, color="#e4572e", linewidth=0.8, linestyle="--")
    labels = ("Translation\n(mm)", "Rotation (mm\nat 50 mm)", "FD (mm)", "Standardised\nDVARS")
    for axis, label in zip(axes, labels, strict=False):
        axis.set_ylabel(label, fontsize=8)
        axis.tick_params(labelsize=8)
        axis.spines[["top", "right"]].set_visible(False)
        axis.margins(x=0)
