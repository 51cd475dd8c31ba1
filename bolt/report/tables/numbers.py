"""Numbers as text: rounded, with a true minus sign, and a dash for missing values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd

from bolt.evaluate.metrics import LOWER_IS_BETTER

DASH = "–"
KINDS_OF_INTERVALS = (
    "Intervals are Clopper–Pearson intervals for accuracy, recall and precision, combined over classes for balanced "
    "accuracy and averages over classes, score intervals for AUC, and bootstrap intervals for Brier score and log "
    "loss; families (else subjects) are independent in them, not scans."
)
WITHIN_FOLDS = (
    "AUC within folds compares test scans of the same fold. Across folds it also compares scores of different trained "
    "models, whose scales need not agree."
)
KIND_OF_INTERVAL_OF_NUMBERS = "Intervals are bootstrap intervals over families (else subjects)."
TOO_FEW = "too few"
"""Instead of the interval of a metric of too few groups."""
METRIC_NAMES = {
    "auc": "AUC",
    "mae": "mean absolute error",
    "r2": "r²",
    "balanced_accuracy": "balanced accuracy",
    "brier": "Brier score",
    "log_loss": "log loss",
}
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
    if value is None or pd.isna(value):
        return DASH
    if float(value).is_integer() and abs(value) < 1e6:
        return str(int(value))
    return f"{value:.0f}" if abs(value) >= 10**digits else f"{value:.{digits}g}"


def percent(value: Any) -> str:
    """Return a share as per cent with one decimal."""
    return DASH if value is None or pd.isna(value) else f"{100 * value:.1f}"


def decimal(value: Any, digits: int = 2, sign: str = "") -> str:
    """Round to a fixed number of decimals; ``sign="+"`` also marks positive numbers."""
    return DASH if value is None or pd.isna(value) else f"{value:{sign}.{digits}f}".replace("-", "−")


def shown_as(metric: str) -> Formatter:
    """Return how a metric of classes is written: AUC and losses as decimals, shares of scans in per cent."""
    if metric == "auc":
        return lambda value: decimal(value, 3)
    return number if metric in LOWER_IS_BETTER else percent


def signed(value: float, shown: Formatter = decimal) -> str:
    """Return a difference with its sign."""
    return DASH if pd.isna(value) else ("−" if value < 0 else "+") + shown(abs(value))


def p_value(value: float) -> str:
    """Round a p-value to two significant digits."""
    if pd.isna(value):
        return DASH
    return "< 0.001" if value < 0.001 else f"{value:.2g}"


def mean_sd(mean: Any, sd: Any, shown: Formatter = percent) -> str:
    """Return mean ± standard deviation, without the latter if it is not known."""
    if mean is None or pd.isna(mean):
        return DASH
    return shown(mean) if sd is None or pd.isna(sd) else f"{shown(mean)} ± {shown(sd)}"


def interval(value: Any, low: Any, high: Any, shown: Formatter = percent) -> str:
    """Return a value with its interval in brackets."""
    return DASH if value is None or pd.isna(value) else f"{shown(value)} [{shown(low)}, {shown(high)}]"


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
