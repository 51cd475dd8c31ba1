"""Importance over the course of a task, beside the task's events: curves, events and whether the two coincide."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from bolt.cohort.confounding import holm
from bolt.config import Explain
from bolt.explain.courses import (
    COURSE,
    TRANSITIONS,
    Course,
    VolumesOf,
    alignment,
    event_mask,
    kinds_of,
    on_grid,
    read_courses,
    transitions,
)
from bolt.explain.weights import require_explained
from bolt.io.files import atomic, write_json, write_table

log = logging.getLogger("bolt")

TASK_COLUMNS = {
    **COURSE,
    "volume": "volume of the acquisition, from 0",
    "time": "its time, seconds from the first volume",
    "mean": "importance relative to untrained models, divided by the scan's own mean (1: an average volume), mean over "
    "test scans",
    "sd": "standard deviation over scans (ddof 0)",
    "low": "lower end of the 95 % interval of the mean (t distribution over scans)",
    "high": "upper end of the interval",
    "untrained": "importance under untrained models of the same architecture, by which that of the trained ones is "
    "divided (1: an average volume), mean over test scans",
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
    "share_of_importance": "share of a scan's importance, relative to untrained models, during these events, mean over "
    "scans",
    "ratio": "importance, relative to untrained models, during these events divided by the scan's own mean, mean over "
    "scans (1: as elsewhere)",
    "ratio_untrained": "the same ratio of importance under untrained models: how position in the scan alone, which was "
    "divided out, would raise (or lower) it",
    "p": "share of circular shifts of all scans' events together whose ratio is at least as far from 1 (two-sided)",
    "p_holm": "p, corrected by Holm over the rows of the same class, task and run",
    "n_scans": "test scans that have such events",
}


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
        No fold has importance weights; or also as `bolt.explain.courses.read_courses`.
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
    curve["untrained"] = np.full(len(n), np.nan) if course.untrained is None else course.untrained[some]
    return pd.DataFrame({"volume": np.flatnonzero(some), "time": course.times[some], **curve}).assign(**course.name)


def event_masks(course: Course, shift: float, kinds: Sequence[str] | None = None) -> dict[str, NDArray[np.bool_]]:
    """Mark the volumes of each kind of event: trial_type to (scans, volumes).

    Parameters
    ----------
    course : Course
    shift : float
        Seconds by which events are moved.
    kinds : sequence of str, optional
        By default those that give the task its shape, see `bolt.explain.courses.kinds_of`.
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
    untrained = np.where(present, 1.0 if course.untrained is None else course.untrained, np.nan)
    untrained /= np.nanmean(untrained, axis=1, keepdims=True)
    rows = []
    for kind, mask in masks.items():
        if (mask & present).any():
            by_position = {"ratio_untrained": alignment(untrained, mask)["ratio"]}
            rows.append({**course.name, "trial_type": kind, **alignment(course.weights, mask), **by_position})
    return rows


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
