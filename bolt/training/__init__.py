"""Training of models on one fold at a time: the loop, checkpoints, predictions and hyper-parameter search."""

from __future__ import annotations

from bolt.config import Model
from bolt.models.registry import combines, fitted_at_once


def training_modules(model: Model) -> list[str]:
    """Return the modules whose code decides what a model learns: a change in them trains it again.

    They are those that train it, and the model's own; for an ensemble, also its members'.
    """
    kind = "features" if fitted_at_once(model.model) else "ensembles" if combines(model.model) else "runner"
    modules = [f"bolt.training.{kind}", f"bolt.models.{model.model}"]
    return list(dict.fromkeys([*modules, *(name for member in model.members for name in training_modules(member))]))
