"""Faithfulness: whether predictions change more when important volumes are removed than when others are.

Deletion replaces volumes, the most important first, until nothing of the scan is left; insertion starts from the
replaced scan and restores the most important volumes first. Curves show the probability of the class that the model
predicts for the intact scan. A faithful order makes it fall early in deletion (small area under the curve) and rise
early in insertion (large area).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bolt.config.layout import ModelRun
from bolt.evaluate.intervals import expanded
from bolt.io.errors import DataError
from bolt.io.files import columns, holds_something, read_json, read_table, write_table

Array = NDArray[np.floating]
CONTROLS = ("random", "position", "shifted")
"""Orders that know nothing of when the scan's decisive moments are."""
ORDERS = ("importance", "rollout", "integrated_gradients", "position", "shifted", "random")
REPLACEMENTS = ("mean", "surrogate")
DIRECTIONS = ("deletion", "insertion")
FEWEST_GROUPS = 6
"""Smallest number of families for which intervals decide which order is better."""
CURVE_COLUMNS = columns("explain", "faithfulness")
AREA_COLUMNS = columns("explain", "faithfulness_areas", FEWEST_GROUPS=FEWEST_GROUPS)
INDEX_COLUMNS = columns("explain", "faithfulness_curves")
CURVES = "faithfulness_curves"


def finished_folds(run: Path, folds: Sequence[int]) -> list[int]:
    """Return the folds of `run` that have curves."""
    done = []
    for fold in folds:
        index, status = (run / f"fold-{fold}" / name for name in (f"{CURVES}.tsv", "faithfulness_status.json"))
        if status.is_file() and read_json(status)["state"] == "ok" and holds_something(index):
            done.append(fold)
    return done


def write_faithfulness(run: ModelRun, folds: Sequence[int]) -> None:
    """Write ``faithfulness.tsv`` (mean curves) and ``faithfulness_areas.tsv`` of a run.

    Parameters
    ----------
    run : ModelRun
    folds : sequence of int
        Folds of the run, of which some have curves; the tables name those without.

    Raises
    ------
    DataError
        Curves are of another version, or those of two folds do not have the same steps.
    """
    done = finished_folds(run.folder, folds)
    tables: list[pd.DataFrame] = []
    arrays: list[Array] = []
    for fold in done:
        table = read_table(run.fold(fold) / f"{CURVES}.tsv", text=tuple(INDEX_COLUMNS))
        file = run.fold(fold) / f"{CURVES}.npy"
        curves = np.load(file, allow_pickle=False).astype(float)
        what = ""
        if curves.shape[1] != len(ORDERS):
            what = f"curves of {curves.shape[1]} orders of the volumes, but {len(ORDERS)} are compared: "
            what += "they were written by another version"
        elif curves.shape[1:] != (arrays or [curves])[0].shape[1:] or len(curves) != len(table):
            what = "these curves have other steps than those of the other folds, or do not match the scans of "
            what += "their index"
        if what:
            raise DataError(what, where=file, hint="Delete the file and run again")
        tables.append(table)
        arrays.append(curves)
    missing = ", ".join(str(fold) for fold in folds if fold not in done)
    known = {"folds": ", ".join(map(str, done)), "missing_folds": missing or None}
    lines, rows = summarise(pd.concat(tables)["group"].astype(str).tolist(), np.concatenate(arrays))
    out = run.explanation
    write_table(lines.assign(**known)[list(CURVE_COLUMNS)], out / "faithfulness.tsv", CURVE_COLUMNS)
    write_table(rows.assign(**known)[list(AREA_COLUMNS)], out / "faithfulness_areas.tsv", AREA_COLUMNS)


def areas(curves: Array) -> Array:
    """Return the area under curves by the trapezoidal rule; the last axis is equally spaced from 0 to 1."""
    return (curves[..., 1:] + curves[..., :-1]).mean(-1) / 2


def summarise(groups: Sequence[str], curves: Array, *, draws: int = 4000) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return means over scans with their intervals.

    Parameters
    ----------
    groups : sequence of str
        Family, else subject, of each scan.
    curves : float array (scans, orders, replacements, directions, steps + 1)
    draws : int
        Bootstrap samples; groups are drawn with replacement, so that the scans of a subject stay together.

    Returns
    -------
    tuple of DataFrame
        `CURVE_COLUMNS` and `AREA_COLUMNS` without the folds.
    """
    names, member = np.unique(np.asarray(groups), return_inverse=True)
    n_groups = len(names)
    ends = expanded(n_groups) if n_groups > 1 else (0.0, 1.0)
    times = np.random.default_rng(0).multinomial(n_groups, np.full(n_groups, 1 / n_groups), size=draws)[:, member]
    weights = times / times.sum(1, keepdims=True)  # of each scan in each sample

    def with_interval(values: Array) -> tuple[Array, ...]:
        """Return the mean over scans (the first axis), and the ends of its interval."""
        return values.mean(0), *np.quantile(np.tensordot(weights, values, axes=1), ends, axis=0)

    scan_areas = areas(curves)
    curve, area = with_interval(curves), with_interval(scan_areas)
    gains = {c: with_interval(scan_areas - scan_areas[:, [ORDERS.index(c)]]) for c in CONTROLS}
    shares = np.linspace(0, 1, curves.shape[-1])
    counts = {"n_scans": len(curves), "n_groups": n_groups}
    lines, rows = [], []
    for (r, replacement), (d, direction), (o, order) in product(*map(enumerate, (REPLACEMENTS, DIRECTIONS, ORDERS))):
        key = {"replacement": replacement, "direction": direction, "order": order}
        line = dict(zip(("probability", "low", "high"), (part[o, r, d] for part in curve), strict=True))
        lines.append(pd.DataFrame({**key, "share": shares.round(6), **line, **counts}))
        values = (float(part[o, r, d]) for part in area)
        row: dict[str, Any] = key | dict(zip(("area", "low", "high"), values, strict=True)) | counts
        others = CONTROLS if order not in CONTROLS else ("random",) if order != "random" else ()
        for control in others:  # the controls themselves are compared only with random orders
            mean, low, high = (float(part[o, r, d]) for part in gains[control])
            row |= dict(zip(difference_columns(control), (mean, low, high), strict=True))
            row[f"better_than_{control}"] = better(direction, low, high) if n_groups >= FEWEST_GROUPS else None
        rows.append(row)
    described = [name for name in AREA_COLUMNS if name not in ("folds", "missing_folds")]
    return pd.concat(lines, ignore_index=True), pd.DataFrame(rows).reindex(columns=described)


def difference_columns(control: str) -> tuple[str, str, str]:
    """Return the columns of the difference from a control, and of the ends of its interval."""
    if control == "random":
        return "difference", "difference_low", "difference_high"
    return f"{control}_difference", f"{control}_low", f"{control}_high"


def better(direction: str, low: float, high: float) -> str:
    """Return whether an order is better than a control, from the interval of the difference: yes, no or worse."""
    low, high = (low, high) if direction == "insertion" else (-high, -low)
    return "yes" if low > 0 else "worse" if high < 0 else "no"
