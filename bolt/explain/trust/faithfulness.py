"""Faithfulness: whether predictions change more when important volumes are removed than when others are.

Deletion replaces volumes, the most important first, until nothing of the scan is left; insertion starts from the
replaced scan and restores the most important volumes first. Curves show the probability of the class that the model
predicts for the intact scan. A faithful order makes it fall early in deletion (small area under the curve) and rise
early in insertion (large area).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import norm, t

from bolt.config.layout import ModelRun
from bolt.io.errors import DataError
from bolt.io.files import atomic, holds_something, read_json, read_table, write_table

CONTROLS = ("random", "position", "shifted")
"""Orders that know nothing of when the scan's decisive moments are."""
ORDERS = ("importance", "rollout", "integrated_gradients", "position", "shifted", "random")
REPLACEMENTS = ("mean", "surrogate")
DIRECTIONS = ("deletion", "insertion")
FEWEST_GROUPS = 6
"""Smallest number of families for which intervals decide which order is better."""

_KEYS = {
    "replacement": "what volumes are replaced by: mean, the scan's mean volume, volume by volume; surrogate, a "
    "phase-randomised copy of the scan, block by block",
    "direction": "deletion: most important volumes replaced first; insertion: restored first",
    "order": "order of the volumes: importance (Algorithm 1), rollout (attention without gradients), "
    "integrated_gradients; controls: position (mean importance of the fold's other test scans at the same position), "
    "shifted (the scan's own importance, circularly shifted by at least a tenth of the scan, mean over draws), random "
    "(mean over draws)",
}
_COUNTS = {
    "n_scans": "number of test scans",
    "n_groups": "number of their families (else subjects)",
    "folds": "folds of these scans",
    "missing_folds": "folds of the run without curves",
}
CURVE_COLUMNS = {
    **_KEYS,
    "share": "share of the volumes (or blocks) that are replaced (deletion) or restored (insertion)",
    "probability": "probability of the class that is predicted for the intact scan, mean over test scans",
    "low": "lower end of its 95 % bootstrap interval over families (else subjects)",
    "high": "upper end",
    **_COUNTS,
}
AREA_COLUMNS = {
    **_KEYS,
    "area": "area under the curve of the probability, mean over test scans: small is good in deletion, large in "
    "insertion",
    "low": "lower end of its 95 % bootstrap interval over families (else subjects)",
    "high": "upper end",
    "difference": "area minus that of the random order of the same scans",
    "difference_low": "lower end of its 95 % bootstrap interval over families (else subjects)",
    "difference_high": "upper end",
    "better_than_random": "yes: the interval of the difference is on the good side of 0; worse: on the other side; no: "
    f"it contains 0; n/a: fewer than {FEWEST_GROUPS} families, or not compared",
    "position_difference": "area minus that of the order by position alone; not for controls",
    "position_low": "lower end of its 95 % bootstrap interval over families (else subjects)",
    "position_high": "upper end",
    "better_than_position": "as better_than_random",
    "shifted_difference": "area minus that of the order by shifted importance; not for controls",
    "shifted_low": "lower end of its 95 % bootstrap interval over families (else subjects)",
    "shifted_high": "upper end",
    "better_than_shifted": "as better_than_random",
    **_COUNTS,
}
INDEX_COLUMNS = {
    "scan_id": "test scan; one row per scan, in the order of faithfulness_curves.npy",
    "group": "family if known, else subject",
    "predicted": "class that is predicted for the intact scan, whose probability is followed",
}
CURVES = "faithfulness_curves"


def write_fold(table: pd.DataFrame, curves: NDArray[np.floating], run_fold: Path) -> None:
    """Write the curves of one fold, (scans, orders, replacements, directions, steps + 1), and their index."""
    with atomic(run_fold / f"{CURVES}.npy") as temporary:
        np.save(temporary, curves.astype(np.float32))
    write_table(table[list(INDEX_COLUMNS)], run_fold / f"{CURVES}.tsv", INDEX_COLUMNS)


def finished_folds(run: Path, folds: Sequence[int]) -> list[int]:
    """Return the folds of `run` that have curves."""
    done = []
    for fold in folds:
        index, status = (run / f"fold-{fold}" / name for name in (f"{CURVES}.tsv", "faithfulness_status.json"))
        if status.is_file() and read_json(status)["state"] == "ok" and holds_something(index):
            done.append(fold)
    return done


def read_folds(run: Path, folds: Sequence[int]) -> tuple[pd.DataFrame, NDArray[np.floating]]:
    """Read the concatenated indices (`INDEX_COLUMNS`) and curves of folds."""
    tables, arrays = [], []
    for fold in folds:
        folder = run / f"fold-{fold}"
        tables.append(read_table(folder / f"{CURVES}.tsv", text=tuple(INDEX_COLUMNS)))
        arrays.append(np.load(folder / f"{CURVES}.npy", allow_pickle=False).astype(float))
        if arrays[-1].shape[1] != len(ORDERS):
            raise DataError(
                f"curves of {arrays[-1].shape[1]} orders of the volumes, but {len(ORDERS)} are compared: they were "
                "written by another version",
                where=folder / f"{CURVES}.npy",
                hint="Delete the file and run again",
            )
        if arrays[-1].shape[1:] != arrays[0].shape[1:] or len(arrays[-1]) != len(tables[-1]):
            raise DataError(
                "these curves have other steps than those of the other folds, or do not match the scans of their index",
                where=folder / f"{CURVES}.npy",
                hint="Delete the file and run again",
            )
    return pd.concat(tables, ignore_index=True), np.concatenate(arrays)


def areas(curves: NDArray[np.floating]) -> NDArray[np.floating]:
    """Return the area under curves by the trapezoidal rule; the last axis is equally spaced from 0 to 1."""
    return (curves[..., 1:] + curves[..., :-1]).mean(-1) / 2


