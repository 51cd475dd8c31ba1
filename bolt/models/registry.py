"""Models by name. A model is one file in this folder whose class carries `@register("<file name>")`."""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar, cast

from bolt.config import nearest
from bolt.io.errors import ConfigError
from bolt.models.parts.features import FeatureModel
from bolt.models.parts.settings import check_value

if TYPE_CHECKING:  # jobs that only preprocess ask for names, and need not import torch, nor have it
    from bolt.models.base import SeriesModel

M = TypeVar("M", bound="type[SeriesModel] | type[FeatureModel]")
SHARED = ("base", "layers", "registry", "suitability")
"""Files of this folder that hold no model."""
_MODELS: dict[str, type[SeriesModel] | type[FeatureModel]] = {}


def register(name: str) -> Callable[[M], M]:
    """Class decorator: make a model known under `name`, the name of its file."""

    def keep(model: M) -> M:
        _MODELS[name] = model
        return model

    return keep


def known_models() -> list[str]:
    """Names of all models, sorted."""
    import bolt.models as folder

    for module in pkgutil.iter_modules(folder.__path__):
        if not module.ispkg and module.name not in SHARED:
            import_module(f"bolt.models.{module.name}")
    return sorted(_MODELS)


def create_model(name: str, n_rois: int, n_classes: int, **hyper: Any) -> Any:
    """Build a model with fresh weights (seed torch before, for the same weights again).

    Parameters
    ----------
    name : str
        One of `known_models()`.
    n_rois, n_classes : int
        Columns of the series; number of labels.
    **hyper
        The model's own settings: the keyword arguments of its class.

    Returns
    -------
    SeriesModel or FeatureModel
        As `inputs_of` says.

    Raises
    ------
    ConfigError
        For an unknown model or setting, with the nearest known one; for a value that a setting cannot have.
    """
    check_model(name, hyper)
    return _MODELS[name](n_rois, n_classes, **hyper)


def inputs_of(name: str) -> str:
    """What a model learns from: ``series``, ``connectivity`` or ``covariates``."""
    check_model(name, {})
    return _MODELS[name].inputs


def fitted_at_once(name: str) -> bool:
    """Whether a model learns in one go, without epochs: a `FeatureModel`."""
    check_model(name, {})
    return issubclass(_MODELS[name], FeatureModel)


def with_facts(name: str, hyper: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a model, with those facts of the data that it asks for and that are not set already."""
    return {key: value for key, value in facts.items() if key in settings_of(name)} | dict(hyper)


def settings_of(name: str) -> list[str]:
    """Names of a model's settings."""
    known_models()
    return [key for key in inspect.signature(_MODELS[name]).parameters if key not in ("n_rois", "n_classes")]


def check_model(name: str, hyper: Mapping[str, Any]) -> None:
    """Raise what `create_model` raises for names and single values, without building anything."""
    check_settings(name, hyper)
    for key, value in hyper.items():
        check_value(_MODELS[name], key, value)


def check_settings(name: str, keys: Iterable[str]) -> None:
    """Refuse an unknown model, or names of settings that it does not have (ConfigError)."""
    known = known_models()
    if name not in known:
        raise ConfigError(f"unknown model '{name}'", hint=f"Known: {', '.join(known)}{nearest(name, known)}")
    settings = settings_of(name)
    for key in keys:
        if key not in settings:
            raise ConfigError(
                f"model '{name}' has no setting '{key}'",
                where=f"hyper.{key}",
                hint=f"Known: {', '.join(settings)}{nearest(key, settings)}",
            )


def shortest_of(name: str, hyper: Mapping[str, Any]) -> int:
    """Volumes of the shortest scan that a model with these settings reads; 2 where it learns in one go."""
    if fitted_at_once(name):
        return 2
    kind = cast("type[SeriesModel]", _MODELS[name])
    known = inspect.signature(kind).parameters.values()
    return kind.shortest({one.name: one.default for one in known} | dict(hyper))


def default_of(name: str, setting: str, otherwise: Any) -> Any:
    """Default of a model's setting; `otherwise` where the model has no such setting."""
    known_models()
    parameter = inspect.signature(_MODELS[name]).parameters.get(setting)
    return otherwise if parameter is None else parameter.default
