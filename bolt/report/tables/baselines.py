"""Baselines that see no brain data: whether head motion or site predicts the label as well as a model does."""

from __future__ import annotations

from typing import Any

import pandas as pd

from bolt.cohort.confounding import holm
from bolt.config import Model
from bolt.evaluate.metrics import LOWER_IS_BETTER
from bolt.evaluate.paired import FEWEST_FOLDS
from bolt.report.tables.numbers import Formatter, decimal, metric_name, p_value, part_text, percent

ALPHA = 0.05


def sees_covariates_only(model: Model) -> bool:
    """Return whether a model's only inputs are covariates, such as head motion or site."""
    return bool(model.covariates) and model.family == "baseline"


def sees_brain(model: Model) -> bool:
    """Return whether a model uses brain data: it neither sees covariates only nor always predicts the majority."""
    return not sees_covariates_only(model) and model.model != "majority"


def baseline_warning(baseline_name: str, model_name: str, tests: pd.DataFrame) -> str:
    """Warn if paired tests do not show that a model is better than a baseline.

    Accuracy is tested by sign flips over groups. The AUC is tested by the corrected t-test over folds; with fewer than
    `FEWEST_FOLDS` folds, the Brier score is tested instead, by sign flips. The model is better if one of the two is, at
    `ALPHA` after Holm's correction.

    Parameters
    ----------
    baseline_name, model_name : str
    tests : DataFrame
        Rows of `bolt.evaluate.paired.compare`; differences are model minus baseline.

    Returns
    -------
    str
        Empty if the model is better, or if nothing can be tested.
    """
    rows = _tested_rows(tests)
    if not rows or _standing(rows).startswith("clearly better"):
        return ""
    row = rows[0]
    p = f"p = {p_value(row['p'])}".replace("= <", "<")
    corrected = ", Holm-corrected for two metrics" if len(rows) > 1 else ""
    return (
        f"{baseline_name}, which sees no brain data, is not clearly worse than {model_name}: {model_name} "
        f"{row['words']}, {p}{corrected}). {model_name} may rely on the same information."
    )


def standing(tests: pd.DataFrame) -> str:
    """Return whether a model is shown to be better, or worse, than another and in what, as `baseline_warning` judges.

    `tests` are rows of `bolt.evaluate.paired.compare`; differences are the model's value minus the other's.
    """
    return _standing(_tested_rows(tests))


def _standing(rows: list[dict[str, Any]]) -> str:
    clear = [row for row in rows if row["p"] < ALPHA and row["gain"] != 0]
    for row in sorted(clear, key=lambda row: row["gain"] < 0)[:1]:
        return f"clearly {'better' if row['gain'] > 0 else 'worse'} in {metric_name(row['metric'])}"
    return "not clearly better" if rows else "not tested for being better"


def _tested_rows(tests: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the tests of accuracy and AUC, p corrected for both, the smallest first."""
    by_metric = tests.set_index("metric").to_dict("index")
    rows = [row for metric in ("accuracy", "auc") if (row := _tested(by_metric, metric)) is not None]
    rows.sort(key=lambda row: row["p"])
    for row, p in zip(rows, holm(pd.Series([row["p"] for row in rows], dtype=float)), strict=True):
        row["p"] = p
    return rows


def _tested(tests: dict[str, dict[str, Any]], metric: str) -> dict[str, Any] | None:
    """Return gain, p and description of the test of a metric; None if it was not tested."""
    over_folds = metric == "auc"
    if over_folds and not tests.get("auc", {}).get("n_folds", 0) >= FEWEST_FOLDS:
        metric, over_folds = "brier", False
    row = tests.get(metric, {})
    p = row.get("corrected_t_p" if over_folds else "permutation_p")
    difference = row.get("difference" if over_folds else "pooled_difference")
    if p is None or pd.isna(p) or difference is None or pd.isna(difference):
        return None
    shown: Formatter = (lambda d: f"{percent(d)} points") if metric == "accuracy" else (lambda d: decimal(d, 3))
    folds = part_text(row["n_folds"], row.get("expected_folds", row["n_folds"])) if over_folds else ""
    how = f"corrected t-test over {folds} folds" if over_folds else "sign flips per subject or family"
    gain = -difference if metric in LOWER_IS_BETTER else difference
    side = "is as good" if gain == 0 else f"is {'better' if gain > 0 else 'worse'} by {shown(abs(difference))}"
    return {"metric": metric, "gain": gain, "p": p, "words": f"{side} in {metric_name(metric)} ({how}"}
