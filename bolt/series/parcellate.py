"""ROI series: the mean over each ROI's voxels at each volume, for several atlases in one pass over a file.

The image streams through, so memory does not grow with the scan. Order of steps: mean over voxels, then nuisance
regression and filtering of the means (linear, so it commutes with averaging); z-scoring waits for the cache.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bolt.atlases.image import Atlas, check_space, resample_to
from bolt.config import Denoise
from bolt.io.errors import BoltWarning, DataError
from bolt.io.files import atomic, write_json, write_status, write_table
from bolt.io.streams import iter_volumes
from bolt.io.volumes import BoldInfo, check_bold, check_image, space_of
from bolt.series.denoise import Chosen, choose_confounds, clean
from bolt.series.rois import COVERAGE_COLUMNS, Placed, average, coverage_of, place

ASSUMED = "assumed"


@dataclass(frozen=True)
class Parcellated:
    """One scan in one atlas.

    Attributes
    ----------
    series : (T, R) float32 array
        Denoised, not z-scored; a column an ROI in the order of the atlas's labels, NaN where not covered. Volumes
        that the denoising drops are not there.
    coverage : DataFrame
        `COVERAGE_COLUMNS`, one row an ROI.
    metadata : dict
        For the JSON sidecar: RepetitionTime, Atlas, AtlasSHA256, AtlasSpaces, Space, Denoising, NumberOfVolumes (of
        the image), NumberOfVolumesKept, and KeptVolumes (counted from 0) where some were dropped.
    """

    series: np.ndarray
    coverage: pd.DataFrame
    metadata: dict[str, Any]


def parcellate(
    image: str | Path,
    atlases: Sequence[Atlas],
    *,
    mask: str | Path | None = None,
    confounds: pd.DataFrame | str | Path | None = None,
    denoise: Denoise,
    tr: float | None = None,
    threshold: float = 0.5,
    space: str | None = None,
) -> dict[str, Parcellated]:
    """Average a 4D image over the ROIs of atlases, in one pass.

    Parameters
    ----------
    image : path
        4D NIfTI in a reference space.
    atlases : sequence of Atlas
        Resampled to the image's grid by nearest neighbour.
    mask : path, optional
        Image on the same grid; voxels that are zero there are no part of any mean. Default: all voxels of the ROI.
    confounds : DataFrame or path, optional
        (T, any) table that `denoise` chooses from; a path where it names a strategy of nilearn's.
    denoise : Denoise
    tr : float, optional
        Seconds; default: the header's.
    threshold : float
        Smallest coverage at which an ROI has a series.
    space : str, optional
        Reference space of the image; needed where its name declares none (else the atlas's is assumed, with a
        warning), and an error where its name declares another.

    Returns
    -------
    dict of str to Parcellated
        By atlas name.

    Raises
    ------
    DataError
        The image cannot be read, is in another space than an atlas, its mask or confounds do not fit, or no
        ROI of an atlas is covered.
    """
    info = check_bold(image, tr)
    space = _space(image, space)
    for atlas in atlases:
        if not atlas.spaces:
            words = f"atlas '{atlas.name}' declares no space; taken as that of the image."
            warnings.warn(words, BoltWarning, stacklevel=2)
        elif space != ASSUMED:
            check_space(atlas, space)
    chosen = choose_confounds(confounds, denoise, info.n_volumes, image)
    inside = np.ones(int(np.prod(info.shape)), bool) if mask is None else read_mask(mask, info)
    placed = [_place(atlas, info, inside) for atlas in atlases]
    voxels = np.concatenate([place.voxels for place in placed])
    scan = Cleaning(image, info, space, chosen, denoise, threshold)
    return finish(atlases, placed, average(iter_volumes(image, voxels), info.n_volumes, placed), scan)


@dataclass(frozen=True)
class Cleaning:
    """What becomes of the means of a scan: see `parcellate` for its words, and `bolt.series.denoise` for `chosen`."""

    image: str | Path
    info: BoldInfo
    space: str
    chosen: Chosen
    denoise: Denoise
    threshold: float


def finish(
    atlases: Sequence[Atlas],
    placed: Sequence[Placed],
    averaged: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]],
    scan: Cleaning,
) -> dict[str, Parcellated]:
    """Coverage, denoising and sidecar of the means that `average` made."""
    results = {}
    chosen, info = scan.chosen, scan.info
    for atlas, own, (whole, finite, varies) in zip(atlases, placed, averaged, strict=True):
        coverage = coverage_of(atlas, own, finite, varies, scan.threshold)
        coverage["covered"] &= np.isfinite(whole).all(axis=0)
        covered = coverage["covered"].to_numpy()
        if not covered.any():
            raise _nothing_covered(atlas, whole, scan.image)
        series = np.full((info.n_volumes if chosen.kept is None else len(chosen.kept), len(covered)), np.nan)
        series[:, covered] = clean(whole[:, covered], chosen, scan.denoise, info.tr, scan.image)
        metadata = {
            "RepetitionTime": info.tr,
            "Atlas": atlas.name,
            "AtlasSHA256": atlas.sha256,
            "AtlasSpaces": atlas.spaces or ASSUMED,
            "Space": scan.space,
            "Denoising": scan.denoise.model_dump(mode="json"),
            "CoverageThreshold": scan.threshold,
            "NumberOfVolumes": info.n_volumes,
            "NumberOfVolumesKept": len(series),
        }
        if chosen.kept is not None:
            metadata["KeptVolumes"] = chosen.kept
        results[atlas.name] = Parcellated(
            series.astype(np.float32), coverage.astype({"covered": int})[list(COVERAGE_COLUMNS)], metadata
        )
    return results


def write_parcellated(results: Mapping[str, Parcellated], folder: str | Path, scan_id: str) -> None:
    """Write the files of one scan; `status.json` comes last and says that the others are whole."""
    folder = Path(folder)
    for name, result in results.items():
        write_series(result, folder / f"{scan_id}_atlas-{name}_timeseries.npy")
    write_status(folder / "status.json", "ok", "parcellate")


def write_series(result: Parcellated, path: str | Path) -> None:
    """Write one atlas's series as `path` (.npy), with its JSON sidecar and its ``_coverage.tsv`` beside it."""
    path = Path(path)
    with atomic(path) as temporary:
        np.save(temporary, result.series)
    write_json(result.metadata, path.with_suffix(".json"))
    stem = path.stem.removesuffix("_timeseries")
    write_table(result.coverage, path.with_name(f"{stem}_coverage.tsv"), COVERAGE_COLUMNS)


