"""A task's events: on which volumes they are, which kinds of them give the task its shape, and whether importance
lies there."""

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
"""Seconds from a change of what is shown to the rise of the BOLD response, about its peak."""
MOST = 0.5
"""Share of the scans that must have a volume, or a kind of event, for it to count."""
NESTED = 0.9
"""Share of a kind's time within longer events from which it says nothing new (such as the single trials of a block)."""
KINDS = 10


def read_events(path: str | Path) -> pd.DataFrame:
    """Read a BIDS table of events, by onset: onset (s), duration (s; 0 where it is missing), trial_type (``event``
    where no column tells them apart).

    Raises
    ------
    DataError
        Where it is no table with numbers in ``onset``.
    """
    table = read_table(path, text=("trial_type",))
    if "onset" not in table:
        raise DataError("column 'onset' is missing", where=path, hint="Give BIDS' columns onset, duration, trial_type")
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
    """(n_volumes,) whether the middle of each volume lies in an event of one kind; an event lasts at least one TR.

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
    own = events[events["trial_type"] == kind]
    start = own["onset"].to_numpy() + shift
    return _within(start, start + np.maximum(own["duration"].to_numpy(), tr), n_volumes, tr)


def _within(starts: NDArray[Any], ends: NDArray[Any], n_volumes: int, tr: float) -> NDArray[np.bool_]:
    middle = (np.arange(n_volumes) + 0.5) * tr + 1e-9
    return np.any((middle[:, None] >= starts) & (middle[:, None] < ends), axis=1)


def kinds_of(scans: Sequence[pd.DataFrame], masks: Mapping[str, NDArray[np.bool_]]) -> list[str]:
    """The kinds of events that give a task its shape, by their first onset: those that most scans have, without those
    that lie within longer ones; the `KINDS` that take most time, if there are more.

    Parameters
    ----------
    scans : sequence of DataFrame
        Each scan's events, as of `read_events`.
    masks : mapping
        trial_type to (scans, volumes).
    """
    every = pd.concat(scans)
    length = every.groupby("trial_type")["duration"].median()
    common = [kind for kind, mask in masks.items() if mask.any(axis=1).mean() >= MOST]
    kept: list[str] = []
    covered: NDArray[np.bool_] = np.zeros(masks[common[0]].shape, bool) if common else np.zeros(0, bool)
    for kind in sorted(common, key=lambda kind: (-length[kind], kind)):
        if (masks[kind] & covered).sum() < NESTED * masks[kind].sum():
            kept.append(kind)
            covered |= masks[kind]
    kept = sorted(kept, key=lambda kind: -int(masks[kind].sum()))[:KINDS]
    return sorted(kept, key=lambda kind: (every.loc[every["trial_type"] == kind, "onset"].min(), kind))


def transitions(events: pd.DataFrame, n_volumes: int, tr: float) -> NDArray[np.bool_]:
    """(n_volumes,) whether a volume follows the start or the end of an event by `DELAY`."""
    changes = np.concatenate([events["onset"], events["onset"] + events["duration"]])
    return _within(changes + DELAY[0], changes + DELAY[1], n_volumes, tr)


def alignment(weights: NDArray[np.floating], mask: NDArray[np.bool_]) -> dict[str, float]:
    """Whether volumes of events are more, or less, important than the same volumes at another time.

    The null shifts the events of all scans together, in a circle, by every number of volumes: so neither smooth curves,
    nor what is common to the course of all scans, makes a finding by itself.

    Parameters
    ----------
    weights : (scans, volumes) array
        Relative importance; NaN: no volume.
    mask : (scans, volumes) bool array

    Returns
    -------
    dict
        share_of_time, share_of_importance, ratio, p, n_scans.
    """
    there = np.isfinite(weights)
    some = (mask & there).any(axis=1)
    there, mask = there[some], mask[some]
    spectrum = np.fft.rfft(mask.astype(float)).conj()
    inside, taken = (
        np.fft.irfft(np.fft.rfft(values) * spectrum, n=mask.shape[1])
        for values in (np.where(there, weights[some], 0.0), there.astype(float))
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        ratios = np.where(taken > 0.5, inside / taken, np.nan)  # of every shift, (scans, volumes)
    seen = np.isfinite(ratios)
    ratio = np.where(seen, ratios, 0).sum(axis=0) / np.maximum(seen.sum(axis=0), 1)
    ratio = ratio[seen.any(axis=0)]
    share = taken[:, 0] / there.sum(axis=1)
    return {
        "share_of_time": float(share.mean()),
        "share_of_importance": float((share * ratios[:, 0]).mean()),
        "ratio": float(ratio[0]),
        "p": float((np.abs(ratio - 1) >= abs(ratio[0] - 1) - 1e-9).mean()),
        "n_scans": int(some.sum()),
    }