def summarise(
    groups: Sequence[str], curves: NDArray[np.floating], *, draws: int = 4000, seed: int = 0
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return means over scans with their intervals.

    Parameters
    ----------
    groups : sequence of str
        Family, else subject, of each scan.
    curves : float array (scans, orders, replacements, directions, steps + 1)
    draws : int
        Bootstrap samples; groups are drawn with replacement, so that the scans of a subject stay together.
    seed : int

    Returns
    -------
    tuple of DataFrame
        `CURVE_COLUMNS` and `AREA_COLUMNS` without the folds.
    """
    drawn, n_groups = _drawn(groups, draws, seed), len(set(groups))
    scan_areas = areas(curves)
    ends = percentiles(n_groups)
    curve, area = (_with_interval(values, drawn, ends) for values in (curves, scan_areas))
    gains = {c: _with_interval(scan_areas - scan_areas[:, [ORDERS.index(c)]], drawn, ends) for c in CONTROLS}
    shares = np.linspace(0, 1, curves.shape[-1])
    counts = {"n_scans": len(curves), "n_groups": n_groups}
    lines, rows = [], []
    for r, replacement in enumerate(REPLACEMENTS):
        for d, direction in enumerate(DIRECTIONS):
            for o, order in enumerate(ORDERS):
                key = {"replacement": replacement, "direction": direction, "order": order}
                line = dict(zip(("probability", "low", "high"), (part[o, r, d] for part in curve), strict=True))
                lines.append(pd.DataFrame({**key, "share": shares.round(6), **line, **counts}))
                values = (float(part[o, r, d]) for part in area)
                row: dict[str, Any] = dict(zip(("area", "low", "high"), values, strict=True))
                for control in compared_with(order):
                    mean, low, high = (float(part[o, r, d]) for part in gains[control])
                    names = difference_columns(control)
                    row |= dict(zip(names, (mean, low, high), strict=True))
                    row[f"better_than_{control}"] = better(direction, low, high) if n_groups >= FEWEST_GROUPS else None
                rows.append({**key, **row, **counts})
    return pd.concat(lines, ignore_index=True), pd.DataFrame(rows).reindex(
        columns=[name for name in AREA_COLUMNS if name not in ("folds", "missing_folds")]
    )


def compared_with(order: str) -> tuple[str, ...]:
    """Return the controls with which an order is compared; the controls themselves only with random orders."""
    return CONTROLS if order not in CONTROLS else () if order == "random" else ("random",)


def difference_columns(control: str) -> tuple[str, str, str]:
    """Return the columns of the difference from a control, and of the ends of its interval."""
    if control == "random":
        return "difference", "difference_low", "difference_high"
    return f"{control}_difference", f"{control}_low", f"{control}_high"


def better(direction: str, low: float, high: float) -> str:
    """Return whether an order is better than a control, from the interval of the difference: yes, no or worse."""
    low, high = (low, high) if direction == "insertion" else (-high, -low)
    return "yes" if low > 0 else "worse" if high < 0 else "no"


def write_faithfulness(run: ModelRun, folds: Sequence[int]) -> None:
    """Write ``faithfulness.tsv`` (mean curves) and ``faithfulness_areas.tsv`` of a run.

    Parameters
    ----------
    run : ModelRun
    folds : sequence of int
        Folds of the run; the tables name those without curves.

    Raises
    ------
    DataError
        No fold has curves.
    """
    done = finished_folds(run.folder, folds)
    if not done:
        raise DataError(
            "no fold of this run has curves of deletion and insertion",
            where=run.folder,
            hint="See faithfulness_status.json of its folds",
        )
    index, curves = read_folds(run.folder, done)
    missing = ", ".join(str(fold) for fold in folds if fold not in done)
    known = {"folds": ", ".join(map(str, done)), "missing_folds": missing or None}
    lines, rows = summarise(index["group"].astype(str).tolist(), curves)
    out = run.explanation
    write_table(lines.assign(**known)[list(CURVE_COLUMNS)], out / "faithfulness.tsv", CURVE_COLUMNS)
    write_table(rows.assign(**known)[list(AREA_COLUMNS)], out / "faithfulness_areas.tsv", AREA_COLUMNS)


def _drawn(groups: Sequence[str], draws: int, seed: int) -> NDArray[np.floating]:
    """Return the weight of each scan in each bootstrap sample, (draws, scans); a sample's weights sum to one."""
    names, member = np.unique(np.asarray(groups), return_inverse=True)
    shares = np.full(len(names), 1 / len(names))
    times = np.random.default_rng(seed).multinomial(len(names), shares, size=draws)[:, member]
    return times / times.sum(1, keepdims=True)


def _with_interval(
    values: NDArray[np.floating], drawn: NDArray[np.floating], ends: tuple[float, float]
) -> tuple[NDArray[np.floating], NDArray[np.floating], NDArray[np.floating]]:
    """Return the mean over scans (the first axis), and these percentiles of the bootstrap samples."""
    samples = np.tensordot(drawn, values, axes=1)
    low, high = np.percentile(samples, ends, axis=0)
    return values.mean(0), low, high


def percentiles(n_groups: int) -> tuple[float, float]:
    """Return the percentiles that are the ends of a 95 % interval of the mean of so many groups.

    The 2.5th and 97.5th are too narrow for few groups; they are moved outwards as t is wider than the normal
    distribution (Hesterberg 2015, doi:10.1080/00031305.2015.1089789).
    """
    if n_groups < 2:
        return 0.0, 100.0
    tail = 100 * norm.cdf(t.ppf(0.025, n_groups - 1) * np.sqrt(n_groups / (n_groups - 1)))
    return float(tail), float(100 - tail)
