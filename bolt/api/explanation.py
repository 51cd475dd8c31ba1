"""Explanation of one scan by a trained estimator, averaged over its members."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from bolt.config import nearest
from bolt.io.errors import ConfigError
from bolt.io.extras import name_extra
from bolt.training.ensembles import Member, predict_each

if TYPE_CHECKING:
    from bolt.api.scans import SeriesInMemory
    from bolt.explain.one_scan import ScanExplanation
    from bolt.models.bolt import BolT


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
    """

    target: Any
    probabilities: NDArray[np.floating]
    importance: NDArray[np.floating]
    landmarks: NDArray[np.integer]
    contributions: NDArray[np.floating]


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
    if hasattr(model, "predict_proba"):
        check_is_fitted(model, "members_")
    else:
        raise ConfigError("contributions are defined for classes", hint="Use importance(x) of a regressor")
    if isinstance(n_landmarks, bool) or not isinstance(n_landmarks, Integral) or n_landmarks < 1:
        raise ConfigError(f"n_landmarks is {n_landmarks!r}", hint="Give 1 or more, such as 5")
    cache = model._checked([x])
    position = explained_position(model, cache, target)
    explained = explain_members(model, cache.series(0), int(position or 0), int(n_landmarks))
    return Explanation(
        model.classes_[explained.target],
        explained.probabilities,
        explained.weights,
        explained.landmarks,
        explained.contributions,
    )


def explain_members(model: Any, series: NDArray[np.floating], position: int, n_landmarks: int) -> ScanExplanation:
    """Explain a class, by its position, for a z-scored (T, R) series: the average over models, see `explain`."""
    with name_extra():
        from bolt.explain.one_scan import explain_scan

    require_importance(model)
    return explain_scan([explained_model(member) for member in model.members_], series, position, n_landmarks)


def explained_position(model: Any, cache: SeriesInMemory, target: Any) -> int | None:
    """Return the position of the class to explain: the one given, or the predicted one; None for a number."""
    if not hasattr(model, "classes_"):
        if target is not None:
            raise ConfigError(f"target {target!r}: the model predicts a number", hint="Leave 'target' out")
        return None
    require_importance(model)
    classes = model.classes_.tolist()
    if target is None:
        return int(predict_each(model.members_, cache, model.device).mean(axis=0)[0].argmax())
    if target not in classes:
        names = [str(name) for name in classes]
        raise ConfigError(
            f"target {target!r}: the model has no such class",
            hint=f"Its classes: {', '.join(names)}{nearest(str(target), names)}",
        )
    return int(classes.index(target))


def importance_of_members(model: Any, series: NDArray[np.floating], position: int | None) -> NDArray[np.float32]:
    """Return the mean importance of each volume of a z-scored (T, R) series, (T,)."""
    from bolt.explain.importance import importance_of
    from bolt.training.device import device_of

    require_importance(model)
    targets, place = None if position is None else [position], device_of(model.device, None)
    weights = [importance_of(explained_model(member), [series], place, targets)[0] for member in model.members_]
    return np.mean(weights, axis=0)


def explained_model(member: Member) -> BolT:
    """Return the model whose attention explains a prediction: itself, or the first such member of an ensemble."""
    from bolt.config.models import Model
    from bolt.explain.explainable import has_importance

    can = (part for part in member.members if has_importance(Model.model_validate(part.info["model"])))
    return cast("BolT", next(can, member).model)


def require_importance(model: Any) -> None:
    """Refuse an estimator for which importance is not defined (ConfigError)."""
    from bolt.config.models import Model
    from bolt.explain.explainable import has_importance

    configured = Model.model_validate(model.members_[0].info["model"])
    if not has_importance(configured):
        problem = "reads covariates as well as series" if configured.covariates else "is not BolT with CLS tokens"
        raise ConfigError(
            f"importance is defined for BolT on series alone, but '{configured.name}' {problem}",
            hint="Use BolTClassifier without covariates",
        )
