"""Importance over the course of a task, beside the task's events: curves, events and whether the two coincide.

Only test scans are used, each explained by the model of the fold that tests it. Weights are divided by those of
untrained models, which show the effect of the position in a scan, and by their scan's mean, so that all scans and folds
count equally: 1 is an average volume. Times are those of the acquisition: volumes that a series lacks (before the
steady state, or scrubbed) are gaps.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from bolt.cohort.confounding import holm
from bolt.config import Explain
from bolt.explain.trust.similarity import relative_to_untrained
from bolt.explain.weights import UNTRAINED, read_importance, save_array
from bolt.io.errors import DataError
from bolt.io.files import columns, read_table, write_json, write_table

log = logging.getLogger("bolt")

COURSE = ("class", "task", "run")
"""What scans of one course have in common."""
TASK_COLUMNS = columns("explain", "tasks")
BLOCK_COLUMNS = columns("explain", "tasks_blocks")
ALIGNMENT_COLUMNS = columns("explain", "tasks_alignment")
TRANSITIONS = "4 to 8 s after a start or end"
DELAY = (4.0, 8.0)
"""Seconds after a change of the stimulus: the range around the peak of the BOLD response."""
MOST = 0.5
"""Smallest share of the scans that must have a volume, or a kind of event, for it to count."""
NESTED = 0.9
"""Share of a kind's time within longer events above which it is redundant (such as the trials of a block)."""
KINDS = 10
"""Most kinds of events in a figure."""

Array = NDArray[np.floating]
VolumesOf = Callable[[str, int], NDArray[np.integer]]
"""Takes scan_id and number of rows, returns the volumes that the rows are (`bolt.io.series_files.kept_volumes`)."""


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
    untrained : (volumes,) array, optional
        Importance under untrained models, by which weights were divided, mean over scans; 1 is an average volume.
    raw : (volumes,) array, optional
        Importance that was not divided, as in the paper's figure, mean over scans; 1 is an average volume.
    """

    name: dict[str, str]
    scans: list[str]
    tr: float
    weights: Array
    events: list[pd.DataFrame]
    untrained: Array | None = None
    raw: Array | None = None


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
        As `read_courses`.
    """
    courses = read_courses(cache, run, folds, volumes_of)
    blocks, aligned = [], []
    for course in courses:
        masks = event_masks(course, settings.hrf_shift, settings.trial_types)
        blocks.append(block_table(course, masks))
        n, tr = course.weights.shape[1], course.tr
        changes = [transitions(events[events["trial_type"].isin(masks)], n, tr) for events in course.events]
        present = np.isfinite(course.weights)
        untrained = np.where(present, 1.0 if course.untrained is None else course.untrained, np.nan)
        untrained /= np.nanmean(untrained, axis=1, keepdims=True)
        for kind, mask in {**masks, TRANSITIONS: np.stack(changes)}.items():
            if (mask & present).any():
                by_position = {"ratio_untrained": alignment(untrained, mask)["ratio"]}
                aligned.append({**course.name, "trial_type": kind, **alignment(course.weights, mask), **by_position})
    table = pd.DataFrame(aligned, columns=list(ALIGNMENT_COLUMNS))
    table["p_holm"] = table.groupby(list(COURSE), sort=False)["p"].transform(holm)
    for path in (out / "tasks_series.npy", out / "tasks_series.json"):  # of an earlier call
        path.unlink(missing_ok=True)
    write_table(table, out / "tasks_alignment.tsv", ALIGNMENT_COLUMNS)
    write_table(_joined(blocks, BLOCK_COLUMNS), out / "tasks_blocks.tsv", BLOCK_COLUMNS)
    write_table(_joined(map(curve_table, courses), TASK_COLUMNS), out / "tasks.tsv", TASK_COLUMNS)
    _write_masked(cache, courses, out, settings, volumes_of)


