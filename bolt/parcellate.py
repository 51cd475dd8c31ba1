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

from bolt.atlases import Atlas, check_space, resample_to
from bolt.config import Denoise
from bolt.denoise import choose_confounds, clean
from bolt.errors import BoltWarning, DataError
from bolt.files import atomic, write_json, write_status, write_table
from bolt.volumes import BoldInfo, check_bold, check_image, iter_volumes, space_of

ASSUMED = "assumed"
COVERAGE_COLUMNS = {
    "value": "Value of the ROI in the atlas",
    "name": "ROI",
    "n_voxels": "Voxels of the ROI on the grid of the image",
    "inside": "Share of the ROI's voxels (on the atlas's own grid) that lie within the grid of the image",
    "n_masked": "Voxels outside the mask",
    "n_nonfinite": "Voxels within the mask that are NaN or infinite at some volume; left out of the mean there",
    "n_constant": "Finite voxels within the mask that never change",
    "coverage": "Share of the ROI that lies in the image and the mask, is finite and changes over time",
    "covered": "1: coverage reaches the threshold; 0: the ROI's series is NaN",
}


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
    inside = np.ones(int(np.prod(info.shape)), bool) if mask is None else _read_mask(mask, info)
    placed = [_place(atlas, info, inside) for atlas in atlases]
    streamed = _stream(image, info, placed)
    results = {}
    for atlas, place, (whole, finite, varies) in zip(atlases, placed, streamed, strict=True):
        coverage = _coverage(atlas, info, place, finite, varies, threshold)
        coverage["covered"] &= np.isfinite(whole).all(axis=0)
        covered = coverage["covered"].to_numpy()
        if not covered.any():
            raise _nothing_covered(atlas, whole, image)
        series = np.full((info.n_volumes if chosen.kept is None else len(chosen.kept), len(covered)), np.nan)
        series[:, covered] = clean(whole[:, covered], chosen, denoise, info.tr, image)
        metadata = {
            "RepetitionTime": info.tr,
            "Atlas": atlas.name,
            "AtlasSHA256": atlas.sha256,
            "AtlasSpaces": atlas.spaces or ASSUMED,
            "Space": space,
            "Denoising": denoise.model_dump(mode="json"),
            "CoverageThreshold": threshold,
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
            mend=f"Set the space to {declared}, and choose an atlas that is valid there",
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
            mend="Make the image again without them, or leave the scan out",
        )
    return DataError(
        f"no ROI of atlas '{atlas.name}' is covered", where=image, mend="Check the space, the mask and the image"
    )


@dataclass(frozen=True)
class _Placed:
    """An atlas on the grid of an image, its voxels in the order of the ROIs.

    voxels : (N,) those inside the mask, counted with the first axis running fastest
    roi : (N,) position of each among the atlas's values, ascending
    n_voxels : (R,) of each ROI, inside the mask or not
    """

    voxels: np.ndarray
    roi: np.ndarray
    n_voxels: np.ndarray

    def count(self, chosen: np.ndarray | None = None) -> np.ndarray:
        """(R,) how many voxels of each ROI are `chosen` ((N,) bool; default: all)."""
        roi = self.roi if chosen is None else self.roi[chosen]
        return np.bincount(roi, minlength=len(self.n_voxels))


def _place(atlas: Atlas, info: BoldInfo, inside: np.ndarray) -> _Placed:
    grid = resample_to(atlas, info.shape, info.affine).ravel(order="F")
    voxels = np.flatnonzero(grid)
    roi = _positions(grid[voxels], atlas.values)
    order = np.argsort(roi, kind="stable")
    voxels, roi = voxels[order], roi[order]
    kept = inside[voxels]
    return _Placed(voxels[kept], roi[kept], np.bincount(roi, minlength=len(atlas.values)))


def _stream(
    image: str | Path, info: BoldInfo, placed: Sequence[_Placed]
) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """For each atlas the means (T, R), and which of its voxels are always finite and which ever change (N,)."""
    voxels = np.concatenate([place.voxels for place in placed])
    sizes = np.concatenate([place.count() for place in placed])
    filled = sizes > 0  # the others have no voxel, and stay NaN
    starts, sizes = (np.cumsum(sizes) - sizes)[filled], sizes[filled]
    means = np.full((info.n_volumes, len(filled)), np.nan)
    finite, varies = np.ones(voxels.size, bool), np.zeros(voxels.size, bool)
    first: np.ndarray | None = None
    for t, values in enumerate(iter_volumes(image, voxels)):
        first = values if first is None else first
        varies |= values != first
        good = np.isfinite(values)
        if good.all():
            means[t, filled] = np.add.reduceat(values, starts, dtype=np.float64) / sizes
        else:
            finite &= good
            sums = np.add.reduceat(np.where(good, values, 0), starts, dtype=np.float64)
            with np.errstate(invalid="ignore"):  # not one finite voxel: NaN
                means[t, filled] = sums / np.add.reduceat(good, starts, dtype=np.int64)
    by_roi = np.cumsum([len(place.n_voxels) for place in placed])[:-1]
    by_voxel = np.cumsum([place.voxels.size for place in placed])[:-1]
    parts = np.split(means, by_roi, axis=1), np.split(finite, by_voxel), np.split(varies, by_voxel)
    return list(zip(*parts, strict=True))


def _coverage(
    atlas: Atlas, info: BoldInfo, place: _Placed, finite: np.ndarray, varies: np.ndarray, threshold: float
) -> pd.DataFrame:
    inside, n_voxels = _share_inside(atlas, info), place.n_voxels
    good = place.count(finite & varies)
    coverage = inside * np.divide(good, n_voxels, out=np.zeros(len(good)), where=n_voxels > 0)
    return pd.DataFrame(
        {
            "value": atlas.values,
            "name": atlas.labels["name"].to_numpy(),
            "n_voxels": n_voxels,
            "inside": inside.round(4),
            "n_masked": n_voxels - place.count(),
            "n_nonfinite": place.count(~finite),
            "n_constant": place.count(finite & ~varies),
            "coverage": coverage.round(4),
            "covered": (coverage >= threshold) & (coverage > 0),
        }
    )


def _share_inside(atlas: Atlas, info: BoldInfo) -> np.ndarray:
    """Share of each ROI that the grid of the image reaches: what lies beyond it has no voxel to be counted by."""
    places = np.argwhere(atlas.data > 0)
    to_image = np.linalg.inv(info.affine) @ atlas.image.affine
    at = places @ to_image[:3, :3].T + to_image[:3, 3]
    reached = ((at >= -0.5) & (at <= np.array(info.shape) - 0.5)).all(axis=1)
    position = _positions(atlas.data[tuple(places.T)], atlas.values)
    return np.bincount(position, reached, minlength=len(atlas.values)) / np.bincount(
        position, minlength=len(atlas.values)
    )


def _positions(labels: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Index of each label among the sorted `values`, which hold every label (`load_atlas` makes sure of it)."""
    return np.searchsorted(values, labels)


def _read_mask(path: str | Path, info: BoldInfo) -> np.ndarray:
    mask = check_image(path)
    if mask.shape[:3] != info.shape or not np.allclose(mask.affine, info.affine, atol=1e-3):
        raise DataError(
            f"the mask's grid ({mask.shape}) is not the image's ({info.shape})",
            where=path,
            mend="Give a mask on the same grid, with the same affine",
        )
    inside = next(iter_volumes(path)) > 0
    if not inside.any():
        raise DataError("the mask is empty", where=path, mend="Check the brain extraction")
    return inside.ravel(order="F")
