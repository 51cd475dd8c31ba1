"""Estimators in scikit-learn's conventions: BolT, and every other model in `config/models`.

They run the workflow's own code: with the same scans in the same order, settings, seed and fold 0, the weights are the
workflow's, bit for bit on the CPU. Settings are those of a model's file in `config/models`, flat, by name.
"""

from __future__ import annotations

import fcntl
import hashlib
import inspect
import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import Field
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from bolt import __version__
from bolt.config import Dataset, Model, load_model, nearest
from bolt.config.keys import Keys, Seed, parse
from bolt.config.models import Training as TrainingSettings
from bolt.folds.splits import FOLD_COLUMNS, hold_out, quarters
from bolt.io.errors import ConfigError, DataError
from bolt.io.files import read_json, write_json, write_table
from bolt.io.resource_errors import explain_shortages
from bolt.jobs.code_hash import fingerprint as code_fingerprint
from bolt.models.registry import check_model, combines, defaults_of, fitted_at_once, has_epochs, inputs_of
from bolt.models.suitability import check_covariates, shortest_scan
from bolt.series.cache import seal, with_offsets, write_array
from bolt.share.scans import SeriesInMemory, as_series, class_name, groups_of, labels_of, roi_table, scan_table
from bolt.training import training_modules
from bolt.training.ensembles import Member, load_member, predict_each
from bolt.training.outputs import Training
from bolt.training.trainers import train_folds

ABOUT = "model.json"
FORMAT = 1
NOT_SETTINGS = ("folder", "threads", "progress", "device")
"""Parameters that belong to a machine, not to a model."""


class OfEstimator(Keys):
    """Settings of every estimator, whatever its model."""

    crop: int = Field(100, ge=1, description="volumes of a random training crop")
    seed: Seed = Field(0, description="of weights, order, crops and dropout")
    device: Literal["auto", "cpu", "cuda"] = "auto"
    threads: int | None = Field(None, ge=1, description="CPU threads of torch")
    folder: Path | str | None = Field(None, description="where an interrupted training resumes")
    progress: bool = Field(True, description="show a progress bar, in a terminal")


def _defaults_of(model: Model) -> dict[str, Any]:
    """Return the settings of a model's class with their defaults, but for those that follow from the data.

    The repetition time follows from the scans, unless it is given: None.
    """
    settings = defaults_of(model.model).items()
    defaults = {name: default for name, default in settings if name not in ("n_covariates", "crop")}
    return defaults | ({"tr": None} if "tr" in defaults else {})


def _own_keys(model: Model) -> list[str]:
    """Return the keys beside ``hyper`` and ``training`` that apply to a model."""
    keys = ["covariates"] if "n_covariates" in defaults_of(model.model) else []
    if inputs_of(model.model) == "connectivity":
        keys.append("connectivity")
        keys += ["fisher_z", "harmonise", "preserve", "unseen_site"] if fitted_at_once(model.model) else []
    return keys


@contextmanager
def _torch_as_before() -> Iterator[None]:
    """Restore torch's random state and number of threads after the block; training sets both."""
    import torch

    threads = torch.get_num_threads()
    with torch.random.fork_rng():
        try:
            yield
        finally:
            torch.set_num_threads(threads)


def configured(model: Model, parameters: Mapping[str, Any]) -> tuple[Model, OfEstimator]:
    """Return a model with the user's values of its estimator's parameters, and the parameters of every estimator.

    Raises
    ------
    ConfigError
        A value that the setting cannot have.
    """

    def plain(value: Any) -> Any:  # as YAML would give it: grids of scikit-learn hold NumPy's numbers and arrays
        if isinstance(value, np.generic | np.ndarray):
            return value.tolist()
        return [plain(item) for item in value] if isinstance(value, tuple | list) else value

    values = {name: plain(value) for name, value in parameters.items()}
    defaults = _defaults_of(model)
    hyper = {name: values[name] for name in defaults if name in model.hyper or values[name] != defaults[name]}
    check_model(model.model, hyper)
    keys = model.model_dump(exclude={"training"}) | {"hyper": hyper} | {name: values[name] for name in _own_keys(model)}
    if has_epochs(model.model):
        keys["training"] = {name: values[name] for name in TrainingSettings.model_fields}
    where = f"estimator of model '{model.name}'"
    own = {name: values[name] for name in OfEstimator.model_fields}
    return parse(Model, keys, where), parse(OfEstimator, own, where)