def read_courses(cache: Any, run: Path, folds: Sequence[int], volumes_of: VolumesOf) -> list[Course]:
    """Read the importance of all test scans that have events, by class, task and run.

    Parameters
    ----------
    cache : bolt.series.cache.SeriesCache
    run : Path
        Folder ``seed-<s>``; its folds explained.
    folds : sequence of int
    volumes_of : callable
        See `VolumesOf`.

    Raises
    ------
    DataError
        A fold whose test scans have events lacks their importance under untrained models.
    """
    index = cache.index.set_index("scan_id", drop=False)
    tests = []
    for fold in folds:
        folder = run / f"fold-{fold}"
        table, fold_weights = read_importance(folder)
        untrained = {}
        if (folder / f"{UNTRAINED}.tsv").is_file():
            explained, curves = read_importance(folder, UNTRAINED)
            untrained = dict(zip(explained["scan_id"], curves, strict=True))
        for scan, role, weights in zip(table["scan_id"], table["role"], fold_weights, strict=True):
            row = index.loc[scan]
            path = row.get("events")
            if role != "test" or not weights.sum() > 0 or not isinstance(path, str) or not np.isfinite(row["tr"]):
                continue
            try:
                events = read_events(path)
            except DataError as error:
                log.warning("%s is used without its events: %s", scan, error)
                continue
            if events.empty:
                continue
            if scan not in untrained:
                what = f"importance of {scan} under untrained models is missing, without which position in the scan "
                what += "would count as an effect of the task"
                raise DataError(what, where=folder / f"{UNTRAINED}.tsv", hint="Delete the file and run again")
            task, number = (value if isinstance(value := row.get(key), str) else "" for key in ("task", "run"))
            found = str(row["label"]), task, number, scan, float(row["tr"])
            tests.append((*found, weights, untrained[scan], volumes_of(scan, len(weights)), events))
    names = (*COURSE, "scan", "tr", "weights", "untrained", "volumes", "events")
    groups = pd.DataFrame(tests, columns=names).groupby(list(COURSE))
    return [_course(dict(zip(COURSE, key, strict=True)), part) for key, part in groups]


def _course(name: dict[str, str], tests: pd.DataFrame) -> Course:
    """Join scans of one class, task and run; exclude those with another repetition time than most."""
    tr = float(tests["tr"].mode().iloc[0])
    same = tests[(tests["tr"] - tr).abs() <= 0.01 * tr].sort_values("scan")
    if len(same) < len(tests):
        log.warning("%s: %d scans with another repetition time excluded", name["class"], len(tests) - len(same))
    relative, expected = relative_to_untrained(list(same["weights"]), list(same["untrained"]))
    curves = np.full((3, len(same), 1 + max(volumes[-1] for volumes in same["volumes"])), np.nan)
    for i, (volumes, own) in enumerate(zip(same["volumes"], same["weights"], strict=True)):
        curves[:, i, volumes] = relative[i], expected[i], own / (own.mean() or 1)
    common = np.flatnonzero(np.isfinite(curves[0]).mean(axis=0) >= MOST)
    curves = curves[:, :, : common[-1] + 1]  # longer scans than most are cut
    counts = np.isfinite(curves[1:]).sum(axis=1)
    means = np.divide(np.nansum(curves[1:], axis=1), counts, out=np.full(counts.shape, np.nan), where=counts > 0)
    return Course(name, list(same["scan"]), tr, curves[0], list(same["events"]), *means)


def read_events(path: str | Path) -> pd.DataFrame:
    """Read a BIDS table of events.

    Returns
    -------
    DataFrame
        Sorted by onset: onset (s), duration (s; 0 if missing), trial_type (``event`` if there is no such column).

    Raises
    ------
    DataError
        There is no column ``onset``, or its values are not numbers.
    """
    table = read_table(path, text=("trial_type",))
    if "onset" not in table:
        what = "column 'onset' is missing"
        raise DataError(what, where=path, hint="Give the BIDS columns onset, duration, trial_type")
    if "trial_type" not in table:
        table["trial_type"] = "event"
    if "duration" not in table:
        table["duration"] = 0.0
    table = table[["onset", "duration", "trial_type"]].dropna(subset=["onset", "trial_type"])
    try:
        table = table.astype({"onset": float, "duration": float}).fillna({"duration": 0.0})
    except ValueError as error:
        raise DataError(f"not numbers ({error})", where=path, hint="Give onset and duration in seconds") from None
    return table.sort_values(["onset", "trial_type"], ignore_index=True)


