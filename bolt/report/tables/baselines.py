"""Baselines that see no brain data: whether head motion or site predicts the label as well as a model does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bolt.config import Model
from bolt.report.tables.numbers import estimate

Interval = Mapping[str, Any]
"""``value``, ``low`` and ``high``."""


def sees_covariates_only(model: Model) -> bool:
    """Return whether a model's only inputs are covariates, such as head motion or site."""
    return bool(model.covariates) and model.family == "baseline"


def sees_brain(model: Model) -> bool:
    """Return whether a model uses brain data: it neither sees covariates only nor always predicts the majority."""
    return not sees_covariates_only(model) and model.model != "majority"


def baseline_warning(
    baseline_name: str, baseline: Mapping[str, Interval], model_name: str, model: Mapping[str, Interval]
) -> str:
    """Warn if a baseline is not clearly worse than a model: their 95 % intervals of accuracy or AUC overlap.

    Returns an empty string if the baseline is clearly worse.
    """
    overlaps = []
    for metric, title in (("accuracy", "accuracy"), ("auc", "AUC")):
        low, high = baseline[metric], model[metric]
        known = all(part[end] is not None for part in (low, high) for end in ("value", "low", "high"))
        if known and low["high"] >= high["low"]:
            overlaps.append(f"{title} {estimate(low)} against {estimate(high)}")
    if not overlaps:
        return ""
    return (
        f"{baseline_name}, which sees no brain data, is not clearly worse than {model_name}: {', '.join(overlaps)} "
        f"(per cent; the 95 % intervals overlap). {model_name} may rely on the same information."
    )
