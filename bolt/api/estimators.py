"""Estimators in scikit-learn's conventions: BolT, and every other model in `config/models`.

They run the workflow's own code: with the same scans in the same order, settings, seed and fold 0, the weights are the
workflow's, bit for bit on the CPU.
"""

from __future__ import annotations

import inspect
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from bolt.api.fitting import Fitting, roles_of
from bolt.api.labels import classes_of, numbers_of, with_groups
from bolt.api.scans import SeriesInMemory, as_series, in_one_order, one_per_scan, require_length, scan_table
from bolt.api.settings import configured, parameters_of
from bolt.config import Model, load_model, nearest
from bolt.io.errors import ConfigError, DataError
from bolt.models.registry import combines, fitted_at_once, has_epochs
from bolt.models.suitability import shortest_scan
from bolt.training.ensembles import Member, predict_each


class Estimator(BaseEstimator, ABC):
    """What classifiers and regressors have in common; see `estimator` for creating them.

    Attributes
    ----------
    members_ : list of Member
        Trained models that predict together: one after `fit`; from a pack, one per fold and seed.
    history_ : DataFrame
        One row per epoch; empty for models without epochs.
    feature_names_in_ : (rois,) array of str
        Only if the scans were DataFrames whose columns have names; columns of others are put in this order.
    n_features_in_ : int
        Number of ROIs.
    """

    configuration: ClassVar[Model]
    """The model's file in `config/models`."""
    members_: list[Member]
    history_: pd.DataFrame
    n_features_in_: int

    def __reduce__(self) -> Any:
        """Pickle with the model's configuration: classes of estimators are made on demand."""
        return _restored, (self.configuration, isinstance(self, RegressorMixin), self.__dict__)

    def __sklearn_tags__(self) -> Any:
        """Describe the input to scikit-learn: scans of two dimensions, of which some columns may be NaN."""
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        tags.input_tags.allow_nan = True
        return tags

    def fit(self, X: Any, y: Any, groups: Any = None, *, validation: Any = None, scans: Any = None) -> Any:
        """Train on scans.

        Parameters
        ----------
        X : list of (time, rois) arrays, or (scans, time, rois) array
            Scans may differ in length; each is z-scored over time. NaN in a whole column: an ROI that is not covered.
        y : (scans,) array
            Classes, or numbers for a regressor.
        groups : (scans,) array, optional
            Families, or else subjects, which are never separated: in the validation part, and in inner splits.
        validation : float or (scans,) bool array, optional
            Share of the groups that is held out to follow the training (`history_`), and to choose the epoch with
            ``epoch_choice="best_validation"``; or which scans these are. By default 0.1 with that choice, else 0.
        scans : DataFrame, optional
            One row per scan: ``site``, ``age``, ``sex``, ``mean_fd`` or ``tr``, for covariates and harmonisation.

        Returns
        -------
        self

        Raises
        ------
        DataError
            Series, labels or groups cannot be used.
        ConfigError
            A setting cannot have its value.
        """
        model, own = configured(self.configuration, self.get_params(deep=False))
        X, roi_names = in_one_order(X)
        series, about = as_series(X), scan_table(len(X), scans)
        require_length(shortest_scan(model), series)
        about, classes = self._labelled(with_groups(about, groups), y)
        validation = self._validation(model) if validation is None else validation
        about["role"] = roles_of(about, validation, isinstance(self, RegressorMixin), own.seed)
        if has_epochs(model.model) and self._validation(model) and not (about["role"] == "validation").any():
            raise ConfigError("epoch_choice='best_validation' needs validation scans", hint="Set validation=0.1")
        names = None if classes is None else [str(name) for name in classes]
        with _same_random_state(model):
            member, history = Fitting(model, names, own).train(series, about)
        self.members_, self.history_, self.n_features_in_ = [member], history, series[0].shape[1]
        self._name_rois(roi_names)
        if classes is not None:  # only now: a training that fails leaves what was fitted before as it is
            self.classes_ = classes
        return self

    @abstractmethod
    def _labelled(self, scans: pd.DataFrame, y: Any) -> tuple[pd.DataFrame, NDArray[Any] | None]:
        """Add the column ``label``, and return the classes; refuse labels that cannot be learned."""

    def _validation(self, model: Model) -> float:
        """Return the share of groups that is held out by default."""
        chooses = has_epochs(model.model) and model.training.epoch_choice == "best_validation"
        return 0.1 if chooses or combines(model.model) else 0.0

    def _predictions(self, X: Any, scans: Any) -> NDArray[np.float64]:
        """Return the predictions of all members, (members, scans, …)."""
        check_is_fitted(self, "members_")
        if scans is None and (getattr(self, "covariates", None) or getattr(self, "harmonise", None)):
            raise DataError(
                "the model was trained with covariates or harmonisation, and 'scans' is not given",
                hint="Give scans=…, a row per scan, as in fit (in scikit-learn by metadata routing)",
            )
        cache = self._checked(X, scans)
        return predict_each(self.members_, cache, self.device)

    def _name_rois(self, names: Sequence[str] | None) -> None:
        """Keep the names of ROIs under scikit-learn's name; without any, there is no such attribute."""
        self.__dict__.pop("feature_names_in_", None)
        if names is not None:
            self.feature_names_in_ = np.array(names, object)

    def _checked(self, X: Any, scans: Any = None) -> SeriesInMemory:
        """Return scans as the models read them; refuse those that do not fit."""
        check_is_fitted(self, "members_")
        X, _ = in_one_order(X, getattr(self, "feature_names_in_", None))
        series = as_series(X)
        if series[0].shape[1] != self.n_features_in_:
            raise DataError(
                f"{series[0].shape[1]} ROIs, but the model was trained on {self.n_features_in_}",
                hint="Give series of the same atlas, (time, rois)",
            )
        require_length(max(member.shortest for member in self.members_), series)
        return SeriesInMemory(series, scan_table(len(series), scans))

    def importance(self, x: Any, target: Any = None) -> NDArray[np.float32]:
        """Compute how much each volume of a scan counts (the paper's Algorithm 1), averaged over members.

        Parameters
        ----------
        x : (time, rois) array
        target : class, optional
            The class to explain; by default the predicted one.

        Returns
        -------
        (time,) array
            Not negative.

        Raises
        ------
        ConfigError
            The model is not BolT, or it reads covariates.
        DataError
            As `predict`.
        """
        from bolt.api.explanation import explained_position, importance_of_members

        cache = self._checked([x])
        return importance_of_members(self, cache.series(0), explained_position(self, cache, target))

    def save(self, folder: str | Path) -> None:
        """Save the trained models; `bolt.load` reads them, without running code from the folder.

        Parameters
        ----------
        folder : path
            Must be empty, absent, or hold a model saved before.
        """
        from bolt.api.saved import save_estimator

        check_is_fitted(self, "members_")
        save_estimator(self, Path(folder))


