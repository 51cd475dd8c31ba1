"""Parcellation of greyordinates: means of a dense series (``.dtseries.nii``) over the labels of a ``.dlabel.nii``.

Greyordinates are matched by what they are: the vertex of a surface or the voxel of a structure. Their numbers differ
between files, for example where the medial wall is left out.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from bolt.config import Denoise
from bolt.io.bids import sidecar_tr, space_of
from bolt.io.cifti import DLABEL, DTSERIES, array_of, axes, load_cifti, read_dlabel, repetition_time
from bolt.io.errors import BoltWarning, ConfigError, DataError
from bolt.io.files import sha256
from bolt.io.names import RULE, is_name
from bolt.io.volumes import describe_conflict, require_tr
from bolt.series.denoise import choose_confounds
from bolt.series.parcellate import Parcellated, Scan, denoised

if TYPE_CHECKING:
    from nibabel.cifti2 import BrainModelAxis

SURFACES = "fsLR"
"""Space of CIFTI files whose name declares none."""


def parcellate_greyordinates(
    image: str | Path,
    atlases: Sequence[str | Path],
    *,
    confounds: pd.DataFrame | str | Path | None = None,
    denoise: Denoise,
    tr: float | None = None,
    threshold: float = 0.5,
) -> dict[str, Parcellated]:
    """Average a dense series over the labels of atlases.

    Parameters
    ----------
    image : path
        ``.dtseries.nii``, such as fMRIPrep's ``…_space-fsLR_den-91k_bold.dtseries.nii``.
    atlases : sequence of path
        ``.dlabel.nii``. Each label is an ROI; greyordinates without a label (0) belong to none.
    confounds, denoise
        As in `bolt.series.parcellate.parcellate`.
    tr : float, optional
        Seconds; default: from the image's JSON files, else from the header.
    threshold : float
        Smallest share of an ROI's greyordinates that the scan must have, finite and varying.

    Returns
    -------
    dict of str to Parcellated
        By atlas name. In the table of coverage, "voxels" are greyordinates.

    Raises
    ------
    DataError
        A file is damaged or holds something else, surfaces or voxel grids of scan and atlas differ, or no ROI is
        covered.
    """
    from nibabel.cifti2 import BrainModelAxis, SeriesAxis

    cifti = load_cifti(image)
    (time, series_axis), (_, brain) = axes(cifti, SeriesAxis, BrainModelAxis)
    stated = sidecar_tr(image) if tr is None else tr
    seconds = require_tr(repetition_time(series_axis, image) if stated is None else stated, image)
    if series_axis.unit == "SECOND" and (conflict := describe_conflict(float(series_axis.step), seconds)):
        warnings.warn(f"{image}: {conflict}; the sidecar's is used.", BoltWarning, stacklevel=2)
    chosen = choose_confounds(confounds, denoise, len(series_axis), image)
    scan = Scan(image, seconds, space_of(image) or SURFACES, chosen, denoise, threshold, None)
    dense = np.moveaxis(array_of(cifti), time, 0)
    results = {}
    for atlas in atlases:
        values, names, labelled = read_dlabel(atlas)
        column = match_greyordinates(brain, labelled, f"{image} and {atlas}")
        means = np.full((len(dense), len(names)), np.nan)  # as an ROI without a usable greyordinate stays
        rows = []
        for roi, (value, label) in enumerate(names.items()):
            of_roi = column[values == value]
            present = np.sort(of_roi[of_roi >= 0])
            series = np.asarray(dense[:, present], np.float64)
            finite = np.isfinite(series).all(axis=0)
            varies = finite & (series != series[:1]).any(axis=0)
            if varies.any():
                means[:, roi] = series[:, varies].mean(axis=1)
            counts = len(of_roi), (~finite).sum(), (finite & ~varies).sum()
            rows.append((value, label, *counts, len(present) / len(of_roi), varies.sum() / len(of_roi)))
        columns = ["value", "name", "n_voxels", "n_nonfinite", "n_constant", "inside", "coverage"]
        coverage = pd.DataFrame(rows, columns=columns).assign(n_masked=0, n_dark=0, brightness=np.nan, tsnr=np.nan)
        coverage["covered"] = coverage["coverage"].ge(threshold) & coverage["coverage"].gt(0)
        if not coverage["covered"].any():
            raise DataError(f"no ROI of '{Path(atlas).name}' is covered", where=image, hint="Check scan and atlas")
        name = dlabel_name(atlas)
        facts = {"Atlas": name, "AtlasSHA256": sha256(atlas), "Space": scan.space}
        results[name] = denoised(means, coverage, scan, facts)
    return results


def dlabel_name(path: str | Path) -> str:
    """Return the name of an atlas: the BIDS entity in its file's name, or the name itself.

    Raises
    ------
    ConfigError
        It is not a ``.dlabel.nii``, or its name cannot be part of others.
    """
    name = Path(path).name
    if not name.endswith(DLABEL):
        what = f"'{name}' is not an atlas of greyordinates"
        raise ConfigError(what, hint=f"For {DTSERIES}, --atlas takes a file that ends in {DLABEL}")
    entity = re.search(r"(?:^|_)(?:atlas|seg)-([A-Za-z0-9]+)", name)
    name = entity[1] if entity else name.removesuffix(DLABEL)
    if not is_name(name):
        raise ConfigError(f"'{name}' cannot be the name of an atlas", where=path, hint=f"Rename the file. {RULE}")
    return name


def match_greyordinates(scan: BrainModelAxis, atlas: BrainModelAxis, where: str) -> np.ndarray:
    """Find each greyordinate of an atlas in a scan, by structure and vertex or voxel.

    Parameters
    ----------
    scan, atlas : BrainModelAxis
    where : str
        Named in errors.

    Returns
    -------
    (N,) int array
        For each greyordinate of the atlas its number in the scan; -1 if the scan lacks it.

    Raises
    ------
    DataError
        A surface has another number of vertices, voxels are on another grid, a structure is a surface in one file and
        voxels in the other, or no structure is in both.
    """
    if scan.volume_mask.any() and atlas.volume_mask.any():
        same = tuple(scan.volume_shape) == tuple(atlas.volume_shape)
        if not same or not np.allclose(scan.affine, atlas.affine, atol=1e-3):
            shapes = f"{scan.volume_shape} and {atlas.volume_shape}, or with different affines"
            what = f"voxels of scan and atlas are on different grids ({shapes})"
            raise DataError(what, where=where, hint="Give an atlas on the grid of the scan (91k: 2 mm)")
    number = np.full(len(atlas), -1)
    common = sorted(set(atlas.name) & set(scan.name))
    if not common:
        raise DataError("scan and atlas have no structure in common", where=where, hint="Give another atlas")
    for structure in common:
        in_atlas, in_scan = np.flatnonzero(atlas.name == structure), np.flatnonzero(scan.name == structure)
        on_surface = atlas.surface_mask[in_atlas].any()
        if on_surface != scan.surface_mask[in_scan].any():
            what = f"{structure} is a surface in only one of the files"
            raise DataError(what, where=where, hint="Give another atlas")
        if on_surface:
            size = scan.nvertices[structure]
            if size != atlas.nvertices[structure]:
                what = f"{structure} has {size} vertices in the scan, but {atlas.nvertices[structure]} in the atlas"
                hint = "Give an atlas on the same surface (91k: fsLR with 32492 vertices per hemisphere)"
                raise DataError(what, where=where, hint=hint)
            wanted, known = atlas.vertex[in_atlas], scan.vertex[in_scan]
        else:
            size = int(np.prod(scan.volume_shape))
            wanted = np.ravel_multi_index(atlas.voxel[in_atlas].T, scan.volume_shape)
            known = np.ravel_multi_index(scan.voxel[in_scan].T, scan.volume_shape)
        place = np.full(size, -1)
        place[known] = in_scan
        number[in_atlas] = place[wanted]
    return number
