"""When, in the course of a task, a model finds the moments that decide: importance over time beside the task's events.

Test scans alone, each explained by the fold that tests it. Weights are divided by the mean over their own scan, so that
scans and folds count alike: 1 is an average volume. Times are those of the acquisition: volumes that a series lacks
(before the steady state, or scrubbed) are gaps.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from bolt.cohort.confounding import holm
from bolt.config import Explain
from bolt.explain.events import MOST, TRANSITIONS, alignment, event_mask, kinds_of, read_events, transitions
from bolt.explain.weights import explained_folds, read_importance
from bolt.io.errors import DataError
from bolt.io.files import atomic, write_json, write_table

log = logging.getLogger("bolt")

COURSE = {
    "class": "true class of the scans",
    "task": "task of the scans",
    "run": "run of the scans",
}
TASK_COLUMNS = {
    **COURSE,
    "volume": "volume of the acquisition, from 0",
    "time": "its time, seconds from the first volume",
    "mean": "importance over the scan's own mean (1: an average volume), mean over test scans",
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
    "share": "share of the scans in which such an event is on at this volume, moved by explain: hrf_shift",
}
ALIGNMENT_COLUMNS = {
    **COURSE,
    "trial_type": "kind of event; or what follows any start or end by 4 to 8 s",
    "share_of_time": "share of a scan's volumes in such events, mean over scans",
    "share_of_importance": "share of its importance there, mean over scans",
    "ratio": "importance there over the scan's own mean, mean over scans (1: no more than elsewhere)",
    "p": "share of circular shifts of all scans' events together with a ratio as far from 1 (two-sided)",
    "p_holm": "p, corrected by Holm over the rows of the same class, task and run",
    "n_scans": "test scans that have such events",
}


@dataclass(frozen=True)
class Course:
    """The scans of one class, task and run on one axis of time.

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
        A scan each: onset (s), duration (s), trial_type.
    """

    name: dict[str, str]
    scans: list[str]
    tr: float
    weights: NDArray[np.floating]
    events: list[pd.DataFrame]

    @property
    def times(self) -> NDArray[np.floating]:
        return np.arange(self.weights.shape[1]) * self.tr


def read_courses(
    cache: Any, run: Path, folds: Sequence[int], volumes_of: Callable[[str, int], NDArray[np.integer]]
) -> list[Course]:
    """Importance of all test scans that have events, by class, task and run.

    Parameters
    ----------
    cache : bolt.series.cache.SeriesCache
    run : Path
        Folder ``seed-<s>``; its explained folds are read.
    folds : sequence of int
    volumes_of : callable
        scan_id and number of rows to the volumes that the rows are (`bolt.io.series_files.kept_volumes`).
    """
    index = cache.index.set_index("scan_id", drop=False)
    found: list[tuple[dict[str, str], str, float, NDArray[Any], pd.DataFrame]] = []
    for fold in folds:
        table, weights = read_importance(run / f"fold-{fold}")
        for scan, role, own in zip(table["scan_id"], table["role"], weights, strict=True):
            row = index.loc[scan]
            events = _events(row) if role == "test" and own.sum() > 0 else None
            if events is None:
                continue
            name = {"class": str(row["label"]), **{key: _text(row.get(key)) for key in ("task", "run")}}
            found.append((name, scan, float(row["tr"]), _on_grid(own / own.mean(), volumes_of(scan, len(own))), events))
    names = {tuple(one[0].values()): one[0] for one in found}
    return [_course(names[key], [one for one in found if tuple(one[0].values()) == key]) for key in sorted(names)]


def _course(name: dict[str, str], found: list[tuple[Any, str, float, NDArray[Any], pd.DataFrame]]) -> Course:
    tr = float(pd.Series([one[2] for one in found]).mode().iloc[0])
    same = sorted((one for one in found if abs(one[2] - tr) <= 0.01 * tr), key=lambda one: one[1])
    if len(same) < len(found):
        log.warning("%s: %d scans with another repetition time left out", name["class"], len(found) - len(same))
    longest = max(len(one[3]) for one in same)
    weights = np.full((len(same), longest), np.nan)
    for row, one in zip(weights, same, strict=True):
        row[: len(one[3])] = one[3]
    most = np.flatnonzero(np.isfinite(weights).mean(axis=0) >= MOST)
    weights = weights[:, : most[-1] + 1]  # a scan that went on for longer is cut
    return Course(name, [one[1] for one in same], tr, weights, [one[4] for one in same])


def _events(row: pd.Series) -> pd.DataFrame | None:
    path = row.get("events")
    if not isinstance(path, str) or not np.isfinite(row["tr"]):
        return None
    try:
        table = read_events(path)
    except DataError as error:
        log.warning("without the events of %s: %s", row["scan_id"], error)
        return None
    return table if len(table) else None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _on_grid(values: NDArray[np.floating], volumes: NDArray[np.integer]) -> NDArray[np.floating]:
    """A row for each volume of the acquisition up to the last that is there; NaN where it is not."""
    whole = np.full((int(volumes[-1]) + 1, *values.shape[1:]), np.nan)
    whole[volumes] = values
    return whole


def write_tasks(
    cache: Any,
    run: Path,
    folds: Sequence[int],
    out: Path,
    settings: Explain,
    volumes_of: Callable[[str, int], NDArray[np.integer]],
) -> None:
    """Write ``tasks.tsv``, ``tasks_blocks.tsv``, ``tasks_alignment.tsv`` (without rows where no scan has events) and,
    of one task, ``tasks_series.npy`` (2, volumes, rois): the mean ROI series of its scans, and the same masked by
    importance. Where no test scan with events is of `masked_task`, the series is left out with a warning.

    Parameters
    ----------
    cache, run, folds, volumes_of
        As `read_courses`.
    out : Path
        Folder.
    settings : Explain
        Of it hrf_shift, trial_types, masked_task.

    Raises
    ------
    DataError
        No fold has importance weights.
    """
    done = explained_folds(run, folds)
    if not done:
        raise DataError(
            "no fold of this run has importance weights", where=run, hint="See the status.json of its folds"
        )
    courses = read_courses(cache, run, done, volumes_of)
    curves, blocks, aligned = [], [], []
    for course in courses:
        curves.append(_curve(course))
        shown, rows = _blocks(course, settings)
        blocks += shown
        aligned += rows
    table = pd.DataFrame(aligned, columns=[c for c in ALIGNMENT_COLUMNS if c != "p_holm"])
    table["p_holm"] = table.groupby(list(COURSE), sort=False)["p"].transform(holm)
    for path in (out / "tasks_series.npy", out / "tasks_series.json"):  # of an earlier call
        path.unlink(missing_ok=True)
    write_table(table[list(ALIGNMENT_COLUMNS)], out / "tasks_alignment.tsv", ALIGNMENT_COLUMNS)
    write_table(_joined(blocks, BLOCK_COLUMNS), out / "tasks_blocks.tsv", BLOCK_COLUMNS)
    write_table(_joined(curves, TASK_COLUMNS), out / "tasks.tsv", TASK_COLUMNS)
    _write_masked(cache, courses, out, settings, volumes_of)


def _joined(tables: list[pd.DataFrame], columns: Mapping[str, str]) -> pd.DataFrame:
    return pd.concat(tables, ignore_index=True)[list(columns)] if tables else pd.DataFrame(columns=list(columns))


def _curve(course: Course) -> pd.DataFrame:
    there = np.isfinite(course.weights)
    n = there.sum(axis=0)
    some = n > 0
    found = course.weights[:, some]
    mean, sd, n = np.nanmean(found, axis=0), np.nanstd(found, axis=0), n[some]
    with np.errstate(invalid="ignore", divide="ignore"):
        half = stats.t.ppf(0.975, n - 1) * sd / np.sqrt(n - 1)  # NaN of a single scan
    curve = {"mean": mean, "sd": sd, "low": np.maximum(mean - half, 0), "high": mean + half, "n_scans": n}
    return pd.DataFrame({"volume": np.flatnonzero(some), "time": course.times[some], **curve}).assign(**course.name)


def _blocks(course: Course, settings: Explain) -> tuple[list[pd.DataFrame], list[dict[str, Any]]]:
    """Share of scans in each kind of event over time, and how importance lies to them."""
    n, tr = course.weights.shape[1], course.tr
    kinds = settings.trial_types or sorted(set(pd.concat(course.events)["trial_type"]))
    masks = {
        kind: np.stack([event_mask(events, kind, n, tr, settings.hrf_shift) for events in course.events])
        for kind in kinds
    }
    there = np.isfinite(course.weights)
    masks = {kind: mask for kind, mask in masks.items() if (mask & there).any()}
    shown = list(masks) if settings.trial_types else kinds_of(course.events, masks)
    tables, rows = [], []
    for kind in shown:
        share = masks[kind].mean(axis=0)
        on = share > 0
        shares = {"volume": np.flatnonzero(on), "time": course.times[on], "share": share[on]}
        tables.append(pd.DataFrame(shares).assign(trial_type=kind, **course.name))
        rows.append({**course.name, "trial_type": kind, **alignment(course.weights, masks[kind])})
    changes = np.stack([transitions(events[events["trial_type"].isin(shown)], n, tr) for events in course.events])
    if (changes & there).any():
        rows.append({**course.name, "trial_type": TRANSITIONS, **alignment(course.weights, changes)})
    return tables, rows


def _write_masked(
    cache: Any,
    courses: list[Course],
    out: Path,
    settings: Explain,
    volumes_of: Callable[[str, int], NDArray[np.integer]],
) -> None:
    wanted = settings.masked_task
    fitting = [course for course in courses if wanted in (None, course.name["class"], course.name["task"])]
    if not fitting:
        if courses:
            known = ", ".join(sorted({c.name["class"] for c in courses}))
            log.warning(
                "no masked series: no test scan with events is of explain: masked_task '%s' (%s)", wanted, known
            )
        return
    course = fitting[0]
    n = course.weights.shape[1]
    total, times = np.zeros((n, cache.n_rois)), np.zeros((n, 1))
    position = {scan: i for i, scan in enumerate(cache.index["scan_id"])}
    for scan in course.scans:
        own = cache.series(position[scan])
        whole = _on_grid(own, volumes_of(scan, len(own)))[:n]
        there = np.isfinite(whole).all(axis=1)
        total[: len(whole)][there] += whole[there]
        times[: len(whole)][there] += 1
    with np.errstate(invalid="ignore"):
        mean = total / times  # NaN where no scan has the volume
    importance = _curve(course).set_index("volume")["mean"].reindex(range(n)).to_numpy()
    low, high = np.nanmin(importance), np.nanmax(importance)
    scaled = (importance - low) / (high - low or 1)
    with atomic(out / "tasks_series.npy") as temporary:
        np.save(temporary, np.stack([mean, mean * scaled[:, None]]).astype(np.float32))
    about = (
        "mean over test scans of the z-scored ROI series (volumes, rois); the same times the mean importance, 0 to 1"
    )
    write_json({"Description": about, **course.name, "RepetitionTime": course.tr}, out / "tasks_series.json")
