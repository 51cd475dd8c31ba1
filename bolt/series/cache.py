"""The cache of z-scored ROI series that training reads.

A cache is a folder with one packed array of all scans (`series.npy`, memory-mapped) and an index. Its manifest is
written last: a folder without one is incomplete.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from bolt.cohort.exclusions import EXCLUSION_COLUMNS, WARNING_COLUMNS, roi_warnings, scan_warnings
from bolt.datasets import COLUMNS, TEXT_COLUMNS
from bolt.datasets.participants import INDEX
from bolt.io.errors import DataError
from bolt.io.files import atomic, read_json, read_table, sha256, write_json, write_table
from bolt.io.integrity import require_outputs, require_present, require_unaltered
from bolt.io.series_files import check_rois, is_constant, read_series
from bolt.series.joining import JOINED_COLUMN, describe_joined, plan_joins

FILES = ("series.npy", "index.tsv", "rois.tsv")
Policy = Literal["zero", "drop-scan", "drop-roi-everywhere"]
_Row = tuple[str, str, str]
"""Row of `EXCLUSION_COLUMNS` or `WARNING_COLUMNS`."""
ROI_COLUMNS = {
    "value": "Value of the ROI in the atlas image",
    "name": "ROI",
    "network": "Network or group of regions",
    "hemisphere": "L, R or M (midline)",
}
COVERAGE_COLUMNS = {
    "value": "Value of the ROI in the atlas image",
    "name": "ROI",
    "n_scans": "Scans in the cache",
    "n_uncovered": "Number of them in which the ROI is not covered (its series is all zeros)",
    "n_constant": "Number of them in which the ROI's series is constant (all zeros after z-scoring)",
    "kept": "1: a column of the cache; 0: dropped because at least one scan does not cover it",
}
ARRAY_COLUMNS = {
    "offset": "First row of the scan in series.npy",
    "length": "Number of rows (volumes) of the scan",
}


def zscore(series: np.ndarray) -> np.ndarray:
    """Z-score each ROI over the whole scan.

    Parameters
    ----------
    series : (T, R) array
        NaN in columns of ROIs that are not covered.

    Returns
    -------
    (T, R) float32 array
        Mean 0 and standard deviation 1 (ddof 0) over time; zeros if an ROI is constant or not covered.
    """
    values = np.asarray(series, np.float64)
    centred = values - values.mean(axis=0)
    deviation = values.std(axis=0)
    varies = np.isfinite(deviation) & ~is_constant(values)
    return np.where(varies, centred / np.where(varies, deviation, 1), 0).astype(np.float32)


class SeriesCache:
    """Read access to a cache of z-scored series.

    Parameters
    ----------
    folder : path

    Attributes
    ----------
    index : DataFrame
        Columns of the scan table, offset and length; one row per scan.
    rois : DataFrame
        `ROI_COLUMNS` of the columns of the series.
    manifest : dict
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.manifest: dict[str, Any] = read_json(self.folder / "manifest.json")
        self._require_whole()
        self.index = read_table(self.folder / "index.tsv", text=TEXT_COLUMNS)
        self.rois = read_table(self.folder / "rois.tsv", text=("name", "network", "hemisphere"))
        self._array = np.load(self.folder / "series.npy", mmap_mode="r")
        expected = (int(self.index["length"].sum()), len(self.rois))
        if self._array.shape != expected:
            raise DataError(
                f"series.npy has shape {self._array.shape}, but the index implies {expected}",
                where=self.folder,
                hint="Delete the folder and run again",
            )

    def _require_whole(self) -> None:
        """Refuse a cache of which a file is missing or altered; that is no fault of a scan or fold."""
        for name in FILES:
            require_present(self.folder / name)
        require_unaltered(self.folder, self.manifest.get("sha256", {}), self.folder / "manifest.json")

    def __len__(self) -> int:
        return len(self.index)

    @property
    def n_rois(self) -> int:
        """Return the number of ROIs."""
        return len(self.rois)

    def series(self, i: int) -> np.ndarray:
        """Return a (T, R) float32 view of the scan in row `i` of the index; it is read from disk when used."""
        row = self.index.iloc[i]
        return self._array[row.offset : row.offset + row.length]

    def finite_series(self, i: int) -> np.ndarray:
        """Return the series of the scan in row `i` of the index after checking that it is finite.

        Raises
        ------
        DataError
            The series has NaN or Inf.
        """
        series = self.series(i)
        if not np.isfinite(series).all():
            scan = self.index["scan_id"].iloc[i]
            raise DataError(f"the series of scan '{scan}' has NaN or Inf", hint="Exclude the scan, or fix its series")
        return series


