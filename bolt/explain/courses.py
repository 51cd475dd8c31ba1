"""Importance of test scans over the course of a task, on the time axis of the acquisition.

Only test scans are used, each explained by the model of the fold that tests it. Weights are divided by those of
untrained models, which show the effect of the position in a scan, and by their scan's mean, so that all scans and folds
count equally: 1 is an average volume. Times are those of the acquisition: volumes that a series lacks (before the
steady state, or scrubbed) are gaps.

Events of a task: their volumes, the kinds that give the task its shape, and their alignment with importance.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bolt.explain.trust.relative import relative_to_untrained
from bolt.explain.weights import UNTRAINED, read_importance
from bolt.io.errors import DataError
from bolt.io.files import read_table

TRANSITIONS = "4 to 8 s after a start or end"
DELAY = (4.0, 8.0)
"""Seconds after a change of the stimulus: the range around the peak of the BOLD response."""
MOST = 0.5
"""Smallest share of the scans that must have a volume, or a kind of event, for it to count."""
NESTED = 0.9
"""Share of a kind's time within longer events above which it is redundant (such as the trials of a block)."""
KINDS = 10
"""Most kinds of events in a figure."""


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
        raise DataError(
            "column 'onset' is missing", where=path, hint="Give the BIDS columns onset, duration, trial_type"
        )
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


def alignment(weights: NDArray[np.floating], mask: NDArray[np.bool_]) -> dict[str, float]:
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


log = logging.getLogger("bolt")

VolumesOf = Callable[[str, int], NDArray[np.integer]]
"""Takes scan_id and number of rows, returns the volumes that the rows are (`bolt.io.series_files.kept_volumes`)."""

COURSE = {
    "class": "true class of the scans",
    "task": "task of the scans",
    "run": "run of the scans",
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
    untrained : (volumes,) array, optional
        Importance under untrained models, by which weights were divided, mean over scans; 1 is an average volume.
    """

    name: dict[str, str]
    scans: list[str]
    tr: float
    weights: NDArray[np.floating]
    events: list[pd.DataFrame]
    untrained: NDArray[np.floating] | None = None

    @property
    def times(self) -> NDArray[np.floating]:
        """Return the time of each volume, seconds."""
        return np.arange(self.weights.shape[1]) * self.tr


class _TestScan(NamedTuple):
    """One test scan: its importance under trained and untrained models, the volumes they belong to, and its events."""

    scan: str
    tr: float
    weights: NDArray[np.floating]
    untrained: NDArray[np.floating]
    volumes: NDArray[np.integer]
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

    Raises
    ------
    DataError
        A fold whose test scans have events lacks their importance under untrained models.
    """
    index = cache.index.set_index("scan_id", drop=False)
    courses: dict[tuple[str, ...], list[_TestScan]] = {}
    for fold in folds:
        table, fold_weights = read_importance(run / f"fold-{fold}")
        untrained = _untrained(run / f"fold-{fold}")
        for scan, role, weights in zip(table["scan_id"], table["role"], fold_weights, strict=True):
            row = index.loc[scan]
            events = _events(row) if role == "test" and weights.sum() > 0 else None
            if events is None:
                continue
            if scan not in untrained:
                raise DataError(
                    f"importance of {scan} under untrained models is missing, without which position in the scan would "
                    "count as an effect of the task",
                    where=run / f"fold-{fold}" / f"{UNTRAINED}.tsv",
                    hint="Delete the file and run again",
                )
            task, number = (value if isinstance(value := row.get(key), str) else "" for key in ("task", "run"))
            volumes = volumes_of(scan, len(weights))
            test = _TestScan(scan, float(row["tr"]), weights, untrained[scan], volumes, events)
            courses.setdefault((str(row["label"]), task, number), []).append(test)
    return [_course(dict(zip(COURSE, key, strict=True)), courses[key]) for key in sorted(courses)]


def _course(name: dict[str, str], tests: list[_TestScan]) -> Course:
    """Join scans of one class, task and run; exclude those with another repetition time than most."""
    tr = float(pd.Series([test.tr for test in tests]).mode().iloc[0])
    same = sorted((test for test in tests if abs(test.tr - tr) <= 0.01 * tr), key=lambda test: test.scan)
    if len(same) < len(tests):
        log.warning("%s: %d scans with another repetition time excluded", name["class"], len(tests) - len(same))
    relative, expected = relative_to_untrained([test.weights for test in same], [test.untrained for test in same])
    volumes = [test.volumes for test in same]
    weights, untrained = (_stacked(list(map(on_grid, curves, volumes))) for curves in (relative, expected))
    common = np.flatnonzero(np.isfinite(weights).mean(axis=0) >= MOST)
    weights, untrained = weights[:, : common[-1] + 1], untrained[:, : common[-1] + 1]  # longer scans than most are cut
    counts = np.isfinite(untrained).sum(axis=0)
    mean = np.divide(np.nansum(untrained, axis=0), counts, out=np.full(len(counts), np.nan), where=counts > 0)
    return Course(name, [test.scan for test in same], tr, weights, [test.events for test in same], mean)


def _stacked(curves: list[NDArray[np.floating]]) -> NDArray[np.floating]:
    """Return curves as rows of one array, with NaN after the end of the shorter ones."""
    whole = np.full((len(curves), max(map(len, curves))), np.nan)
    for row, curve in zip(whole, curves, strict=True):
        row[: len(curve)] = curve
    return whole


def _untrained(run_fold: Path) -> dict[str, NDArray[np.floating]]:
    """Read the importance of test scans under untrained models, by scan; nothing if it was not computed."""
    if not (run_fold / f"{UNTRAINED}.tsv").is_file():
        return {}
    table, curves = read_importance(run_fold, UNTRAINED)
    return dict(zip(table["scan_id"], curves, strict=True))


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
