"""ROI series: z-scoring, and the cache that training reads.

The cache is a folder with one packed array of all scans (`series.npy`, memory-mapped) and an index. Its manifest
is written last: a folder without it is not whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from bolt.cohort.exclusions import EXCLUSION_COLUMNS, WARNING_COLUMNS, roi_warnings, scan_warnings
from bolt.datasets import COLUMNS, TEXT_COLUMNS
from bolt.datasets.participants import INDEX
from bolt.io.errors import DataError
from bolt.io.files import atomic, read_json, read_table, sha256, write_json, write_table
from bolt.io.series_files import check_rois, read_series

Policy = Literal["zero", "drop-scan", "drop-roi-everywhere"]
ROI_COLUMNS = {
    "value": "Value of the ROI in the atlas",
    "name": "ROI",
    "network": "Network or group of regions",
    "hemisphere": "L, R or M (on the midline)",
}
COVERAGE_COLUMNS = {
    "value": "Value of the ROI in the atlas",
    "name": "ROI",
    "n_scans": "Scans in the cache",
    "n_uncovered": "Of these, scans in which the ROI is not covered (its series there is zeros)",
    "n_constant": "Of these, scans in which the ROI's series is constant (zeros after z-scoring)",
    "kept": "1: a column of the cache; 0: dropped from all scans because one does not cover it",
}
OWN_COLUMNS = {
    "offset": "First row of the scan in series.npy",
    "length": "Its number of rows (volumes)",
}


def zscore(series: np.ndarray) -> np.ndarray:
    """Z-score each ROI over the time of the whole scan.

    Parameters
    ----------
    series : (T, R) array
        NaN columns are ROIs that are not covered.

    Returns
    -------
    (T, R) float32 array
        Mean 0 and standard deviation 1 (ddof 0) over time; zeros where an ROI is constant or not covered.
    """
    values = np.asarray(series, np.float64)
    centred = values - values.mean(axis=0)
    deviation = values.std(axis=0)
    alive = np.isfinite(deviation) & ~is_constant(values)
    return np.where(alive, centred / np.where(alive, deviation, 1), 0).astype(np.float32)


def is_constant(series: np.ndarray) -> np.ndarray:
    """(R,) bool: series that do not change beyond the rounding of float32."""
    return np.std(series, axis=0, dtype=np.float64) <= 1e-6 * np.abs(series).max(axis=0)


class SeriesCache:
    """A cache of z-scored series.

    Parameters
    ----------
    folder : path

    Attributes
    ----------
    index : DataFrame
        Columns of the scan table, offset and length; one row a scan.
    rois : DataFrame
        value, name, network, hemisphere of the columns.
    manifest : dict
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.manifest: dict[str, Any] = read_json(self.folder / "manifest.json")
        self.index = read_table(self.folder / "index.tsv", text=TEXT_COLUMNS)
        self.rois = read_table(self.folder / "rois.tsv", text=("name", "network", "hemisphere"))
        self._array = np.load(self.folder / "series.npy", mmap_mode="r")
        due = (int(self.index["length"].sum()), len(self.rois))
        if self._array.shape != due:
            raise DataError(
                f"series.npy has shape {self._array.shape}, the index says {due}",
                where=self.folder,
                hint="Delete the folder and run again",
            )

    def __len__(self) -> int:
        return len(self.index)

    @property
    def n_rois(self) -> int:
        return len(self.rois)

    def series(self, i: int) -> np.ndarray:
        """(T, R) float32 view of the scan in row `i` of the index; nothing is read before it is used."""
        row = self.index.iloc[i]
        return self._array[row.offset : row.offset + row.length]

    def finite_series(self, i: int) -> np.ndarray:
        """The same, read and looked at.

        Raises
        ------
        DataError
            NaN or Inf, with the scan.
        """
        series = self.series(i)
        if not np.isfinite(series).all():
            scan = self.index["scan_id"].iloc[i]
            raise DataError(f"the series of scan '{scan}' has NaN or Inf", hint="Exclude the scan, or mend its series")
        return series