def train(
    model: Model, classes: list[str] | None, own: OfEstimator, series: list[NDArray[np.float32]], scans: pd.DataFrame
) -> tuple[Member, pd.DataFrame]:
    """Train a model.

    Parameters
    ----------
    model : Model
    classes : list of str or None
        None: the label is a number.
    own : OfEstimator
    series : list of (T, R) arrays
        z-scored.
    scans : DataFrame
        From `bolt.share.scans.scan_table`, with label and group, and ``role`` (train or validation).

    Returns
    -------
    member : Member
    history : DataFrame
        One row per epoch; empty for a model that is fitted at once.
    """
    columns = {name: name for name in ("label", "site", "age", "sex")}
    place = {"name": "scans", "source": "series", "path": Path("scans.tsv")}
    dataset = Dataset(**place, **columns, classes=classes, crop=own.crop)  # type: ignore[arg-type]
    check_covariates(model, dataset, list(scans))
    with ExitStack() as stack:
        if own.folder is None:
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="bolt-")))
        else:  # named by everything that the trained weights depend on
            code = code_fingerprint(*training_modules(model))
            settings = [model.hash(), code, classes, own.crop, own.seed, scans.to_csv(index=False)]
            digest = hashlib.sha256(json.dumps(settings).encode())
            for values in series:
                digest.update(f"{values.shape}".encode() + np.ascontiguousarray(values).tobytes())
            folder = Path(own.folder) / digest.hexdigest()[:12]
        cache, folds, out = folder / "cache", folder / "folds.tsv", folder / "fold-0"
        cache.mkdir(parents=True, exist_ok=True)
        lock = stack.enter_context((folder / ".lock").open("w"))
        with suppress(OSError):  # a file system without locks
            fcntl.flock(lock, fcntl.LOCK_EX)  # parallel searches may fit the same data twice
        if not ((out / "status.json").is_file() and read_json(out / "status.json")["state"] == "ok"):
            index = with_offsets(scans.drop(columns="role"), map(len, series))
            write_array(cache, series, int(index["length"].sum()), series[0].shape[1])
            seal(cache, index.assign(n_volumes=index["length"]), roi_table(range(1, series[0].shape[1] + 1)))
            write_table(scans.assign(fold=0)[list(FOLD_COLUMNS)], folds, FOLD_COLUMNS)
            options: dict[str, Any] = {"device": own.device, "threads": own.threads, "needs_test": False}
            options["progress"] = own.progress and sys.stderr.isatty()
            error = train_folds(cache, folds, model, dataset, [Training(0, own.seed, out)], **options)[0]
            if error is not None:
                raise error
        history = out / "history.tsv"
        return load_member(out), pd.read_csv(history, sep="\t") if history.is_file() else pd.DataFrame()


