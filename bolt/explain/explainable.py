"""Which models can be explained, and by what; checked before any work."""

from __future__ import annotations

from bolt.config import Dataset, Model
from bolt.models.registry import inputs_of


def has_importance(model: Model) -> bool:
    """Return whether Algorithm 1 applies: to BolT with CLS tokens in every fold, and with no input but series.

    An ensemble is explained by the first of its members to which it applies.
    """
    if model.members:
        return any(map(has_importance, model.members))
    folds = [model.for_fold(fold) for fold in model.by_fold] or [model]
    tokens = all(fold.hyper.get("cls_token") != "none" for fold in folds)
    return model.model == "bolt" and not model.covariates and tokens


def can_be_explained(model: Model, dataset: Dataset) -> bool:
    """Return whether a model of this dataset is explained; landmarks and regions need classes."""
    return has_importance(model) and dataset.classes is not None


def sees_brain(model: Model) -> bool:
    """Return whether a model, or a member of an ensemble, reads brain data, so that connections are shown."""
    if model.members:
        return any(map(sees_brain, model.members))
    return model.model != "majority" and inputs_of(model.model) != "covariates"
