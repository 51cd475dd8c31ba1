"""What the models predicted of each test scan."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import pandas as pd

from bolt.config.study import Study
from bolt.experiments.entries import Entry
from bolt.report.sections.comparison import Compared, reference
from bolt.report.tables.numbers import decimal, number

KEYS = ["subject", "scan_id", "fold", "label"]


def predictions_of(study: Study, compared: Mapping[str, Compared]) -> pd.DataFrame:
    """Return a row per model and test scan, of predictions averaged over seeds.

    Columns: `KEYS`; model; reference (whether it is the model that the first page is about); predicted; probability, of
    the predicted class; right (None for numbers); error, by which the most confidently wrong predictions come first;
    n_seeds, and n_right of them.
    """
    several, first = len(compared) > 1, next(iter(compared))
    tables = []
    for atlas, rows in compared.items():
        for entry, gathered in zip(*rows, strict=True):
            tests = gathered.predictions[gathered.predictions["role"] == "test"]
            if tests.empty:
                continue
            table = _classes(tests, entry) if entry.classes else _numbers(tests)
            table["n_seeds"] = tests.groupby(KEYS).size()
            table["model"] = entry.model.shown + (f" on {atlas}" if several else "")
            table["reference"] = atlas == first and entry.model is reference(study)
            tables.append(table.reset_index())
    return pd.concat(tables) if tables else pd.DataFrame(columns=[*KEYS, "reference"])


def _classes(tests: pd.DataFrame, entry: Entry) -> pd.DataFrame:
    columns = {f"p_{name}": name for name in entry.classes}
    mean = tests.groupby(KEYS)[list(columns)].mean().rename(columns=columns)
    table = pd.DataFrame({"predicted": mean.idxmax(axis=1), "probability": mean.max(axis=1)})
    table["right"] = table["predicted"] == table.index.get_level_values("label")
    table["error"] = table["probability"].where(~table["right"], -table["probability"])
    table["n_right"] = tests.assign(right=tests["predicted"] == tests["label"]).groupby(KEYS)["right"].sum()
    return table


def _numbers(tests: pd.DataFrame) -> pd.DataFrame:
    mean = tests.assign(predicted=tests["predicted"].astype(float)).groupby(KEYS)["predicted"].mean()
    error = (mean - mean.index.get_level_values("label").astype(float)).abs()
    return pd.DataFrame({"predicted": mean.map(number), "right": None, "error": error})


def in_short(tests: list[dict[Hashable, Any]]) -> str:
    """Summarise what the reference predicted of a subject's scans."""
    told = [test for test in tests if test["reference"]]
    if not told:
        return "–"
    worst = max(told, key=lambda test: test["error"])
    if worst["right"] is None:
        return f"{worst['predicted']} instead of {number(float(worst['label']))}"
    mark = "✓" if worst["right"] else "✗"
    share = f"{sum(test['right'] for test in told)} of {len(told)} right; " if len(told) > 1 else ""
    return f"{share}{mark} {worst['predicted']} {decimal(worst['probability'])}"


def worst_error(tests: list[dict[Hashable, Any]]) -> float:
    """Return the largest error of the reference; without a prediction, less than any."""
    return max((float(test["error"]) for test in tests if test["reference"]), default=-2.0)
