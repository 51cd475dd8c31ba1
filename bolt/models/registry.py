"""Models by name: a model is a file in this folder whose class is decorated with `@register("<file name>")`."""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar, cast

from bolt.config import nearest
from bolt.io.errors import ConfigError
from bolt.models.declared import declared
from bolt.models.parts.features import FeatureModel
from bolt.models.parts.settings import check_value

if TYPE_CHECKING:  # jobs that only preprocess read names, and must not need torch
    from bolt.models.base import SeriesModel

M = TypeVar("M", bound="type[SeriesModel] | type[FeatureModel]")
SHARED = ("base", "declared", "layers", "published", "registry", "suitability")
"""Files of this folder that contain no model."""
_MODELS: dict[str, type[SeriesModel] | type[FeatureModel]] = {}


def register(name: str) -> Callable[[M], M]:
    """Decorate a class to make it known under `name`, the name of its file."""

    def add(model: M) -> M:
        _MODELS[name] = model
        return model

    return add


def known_models() -> list[str]:
    """Return the names of all models, sorted."""
    import bolt.models as folder

    files = {module.name for module in pkgutil.iter_modules(folder.__path__) if not module.ispkg}
    return sorted(files.difference(SHARED) | set(_MODELS))


def create_model(name: str, n_rois: int, n_classes: int, **hyper: Any) -> Any:
    """Build a model with fresh weights, drawn from torch's global random state.

    Parameters
    ----------
    name : str
        One of `known_models()`.
    n_rois, n_classes : int
        Columns of the series; number of outputs.
    **hyper
        Settings of the model: the keyword arguments of its class.

    Returns
    -------
    SeriesModel or FeatureModel
        The former if it has epochs (`has_epochs`).

    Raises
    ------
    ConfigError
        An unknown model or setting, with the nearest known name; a value that the setting cannot have.
    """
    check_model(name, hyper)
    return _imported(name)(n_rois, n_classes, **hyper)


def inputs_of(name: str) -> str:
    """Return what a model learns from: ``series``, ``connectivity``, ``covariates`` or ``predictions``."""
    return _class_of(name).inputs


def needs_correlations(name: str) -> bool:
    """Return whether a model's inputs must be correlation matrices, neither transformed nor harmonised."""
    return bool(getattr(_class_of(name), "needs_correlations", False))


def crops_alike(name: str) -> bool:
    """Return whether all crops of a training batch are as long as its shortest scan, if that is shorter than a crop."""
    model = cast("type[SeriesModel]", _class_of(name))
    return inputs_of(name) == "series" and model.scans_interact and not model.takes_lengths


def has_epochs(name: str) -> bool:
    """Return whether a model is a network, trained in epochs: no `FeatureModel`."""
    return not issubclass(_class_of(name), FeatureModel)


def combines(name: str) -> bool:
    """Return whether a model combines the predictions of others."""
    return inputs_of(name) == "predictions"


def fitted_at_once(name: str) -> bool:
    """Return whether a model is fitted at once, in seconds: without epochs, and without members that may have them."""
    return not has_epochs(name) and not combines(name)


def matrices_in_words(name: str) -> str:
    """Return what the matrices of a connectivity model contain, for the methods text."""
    return str(getattr(_class_of(name), "matrices_in_words", "connectivity matrices"))


def ignores_tail(name: str, hyper: Mapping[str, Any]) -> bool:
    """Return whether a model does not read the volumes after the last whole window."""
    usual = {"tail": "cover", "windowed": True}
    setting = {key: hyper.get(key, default_of(name, key, value)) for key, value in usual.items()}
    return (setting["tail"] == "drop" and setting["windowed"]) or bool(getattr(_class_of(name), "whole_windows", False))


def with_facts(name: str, hyper: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
    """Add facts about the data to a model's settings: those that it takes and that are not set already."""
    return {key: value for key, value in facts.items() if key in settings_of(name)} | dict(hyper)


def with_covariates(hyper: Mapping[str, Any], n_covariates: int) -> dict[str, Any]:
    """Add the number of covariates to a model's settings, if there are any."""
    return dict(hyper) | ({"n_covariates": n_covariates} if n_covariates else {})


def settings_of(name: str) -> list[str]:
    """Return the names of a model's settings."""
    return [key for key in inspect.signature(_class_of(name)).parameters if key not in ("n_rois", "n_classes")]


def check_model(name: str, hyper: Mapping[str, Any]) -> None:
    """Refuse the names and values that `create_model` refuses, without building anything (ConfigError)."""
    check_settings(name, hyper)
    for key, value in hyper.items():
        check_value(_class_of(name), key, value)


def check_settings(name: str, keys: Iterable[str]) -> None:
    """Refuse an unknown model, or settings that it does not have (ConfigError)."""
    settings = settings_of(name)
    for key in keys:
        if key not in settings:
            raise ConfigError(
                f"model '{name}' has no setting '{key}'",
                where=f"hyper.{key}",
                hint=f"Known: {', '.join(settings)}{nearest(key, settings)}",
            )


def shortest_of(name: str, hyper: Mapping[str, Any]) -> int:
    """Return the length of the shortest scan that a model can read, in volumes; 2 without epochs."""
    if not has_epochs(name):
        return 2
    model = cast("type[SeriesModel]", _class_of(name))
    defaults = {key: parameter.default for key, parameter in inspect.signature(model).parameters.items()}
    return model.shortest(defaults | dict(hyper))


def default_of(name: str, setting: str, otherwise: Any) -> Any:
    """Return the default of a setting, or `otherwise` if the model does not have it."""
    parameter = inspect.signature(_class_of(name)).parameters.get(setting)
    return otherwise if parameter is None else parameter.default


def _class_of(name: str) -> type[SeriesModel] | type[FeatureModel]:
    """Return a model's class, or what its source declares of it."""
    return _MODELS.get(name) or _declared(name) or _imported(name)


def _imported(name: str) -> type[SeriesModel] | type[FeatureModel]:
    """Return a model's class; refuse an unknown name (ConfigError)."""
    known = known_models()
    if name not in known:
        raise ConfigError(f"unknown model '{name}'", hint=f"Known: {', '.join(known)}{nearest(name, known)}")
    if name not in _MODELS:
        import_module(f"bolt.models.{name}")
    return _MODELS[name]


_declared = cache(declared)
