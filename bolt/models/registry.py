"""Models by name: a model is a file in this folder whose class is decorated with `@register("<file name>")`.

What a class declares is read from its source: a dry run needs the settings of models, but not torch.
"""

from __future__ import annotations
import __future__

import ast
import inspect
import typing
from collections import abc
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar, cast

from bolt.config import nearest
from bolt.io.errors import ConfigError
from bolt.io.places import PACKAGE
from bolt.models.parts.features import FeatureModel
from bolt.models.parts.settings import annotations_of, check_value

if TYPE_CHECKING:  # jobs that only preprocess read names, and must not need torch
    from bolt.models.base import SeriesModel

M = TypeVar("M", bound="type[SeriesModel] | type[FeatureModel]")
SHARED = ("__init__", "base", "layers", "registry", "suitability")
"""Files of this folder that contain no model."""
FROM_FILE = ("features", "predictions")
"""Models of what others bring in a file, which therefore have no configuration in ``config/models``."""
METHODS = ("__init__", "shortest")
"""What is kept of a class that is read from its source: its settings, and the shortest scan that it can read."""
LIGHT = {"nn.Module": object, "FeatureModel": FeatureModel}
"""What stands for a base class in a class that is read from its source."""
_MODELS: dict[str, type[SeriesModel] | type[FeatureModel]] = {}


def register(name: str) -> Callable[[M], M]:
    """Decorate a class to make it known under `name`, the name of its file."""

    def add(model: M) -> M:
        _MODELS[name] = model
        return model

    return add


def known_models() -> list[str]:
    """Return the names of all models, sorted."""
    files = {path.stem for path in (PACKAGE / "models").glob("*.py")}
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
    """Return what a model learns from: series, connectivity, covariates, predictions of members, or a file."""
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
    usual: dict[str, Any] = {"tail": "cover", "windowed": True}
    setting = usual | defaults_of(name) | dict(hyper)
    return (setting["tail"] == "drop" and setting["windowed"]) or bool(getattr(_class_of(name), "whole_windows", False))


def with_facts(name: str, hyper: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
    """Add facts about the data to a model's settings: those that it takes and that are not set already."""
    return {key: value for key, value in facts.items() if key in defaults_of(name)} | dict(hyper)


def with_covariates(hyper: Mapping[str, Any], n_covariates: int) -> dict[str, Any]:
    """Add the number of covariates to a model's settings, if there are any."""
    return dict(hyper) | ({"n_covariates": n_covariates} if n_covariates else {})


def defaults_of(name: str) -> dict[str, Any]:
    """Return a model's settings with their defaults."""
    settings = inspect.signature(_class_of(name)).parameters.items()
    return {key: parameter.default for key, parameter in settings if key not in ("n_rois", "n_classes")}


def check_model(name: str, hyper: Mapping[str, Any]) -> None:
    """Refuse the names and values that `create_model` refuses, without building anything (ConfigError)."""
    check_settings(name, hyper)
    for key, value in hyper.items():
        check_value(_class_of(name), key, value)


def check_settings(name: str, keys: Iterable[str]) -> None:
    """Refuse an unknown model, or settings that it does not have (ConfigError)."""
    settings = list(defaults_of(name))
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
    return cast("type[SeriesModel]", _class_of(name)).shortest(defaults_of(name) | dict(hyper))


def _class_of(name: str) -> type[SeriesModel] | type[FeatureModel]:
    """Return a model's class, or what its source declares of it."""
    return _MODELS.get(name) or declared(name) or _imported(name)


def _imported(name: str) -> type[SeriesModel] | type[FeatureModel]:
    """Return a model's class; refuse an unknown name (ConfigError)."""
    known = known_models()
    if name not in known:
        raise ConfigError(f"unknown model '{name}'", hint=f"Known: {', '.join(known)}{nearest(name, known)}")
    if name not in _MODELS:
        import_module(f"bolt.models.{name}")
    return _MODELS[name]


@cache
def declared(name: str) -> Any:
    """Return a class with the attributes, settings and `shortest` of a model's class, but without its network.

    Parameters
    ----------
    name : str
        Of the model: the stem of its file.

    Returns
    -------
    type or None
        None if the source cannot be read this way: a default that is computed, say. Then the module must be imported.
    """
    try:
        classes = [node for node in _tree(name).body if isinstance(node, ast.ClassDef)]
        own = [node for node in classes if f"register({name!r})" in map(ast.unparse, node.decorator_list)]
        model = _class(name, own[0].name)
        annotations_of(model)
    except Exception:  # whatever it is, importing the module settles it
        return None
    return model


@cache
def _tree(module: str) -> ast.Module:
    """Parse a module by its name below `bolt.models`."""
    return ast.parse((PACKAGE / "models" / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8"))


@cache
def _class(module: str, name: str) -> Any:
    """Run the declaration of one class of a module of models.

    Annotations may name what `typing` and `collections.abc` have, and a ``Name = Literal[...]`` of the module or of
    those from which it imports.
    """
    tree = _tree(module).body
    ours = [n for n in tree if isinstance(n, ast.ImportFrom) and str(n.module).startswith("bolt.models.")]
    origins = {alias.name: str(n.module).removeprefix("bolt.models.") for n in ours for alias in n.names}
    choices: list[ast.stmt] = [
        statement
        for origin in dict.fromkeys([module, *origins.values()])
        for statement in _tree(origin).body
        if isinstance(statement, ast.Assign) and ast.unparse(statement.value).startswith("Literal[")
    ]
    node = next(n for n in tree if isinstance(n, ast.ClassDef) and n.name == name)
    bases: dict[str, Any] = {}
    for number, base in enumerate(map(ast.unparse, node.bases)):
        bases[f"base_{number}"] = LIGHT.get(base) or _class(origins.get(base, module), base)
    kept = [statement for statement in node.body if not isinstance(statement, ast.FunctionDef)]
    for method in node.body:
        if isinstance(method, ast.FunctionDef) and method.name in METHODS:
            body = [ast.Pass()] if method.name == "__init__" else method.body
            kept.append(ast.FunctionDef(**{**vars(method), "body": body}))
    places: list[ast.expr] = [ast.Name(base, ast.Load()) for base in bases]
    light = ast.ClassDef(**{**vars(node), "bases": places, "body": kept or [ast.Pass()], "decorator_list": []})
    source = ast.fix_missing_locations(ast.Module([*choices, light], []))
    names = vars(typing) | vars(abc) | bases | {"__name__": module}
    exec(compile(source, f"{module}.py", "exec", flags=__future__.annotations.compiler_flag), names)  # noqa: S102
    return names[name]