def _space(image: str | Path, given: str | None) -> str:
    declared = space_of(image)
    if given and declared and given != declared:
        raise DataError(
            f"the name declares space {declared}, but {given} is asked for",
            where=image,
            hint=f"Set the space to {declared}, and choose an atlas that is valid there",
        )
    if not given and not declared:
        warnings.warn(f"{image}: the name declares no space; taken as that of the atlas.", BoltWarning, stacklevel=3)
    return given or declared or ASSUMED


def _nothing_covered(atlas: Atlas, means: np.ndarray, image: str | Path) -> DataError:
    lost = np.flatnonzero(np.isnan(means).all(axis=1))
    if 0 < len(lost) < len(means):
        return DataError(
            f"{len(lost)} of {len(means)} volumes hold no finite voxel, such as volume {lost[0]} (counted from 0)",
            where=image,
            hint="Make the image again without them, or leave the scan out",
        )
    return DataError(
        f"no ROI of atlas '{atlas.name}' is covered", where=image, hint="Check the space, the mask and the image"
    )


def _place(atlas: Atlas, info: BoldInfo, inside: np.ndarray) -> Placed:
    to_image = np.linalg.inv(info.affine) @ atlas.image.affine
    labelled = np.argwhere(atlas.data > 0)
    at = labelled @ to_image[:3, :3].T + to_image[:3, 3]
    return place(atlas, resample_to(atlas, info.shape, info.affine), inside, at)


def read_mask(path: str | Path, info: BoldInfo) -> np.ndarray:
    """(X·Y·Z,) bool, the first axis running fastest; an error where the grid is not the image's."""
    mask = check_image(path)
    if mask.shape[:3] != info.shape or not np.allclose(mask.affine, info.affine, atol=1e-3):
        raise DataError(
            f"the mask's grid ({mask.shape}) is not the image's ({info.shape})",
            where=path,
            hint="Give a mask on the same grid, with the same affine",
        )
    inside = next(iter_volumes(path)) > 0
    if not inside.any():
        raise DataError("the mask is empty", where=path, hint="Check the brain extraction")
    return inside.ravel(order="F")
