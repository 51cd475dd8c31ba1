"""The cache of a dataset: the series of all usable scans, and why the others are excluded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from bolt.cohort.exclusions import EXCLUSION_COLUMNS, WARNING_COLUMNS, roi_warnings, scan_warnings
from bolt.datasets.participants import INDEX
from bolt.io.errors import DataError
from bolt.io.files import read_json, write_table
from bolt.io.integrity import require_outputs
from bolt.io.series_files import check_rois, is_constant, read_series
from bolt.series.cache import seal, with_offsets, write_array, zscore
from bolt.series.joining import describe_joined, plan_joins

Policy = Literal["zero", "drop-scan", "drop-dead-scan", "drop-roi-everywhere"]
_Row = tuple[str, str, str]
"""Row of `EXCLUSION_COLUMNS` or `WARNING_COLUMNS`."""
COVERAGE_COLUMNS = {
    "value": "Value of the ROI in the atlas image",
    "name": "ROI",
    "n_scans": "Scans in the cache",
    "n_uncovered": "Number of them in which the ROI is not covered (its series is all zeros)",
    "n_constant": "Number of them in which the ROI's series is constant (all zeros after z-scoring)",
    "kept": "1: a column of the cache; 0: dropped because at least one scan does not cover it",
}


@dataclass
class _Entry:
    """A scan to be written to the cache."""

    row: int
    scan_id: str
    path: Path
    length: int
    uncovered: np.ndarray  # (R,) bool
    dead: np.ndarray  # (R,) bool: uncovered, or zero at all volumes
    parts: tuple[_Entry, ...] = ()  # scans joined in this one


def build_cache(
    scans: pd.DataFrame,
    atlas: str,
    rois: pd.DataFrame,
    series_of: Callable[[Any], Path],
    out: str | Path,
    *,
    policy: Policy = "zero",
    expected: Mapping[str, Any] | None = None,
    minimum_volumes: int = 2,
    verdict_of: Callable[[str], Path] | None = None,
    mean_fd: Mapping[str, float] | None = None,
    join: str = "none",
) -> pd.DataFrame:
    """Gather the series of all usable scans in one z-scored array.

    Parameters
    ----------
    scans : DataFrame
        The scan table.
    atlas : str
    rois : DataFrame
        (R rows) value, name, network, hemisphere, in the order of the series' columns.
    series_of : callable
        Maps a row (named tuple) to the file with the scan's series; a `status.json` beside it is respected.
    out : path
        Folder of the cache.
    policy : {"zero", "drop-scan", "drop-dead-scan", "drop-roi-everywhere"}
        How to handle uncovered ROIs (NaN columns). Labels are not used. ``drop-dead-scan`` also excludes scans with an
        ROI that is zero at all volumes.
    expected : mapping, optional
        Settings (Atlas, Denoising, …) that the series' JSON sidecars must match if they state them; kept in the
        manifest.
    minimum_volumes : int
        Volumes that every model can read; scans that scrubbing left with fewer are excluded for all models.
    verdict_of : callable, optional
        Maps a scan_id to the ``status.json`` of its quality; scans whose status is not ok are excluded.
    mean_fd : mapping, optional
        scan_id to the mean displacement (mm) from its confounds; used in the index if the scan table has none.
    join : {"none", "session", "subject"}
        Which scans of a subject become one (`bolt.series.joining`).

    Returns
    -------
    DataFrame
        `EXCLUSION_COLUMNS`: the excluded scans. Warnings about the others are in the cache's ``warnings.tsv``.

    Raises
    ------
    DataError
        A scan was made with other settings, or there is no usable scan.
    """
    out, expected = Path(out), dict(expected or {})
    entries, excluded = _read_scans(scans, atlas, rois, series_of, expected, verdict_of)
    entries, unsuitable = _select(entries, rois, policy, minimum_volumes)
    excluded += unsuitable
    if join != "none":
        entries, parts = _joined(entries, scans, join)
        excluded += parts
    if not entries:
        reasons = "; ".join(f"{scan}: {reason}" for scan, _, reason in excluded[:3])
        raise DataError(f"no usable scan for atlas '{atlas}' ({reasons})", hint="Fix the scans listed")
    uncovered = np.array([e.uncovered for e in entries])
    kept = ~np.any(uncovered, axis=0) if policy == "drop-roi-everywhere" else np.ones(len(rois), bool)
    if not kept.any():
        raise DataError(f"no ROI of '{atlas}' is covered in every scan", hint="Choose uncovered: drop-scan or zero")
    standardized = _Standardized(entries, rois, kept)
    index = _index(scans, entries, mean_fd)
    n_volumes, n_rois = int(index["length"].sum()), int(kept.sum())
    write_array(out, standardized, n_volumes, n_rois)
    warnings = pd.DataFrame(standardized.warnings, columns=list(WARNING_COLUMNS))
    write_table(warnings, out / "warnings.tsv", WARNING_COLUMNS)
    coverage = rois[["value", "name"]].assign(
        n_scans=len(entries),
        n_uncovered=uncovered.sum(axis=0),
        n_constant=standardized.n_constant,
        kept=kept.astype(int),
    )
    write_table(coverage, out / "coverage.tsv", COVERAGE_COLUMNS)
    counts = {"n_scans": len(entries), "n_rois": n_rois, "n_volumes": n_volumes}
    seal(out, index, rois[kept], atlas=atlas, policy=policy, **counts, settings=expected)
    return pd.DataFrame(excluded, columns=list(EXCLUSION_COLUMNS))


def _read_scans(
    scans: pd.DataFrame,
    atlas: str,
    rois: pd.DataFrame,
    series_of: Callable[[Any], Path],
    expected: Mapping[str, Any],
    verdict_of: Callable[[str], Path] | None,
) -> tuple[list[_Entry], list[_Row]]:
    """Read every scan once, for its length and its uncovered ROIs; return readable scans, and exclusions."""
    entries: list[_Entry] = []
    excluded: list[_Row] = []
    for row, scan in enumerate(scans.itertuples()):
        scan_id = str(scan.scan_id)
        exclusion = _excluded_at_index(scan)
        if exclusion is None:
            path = Path(series_of(scan))
            exclusion = _not_ok(path.parent / "status.json")
            if exclusion is None and verdict_of is not None:
                exclusion = _not_ok(verdict_of(scan_id))
        if exclusion is not None:
            excluded.append((scan_id, *exclusion))
            continue
        if scan.kind != "series":
            require_outputs(path.with_name("provenance.json"))
        try:
            series = read_series(path, rois["value"].tolist(), rois["name"].tolist())
            check_rois(series, atlas, len(rois), path)
        except DataError as error:
            excluded.append((scan_id, "cache", str(error)))
            continue
        if scan.kind != "series":  # ready series may have been made with any settings
            _check_settings(path, expected)
        uncovered = np.isnan(series[0])
        entries.append(_Entry(row, scan_id, path, len(series), uncovered, uncovered | ~series.any(axis=0)))
    return entries, excluded


def _select(
    entries: list[_Entry], rois: pd.DataFrame, policy: Policy, minimum_volumes: int
) -> tuple[list[_Entry], list[_Row]]:
    """Separate suitable scans from those that are too short or, by the policy, have uncovered ROIs."""
    suitable: list[_Entry] = []
    too_short: list[_Row] = []
    uncovered: list[_Row] = []
    for entry in entries:
        if entry.length < minimum_volumes:
            reason = f"{entry.length} volumes are left, fewer than the {minimum_volumes} that a model needs"
            too_short.append((entry.scan_id, "cache", reason))
        elif policy == "drop-scan" and entry.uncovered.any():
            uncovered.append((entry.scan_id, "cache", _listed("not covered", entry.uncovered, rois)))
        elif policy == "drop-dead-scan" and entry.dead.any():
            uncovered.append((entry.scan_id, "cache", _listed("not covered or all zero", entry.dead, rois)))
        else:
            suitable.append(entry)
    return suitable, too_short + uncovered


def _listed(problem: str, which: np.ndarray, rois: pd.DataFrame) -> str:
    """Describe the marked ROIs, as the reason of an exclusion."""
    names = rois["name"][which].tolist()
    return f"{len(names)} ROIs {problem}: {', '.join(names[:5])}"


def _joined(entries: list[_Entry], scans: pd.DataFrame, rule: str) -> tuple[list[_Entry], list[_Row]]:
    """Join the scans of a subject; return one entry per joined scan, and exclusions of those that are parts."""
    by_row = {entry.row: entry for entry in entries}
    parts, excluded = plan_joins(scans, list(by_row), rule)
    joined = []
    for first, rows in parts.items():
        members = tuple(by_row[row] for row in rows)
        uncovered = np.any([entry.uncovered for entry in members], axis=0)
        length = sum(entry.length for entry in members)
        whole = replace(by_row[first], length=length, uncovered=uncovered, parts=members)
        joined.append(whole if len(members) > 1 else by_row[first])
    return joined, excluded


def _index(scans: pd.DataFrame, entries: list[_Entry], mean_fd: Mapping[str, float] | None) -> pd.DataFrame:
    """Return the rows of the scan table that are in the cache, with offset and length."""
    index = scans.iloc[[e.row for e in entries]].reset_index(drop=True)
    index = with_offsets(index, [e.length for e in entries])
    ready = index["kind"] == "series"  # the file may have been written anew since the scans were listed
    index["n_volumes"] = index["n_volumes"].mask(ready).fillna(index["length"])  # unknown before a download
    if mean_fd:
        index["mean_fd"] = index["mean_fd"].fillna(index["scan_id"].map(mean_fd))
    if any(e.parts for e in entries):
        index = describe_joined(index, [_index(scans, list(e.parts or [e]), mean_fd) for e in entries])
    return index


class _Standardized:
    """The z-scored series of scans, read one by one; counts constant ROIs and collects warnings on the way."""

    def __init__(self, entries: Sequence[_Entry], rois: pd.DataFrame, kept: np.ndarray) -> None:
        self.entries, self.rois, self.kept = entries, rois, kept
        self.n_constant = np.zeros(len(kept), int)
        self.warnings: list[_Row] = []

    def __iter__(self) -> Iterator[np.ndarray]:
        values, names = self.rois["value"].tolist(), self.rois["name"].tolist()
        for entry in self.entries:
            constant = np.zeros(len(self.kept), bool)
            for part in entry.parts or [entry]:
                series = read_series(part.path, values, names)
                constant |= (constant_part := is_constant(series))
                self.warnings += scan_warnings(entry.scan_id, part.path.parent / "status.json")
                self.warnings += roi_warnings(entry.scan_id, series, constant_part, self.rois["name"], part.path)
                yield zscore(series[:, self.kept])
            self.n_constant += constant


def _excluded_at_index(scan: Any) -> tuple[str, str] | None:
    """Return stage and reason if the scan table excludes a scan."""
    reason, stage = getattr(scan, "exclude_reason", None), getattr(scan, "exclude_stage", None)
    if not (isinstance(reason, str) and reason):
        return None
    return stage if isinstance(stage, str) else INDEX, reason


def _not_ok(path: Path) -> tuple[str, str] | None:
    """Return stage and reason if a status file reports an exclusion or a failure."""
    if not path.is_file():
        return None
    status = read_json(path)
    return None if status["state"] == "ok" else (status["stage"], status["reason"])


def _check_settings(path: Path, expected: Mapping[str, Any]) -> None:
    sidecar = path.with_suffix(".json")
    if not sidecar.is_file():
        return
    actual = read_json(sidecar)
    for key, value in expected.items():
        if key in actual and actual[key] != value:
            raise DataError(
                f"made with {key} {actual[key]!r}, but expected {value!r}",
                where=sidecar,
                hint="Delete the scan's folder and run again",
            )
