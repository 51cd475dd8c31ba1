"""What needs no brain beside what looks at it: whether head motion or site predicts the label as well as a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bolt.config import Model
from bolt.report.tables.readable import percent

Interval = Mapping[str, Any]
"""``value``, ``low`` and ``high``."""


def is_floor(model: Model) -> bool:
    """Whether a model sees nothing of the brain: covariates alone."""
    return bool(model.covariates) and model.family == "baseline"


def sees_brain(model: Model) -> bool:
    """Whether a model's answers depend on the brain at all: neither a floor nor always the most frequent class."""
    return not is_floor(model) and model.model != "majority"


def floor_sentence(name: str, floor: Mapping[str, Interval], model_name: str, model: Mapping[str, Interval]) -> str:
    """What is to be said where a model without a brain is not clearly worse than one with it; empty where it is.

    Parameters
    ----------
    name, model_name : str
    floor, model : mapping
        ``accuracy`` and ``auc`` of all test scans, with their 95 % intervals; not clearly worse: in one of the two the
        intervals overlap.
    """
    as_well = []
    for metric, title in (("accuracy", "accuracy"), ("auc", "AUC")):
        low, high = floor[metric], model[metric]
        known = all(part[end] is not None for part in (low, high) for end in ("value", "low", "high"))
        if known and low["high"] >= high["low"]:
            as_well.append(f"{title} {_interval(low)} against {_interval(high)}")
    if not as_well:
        return ""
    return (
        f"{name}, which sees nothing of the brain, is not clearly worse than {model_name}: {', '.join(as_well)} per "
        f"cent; the 95 % intervals overlap. What {model_name} learned may be that."
    )


def _interval(part: Interval) -> str:
    return f"{percent(part['value'])} [{percent(part['low'])}, {percent(part['high'])}]"
