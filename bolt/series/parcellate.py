"""Parcellation: ROI series, the mean signal of each ROI, for several atlases in one pass over a 4D image.

The image is streamed, so memory does not grow with the scan. Voxels are averaged first, and the means are then denoised
(nuisance regression and filtering are linear, so they commute with averaging); z-scoring is left to the cache.
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
from bolt.io.bids import sidecar_tr, space_of
from bolt.io.errors import BoltWarning, DataError
from bolt.io.files import atomic, read_json, write_json, write_status, write_table
from bolt.io.streams import ahead, iter_volumes
from bolt.io.volumes import BoldInfo, check_bold, check_image, require_one_place
from bolt.series.denoise import ChosenConfounds, choose_confounds, clean
from bolt.series.rois import COVERAGE_COLUMNS, Averaged, MapVoxels, RoiVoxels, average, coverage_of, locate, locate_maps

MNI = 4
"""NIfTI's code of coordinates in MNI space."""
NATIVE = "native"
"""Name of the space of series in the scan's own voxels."""
ASSUMED = "assumed"
"""Name of a space that neither the image nor its atlas declares."""


@dataclass(frozen=True)
class Parcellated:
    """ROI series of one scan and one atlas.

    Attributes
    ----------
    series : (T, R) float32 array
        Denoised, not z-scored; one column per ROI in the order of the atlas's labels, NaN if not covered. Volumes
        dropped by the denoising are missing.
    coverage : DataFrame
        `COVERAGE_COLUMNS`, one row per ROI.
    metadata : dict
        For the JSON sidecar: RepetitionTime, Atlas, AtlasSHA256, AtlasSpaces, Space, Denoising, NumberOfVolumes (of
        the image), NumberOfVolumesKept; KeptVolumes (counted from 0) where some were dropped; Extraction, of maps;
        AtlasCarriedOver, if the atlas was carried over from another space.
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
    signal: float = 0.3,
    space: str | None = None,
) -> dict[str, Parcellated]:
    """Average a 4D image over the ROIs of atlases, in one pass.

    Parameters
    ----------
    image : path
        4D NIfTI in a reference space.
    atlases : sequence of Atlas
        Resampled to the image's grid: labels by nearest neighbour, maps linearly.
    mask : path, optional
        Image on the same grid; voxels where it is zero are excluded from all means. Default: all voxels of the ROI.
    confounds : DataFrame or path, optional
        (T, any) table from which `denoise` chooses; a path if it names one of nilearn's strategies.
    denoise : Denoise
    tr : float, optional
        Seconds; default: from the image's JSON files, else from the header.
    threshold : float
        Smallest coverage at which an ROI has a series.
    signal : float
        A voxel darker than this share of the median of all ROIs' voxels does not count as covered; it remains in the
        mean. Without effect on images that have lost their mean.
    space : str, optional
        Reference space of the image. If neither its name nor its sidecar declares one, the header has to say MNI; if
        they declare another, that is an error.

    Returns
    -------
    dict of str to Parcellated
        By atlas name.

    Raises
    ------
    DataError
        The image cannot be read, is in a different space than an atlas, its mask or confounds do not fit, or no ROI of
        an atlas is covered.
    """
    info = check_bold(image, sidecar_tr(image) if tr is None else tr)
    require_one_place(check_image(image), image)
    space = known_space(image, space)
    if not space:  # it may still be in the space of the labels: where they have none, or the header says MNI
        header = check_image(image).header
        spaces = sorted({space for atlas in atlases for space in atlas.spaces})
        if spaces and MNI not in (header["sform_code"], header["qform_code"]):
            what = f"neither name, sidecar nor header say that the image is in {' or '.join(spaces)}, as the atlas is"
            hint = f"If it is, give the space (--space {spaces[0]}); if it is a raw scan, preprocess it first"
            raise DataError(what, where=image, hint=hint)
        message = f"{image}: the name declares no space; assuming that of the atlas."
        warnings.warn(message, BoltWarning, stacklevel=2)
        space = ASSUMED
    for atlas in atlases:
        if not atlas.spaces:
            message = f"atlas '{atlas.name}' declares no space; assuming that of the image."
            warnings.warn(message, BoltWarning, stacklevel=2)
        elif space != ASSUMED:
            check_space(atlas, space)
    chosen = choose_confounds(confounds, denoise, info.n_volumes, image)
    inside = np.ones(int(np.prod(info.shape)), bool) if mask is None else read_mask(mask, info)
    located: list[RoiVoxels | MapVoxels] = []
    for atlas in atlases:
        if atlas.is_maps:
            located.append(locate_maps(atlas, info, inside))
            continue
        to_image = np.linalg.inv(info.affine) @ atlas.image.affine
        positions = np.argwhere(atlas.data > 0) @ to_image[:3, :3].T + to_image[:3, 3]
        located.append(locate(atlas, resample_to(atlas, info.shape, info.affine), inside, positions))
    voxels = np.concatenate([rois.voxels for rois in located])
    scan = Scan(image, info.tr, space, chosen, denoise, threshold, signal)
    return finish(atlases, located, average(ahead(iter_volumes(image, voxels)), info.n_volumes, located), scan)


@dataclass(frozen=True)
class Scan:
    """A scan whose ROI means are turned into series; see `parcellate` for the attributes."""

    image: str | Path
    tr: float
    space: str
    chosen: ChosenConfounds
    denoise: Denoise
    threshold: float
    signal: float | None


def finish(
    atlases: Sequence[Atlas], located: Sequence[RoiVoxels | MapVoxels], averaged: Sequence[Averaged], scan: Scan
) -> dict[str, Parcellated]:
    """Add coverage to the means from `average`, denoise them, and describe them for the sidecar."""
    results = {}
    for atlas, rois, found in zip(atlases, located, averaged, strict=True):
        means = found.series
        zero, missing = means == 0, np.isnan(means)
        coverage = coverage_of(atlas, rois, found, scan.threshold, scan.signal or 0.0)
        coverage["covered"] &= np.isfinite(means).all(axis=0)
        empty = np.flatnonzero((zero | missing).all(axis=1) & zero.any(axis=1))
        lost = np.flatnonzero(missing.all(axis=1)) if not coverage["covered"].any() else np.array([])
        for volumes, problem in ((empty, "are zero everywhere"), (lost, "have no finite voxel")):
            if 0 < len(volumes) < len(means):
                which = f"such as volume {volumes[0]} (counted from 0)"
                what = f"{len(volumes)} of {len(means)} volumes {problem}, {which}"
                raise DataError(what, where=scan.image, hint="Create the image again without them, or exclude the scan")
        if not coverage["covered"].any():
            what, hint = f"no ROI of atlas '{atlas.name}' is covered", "Check the space, the mask and the image"
            raise DataError(what, where=scan.image, hint=hint)
        facts: dict[str, Any] = {"Atlas": atlas.name, "AtlasSHA256": atlas.sha256}
        facts |= {"AtlasSpaces": atlas.spaces or ASSUMED, "Space": scan.space}
        result = denoised(means, coverage, scan, facts)
        if atlas.is_maps:
            result.metadata["Extraction"] = "least squares"
        if atlas.carried:
            result.metadata["AtlasCarriedOver"] = atlas.carried
        results[atlas.name] = result
    return results


def denoised(means: np.ndarray, coverage: pd.DataFrame, scan: Scan, facts: Mapping[str, Any]) -> Parcellated:
    """Denoise the (T, R) means of covered ROIs; the sidecar gets what was done, `facts` of the atlas and thresholds."""
    covered, kept = coverage["covered"].to_numpy(bool), scan.chosen.kept
    series = np.full((len(means) if kept is None else len(kept), len(covered)), np.nan)
    series[:, covered] = clean(means[:, covered], scan.chosen, scan.denoise, scan.tr, scan.image)
    metadata = {"RepetitionTime": scan.tr, **facts, "Denoising": scan.denoise.model_dump(mode="json")}
    metadata["CoverageThreshold"] = scan.threshold
    if scan.signal is not None:
        metadata["SignalThreshold"] = scan.signal
    metadata |= {"NumberOfVolumes": len(means), "NumberOfVolumesKept": len(series)}
    if kept is not None:
        metadata["KeptVolumes"] = kept
    coverage = coverage.astype({"covered": int})[list(COVERAGE_COLUMNS)]
    return Parcellated(series.astype(np.float32), coverage, metadata)


def write_parcellated(results: Mapping[str, Parcellated], folder: str | Path, scan_id: str) -> None:
    """Write the files of one scan; `status.json` is written last, when the others are complete."""
    folder = Path(folder)
    for name, result in results.items():
        write_series(result, folder / f"{scan_id}_atlas-{name}_timeseries.npy")
    write_status(folder / "status.json", "ok", "parcellate")


def write_series(result: Parcellated, path: str | Path) -> None:
    """Write the series of one atlas to `path` (.npy), with its JSON sidecar and its ``_coverage.tsv`` beside it."""
    path = Path(path)
    with atomic(path) as temporary:
        np.save(temporary, result.series)
    write_json(result.metadata, path.with_suffix(".json"))
    stem = path.stem.removesuffix("_timeseries")
    write_table(result.coverage, path.with_name(f"{stem}_coverage.tsv"), COVERAGE_COLUMNS)


def known_space(image: str | Path, given: str | None = None) -> str | None:
    """Return the space of an image: as given, by its name or its sidecar (``SpatialReference``); None if unknown."""
    declared = space_of(image)
    sidecar = Path(str(image).removesuffix(".gz")).with_suffix(".json")
    if declared is None and sidecar.is_file():
        about = read_json(sidecar)
        reference = about.get("SpatialReference") if isinstance(about, dict) else None
        declared = reference if isinstance(reference, str) and "/" not in reference else None
    if given and declared and given != declared:
        what = f"the name or sidecar declares space {declared}, but {given} is requested"
        raise DataError(what, where=image, hint=f"Set the space to {declared}, and choose an atlas in that space")
    return given or declared


def read_mask(path: str | Path, info: BoldInfo) -> np.ndarray:
    """Read a mask as a (X·Y·Z,) bool array in Fortran order; refuse one on another grid than the image's."""
    mask = check_image(path)
    if mask.shape[:3] != info.shape or not np.allclose(mask.affine, info.affine, atol=1e-3):
        what = f"the mask's grid ({mask.shape}) is not the image's ({info.shape})"
        raise DataError(what, where=path, hint="Provide a mask on the same grid, with the same affine")
    values = next(iter_volumes(path))
    if not np.isfinite(values).all():
        what = f"the mask has {int((~np.isfinite(values)).sum())} NaN or infinite voxels"
        raise DataError(what, where=path, hint="Set them to 0 or 1")
    inside = values > 0
    if not inside.any():
        raise DataError("the mask is empty", where=path, hint="Check the brain extraction")
    return inside.ravel(order="F")