class Classifier(ClassifierMixin, Estimator):
    """An estimator of classes.

    Attributes
    ----------
    classes_ : (classes,) array
        Sorted; the last is the positive class.
    """

    classes_: NDArray[Any]

    def _labelled(self, scans: pd.DataFrame, y: Any) -> tuple[pd.DataFrame, NDArray[Any] | None]:
        labels = one_per_scan(y, len(scans), "labels")
        return scans.assign(label=[str(label) for label in labels]), classes_of(labels)

    def predict_proba(self, X: Any, scans: Any = None) -> NDArray[np.float64]:
        """Predict class probabilities, the mean over members.

        Parameters
        ----------
        X : list of (time, rois) arrays, or (scans, time, rois) array
        scans : DataFrame, optional
            As for `fit`; needed by models with covariates or harmonisation.

        Returns
        -------
        (scans, classes) array
            In the order of `classes_`.
        """
        return self._predictions(X, scans).mean(axis=0)

    def predict(self, X: Any, scans: Any = None) -> NDArray[Any]:
        """Predict the most probable class of each scan; parameters as in `predict_proba`."""
        positions = self.predict_proba(X, scans).argmax(axis=1)
        return self.classes_[positions]


class Regressor(RegressorMixin, Estimator):
    """An estimator of a number."""

    def _labelled(self, scans: pd.DataFrame, y: Any) -> tuple[pd.DataFrame, NDArray[Any] | None]:
        if not has_epochs(self.configuration.model):
            raise ConfigError(f"model '{self.configuration.name}' predicts classes only", hint="Use another model")
        return scans.assign(label=numbers_of(y, len(scans))), None

    def predict(self, X: Any, scans: Any = None) -> NDArray[np.float64]:
        """Predict the number for each scan, in the unit of the labels; the mean over members."""
        return self._predictions(X, scans).mean(axis=0)


