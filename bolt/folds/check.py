"""The command ``bolt check-folds``, and the comparison of contents that reveals a recording under two names."""

from __future__ import annotations

import argparse
import hashlib
import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import pandas as pd

from bolt.folds.audit import HINT, find_leaks
from bolt.io.errors import DataError, LeakError
from bolt.io.files import read_text, sha256
from bolt.io.series_files import SUFFIXES, read_series, series_suffix
from bolt.io.streams import iter_volumes
from bolt.series.cache import SeriesCache, zscore

log = logging.getLogger(__name__)


ROLES = {
    "train": ("train", "training", "dev", "fit"),
    "validation": ("validation", "valid", "val", "inner"),
    "test": ("test", "testing", "holdout", "hold-out", "held-out"),
}
"""What tables of folds call the parts of a split; ``dev`` is validation in a fold that also has a training part."""
SAME = 0.999
"""Correlation of two z-scored series from which they are one recording, however it was rounded."""
BLOCK = 256
"""Scans that are compared with all before them at a time."""
SAMPLED = 500
"""Values of a series that are compared."""


def series_contents(cache: SeriesCache) -> pd.Series:
    """Name the content of each scan's series, indexed by scan, as `name_contents` does."""

    def series() -> Iterator[tuple[str, np.ndarray]]:
        for i, scan in enumerate(cache.index.itertuples()):
            if i % BLOCK == 0:
                array = cache.array()  # another map: what was read through the last does not stay in memory
            yield str(scan.scan_id), array[scan.offset : scan.offset + scan.length]

    return name_contents(series())


def name_contents(series: Iterable[tuple[str, np.ndarray]]) -> pd.Series:
    """Name the content of series by the first scan with the same.

    Parameters
    ----------
    series : iterable
        Scans, each with its z-scored (T, R) series. Constant ones are left out.

    Returns
    -------
    Series
        Scan to the first scan whose series correlates with it above `SAME`: copies may have been rounded.
    """
    by_shape: dict[tuple[int, ...], dict[str, np.ndarray]] = {}
    for scan, values in series:
        places = np.random.default_rng(0).integers(values.size, size=min(SAMPLED, values.size))
        sample = values.ravel()[places].astype(np.float64)
        sample -= sample.mean()
        if (length := np.linalg.norm(sample)) > 0:
            by_shape.setdefault(values.shape, {})[scan] = (sample / length).astype(np.float32)
    names: dict[str, str] = {}
    for samples in by_shape.values():
        scans, table = list(samples), np.stack(list(samples.values()))
        for start in range(0, len(scans), BLOCK):
            end = start + BLOCK
            firsts = np.argmax(table[:end] @ table[start:end].T > SAME, axis=0)  # at the latest, the scan itself
            for scan, first in zip(scans[start:end], firsts, strict=True):
                names[scan] = names.get(scans[first], scan)
    return pd.Series(names, dtype=object)


def content_hash(path: Path) -> str:
    """Hash the content of a file: for images the voxels, so that recompressed or reconverted copies are the same."""
    if not path.name.endswith((".nii", ".nii.gz")):
        return sha256(path)
    digest = hashlib.sha256()
    try:
        for volume in iter_volumes(path):
            digest.update(f"{volume.shape}".encode() + volume.tobytes(order="F"))
    except DataError as error:
        log.warning("compared by its bytes only: %s", error)
        return sha256(path)
    return digest.hexdigest()


def file_contents(scans: pd.DataFrame) -> pd.Series:
    """Name the content of each scan's file (column ``bold``), indexed by scan; scans without a file are missing.

    Files of series are compared by their values, in whatever format, all others by `content_hash`.
    """
    files = {str(scan): Path(str(path)) for scan, path in zip(scans["scan_id"], scans["bold"], strict=True)}
    files = {scan: path for scan, path in files.items() if os.path.isfile(path)}

    def series() -> Iterator[tuple[str, np.ndarray]]:
        for scan, path in files.items():
            if series_suffix(path) in SUFFIXES:
                with suppress(DataError):  # compared by its bytes
                    yield scan, zscore(read_series(path))

    contents = name_contents(series())
    hashes = {scan: content_hash(path) for scan, path in files.items() if scan not in contents}
    return pd.concat([contents, pd.Series(hashes, dtype=object)])


