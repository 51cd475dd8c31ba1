"""The command `bolt parcellate IMAGE`: one image, without dataset and configuration."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bolt.atlases.image import Atlas, load_atlas
from bolt.config import Config, Parcellate, Paths, load_config
from bolt.io.cifti import DTSERIES
from bolt.io.errors import ConfigError, shorten_list
from bolt.io.files import write_json
from bolt.io.series_files import is_constant
from bolt.jobs.provenance import provenance, provenance_path
from bolt.series.cache import zscore
from bolt.series.cifti import dlabel_name, parcellate_greyordinates
from bolt.series.denoise import strategy
from bolt.series.parcellate import Parcellated, known_space, parcellate, write_series

log = logging.getLogger("bolt")
ATLAS = "{atlas}"


def parcellate_image(options: argparse.Namespace) -> None:
    """Run the command ``bolt parcellate IMAGE``.

    Parameters
    ----------
    options : Namespace
        image, atlas (a list of names, folders or label images), out, mask, confounds, denoise, space, tr, coverage,
        standardize, fetch, config (None: none).

    Raises
    ------
    ConfigError
        One file is named for the series of several atlases.
    DataError
        As in `bolt.atlases.image.load_atlas` and `bolt.series.parcellate.parcellate`.
    """
    if options.coverage is not None and not 0 <= options.coverage <= 1:
        raise ConfigError(f"--coverage {options.coverage:g} is no share", hint="Give a number from 0 to 1, such as 0.5")
    config = load_config(options.config) if options.config else None
    settings = config.parcellate if config else Parcellate()
    how: dict[str, Any] = {
        "confounds": options.confounds,
        "denoise": strategy(options.denoise, options.confounds is not None),
        "tr": options.tr,
        "threshold": settings.coverage if options.coverage is None else options.coverage,
    }
    if options.image.endswith(DTSERIES):
        for name in ("mask", "space"):
            if getattr(options, name) is not None:
                raise ConfigError(f"--{name} is for images of voxels", where=options.image, hint="Leave it out")
        names = [dlabel_name(atlas) for atlas in options.atlas]
        places = series_places(options.out, options.image.replace(DTSERIES, ".nii"), names)
        results = parcellate_greyordinates(options.image, options.atlas, **how)
    else:
        atlases = _atlases(options.atlas, config, known_space(options.image, options.space), options.fetch)
        places = series_places(options.out, options.image, [atlas.name for atlas in atlases])
        of_voxels = {"mask": options.mask, "signal": settings.signal, "space": options.space}
        results = parcellate(options.image, atlases, **of_voxels, **how)
    for (name, result), place in zip(results.items(), places, strict=True):
        _report(name, result, place)
        write_series(standardized(result) if options.standardize else result, place)
        read = [Path(file) for file in (options.image, options.mask, options.confounds) if file is not None]
        write_json(provenance(read, stage="parcellate", atlas=result.metadata["AtlasSHA256"]), provenance_path(place))


def series_places(out: str, image: str | Path, names: Sequence[str]) -> list[Path]:
    """Return where the series of each atlas are written.

    Parameters
    ----------
    out : str
        A file (``.npy``), a pattern for files (``{atlas}`` in a ``.npy``), or a folder.
    image : path
        The files in a folder are named after it.
    names : sequence of str
        Names of the atlases.

    Returns
    -------
    list of Path
    """
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(f"two atlases are called '{twice[0]}'", hint="Rename one of the files")
    suffix = "" if out.endswith("/") or Path(out).is_dir() else Path(out).suffix
    if suffix and suffix != ".npy":
        what = f"series are written as .npy, not {suffix}"
        raise ConfigError(what, where=out, hint="Give a name that ends in .npy, or a folder")
    if not suffix:
        stem = Path(image).name.removesuffix(".gz").removesuffix(".nii")
        return [Path(out) / f"{stem}_atlas-{name}_timeseries.npy" for name in names]
    if len(names) > 1 and ATLAS not in out:
        what = f"one file for the series of {len(names)} atlases"
        raise ConfigError(what, where=out, hint=f"Give a folder, or a name with {ATLAS}")
    return [Path(out.replace(ATLAS, name)) for name in names]


def standardized(result: Parcellated) -> Parcellated:
    """Return the series z-scored over time: zeros where an ROI is constant, NaN where it is not covered."""
    uncovered = np.isnan(result.series).any(axis=0)
    series = np.where(uncovered, np.float32(np.nan), zscore(np.where(uncovered, 0, result.series)))
    return replace(result, series=series, metadata={**result.metadata, "Standardized": True})


def _atlases(names: Sequence[str], config: Config | None, space: str | None, fetch: bool) -> list[Atlas]:
    """Load the atlases for images in a space; without a configuration, what is carried over is not kept."""
    paths = config.paths if config else Paths()
    cache = paths.carried_atlases if config else None
    if fetch:
        from bolt.atlases.staging import stage_atlas

        for name in names:
            if not name.endswith((".nii", ".nii.gz")):
                stage_atlas(name, paths.atlas_dir, paths.templateflow_home, space, cache)
    where = {"atlas_dir": paths.atlas_dir, "templateflow_home": paths.templateflow_home, "cache": cache}
    return [load_atlas(name, space=space, **where) for name in names]


def _report(name: str, result: Parcellated, place: Path) -> None:
    """Log one line about the series, and a warning for each kind of ROI without a usable one."""
    log.info("%s: %d volumes × %d ROIs of %s", place, *result.series.shape, name)
    names = result.coverage["name"].to_numpy()
    uncovered = np.isnan(result.series).any(axis=0)
    problems = {
        "not covered, NaN": uncovered,
        "constant, zero once z-scored": ~uncovered & is_constant(np.where(uncovered, 0, result.series)),
        "with voxels that are not finite, excluded from the mean": result.coverage["n_nonfinite"].to_numpy() > 0,
    }
    for problem, which in problems.items():
        if which.any():
            log.warning("%s: %d ROIs %s: %s", name, which.sum(), problem, shorten_list(names[which]))
