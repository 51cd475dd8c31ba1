"""Importance over the course of a task, beside the task's events.

Only test scans are used, each explained by the model of the fold that tests it. Weights are divided by their scan's
mean, so that all scans and folds count equally: 1 is an average volume. Times are those of the acquisition: volumes
that a series lacks (before the steady state, or scrubbed) are gaps.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from bolt.cohort.confounding import holm
from bolt.config import Explain
from bolt.explain.events import MOST, TRANSITIONS, alignment, event_mask, kinds_of, read_events, transitions
from bolt.explain.weights import read_importance, require_explained
from bolt.io.errors import DataError
from bolt.io.files import atomic, write_json, write_table

log = logging.getLogger("bolt")

VolumesOf = Callable[[str, int], NDArray[np.integer]]
"""Takes scan_id and number of rows, returns the volumes that the rows are (`bolt.io.series_files.kept_volumes`)."""

COURSE = {
    "class": "true class of the scans",
    "task": "task of the scans",
    "run": "run of the scans",
}
TASK_COLUMNS = {
    **COURSE,
    "volume": "volume of the acquisition, from 0",
    "time": "its time, seconds from the first volume",
    "mean": "importance divided by the scan's own mean (1: an average volume), mean over test scans",
    "sd": "standard deviation over scans (ddof 0)",
    "low": "lower end of the 95 % interval of the mean (t distribution over scans)",
    "high": "upper end of the interval",
    "n_scans": "scans that have the volume",
}
BLOCK_COLUMNS = {
    **COURSE,
    "trial_type": "kind of event",
    "volume": "volume of the acquisition, from 0",
    "time": "its time, seconds from the first volume",
    "share": "share of the scans in which such an event is on at this volume, shifted by explain: hrf_shift",
}
ALIGNMENT_COLUMNS = {
    **COURSE,
    "trial_type": "kind of event; or the volumes 4 to 8 s after any start or end",
    "share_of_time": "share of a scan's volumes during these events, mean over scans",
    "share_of_importance": "share of a scan's importance during these events, mean over scans",
    "ratio": "importance during these events divided by the scan's own mean, mean over scans (1: as elsewhere)",
    "p": "share of circular shifts of all scans' events together whose ratio is at least as far from 1 (two-sided)",
    "p_holm": "p, corrected by Holm over the rows of the same class, task and run",
    "n_scans": "test scans that have such events",
}


@dataclass(frozen=True)
class Course:
    """Scans of one class, task and run on a common time axis.

    Attributes
    ----------
    name : dict
        class, task, run.
    scans : list of str
    tr : float
        Seconds.
    weights : (scans, volumes) array
        Relative importance; NaN where a scan lacks the volume.
    events : list of DataFrame
        One per scan: onset (s), duration (s), trial_type.
    """

    name: dict[str, str]
    scans: list[str]
    tr: float
    weights: NDArray[np.floating]
    events: list[pd.DataFrame]

    @property
    def times(self) -> NDArray[np.floating]:
        """Return the time of each volume, seconds."""
        return np.arange(self.weights.shape[1]) * self.tr


class _TestScan(NamedTuple):
    """One test scan on the time axis of its acquisition."""

    scan: str
    tr: float
    weights: NDArray[np.floating]
    events: pd.DataFrame


def read_courses(cache: Any, run: Path, folds: Sequence[int], volumes_of: VolumesOf) -> list[Course]:
    """Read the importance of all test scans that have events, by class, task and run.

    Parameters
    ----------
    cache : bolt.series.cache.SeriesCache
    run : Path
        Folder ``seed-<s>``; its explained folds are read.
    folds : sequence of int
    volumes_of : callable
        See `VolumesOf`.
    """
    index = cache.index.set_index("scan_id", drop=False)
    courses: dict[tuple[str, ...], list[_TestScan]] = {}
    for fold in folds:
        table, fold_weights = read_importance(run / f"fold-{fold}")
        for scan, role, weights in zip(table["scan_id"], table["role"], fold_weights, strict=True):
            row = index.loc[scan]
            events = _events(row) if role == "test" and weights.sum() > 0 else None
            if events is None:
                continue
            task, number = (value if isinstance(value := row.get(key), str) else "" for key in ("task", "run"))
            relative = on_grid(weights / weights.mean(), volumes_of(scan, len(weights)))
            test = _TestScan(scan, float(row["tr"]), relative, events)
            courses.setdefault((str(row["label"]), task, number), []).append(test)
    return [_course(dict(zip(COURSE, key, strict=True)), courses[key]) for key in sorted(courses)]


def _course(name: dict[str, str], tests: list[_TestScan]) -> Course:
    """Join scans of one class, task and run; exclude those with another repetition time than most."""
    tr = float(pd.Series([test.tr for test in tests]).mode().iloc[0])
    same = sorted((test for test in tests if abs(test.tr - tr) <= 0.01 * tr), key=lambda test: test.scan)
    if len(same) < len(tests):
        log.warning("%s: %d scans with another repetition time excluded", name["class"], len(tests) - len(same))
    weights = np.full((len(same), max(len(test.weights) for test in same)), np.nan)
    for row, test in zip(weights, same, strict=True):
        row[: len(test.weights)] = test.weights
    common = np.flatnonzero(np.isfinite(weights).mean(axis=0) >= MOST)
    weights = weights[:, : common[-1] + 1]  # scans that are longer than most are cut
    return Course(name, [test.scan for test in same], tr, weights, [test.events for test in same])


def _events(row: pd.Series) -> pd.DataFrame | None:
    """Read the events of a scan; None if it has none."""
    path = row.get("events")
    if not isinstance(path, str) or not np.isfinite(row["tr"]):
        return None
    try:
        table = read_events(path)
    except DataError as error:
        log.warning("%s is used without its events: %s", row["scan_id"], error)
        return None
    return table if len(table) else None


def on_grid(values: NDArray[np.floating], volumes: NDArray[np.integer]) -> NDArray[np.floating]:
    """Return one row per volume of the acquisition, from 0 to the last of `volumes`; NaN for missing volumes."""
    whole = np.full((int(volumes[-1]) + 1, *values.shape[1:]), np.nan)
    whole[volumes] = values
    return whole


def write_tasks(
    cache: Any, run: Path, folds: Sequence[int], out: Path, settings: Explain, volumes_of: VolumesOf
) -> None:
    """Write importance over each task, the task's events, and whether the two coincide.

    The files are ``tasks.tsv``, ``tasks_blocks.tsv``, ``tasks_alignment.tsv`` (without rows if no scan has events) and,
    for one task, ``tasks_series.npy`` (2, volumes, rois): the mean ROI series of its scans, and the same multiplied by
    importance. If no test scan with events is of `masked_task`, there is no such series, but a warning.

    Parameters
    ----------
    cache, run, folds, volumes_of
        As `read_courses`.
    out : Path
        Folder.
    settings : Explain
        Its hrf_shift, trial_types and masked_task are used.

    Raises
    ------
    DataError
        No fold has importance weights.
    """
    done = require_explained(run, folds)
    courses = read_courses(cache, run, done, volumes_of)
    blocks, aligned = [], []
    for course in courses:
        masks = event_masks(course, settings.hrf_shift, settings.trial_types)
        blocks.append(block_table(course, masks))
        aligned += _alignment_rows(course, masks)
    table = pd.DataFrame(aligned, columns=[c for c in ALIGNMENT_COLUMNS if c != "p_holm"])
    table["p_holm"] = table.groupby(list(COURSE), sort=False)["p"].transform(holm)
    for path in (out / "tasks_series.npy", out / "tasks_series.json"):  # of an earlier call
        path.unlink(missing_ok=True)
    write_table(table[list(ALIGNMENT_COLUMNS)], out / "tasks_alignment.tsv", ALIGNMENT_COLUMNS)
    write_table(_joined(blocks, BLOCK_COLUMNS), out / "tasks_blocks.tsv", BLOCK_COLUMNS)
    write_table(_joined(map(curve_table, courses), TASK_COLUMNS), out / "tasks.tsv", TASK_COLUMNS)
    _write_masked(cache, courses, out, settings, volumes_of)


def _joined(tables: Iterable[pd.DataFrame], columns: Mapping[str, str]) -> pd.DataFrame:
    """Concatenate tables that have rows."""
    filled = [table for table in tables if len(table)]
    return pd.concat(filled, ignore_index=True)[list(columns)] if filled else pd.DataFrame(columns=list(columns))


def curve_table(course: Course) -> pd.DataFrame:
    """Return mean importance over time, columns of `TASK_COLUMNS`."""
    n = np.isfinite(course.weights).sum(axis=0)
    some = n > 0
    weights, n = course.weights[:, some], n[some]
    mean, sd = np.nanmean(weights, axis=0), np.nanstd(weights, axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        half = stats.t.ppf(0.975, n - 1) * sd / np.sqrt(n - 1)  # NaN for a single scan
    curve = {"mean": mean, "sd": sd, "low": np.maximum(mean - half, 0), "high": mean + half, "n_scans": n}
    return pd.DataFrame({"volume": np.flatnonzero(some), "time": course.times[some], **curve}).assign(**course.name)


def event_masks(course: Course, shift: float, kinds: Sequence[str] | None = None) -> dict[str, NDArray[np.bool_]]:
    """Mark the volumes of each kind of event: trial_type to (scans, volumes).

    Parameters
    ----------
    course : Course
    shift : float
        Seconds by which events are moved.
    kinds : sequence of str, optional
        By default those that give the task its shape, see `bolt.explain.events.kinds_of`.
    """
    n, tr = course.weights.shape[1], course.tr
    masks = {
        kind: np.stack([event_mask(events, kind, n, tr, shift) for events in course.events])
        for kind in kinds or sorted(set(pd.concat(course.events)["trial_type"]))
    }
    present = np.isfinite(course.weights)
    masks = {kind: mask for kind, mask in masks.items() if (mask & present).any()}
    return masks if kinds else {kind: masks[kind] for kind in kinds_of(course.events, masks)}


def block_table(course: Course, masks: Mapping[str, NDArray[np.bool_]]) -> pd.DataFrame:
    """Return the share of scans in each kind of event over time, columns of `BLOCK_COLUMNS`."""
    tables = []
    for kind, mask in masks.items():
        share = mask.mean(axis=0)
        on = share > 0
        shares = {"volume": np.flatnonzero(on), "time": course.times[on], "share": share[on]}
        tables.append(pd.DataFrame(shares).assign(trial_type=kind, **course.name))
    return _joined(tables, BLOCK_COLUMNS)


def _alignment_rows(course: Course, masks: Mapping[str, NDArray[np.bool_]]) -> list[dict[str, Any]]:
    """Compare importance during each kind of event, and after any start or end, with that of the whole scan."""
    n, tr = course.weights.shape[1], course.tr
    changes = [transitions(events[events["trial_type"].isin(masks)], n, tr) for events in course.events]
    masks = {**masks, TRANSITIONS: np.stack(changes)}
    present = np.isfinite(course.weights)
    return [
        {**course.name, "trial_type": kind, **alignment(course.weights, mask)}
        for kind, mask in masks.items()
        if (mask & present).any()
    ]


def _write_masked(cache: Any, courses: list[Course], out: Path, settings: Explain, volumes_of: VolumesOf) -> None:
    """Write the mean series of one task, and the same multiplied by importance."""
    wanted = settings.masked_task
    fitting = [course for course in courses if wanted in (None, course.name["class"], course.name["task"])]
    if not fitting:
        if courses:
            known = ", ".join(sorted({course.name["class"] for course in courses}))
            log.warning(
                "no masked series: no test scan with events is of explain: masked_task '%s' (%s)", wanted, known
            )
        return
    course = fitting[0]
    mean = _mean_series(cache, course, volumes_of)
    importance = curve_table(course).set_index("volume")["mean"].reindex(range(len(mean))).to_numpy()
    low, high = np.nanmin(importance), np.nanmax(importance)
    scaled = (importance - low) / (high - low or 1)
    with atomic(out / "tasks_series.npy") as temporary:
        np.save(temporary, np.stack([mean, mean * scaled[:, None]]).astype(np.float32))
    about = "mean over test scans of the z-scored ROI series (volumes, rois); the same times mean importance, 0 to 1"
    write_json({"Description": about, **course.name, "RepetitionTime": course.tr}, out / "tasks_series.json")


def _mean_series(cache: Any, course: Course, volumes_of: VolumesOf) -> NDArray[np.floating]:
    """Return the mean series of a course's scans, (volumes, rois); NaN for volumes that no scan has."""
    n = course.weights.shape[1]
    total, counts = np.zeros((n, cache.n_rois)), np.zeros((n, 1))
    position = {scan: i for i, scan in enumerate(cache.index["scan_id"])}
    for scan in course.scans:
        series = cache.series(position[scan])
        whole = on_grid(series, volumes_of(scan, len(series)))[:n]
        present = np.isfinite(whole).all(axis=1)
        total[: len(whole)][present] += whole[present]
        counts[: len(whole)][present] += 1
    with np.errstate(invalid="ignore"):
        return total / counts
