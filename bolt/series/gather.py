"""The cache of a dataset: the series of all usable scans, and why the others are excluded.

Scans of one person may be joined into one, their z-scored series one after the other. Each scan is z-scored on its own,
so that there is no step where one ends and the next begins. The first scan, by session and run, gives the joined one
its name and its facts.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from bolt.cohort.exclusions import EXCLUSION_COLUMNS, JOINED, WARNING_COLUMNS
from bolt.datasets.participants import CHOOSE_RECONSTRUCTION, INDEX, acquisition_of
from bolt.io.errors import BoltWarning, DataError, shorten_list
from bolt.io.files import columns, read_columns, read_json, read_text, to_numbers, write_table
from bolt.io.integrity import require_outputs
from bolt.io.series_files import check_rois, is_constant, read_description, read_series
from bolt.io.volumes import TR_TOLERANCE
from bolt.series.cache import seal, with_offsets, write_array, zscore

Policy = Literal["zero", "drop-scan", "drop-dead-scan", "drop-roi-everywhere"]
_Row = tuple[str, str, str]
"""Row of `EXCLUSION_COLUMNS` or `WARNING_COLUMNS`."""
COVERAGE_COLUMNS = columns("series", "coverage")


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
    others: Collection[str] = (),
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
        Which scans of a subject become one (`plan_joins`).
    others : collection of str
        Names of the other configured atlases: ready series that state one of these are not of this one.

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
    values, names = rois["value"].tolist(), rois["name"].tolist()
    entries: list[_Entry] = []
    excluded: list[_Row] = []
    too_short: list[_Row] = []
    not_covered: list[_Row] = []
    for row, scan in enumerate(scans.itertuples()):  # each is read, for its length and its uncovered ROIs
        scan_id = str(scan.scan_id)
        reason, stage = getattr(scan, "exclude_reason", None), getattr(scan, "exclude_stage", None)
        exclusion = (stage if isinstance(stage, str) else INDEX, reason) if isinstance(reason, str) and reason else None
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
            with warnings.catch_warnings(action="ignore", category=BoltWarning):  # listed when it is read again
                series = read_series(path, values, names)
            check_rois(series, atlas, len(rois), path)
            if scan.kind == "series" and others and (stated := read_description(path).get("Atlas")) in others:
                hint = f"None is needed if series of '{atlas}' are not wanted; else name a file of these"
                raise DataError(f"series of atlas '{stated}', not of '{atlas}'", where=path, hint=hint)
        except DataError as error:
            excluded.append((scan_id, "cache", str(error)))
            continue
        sidecar = path.with_suffix(".json")
        if scan.kind != "series" and sidecar.is_file():  # ready series may have been made with any settings
            actual = read_json(sidecar)
            for key, value in expected.items():
                if key in actual and actual[key] != value:
                    what = f"made with {key} {actual[key]!r}, but expected {value!r}"
                    raise DataError(what, where=sidecar, hint="Delete the scan's folder and run again")
        nans = np.isnan(series[0])
        dead = nans | ~series.any(axis=0)
        refused = {"drop-scan": nans, "drop-dead-scan": dead}.get(policy, np.zeros(len(rois), bool))
        if len(series) < minimum_volumes:
            reason = f"{len(series)} volumes are left, fewer than the {minimum_volumes} that a model needs"
            too_short.append((scan_id, "cache", reason))
        elif refused.any():
            problem = "not covered" if policy == "drop-scan" else "not covered or all zero"
            listed = ", ".join(rois["name"][refused].tolist()[:5])
            not_covered.append((scan_id, "cache", f"{refused.sum()} ROIs {problem}: {listed}"))
        else:
            entries.append(_Entry(row, scan_id, path, len(series), nans))
    excluded += too_short + not_covered
    if join != "none" and entries:
        by_row = {entry.row: entry for entry in entries}
        parts, in_others = plan_joins(scans, list(by_row), join)
        excluded += in_others
        entries = []
        for first, rows in parts.items():
            whole, members = by_row[first], tuple(by_row[row] for row in rows)
            if len(members) > 1:
                length, nans = sum(one.length for one in members), np.any([one.uncovered for one in members], axis=0)
                whole = replace(whole, length=length, uncovered=nans, parts=members)
            entries.append(whole)
    if not entries:
        reasons = "; ".join(f"{scan}: {reason}" for scan, _, reason in excluded[:3])
        raise DataError(f"no usable scan for atlas '{atlas}' ({reasons})", hint="Fix the scans listed")
    uncovered = np.array([e.uncovered for e in entries])
    kept = ~np.any(uncovered, axis=0) if policy == "drop-roi-everywhere" else np.ones(len(rois), bool)
    if not kept.any():
        raise DataError(f"no ROI of '{atlas}' is covered in every scan", hint="Choose uncovered: drop-scan or zero")
    n_constant = np.zeros(len(rois), int)
    warned: list[_Row] = []
    acquired = Counter(acquisition_of(entry.scan_id) for entry in entries)
    for entry in entries:
        if (n := acquired[acquisition_of(entry.scan_id)]) > 1:
            warning = f"one of {n} reconstructions (rec-) of an acquisition. {CHOOSE_RECONSTRUCTION}"
            warned.append((entry.scan_id, "cache", warning))

    def standardized() -> Iterator[np.ndarray]:
        """Read and z-score the series one by one; count constant ROIs and collect warnings on the way."""
        for entry in entries:
            constant = np.zeros(len(rois), bool)
            for part in entry.parts or [entry]:
                with warnings.catch_warnings(record=True, action="always", category=BoltWarning) as told:
                    series = read_series(part.path, values, names)
                warned.extend((entry.scan_id, "cache", str(one.message)) for one in told)
                constant |= (constant_part := is_constant(series))
                earlier = _status(part.path.parent / "status.json").get("warnings", [])
                warned.extend((entry.scan_id, warning["stage"], warning["warning"]) for warning in earlier)
                warned.extend(_roi_warnings(entry.scan_id, series, constant_part, rois["name"], part.path))
                yield zscore(series[:, kept])
            n_constant[:] += constant

    index = _index(scans, entries, mean_fd)
    n_volumes, n_rois = int(index["length"].sum()), int(kept.sum())
    write_array(out, standardized(), n_volumes, n_rois)
    write_table(pd.DataFrame(warned, columns=list(WARNING_COLUMNS)), out / "warnings.tsv", WARNING_COLUMNS)
    coverage = rois[["value", "name"]].assign(n_scans=len(entries), n_uncovered=uncovered.sum(axis=0))
    coverage = coverage.assign(n_constant=n_constant, kept=kept.astype(int))
    write_table(coverage, out / "coverage.tsv", COVERAGE_COLUMNS)
    counts = {"n_scans": len(entries), "n_rois": n_rois, "n_volumes": n_volumes}
    seal(out, index, rois[kept], atlas=atlas, policy=policy, **counts, settings=expected)
    return pd.DataFrame(excluded, columns=list(EXCLUSION_COLUMNS))


def _index(scans: pd.DataFrame, entries: list[_Entry], mean_fd: Mapping[str, float] | None) -> pd.DataFrame:
    """Return the rows of the scan table that are in the cache, with offset and length.

    Of a joined scan, `n_volumes` is the sum and `mean_fd` the mean over volumes (missing if one is), and there are no
    `events`, whose times would be those of single scans.
    """
    index = scans.iloc[[e.row for e in entries]].reset_index(drop=True)
    index = with_offsets(index, [e.length for e in entries])
    ready = index["kind"] == "series"  # the file may have been written anew since the scans were listed
    index["n_volumes"] = index["n_volumes"].mask(ready).fillna(index["length"])  # unknown before a download
    if mean_fd:
        index["mean_fd"] = index["mean_fd"].fillna(index["scan_id"].map(mean_fd))
    if not any(e.parts for e in entries):
        return index
    index = index.assign(joined=None).astype({"joined": object, "events": object})
    for row, entry in enumerate(entries):
        if entry.parts:
            parts = _index(scans, list(entry.parts), mean_fd)
            length = parts["length"].to_numpy(float)
            index.loc[row, "joined"] = " ".join(parts["scan_id"].astype(str))
            index.loc[row, "n_volumes"] = parts["n_volumes"].astype(float).sum(skipna=False)
            index.loc[row, "mean_fd"] = (parts["mean_fd"].to_numpy(float) * length).sum() / length.sum()
            index.loc[row, "events"] = None
    return index


def plan_joins(scans: pd.DataFrame, rows: Sequence[int], rule: str) -> tuple[dict[int, list[int]], list[_Row]]:
    """Plan which scans are joined.

    Parameters
    ----------
    scans : DataFrame
        The scan table.
    rows : sequence of int
        Usable scans, as positions in the table.
    rule : {"session", "subject"}
        Join scans of one subject, task and session, or those of all sessions. Scans that differ in label or site are
        never joined.

    Returns
    -------
    parts : dict
        For the first scan of each join, the positions of its parts in order; single scans have one part.
    excluded : list of (scan_id, stage, reason)
        Scans that are part of another, or have another repetition time than the first, or are another reconstruction of
        a part.
    """
    keys = ["subject", "task", "label", "site", *(["session"] if rule == "session" else [])]
    usable = scans.iloc[list(rows)].assign(row=list(rows))
    same = usable[keys].astype(object).where(usable[keys].notna(), "").astype(str).agg("\t".join, axis=1)
    parts: dict[int, list[int]] = {}
    excluded: list[_Row] = []
    for _, group in usable.groupby(same, sort=False):
        ordered = group.iloc[sorted(range(len(group)), key=lambda i: _order(group.iloc[i]))]
        first = ordered.iloc[0]
        parts[int(first["row"])] = [int(first["row"])]
        joined = {acquisition_of(str(first["scan_id"])): first["scan_id"]}
        for part in ordered.iloc[1:].to_dict("records"):
            if abs(part["tr"] - first["tr"]) > TR_TOLERANCE * first["tr"]:  # false where one is unknown
                times = f"repetition times of {part['tr']:g} and {first['tr']:g} s"
                reason = f"cannot be joined with {first['scan_id']}: {times}"
            elif other := joined.get(acquisition_of(str(part["scan_id"]))):
                reason = f"the same acquisition as {other}, in another reconstruction (rec-). {CHOOSE_RECONSTRUCTION}"
            else:
                joined[acquisition_of(str(part["scan_id"]))] = part["scan_id"]
                reason = f"its series is part of {first['scan_id']} ('join_scans: {rule}')"
                parts[int(first["row"])].append(int(part["row"]))
            excluded.append((str(part["scan_id"]), JOINED, reason))
    return dict(sorted(parts.items())), excluded


def _order(scan: pd.Series) -> list[list[tuple[bool, int, str]]]:
    """Return what sorts scans by session, run and name; numbers by their value."""
    texts = (text if isinstance(text := scan[column], str) else "" for column in ("session", "run", "scan_id"))
    pieces = (re.findall(r"\d+|\D+", text) for text in texts)
    return [[(not one.isdigit(), int(one) if one.isdigit() else 0, one) for one in found] for found in pieces]


def _status(path: Path) -> dict[str, Any]:
    """Read a status file, if there is one."""
    return read_json(path) if path.is_file() else {"state": "ok"}


def _not_ok(path: Path) -> tuple[str, str] | None:
    """Return stage and reason if a status file reports an exclusion or a failure."""
    status = _status(path)
    return None if status["state"] == "ok" else (status["stage"], status["reason"])


def _roi_warnings(
    scan_id: str, series: np.ndarray, constant: np.ndarray, names: pd.Series, path: Path
) -> Iterator[tuple[str, str, str]]:
    """Yield warnings about ROIs without a complete signal, as rows of `WARNING_COLUMNS`.

    Parameters
    ----------
    scan_id : str
    series : (T, R) array
        NaN for ROIs that are not covered.
    constant : (R,) bool array
        ROIs whose series is constant.
    names : (R,) Series of str
    path : Path
        File of the series; damaged voxels are counted in its ``_coverage.tsv``, if there is one.
    """
    uncovered = np.isnan(series[0])
    coverage = path.with_name(path.stem.removesuffix("_timeseries") + "_coverage.tsv")
    damaged = np.zeros(len(names), bool)
    if coverage.is_file() and "n_nonfinite" in read_text(coverage):  # XCP-D has tables of this name, too
        (n_nonfinite,) = read_columns(coverage, ["n_nonfinite"])
        damaged = to_numbers(n_nonfinite) > 0
    for problem, affected in (
        ("not covered", uncovered),
        ("all zero or constant (zeros after z-scoring)", constant & ~uncovered),
        ("with NaN or infinite voxels, which are excluded from the mean", damaged),
    ):
        if affected.any():
            rois = shorten_list(names[affected])
            yield scan_id, "cache", f"{path}: {affected.sum()} of {len(names)} ROIs {problem}: {rois}"