@dataclass
class _Entry:
    """A scan to be written to the cache."""

    row: int
    scan_id: str
    path: Path
    length: int
    uncovered: np.ndarray  # (R,) bool
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
    policy : {"zero", "drop-scan", "drop-roi-everywhere"}
        How to handle uncovered ROIs (NaN columns). Labels are not used.
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
    (out / "manifest.json").unlink(missing_ok=True)  # the cache is incomplete from here to the end
    n_constant, warnings = _write_array(entries, rois, kept, out / "series.npy")
    index = _index(scans, entries, mean_fd)
    columns = {**COLUMNS, **ARRAY_COLUMNS, **(JOINED_COLUMN if "joined" in index else {})}
    write_table(index, out / "index.tsv", columns)
    write_table(rois.loc[kept, list(ROI_COLUMNS)], out / "rois.tsv", ROI_COLUMNS)
    write_table(pd.DataFrame(warnings, columns=list(WARNING_COLUMNS)), out / "warnings.tsv", WARNING_COLUMNS)
    coverage = rois[["value", "name"]].assign(
        n_scans=len(entries), n_uncovered=uncovered.sum(axis=0), n_constant=n_constant, kept=kept.astype(int)
    )
    write_table(coverage, out / "coverage.tsv", COVERAGE_COLUMNS)
    manifest = {
        "atlas": atlas,
        "policy": policy,
        "n_scans": len(entries),
        "n_rois": int(kept.sum()),
        "n_volumes": int(index["length"].sum()),
        "settings": expected,
        "sha256": {name: sha256(out / name) for name in FILES},
    }
    write_json(manifest, out / "manifest.json")
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
        entries.append(_Entry(row, scan_id, path, len(series), np.isnan(series[0])))
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
            names = rois["name"][entry.uncovered].tolist()
            reason = f"{len(names)} ROIs not covered: {', '.join(names[:5])}"
            uncovered.append((entry.scan_id, "cache", reason))
        else:
            suitable.append(entry)
    return suitable, too_short + uncovered


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
    lengths = np.array([e.length for e in entries])
    index = index.assign(offset=np.cumsum(lengths) - lengths, length=lengths)
    ready = index["kind"] == "series"  # the file may have been written anew since the scans were listed
    index["n_volumes"] = index["n_volumes"].mask(ready).fillna(index["length"])  # unknown before a download
    if mean_fd:
        index["mean_fd"] = index["mean_fd"].fillna(index["scan_id"].map(mean_fd))
    if any(e.parts for e in entries):
        index = describe_joined(index, [_index(scans, list(e.parts or [e]), mean_fd) for e in entries])
    return index


def _write_array(
    entries: list[_Entry], rois: pd.DataFrame, kept: np.ndarray, path: Path
) -> tuple[np.ndarray, list[_Row]]:
    """Write the packed array scan by scan; return in how many scans each ROI is constant, and warnings."""
    n_constant = np.zeros(len(kept), int)
    values, names, warnings = rois["value"].tolist(), rois["name"].tolist(), list[_Row]()
    shape = (sum(e.length for e in entries), int(kept.sum()))
    with (
        atomic(path) as temporary,
        temporary.open("wb") as file,
    ):  # not a memory map: a full disk would kill the process
        header = {"descr": "<f4", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        for entry in entries:
            constant = np.zeros(len(kept), bool)
            for part in entry.parts or [entry]:
                series = read_series(part.path, values, names)
                constant |= (constant_part := is_constant(series))
                warnings += scan_warnings(entry.scan_id, part.path.parent / "status.json")
                warnings += roi_warnings(entry.scan_id, series, constant_part, rois["name"], part.path)
                file.write(zscore(series[:, kept]).astype("<f4").tobytes())
            n_constant += constant
    return n_constant, warnings


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
