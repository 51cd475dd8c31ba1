"""How much of a study was tested: what stands wherever a metric does, as long as folds are missing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from bolt.report.tables.numbers import number


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