def on_grid(values: Array, volumes: NDArray[np.integer]) -> Array:
    """Return one row per volume of the acquisition, from 0 to the last of `volumes`; NaN for missing volumes."""
    whole = np.full((int(volumes[-1]) + 1, *values.shape[1:]), np.nan)
    whole[volumes] = values
    return whole


def event_masks(course: Course, shift: float, kinds: Sequence[str] | None = None) -> dict[str, NDArray[np.bool_]]:
    """Mark the volumes of each kind of event: trial_type to (scans, volumes).

    Parameters
    ----------
    course : Course
    shift : float
        Seconds by which events are moved.
    kinds : sequence of str, optional
        By default those that give the task its shape, see `kinds_of`.
    """
    n, tr = course.weights.shape[1], course.tr
    masks = {
        kind: np.stack([event_mask(events, kind, n, tr, shift) for events in course.events])
        for kind in kinds or sorted(set(pd.concat(course.events)["trial_type"]))
    }
    present = np.isfinite(course.weights)
    masks = {kind: mask for kind, mask in masks.items() if (mask & present).any()}
    return masks if kinds else {kind: masks[kind] for kind in kinds_of(course.events, masks)}


def event_mask(events: pd.DataFrame, kind: str, n_volumes: int, tr: float, shift: float = 0.0) -> NDArray[np.bool_]:
    """Mark the volumes whose middle is in an event of one kind, (n_volumes,); an event lasts at least one TR.

    Parameters
    ----------
    events : DataFrame
        From `read_events`.
    kind : str
        A ``trial_type``.
    n_volumes : int
    tr, shift : float
        Seconds; events are moved by `shift`.
    """
    events = events[events["trial_type"] == kind]
    start = events["onset"].to_numpy() + shift
    return _within(start, start + np.maximum(events["duration"].to_numpy(), tr), n_volumes, tr)


def _within(starts: NDArray[Any], ends: NDArray[Any], n_volumes: int, tr: float) -> NDArray[np.bool_]:
    """Mark the volumes whose middle is between any start and its end, (n_volumes,)."""
    middle = (np.arange(n_volumes) + 0.5) * tr + 1e-9
    return np.any((middle[:, None] >= starts) & (middle[:, None] < ends), axis=1)


def kinds_of(scans: Sequence[pd.DataFrame], masks: Mapping[str, NDArray[np.bool_]]) -> list[str]:
    """Return the kinds of events that give a task its shape, in the order of their first onsets.

    These are kinds that most scans have, without those nested in longer ones; at most `KINDS`, those that last longest.

    Parameters
    ----------
    scans : sequence of DataFrame
        Each scan's events, from `read_events`.
    masks : mapping
        trial_type to (scans, volumes).
    """
    events = pd.concat(scans)
    length = events.groupby("trial_type")["duration"].median()
    common = [kind for kind, mask in masks.items() if mask.any(axis=1).mean() >= MOST]
    kept: list[str] = []
    covered: NDArray[np.bool_] = np.zeros(masks[common[0]].shape, bool) if common else np.zeros(0, bool)
    for kind in sorted(common, key=lambda kind: (-length[kind], kind)):
        if (masks[kind] & covered).sum() < NESTED * masks[kind].sum():
            kept.append(kind)
            covered |= masks[kind]
    kept = sorted(kept, key=lambda kind: -int(masks[kind].sum()))[:KINDS]
    return sorted(kept, key=lambda kind: (events.loc[events["trial_type"] == kind, "onset"].min(), kind))


def transitions(events: pd.DataFrame, n_volumes: int, tr: float) -> NDArray[np.bool_]:
    """Mark the volumes that follow the start or end of an event by `DELAY`, (n_volumes,)."""
    changes = np.concatenate([events["onset"], events["onset"] + events["duration"]])
    return _within(changes + DELAY[0], changes + DELAY[1], n_volumes, tr)