def check_folds(options: argparse.Namespace) -> None:
    """Audit any table of folds, whoever made it.

    Parameters
    ----------
    options : Namespace
        table, scans, cache (a list), files, sites.

    Raises
    ------
    LeakError
        Names every kind of leak.
    DataError
        The table is empty; a column, a scan, a subject, a site or the test part of a fold is missing; or a part of a
        split has an unknown name.
    """
    folds = read_text(options.table)
    _require(folds, ("scan_id", "role"), options.table)
    folds = folds if "fold" in folds else folds.assign(fold="0")
    scans = folds if options.scans is None else read_text(options.scans)
    source_of_scans = options.table if options.scans is None else options.scans
    _require(scans, ("scan_id", "subject"), source_of_scans)
    if folds.empty:
        raise DataError("the table has no rows", where=options.table, hint="Provide one row per scan and fold")
    usual = {word: role for role, words in ROLES.items() for word in words}
    words = folds["role"].str.casefold()
    roles, is_dev = words.map(usual), words == "dev"
    beside = (roles.eq("train") & ~is_dev).groupby(folds["fold"], dropna=False).transform("any")
    roles = roles.mask(is_dev & beside, "validation")
    unknown = sorted(folds["role"][roles.isna()].fillna("").unique())
    if unknown:
        raise DataError(f"unknown role '{unknown[0]}'", where=options.table, hint=f"Use one of {', '.join(usual)}")
    folds = folds.assign(role=roles)
    for part in ("test", "train"):
        lacking = sorted(set(folds["fold"]) - set(folds["fold"][folds["role"] == part]), key=str)
        if lacking:
            hint = f"Add them, with role '{part}'"
            raise DataError(f"fold {lacking[0]} has no {part} scans", where=options.table, hint=hint)
    times = folds[folds["role"] == "test"].groupby("scan_id")["fold"].nunique()
    times = times.reindex(folds["scan_id"].unique(), fill_value=0)
    if folds["fold"].nunique() > 1:
        for what, which in (("in no fold", times == 0), ("in several folds", times > 1)):
            if which.any():
                log.warning("%d scans are tested %s, such as %s", which.sum(), what, times.index[which][0])
    unlisted = sorted(set(folds["scan_id"]) - set(scans["scan_id"]))
    if unlisted:
        problem = f"{len(unlisted)} scans are not listed, such as '{unlisted[0]}'"
        raise DataError(problem, where=source_of_scans, hint="Add them")
    for column in ("subject", "group"):
        if column in scans and scans.groupby("scan_id")[column].nunique().max() > 1:
            problem = f"a scan has two entries in '{column}'"
            raise DataError(problem, where=source_of_scans, hint="Give each scan one")
    _require_values(folds, scans, "subject", source_of_scans)
    contents = {f"series in {folder}": series_contents(SeriesCache(folder)) for folder in options.cache}
    if options.files:
        _require(scans, ("bold",), source_of_scans)
        contents["file"] = file_contents(scans)
    for source, hashes in contents.items():
        n_missing = len(set(folds["scan_id"]) - set(hashes.index))
        if n_missing:
            log.warning("%s: %d scans have nothing to compare", source, n_missing)
    kinds = [kind for kind in ("scan_id", "subject", "group") if kind in scans]
    if "group" not in kinds:
        log.warning("%s has no column 'group': families are not compared", source_of_scans)
    if options.sites:
        _require(scans, ("site",), source_of_scans)
        _require_values(folds, scans, "site", source_of_scans)
        kinds.append("site")
    leaks = find_leaks(folds, scans, kinds, contents)
    if leaks:
        raise LeakError("; ".join(map(str, leaks)), where=options.table, hint=HINT)
    n_folds, n_scans = folds["fold"].nunique(), folds["scan_id"].nunique()
    log.info("no leak in %d folds of %d scans; compared: %s", n_folds, n_scans, ", ".join([*kinds, *contents]))


def _require_values(folds: pd.DataFrame, scans: pd.DataFrame, column: str, where: Path) -> None:
    unknown = scans[column].isna() & scans["scan_id"].isin(folds["scan_id"])
    if unknown.any():
        what = f"{unknown.sum()} rows have no {column}, such as that of scan '{scans['scan_id'][unknown].iloc[0]}'"
        raise DataError(what, where=where, hint=f"Fill in the {column}: nothing can be compared without it")


def _require(table: pd.DataFrame, columns: Sequence[str], where: Path) -> None:
    for column in columns:
        if column not in table:
            hint = f"Its columns: {', '.join(map(str, table.columns))}"
            if column == "subject":
                hint += ". Provide the table of scans with --scans"
            raise DataError(f"no column '{column}'", where=where, hint=hint)