def roles_of(scans: pd.DataFrame, validation: Any, numbers: bool, seed: int) -> pd.Series:
    """Return which scans are for training and which for validation.

    Parameters
    ----------
    scans : DataFrame
        subject, group, site, label.
    validation : float or (scans,) bool array
        Share of the groups to hold out, or which scans.
    numbers : bool
        Whether labels are numbers.
    seed : int

    Raises
    ------
    DataError
        A share outside [0, 0.5]; an array of another length; a group on both sides; no training scan.
    """
    if np.ndim(validation):
        held_out = np.asarray(validation)
        if held_out.dtype != bool or held_out.shape != (len(scans),):
            problem = f"validation has shape {held_out.shape} and type {held_out.dtype} for {len(scans)} scans"
            raise DataError(problem, hint="Give a share such as 0.1, or one True or False per scan")
    elif not isinstance(validation, float | int | np.number) or not 0 <= validation <= 0.5:
        raise DataError(f"validation is {validation}", hint="Give a share of the groups from 0 to 0.5, such as 0.1")
    elif validation == 0:
        held_out = np.zeros(len(scans), bool)
    else:
        strata = quarters(scans["label"]) if numbers else scans["label"]
        units = scans.assign(label=strata, site=scans["site"].fillna("").astype(str))
        held_out = units["group"].isin(hold_out(units, float(validation), seed)).to_numpy()
    both = set(scans["group"][held_out]) & set(scans["group"][~held_out])
    if both:
        raise DataError(f"group '{min(both)}' is in training and in validation", hint="Keep groups together")
    if held_out.all():
        raise DataError("all scans are for validation", hint="Keep some for training")
    return pd.Series(np.where(held_out, "validation", "train"), index=scans.index)


