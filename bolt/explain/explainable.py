"""Which models have importance weights, and so an explanation; asked before any work."""

from __future__ import annotations

from bolt.config import Dataset, Model


def has_importance(model: Model) -> bool:
    """Whether Algorithm 1 can follow a model: BolT with CLS tokens in every fold, and no input but series."""
    every = [model, *(model.for_fold(fold) for fold in model.by_fold)]
    tokens = all(own.hyper.get("cls_token") != "none" for own in (every[1:] or every))
    return model.model == "bolt" and not model.covariates and tokens


def can_be_explained(model: Model, dataset: Dataset) -> bool:
    """Whether a model of this dataset gets an explanation: landmarks and regions are regressions of classes."""
    return has_importance(model) and dataset.classes is not None
