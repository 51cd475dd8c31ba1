"""Events of a task: their volumes, the kinds that give the task its shape, and their alignment with importance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

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