def alignment(weights: Array, mask: NDArray[np.bool_]) -> dict[str, float]:
    """Test whether importance during events differs from importance at other times.

    The null distribution shifts the events of all scans together, circularly, by every number of volumes. So neither
    the smoothness of the curves nor a course that all scans share is significant by itself.

    Parameters
    ----------
    weights : (scans, volumes) array
        Relative importance; NaN for missing volumes.
    mask : (scans, volumes) bool array

    Returns
    -------
    dict
        share_of_time, share_of_importance, ratio, p, n_scans.
    """
    present = np.isfinite(weights)
    some = (mask & present).any(axis=1)
    present, mask = present[some], mask[some]
    spectrum = np.fft.rfft(mask.astype(float)).conj()
    inside, taken = (
        np.fft.irfft(np.fft.rfft(values) * spectrum, n=mask.shape[1])
        for values in (np.where(present, weights[some], 0.0), present.astype(float))
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        ratios = np.where(taken > 0.5, inside / taken, np.nan)  # of each shift, (scans, volumes)
    known = np.isfinite(ratios)
    ratio = np.where(known, ratios, 0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    ratio = ratio[known.any(axis=0)]
    share = taken[:, 0] / present.sum(axis=1)
    return {
        "share_of_time": float(share.mean()),
        "share_of_importance": float((share * ratios[:, 0]).mean()),
        "ratio": float(ratio[0]),
        "p": float((np.abs(ratio - 1) >= abs(ratio[0] - 1) - 1e-9).mean()),
        "n_scans": int(some.sum()),
    }


def curve_table(course: Course) -> pd.DataFrame:
    """Return mean importance over time, columns of `TASK_COLUMNS`."""
    n = np.isfinite(course.weights).sum(axis=0)
    some = n > 0
    weights, n = course.weights[:, some], n[some]
    mean, sd = np.nanmean(weights, axis=0), np.nanstd(weights, axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        half = stats.t.ppf(0.975, n - 1) * sd / np.sqrt(n - 1)  # NaN for a single scan
    curve = {"mean": mean, "sd": sd, "low": np.maximum(mean - half, 0), "high": mean + half, "n_scans": n}
    for key, values in (("untrained", course.untrained), ("raw", course.raw)):
        curve[key] = np.full(len(n), np.nan) if values is None else values[some]
    volume = np.flatnonzero(some)
    return pd.DataFrame({"volume": volume, "time": volume * course.tr, **curve}).assign(**course.name)


def block_table(course: Course, masks: Mapping[str, NDArray[np.bool_]]) -> pd.DataFrame:
    """Return the share of scans in each kind of event over time, columns of `BLOCK_COLUMNS`."""
    tables = []
    for kind, mask in masks.items():
        share = mask.mean(axis=0)
        on = np.flatnonzero(share)
        shares = {"volume": on, "time": on * course.tr, "share": share[on]}
        tables.append(pd.DataFrame(shares).assign(trial_type=kind, **course.name))
    return _joined(tables, BLOCK_COLUMNS)


def _joined(tables: Iterable[pd.DataFrame], described: Mapping[str, str]) -> pd.DataFrame:
    """Concatenate tables that have rows."""
    filled = [table for table in tables if len(table)]
    return pd.concat(filled, ignore_index=True)[list(described)] if filled else pd.DataFrame(columns=list(described))


def _write_masked(cache: Any, courses: list[Course], out: Path, settings: Explain, volumes_of: VolumesOf) -> None:
    """Write the mean series of one task, and the same multiplied by importance."""
    wanted, known = settings.masked_task, ", ".join(sorted({course.name["class"] for course in courses}))
    fitting = [course for course in courses if wanted in (None, course.name["class"], course.name["task"])]
    if courses and not fitting:
        log.warning("no masked series: no test scan with events is of explain: masked_task '%s' (%s)", wanted, known)
    if not fitting:
        return
    course = fitting[0]
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
        mean = total / counts  # NaN for volumes that no scan has
    importance = curve_table(course).set_index("volume")["mean"].reindex(range(len(mean))).to_numpy()
    low, high = np.nanmin(importance), np.nanmax(importance)
    scaled = (importance - low) / (high - low or 1)
    save_array(np.stack([mean, mean * scaled[:, None]]), out / "tasks_series.npy")
    about = "mean over test scans of the z-scored ROI series (volumes, rois); the same times mean importance, 0 to 1"
    write_json({"Description": about, **course.name, "RepetitionTime": course.tr}, out / "tasks_series.json")