@dataclass
class _Entry:
    """A scan on its way into the cache."""

    row: int
    scan_id: str
    path: Path
    length: int
    uncovered: np.ndarray  # (R,) bool


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
) -> pd.DataFrame:
    """Gather the series of all usable scans into one z-scored array.

    Parameters
    ----------
    scans : DataFrame
        The scan table.
    atlas : str
    rois : DataFrame
        (R rows) value, name, network, hemisphere, in the order of the series' columns.
    series_of : callable
        Row (named tuple) to the file with the scan's series; a `status.json` beside it is believed.
    out : path
        Folder of the cache.
    policy : {"zero", "drop-scan", "drop-roi-everywhere"}
        What an uncovered ROI (a NaN column) leads to. Labels play no part.
    expected : mapping, optional
        Keys the series' JSON sidecars must agree on (Atlas, Denoising, …) where they have them; also kept in the
        manifest.
    minimum_volumes : int
        Volumes that every model can read; a scan that scrubbing left with fewer is excluded for all models.
    verdict_of : callable, optional
        scan_id to the ``status.json`` that judges its quality; one that is not ok is excluded.
    mean_fd : mapping, optional
        scan_id to the mean displacement (mm) that its confounds say; the index has it where the scan table has none.

    Returns
    -------
    DataFrame
        `EXCLUSION_COLUMNS`: the scans that are not in the cache. What is odd about the others is in its
        ``warnings.tsv``.

    Raises
    ------
    DataError
        A scan made with other settings, or no usable scan.
    """
    out, expected = Path(out), dict(expected or {})
    entries, excluded = _plan(scans, atlas, rois, series_of, expected, verdict_of)
    for entry in (e for e in entries if e.length < minimum_volumes):
        reason = f"{entry.length} volumes are left, fewer than the {minimum_volumes} that a model needs"
        excluded.append((scans.scan_id.iloc[entry.row], "cache", reason))
    entries = [e for e in entries if e.length >= minimum_volumes]
    if policy == "drop-scan":
        for entry in (e for e in entries if e.uncovered.any()):
            names = rois["name"][entry.uncovered].tolist()
            reason = f"{len(names)} ROIs not covered: {', '.join(names[:5])}"
            excluded.append((scans.scan_id.iloc[entry.row], "cache", reason))
        entries = [e for e in entries if not e.uncovered.any()]
    if not entries:
        reasons = "; ".join(f"{scan}: {reason}" for scan, _, reason in excluded[:3])
        raise DataError(f"no usable scan for atlas '{atlas}' ({reasons})", hint="Mend the scans listed")
    lost = np.any([e.uncovered for e in entries], axis=0)
    kept = ~lost if policy == "drop-roi-everywhere" else np.ones(len(rois), bool)
    if not kept.any():
        raise DataError(f"no ROI of '{atlas}' is covered in every scan", hint="Choose uncovered: drop-scan or zero")
    (out / "manifest.json").unlink(missing_ok=True)  # from here until the end the folder is not whole
    n_constant, odd = _write_array(entries, rois, kept, out / "series.npy")
    index = scans.iloc[[e.row for e in entries]].reset_index(drop=True)
    lengths = np.array([e.length for e in entries])
    index = index.assign(offset=np.cumsum(lengths) - lengths, length=lengths)
    index["n_volumes"] = index["n_volumes"].fillna(index["length"])  # not known before a scan is downloaded
    if mean_fd:
        index["mean_fd"] = index["mean_fd"].fillna(index["scan_id"].map(mean_fd))
    write_table(index, out / "index.tsv", {**COLUMNS, **OWN_COLUMNS})
    write_table(rois.loc[kept, list(ROI_COLUMNS)], out / "rois.tsv", ROI_COLUMNS)
    write_table(pd.DataFrame(odd, columns=list(WARNING_COLUMNS)), out / "warnings.tsv", WARNING_COLUMNS)
    coverage = rois[["value", "name"]].assign(
        n_scans=len(entries),
        n_uncovered=np.sum([e.uncovered for e in entries], axis=0),
        n_constant=n_constant,
        kept=kept.astype(int),
    )
    write_table(coverage, out / "coverage.tsv", COVERAGE_COLUMNS)
    manifest = {
        "atlas": atlas,
        "policy": policy,
        "n_scans": len(entries),
        "n_rois": int(kept.sum()),
        "n_volumes": int(lengths.sum()),
        "settings": expected,
        "sha256": {name: sha256(out / name) for name in ("series.npy", "index.tsv", "rois.tsv")},
    }
    write_json(manifest, out / "manifest.json")
    return _exclusions(excluded)