def _same_random_state(model: Model) -> Any:
    """Restore torch's random state after the block: training seeds it."""
    if fitted_at_once(model.model):
        from contextlib import nullcontext

        return nullcontext()
    import torch

    return torch.random.fork_rng()


def estimator(name: str | os.PathLike[str], *, regressor: bool = False, **settings: Any) -> Any:
    """Create an estimator of a model by its name.

    Parameters
    ----------
    name : str or path
        A model in `config/models` (``bolt models`` lists them), or the path of such a file.
    regressor : bool
        Predict a number instead of classes.
    **settings
        Keys of ``hyper`` and ``training`` in the model's file, by name; ``crop`` (volumes of a training crop, 100),
        ``seed`` (0), ``device`` ("auto": a GPU if there is one), ``threads``, ``folder`` (where an interrupted training
        resumes) and ``progress`` (show a bar, in a terminal).

    Returns
    -------
    Classifier or Regressor
        Not trained yet.

    Raises
    ------
    ConfigError
        There is no such model.
    TypeError
        There is no such setting.

    Examples
    --------
    >>> bolt.estimator("brainnetcnn", epochs=10).fit(series, y)
    """
    return estimator_class(load_model(str(name)), regressor)(**settings)


def estimator_class(model: Model, regressor: bool) -> Any:
    """Return the class of a model's estimators, whose signature has the model's settings.

    Parameters
    ----------
    model : Model
        From a file in `config/models`.
    regressor : bool
    """
    return _class_of(model.model_dump_json(), regressor)


@cache
def _class_of(configuration: str, regressor: bool) -> Any:
    """Return the one class of estimators for a configuration, as JSON."""
    model = Model.model_validate_json(configuration)
    parameters = parameters_of(model)
    kind = Regressor if regressor else Classifier
    title = {"bolt": "BolT"}.get(model.name, model.name.title().replace("_", ""))

    def __init__(self: Any, **settings: Any) -> None:
        for key in settings:
            if key not in parameters:
                raise TypeError(f"{type(self).__name__} has no setting '{key}'{nearest(key, list(parameters))}")
        for key, value in {**parameters, **settings}.items():
            setattr(self, key, value)

    arguments = [inspect.Parameter(k, inspect.Parameter.KEYWORD_ONLY, default=v) for k, v in parameters.items()]
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    __init__.__signature__ = inspect.Signature([own, *arguments])  # type: ignore[attr-defined]
    body = {"configuration": model, "__init__": __init__, "__doc__": _documentation(model, parameters, regressor)}
    return type(f"{title}{kind.__name__}", (kind,), {**body, "__module__": __name__})


def _documentation(model: Model, parameters: Mapping[str, Any], regressor: bool) -> str:
    """Return the docstring of a class of estimators."""
    defaults = "\n".join(f"    {name} : default {value!r}" for name, value in parameters.items())
    target = "a number" if regressor else "classes"
    return (
        f"{model.shown}, predicting {target} from ROI series: {model.description}.\n\n"
        f"Settings are explained in `config/models/{model.name}.yaml` and docs/models.md.\n\n"
        f"    Parameters\n    ----------\n{defaults}\n\n    {model.reference}\n"
    )


def _restored(model: Model, regressor: bool, state: dict[str, Any]) -> Any:
    """Return a pickled estimator."""
    restored = estimator_class(model, regressor)()
    restored.__dict__.update(state)
    return restored


BolTClassifier = estimator_class(load_model("bolt"), False)
BolTRegressor = estimator_class(load_model("bolt"), True)
