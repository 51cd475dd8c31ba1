"""Scans of one person joined into one: their z-scored series one after the other.

Each scan is z-scored on its own, so that there is no step where one ends and the next begins. The first scan, by
session and run, gives the joined one its name and its facts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bolt.cohort.exclusions import JOINED
from bolt.io.series_files import kept_volumes
from bolt.io.volumes import TR_TOLERANCE

JOINED_COLUMN = {"joined": "Scans whose series are joined in this one, in this order; n/a: a single scan"}
"""Column of a cache's index, if scans are joined."""
_Row = tuple[str, str, str]


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
        Scans that are part of another, or have another repetition time than the first.
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
        for part in ordered.iloc[1:].to_dict("records"):
            if abs(part["tr"] - first["tr"]) > TR_TOLERANCE * first["tr"]:  # false where one is unknown
                times = f"repetition times of {part['tr']:g} and {first['tr']:g} s"
                reason = f"cannot be joined with {first['scan_id']}: {times}"
            else:
                reason = f"its series is part of {first['scan_id']} ('join_scans: {rule}')"
                parts[int(first["row"])].append(int(part["row"]))
            excluded.append((str(part["scan_id"]), JOINED, reason))
    return dict(sorted(parts.items())), excluded


def describe_joined(index: pd.DataFrame, parts: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return the index of a cache with the facts of joined scans.

    Parameters
    ----------
    index : DataFrame
        One row per scan of the cache, with the facts of its first part.
    parts : sequence of DataFrame
        For each scan the rows of its parts (scan_id, n_volumes, mean_fd, length).

    Returns
    -------
    DataFrame
        With `JOINED_COLUMN`. `n_volumes` is the sum, `mean_fd` the mean over volumes (missing if one is), and there are
        no `events`, whose times would be those of single scans.
    """
    index = index.assign(joined=None).astype({"joined": object, "events": object})
    for row, members in zip(index.index, parts, strict=True):
        if len(members) == 1:
            continue
        length = members["length"].to_numpy(float)
        index.loc[row, "joined"] = " ".join(members["scan_id"].astype(str))
        index.loc[row, "n_volumes"] = members["n_volumes"].astype(float).sum(skipna=False)
        index.loc[row, "mean_fd"] = (members["mean_fd"].to_numpy(float) * length).sum() / length.sum()
        index.loc[row, "events"] = None
    return index


def volumes_of(scan: pd.Series | Mapping[str, Any], path: str | Path) -> np.ndarray:
    """Return which volumes of the image the series of a scan holds (`kept_volumes`); of a joined scan, its own rows.

    Parameters
    ----------
    scan : Series or mapping
        Row of the index of a cache.
    path : path
        File of the scan's series.
    """
    length = int(scan["length"])
    return np.arange(length) if isinstance(scan.get("joined"), str) else kept_volumes(path, length)


def _order(scan: pd.Series) -> tuple[list[tuple[bool, int, str]], ...]:
    """Return what sorts scans by session, run and name; numbers by their value."""
    return tuple(_natural(scan[column]) for column in ("session", "run", "scan_id"))


def _natural(text: object) -> list[tuple[bool, int, str]]:
    pieces = re.findall(r"\d+|\D+", text) if isinstance(text, str) else []
    return [(not piece.isdigit(), int(piece) if piece.isdigit() else 0, piece) for piece in pieces]
