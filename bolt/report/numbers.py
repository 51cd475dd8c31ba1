"""Numbers as text: rounded, with a true minus sign, and a dash for missing values.

How much of a study was tested: what stands wherever a metric does, as long as folds are missing.

Marks of methods that are reconstructed, so that no table shows their numbers as those of the originals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from bolt.config.models import Fidelity
from bolt.evaluate.metrics import LOWER_IS_BETTER
from bolt.evaluate.scores import NUMBER_METRICS
from bolt.io.files import read_yaml

DASH = "–"
NOTHING = {"", DASH, 0, None}
"""Cells that say nothing."""
TOO_FEW = "too few"
"""Instead of the interval of a metric of too few groups."""
NAMES: dict[str, Any] = read_yaml(Path(__file__).with_name("names.yaml"))
METRIC_NAMES: dict[str, str] = NAMES["metrics"]
OF_ALL_SCANS = METRIC_NAMES | {"auc": "AUC within folds"}
"""What metrics of the test scans of several folds are called."""
Formatter = Callable[[Any], str]


def metric_name(metric: str) -> str:
    """Return what a metric is called in tables."""
    return METRIC_NAMES.get(metric, metric)


def name_of_all(metric: str) -> str:
    """Return what a metric of the test scans of all folds is called."""
    return OF_ALL_SCANS.get(metric, metric)


def number(value: Any, digits: int = 3) -> str:
    """Round to significant digits; whole numbers stay whole."""
    if isinstance(value, str):
        return value
    if pd.isna(value):
        return DASH
    if float(value).is_integer() and abs(value) < 1e6:
        return str(int(value))
    return f"{value:.0f}" if abs(value) >= 10**digits - 0.5 else f"{value:.{digits}g}"


def known(value: Any) -> Any:
    """Return a value, or a dash if it is missing."""
    return DASH if pd.isna(value) else value


def percent(value: Any) -> str:
    """Return a share as per cent with one decimal."""
    return DASH if pd.isna(value) else f"{100 * value:.1f}"


def decimal(value: Any, digits: int = 2, sign: str = "") -> str:
    """Round to a fixed number of decimals; ``sign="+"`` also marks positive numbers."""
    return DASH if pd.isna(value) else f"{value:{sign}.{digits}f}".replace("-", "−")


def shown_as(metric: str) -> Formatter:
    """Return how a metric is written: AUC and losses as decimals, shares of scans in per cent, numbers as they are."""
    if metric == "auc":
        return lambda value: decimal(value, 3)
    return number if metric in LOWER_IS_BETTER or metric in NUMBER_METRICS else percent


def signed(value: float, shown: Formatter = decimal) -> str:
    """Return a difference with its sign."""
    return DASH if pd.isna(value) else ("−" if value < 0 else "+") + shown(abs(value))


def p_value(value: float) -> str:
    """Round a p-value to two significant digits."""
    return DASH if pd.isna(value) else "< 0.001" if value < 0.001 else f"{value:.2g}"


def mean_sd(mean: Any, sd: Any, shown: Formatter = percent) -> str:
    """Return mean ± standard deviation, without the latter if it is not known."""
    return shown(mean) if pd.isna(mean) or pd.isna(sd) else f"{shown(mean)} ± {shown(sd)}"


def interval(value: Any, low: Any, high: Any, shown: Formatter = percent) -> str:
    """Return a value with its interval in brackets."""
    return DASH if pd.isna(value) else f"{shown(value)} [{shown(low)}, {shown(high)}]"


def estimate(found: Mapping[str, Any], shown: Formatter = percent) -> str:
    """Return the `interval` of a mapping with ``value``, ``low`` and ``high``; `TOO_FEW` if it has no ends."""
    if pd.isna(found["low"]) and not pd.isna(found["value"]):
        return f"{shown(found['value'])} [{TOO_FEW}]"
    return interval(found["value"], found["low"], found["high"], shown)


def number_range(low: Any, high: Any) -> str:
    """Describe a range of which either end may be open."""
    if pd.isna(low) and pd.isna(high):
        return DASH
    if pd.isna(low):
        return f"≤ {number(high)}"
    return f"≥ {number(low)}" if pd.isna(high) else f"{number(low)} to {number(high)}"


def part_text(n: Any, n_all: Any) -> str:
    """Return a number, and of how many if these are not all."""
    return number(n) if n == n_all else f"{number(n)} of {number(n_all)}"


def scope_text(n_folds: int, outer: int, scans: int, all_scans: int) -> str:
    """Return how many of all folds and scans were tested; empty if all folds were.

    Parameters
    ----------
    n_folds : int
        Finished folds.
    outer : int
        Folds of the cross-validation, whether they were asked for (`folds: run`) or not.
    scans, all_scans : int
        Scans that were tested in the finished folds, and all that the cross-validation tests.
    """
    return "" if n_folds >= outer else f"{n_folds} of {outer} folds, {scans} of {all_scans} scans tested"


def scope_of(summary: Mapping[str, Any]) -> str:
    """Return the scope of a run by its ``summary.json``; empty if it is complete, or if nothing was evaluated."""
    pooled = summary["pooled"]
    if not pooled or "outer_folds" not in pooled:
        return ""
    finished = len(summary["expected_folds"]) - len(summary["missing_folds"])
    return scope_text(finished, pooled["outer_folds"], pooled["n_scans"], pooled["n_all_scans"])


def scopes_of(table: pd.DataFrame) -> dict[str, str]:
    """Return the scope of each row of a table of results or of tests, by name; rows without any fold are omitted."""
    columns = ["n_folds", "expected_folds", "n_scans", "n_all_scans"]
    counts = table[table["n_folds"] > 0].groupby("row", sort=False)[columns].max().astype(int)
    return {str(row): scope_text(*values) for row, *values in counts.itertuples(name=None)}


def joined(scopes: Mapping[str, str]) -> list[str]:
    """Return texts on rows, such as their scopes: a line for each different one, without names if it is of all rows."""
    rows_of: dict[str, list[str]] = {}
    for row, scope in scopes.items():
        rows_of.setdefault(scope, []).append(row)
    return [scope if len(rows_of) == 1 else f"{'; '.join(rows)}: {scope}" for scope, rows in rows_of.items() if scope]


RECONSTRUCTED = "reconstructed"
MARK = "†"
LEGEND = f"{MARK} reconstructed, not the original method"


def reconstructed(fidelities: Mapping[str, Fidelity | None]) -> dict[str, str]:
    """Return the reconstructed rows, and what was reconstructed of each, by what is stated of their models."""
    return {row: stated.note for row, stated in fidelities.items() if stated and stated.level == RECONSTRUCTED}


def marked(name: str, rows: Iterable[str]) -> str:
    """Return the name of a row, with a dagger if it is one of the reconstructed `rows`."""
    return f"{name} {MARK}" if name in rows else name
