"""Explanation of one scan: landmarks by Algorithm 1, and the contribution of each ROI at the landmarks.

Contributions are integrated gradients (Sundararajan et al. 2017, arXiv:1703.01365) of the log odds of the class, along
the path from the scan with its landmarks at the ROIs' means (zero, because series are z-scored) to the scan itself.
They are signed, and over all ROIs they add up to the change of the log odds along that path. A small change means that
the volumes next to the landmarks carry the same information.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from bolt.config import Model, nearest
from bolt.io.errors import ConfigError
from bolt.io.packages import name_extra
from bolt.share.scans import SeriesInMemory
from bolt.training.ensembles import predict_each

if TYPE_CHECKING:
    from torch import Tensor

    from bolt.models.bolt import BolT

STEPS = 24
"""Points of the path at which gradients are taken (Gauss-Legendre)."""
BATCH = 4
"""Points per forward and backward pass."""


@dataclass(frozen=True)
class Explanation:
    """What drives the prediction of one scan.

    Attributes
    ----------
    target : class
        The explained class.
    probabilities : (classes,) array
        In the order of the estimator's ``classes_``.
    importance : (time,) array
        Of each volume (the paper's Algorithm 1), not negative.
    landmarks : (k,) int array
        The most important volumes, in descending order of importance, counted from 0.
    contributions : (rois,) array
        Of each ROI at the landmarks, in log odds of the class; above 0: evidence for it.
    log_odds, log_odds_without : float
        Of the class for the scan as it is, and with its landmarks replaced by the mean.
    """

    target: Any
    probabilities: NDArray[np.floating]
    importance: NDArray[np.floating]
    landmarks: NDArray[np.integer]
    contributions: NDArray[np.floating]
    log_odds: float
    log_odds_without: float


def explain(model: Any, x: Any, target: Any = None, *, n_landmarks: int = 5) -> Explanation:
    """Explain the prediction of one scan by a BolT classifier.

    Parameters
    ----------
    model : BolTClassifier
        Trained or loaded.
    x : (time, rois) array
        z-scored over time by this function.
    target : class, optional
        The class to explain; by default the predicted one.
    n_landmarks : int
        Number of volumes at which the contributions of ROIs are computed.

    Returns
    -------
    Explanation
        Averages over the models of the estimator; the landmarks are those of the average importance, for all of them.

    Raises
    ------
    ConfigError
        The model cannot be explained, or has no such class.
    DataError
        The series cannot be used.
    """
    if not hasattr(model, "predict_proba"):
        raise ConfigError("contributions are defined for classes", hint="Use importance(x) of a regressor")
    if isinstance(n_landmarks, bool) or not isinstance(n_landmarks, Integral) or n_landmarks < 1:
        raise ConfigError(f"n_landmarks is {n_landmarks!r}", hint="Give 1 or more, such as 5")
    return explain_scan(model, model._checked([x]), target, int(n_landmarks))


def explain_scan(estimator: Any, scan: SeriesInMemory, target: Any, n_landmarks: int) -> Explanation:
    """Explain a class, by default (None) the predicted one, for the only scan of a cache by a classifier's models.

    Averages over models on the CPU, at the landmarks of the average importance; they are left in evaluation mode.
    """
    import torch

    from bolt.explain.importance import importance_of
    from bolt.explain.landmarks import top_tokens

    with name_extra(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="IProgress not found")  # captum imports the notebook's progress bar
        from captum.attr import IntegratedGradients

    position = cast(int, position_of(estimator, scan, target))
    models, series, cpu = explained_models(estimator), scan.series(0), torch.device("cpu")
    weights = np.mean([importance_of(model, [series], cpu, [position])[0] for model in models], axis=0)
    landmarks = top_tokens(weights, n_landmarks)
    intact = torch.from_numpy(np.ascontiguousarray(series, np.float32))[None]
    without = intact.clone()
    without[:, landmarks.copy()] = 0
    of_models = []
    for model in models:
        model.eval()
        gradients = IntegratedGradients(lambda scans, model=model: log_odds(model(scans).logits, position))
        parts = gradients.attribute(intact, baselines=without, n_steps=STEPS, internal_batch_size=BATCH)
        with torch.inference_mode():
            logits = model(torch.cat([intact, without])).logits
        probabilities, odds = logits[0].double().softmax(-1).numpy(), log_odds(logits, position).tolist()
        of_models.append((probabilities, parts[0].sum(0).detach().numpy(), odds))
    probabilities, contributions, odds = (np.mean(values, axis=0) for values in zip(*of_models, strict=True))
    explained = estimator.classes_[position]
    return Explanation(explained, probabilities, weights, landmarks, contributions, float(odds[0]), float(odds[1]))


def log_odds(logits: Tensor, position: int) -> Tensor:
    """Return the log odds of one class against all others, (batch,), from logits (batch, classes)."""
    others = [i for i in range(logits.shape[1]) if i != position]
    return logits[:, position] - logits[:, others].logsumexp(-1)


def position_of(estimator: Any, scan: SeriesInMemory, target: Any) -> int | None:
    """Return the position of the class to explain: the one given, or the predicted one; None for a number."""
    if not hasattr(estimator, "classes_"):
        if target is not None:
            raise ConfigError(f"target {target!r}: the model predicts a number", hint="Leave 'target' out")
        return None
    explained_models(estimator)
    classes = estimator.classes_.tolist()
    if target is None:
        return int(predict_each(estimator.members_, scan, estimator.device).mean(axis=0)[0].argmax())
    if target not in classes:
        names = [str(name) for name in classes]
        hint = f"Its classes: {', '.join(names)}{nearest(str(target), names)}"
        raise ConfigError(f"target {target!r}: the model has no such class", hint=hint)
    return int(classes.index(target))


def explained_models(estimator: Any) -> list[BolT]:
    """Return the models whose attention explains the predictions: of an ensemble, its first such member.

    Raises
    ------
    ConfigError
        Importance is not defined for the estimator.
    """
    from bolt.explain.explainable import has_importance

    configured = Model.model_validate(estimator.members_[0].info["model"])
    if not has_importance(configured):
        problem = "reads covariates as well as series" if configured.covariates else "is not BolT with CLS tokens"
        problem = f"importance is defined for BolT on series alone, but '{configured.name}' {problem}"
        raise ConfigError(problem, hint="Use BolTClassifier without covariates")
    models = []
    for member in estimator.members_:
        parts = (part for part in member.members if has_importance(Model.model_validate(part.info["model"])))
        models.append(cast("BolT", next(parts, member).model))
    return models