class Estimator(BaseEstimator):
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
        series, roi_names = as_series(X, shortest=shortest_scan(model))
        about = scan_table(len(series), scans)
        if groups is not None:
            names = groups_of(groups, len(series))
            about = about.assign(subject=names, group=names)
        numbers = isinstance(self, RegressorMixin)
        if numbers and not has_epochs(model.model):
            raise ConfigError(f"model '{model.name}' predicts classes only", hint="Use another model")
        about["label"], classes = labels_of(y, len(series), numbers)
        chooses = has_epochs(model.model) and model.training.epoch_choice == "best_validation"
        if validation is None:
            validation = 0.1 if chooses or combines(model.model) else 0.0
        about["role"] = roles_of(about, validation, numbers, own.seed)
        if chooses and not (about["role"] == "validation").any():
            raise ConfigError("epoch_choice='best_validation' needs validation scans", hint="Set validation=0.1")
        with nullcontext() if fitted_at_once(model.model) else _torch_as_before():
            names_of_classes = None if classes is None else [class_name(name) for name in classes]
            member, history = train(model, names_of_classes, own, series, about)
        self.members_, self.history_, self.n_features_in_ = [member], history, series[0].shape[1]
        self.__dict__.pop("feature_names_in_", None)  # in scikit-learn, only if the scans name their columns
        if roi_names is not None:
            self.feature_names_in_ = np.array(roi_names, object)
        if classes is not None:  # only now: a training that fails leaves what was fitted before as it is
            self.classes_ = classes
        return self

    def _predictions(self, X: Any, scans: Any) -> NDArray[np.float64]:
        """Return the predictions of all members, (members, scans, …)."""
        check_is_fitted(self, "members_")
        trained = [part.info for member in self.members_ for part in member.parts]
        if scans is None and any(info.get("covariates") or info["model"].get("harmonise") for info in trained):
            raise DataError(
                "the model was trained with covariates or harmonisation, and 'scans' is not given",
                hint="Give scans=…, a row per scan, as in fit (in scikit-learn by metadata routing)",
            )
        return predict_each(self.members_, self._checked(X, scans), self.device)

    def _checked(self, X: Any, scans: Any = None) -> SeriesInMemory:
        """Return scans as the models read them; refuse those that do not fit."""
        check_is_fitted(self, "members_")
        shortest = max(member.shortest for member in self.members_)
        series, _ = as_series(X, getattr(self, "feature_names_in_", None), shortest)
        if series[0].shape[1] != self.n_features_in_:
            hint = "Give series of the same atlas, (time, rois)"
            raise DataError(f"{series[0].shape[1]} ROIs, but the model was trained on {self.n_features_in_}", hint=hint)
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
        from bolt.explain.importance import importance_of
        from bolt.share.explanation import explained_models, position_of
        from bolt.training.device import device_of

        cache = self._checked([x])
        position, place = position_of(self, cache, target), device_of(self.device, None)
        targets = None if position is None else [position]
        weights = [importance_of(model, [cache.series(0)], place, targets)[0] for model in explained_models(self)]
        return np.mean(weights, axis=0)

    def save(self, folder: str | Path) -> None:
        """Save the trained models; `bolt.load` reads them, without running code from the folder.

        Parameters
        ----------
        folder : path
            Must be empty, absent, or hold a model saved before.
        """
        check_is_fitted(self, "members_")
        with new_folder(Path(folder)) as place:
            write_estimator(self, place)


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Yield an empty folder that takes the place of `folder` when the block ends without an error.

    Raises
    ------
    ConfigError
        The folder holds something else than a saved model.
    """
    if folder.exists() and (not folder.is_dir() or (any(folder.iterdir()) and not (folder / ABOUT).is_file())):
        raise ConfigError("not an empty folder, nor a saved model", where=folder, hint="Give a new folder")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with explain_shortages(folder.parent), TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as place:
        made = Path(place) / "new"
        made.mkdir()
        yield made
        if folder.exists():
            folder.rename(Path(place) / "earlier")
        made.rename(folder)


def write_estimator(estimator: Any, folder: Path, **facts: Any) -> None:
    """Write a trained estimator into an empty folder: ``model.json``, to which `facts` are added, and its members.

    Weights are safetensors and all else is JSON, so that loading a folder from others cannot run code.
    """
    names = [f"member-{i}" for i in range(len(estimator.members_))]
    for name, member in zip(names, estimator.members_, strict=True):
        member.save(folder / name)
    if len(estimator.history_):
        write_table(estimator.history_, folder / "history.tsv", {column: column for column in estimator.history_})
    about = {
        "format": FORMAT,
        "bolt": __version__,
        "members": names,
        "n_rois": estimator.n_features_in_,
        "roi_names": list(getattr(estimator, "feature_names_in_", [])) or None,
        "classes": estimator.classes_.tolist() if hasattr(estimator, "classes_") else None,
        "model": estimator.configuration.model_dump(mode="json"),
        "settings": {k: v for k, v in estimator.get_params(deep=False).items() if k not in NOT_SETTINGS},
    }
    write_json(about | facts, folder / ABOUT)


class Classifier(ClassifierMixin, Estimator):
    """An estimator of classes.

    Attributes
    ----------
    classes_ : (classes,) array
        Sorted; the last is the positive class.
    """

    classes_: NDArray[Any]

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
        positions = self.predict_proba(X, scans).argmax(axis=1)  # first: it says if the model is not fitted
        return self.classes_[positions]


class Regressor(RegressorMixin, Estimator):
    """An estimator of a number."""

    def predict(self, X: Any, scans: Any = None) -> NDArray[np.float64]:
        """Predict the number for each scan, in the unit of the labels; the mean over members."""
        return self._predictions(X, scans).mean(axis=0)


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
    values = {name: model.hyper.get(name, default) for name, default in _defaults_of(model).items()}
    values |= model.training.model_dump() if has_epochs(model.model) else {}
    values |= {name: getattr(model, name) for name in _own_keys(model)} | OfEstimator().model_dump()
    parameters = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
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
    defaults = "\n".join(f"    {name} : default {value!r}" for name, value in parameters.items())
    target = "a number" if regressor else "classes"
    documentation = (
        f"{model.shown}, predicting {target} from ROI series: {model.description}.\n\n"
        f"Settings are explained in `config/models/{model.name}.yaml` and docs/models.md.\n\n"
        f"    Parameters\n    ----------\n{defaults}\n\n    {model.reference}\n"
    )
    body = {"configuration": model, "__init__": __init__, "__doc__": documentation, "__module__": __name__}
    return type(f"{title}{kind.__name__}", (kind,), body)


def _restored(model: Model, regressor: bool, state: dict[str, Any]) -> Any:
    """Return a pickled estimator."""
    restored = estimator_class(model, regressor)()
    restored.__dict__.update(state)
    return restored


BolTClassifier = estimator_class(load_model("bolt"), False)
BolTRegressor = estimator_class(load_model("bolt"), True)