def _plan(
    scans: pd.DataFrame,
    atlas: str,
    rois: pd.DataFrame,
    series_of: Callable[[Any], Path],
    expected: Mapping[str, Any],
    verdict_of: Callable[[str], Path] | None,
) -> tuple[list[_Entry], list[tuple[str, str, str]]]:
    """Read every scan once, for its length and its uncovered ROIs."""
    entries: list[_Entry] = []
    excluded: list[tuple[str, str, str]] = []
    for row, scan in enumerate(scans.itertuples()):
        known = _excluded_at_index(scan)
        path = None if known else Path(series_of(scan))
        known = known or _not_ok(path.parent / "status.json")  # type: ignore[union-attr]
        if known is None and verdict_of is not None:
            known = _not_ok(verdict_of(str(scan.scan_id)))
        if known or path is None:
            excluded.append((str(scan.scan_id), *known))  # type: ignore[misc]
            continue
        try:
            series = read_series(path, rois["value"].tolist())
            check_rois(series, atlas, len(rois), path)
        except DataError as error:
            excluded.append((str(scan.scan_id), "cache", str(error)))
            continue
        if scan.kind != "series":  # ready series are as they are, whatever made them
            _check_settings(path, expected)
        entries.append(_Entry(row, str(scan.scan_id), path, len(series), np.isnan(series[0])))
    return entries, excluded


def _write_array(
    entries: list[_Entry], rois: pd.DataFrame, kept: np.ndarray, path: Path
) -> tuple[np.ndarray, list[tuple[str, str, str]]]:
    """Write the packed array scan by scan; how often over scans each ROI is constant, and rows of warnings."""
    n_constant = np.zeros(len(kept), int)
    values, odd = rois["value"].tolist(), list[tuple[str, str, str]]()
    shape = (sum(e.length for e in entries), int(kept.sum()))
    with atomic(path) as temporary, temporary.open("wb") as file:  # not mapped: a full disk would kill the process
        about = {"descr": "<f4", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, about)
        for entry in entries:
            series = read_series(entry.path, values)
            constant = is_constant(series)
            n_constant += constant
            odd += scan_warnings(entry.scan_id, entry.path.parent / "status.json")
            odd += roi_warnings(entry.scan_id, series, constant, rois["name"], entry.path)
            file.write(zscore(series[:, kept]).astype("<f4").tobytes())
    return n_constant, odd


def _excluded_at_index(scan: Any) -> tuple[str, str] | None:
    reason, stage = getattr(scan, "exclude_reason", None), getattr(scan, "exclude_stage", None)
    if not (isinstance(reason, str) and reason):
        return None
    return stage if isinstance(stage, str) else INDEX, reason


def _not_ok(path: Path) -> tuple[str, str] | None:
    if not path.is_file():
        return None
    status = read_json(path)
    return None if status["state"] == "ok" else (status["stage"], status["reason"])


def _exclusions(rows: list[tuple[str, str, str]]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=list(EXCLUSION_COLUMNS))


def _check_settings(path: Path, expected: Mapping[str, Any]) -> None:
    sidecar = path.with_suffix(".json")
    if not sidecar.is_file():
        return
    found = read_json(sidecar)
    for key, value in expected.items():
        if key in found and found[key] != value:
            raise DataError(
                f"made with {key} {found[key]!r}, but {value!r} is asked for",
                where=sidecar,
                hint="Delete the scan's folder and run again",
            )
