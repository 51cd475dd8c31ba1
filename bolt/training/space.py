"""Search spaces: which settings of a model are searched, and how drawn values become settings.

A value has a name such as ``training.epochs`` or ``hyper.window``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bolt.config import Config, FoldSettings, Model, Space, Span, load_model, load_space
from bolt.io.errors import ConfigError
from bolt.models.registry import check_settings, combines, defaults_of, has_epochs

DIGITS = 4  # significant digits of a value


def check_search(config: Config) -> list[Model]:
    """Return the models to be searched; refuse a search that cannot start.

    If the configuration does not name models for the search, models of the run that cannot be searched are skipped.

    Raises
    ------
    ConfigError
        An unknown model, space or setting; a model without anything to search, or that was searched before.
    """
    space, models = load_space(config.search.space), []
    for module, hyper in space.hyper.items():
        check_settings(module, hyper)
    for model in map(load_model, config.searched):
        ranges = space.hyper.get(model.model) or (space.training and has_epochs(model.model))
        if not config.search.models and (model.by_fold or not ranges):
            continue
        spans_of(space, model)
        if model.by_fold:
            hint = "Search the original model (config/models)"
            raise ConfigError(f"model '{model.name}' already has settings by fold", where="search: models", hint=hint)
        models.append(model)
    return models


def spans_of(space: Space, model: Model) -> dict[str, Span]:
    """Return the ranges of a model's searched settings, by name.

    Raises
    ------
    ConfigError
        There is none, or the model does not have the setting.
    """
    hyper = space.hyper.get(model.model, {})
    if combines(model.model):
        what = f"model '{model.name}' combines others, which are trained before it"
        raise ConfigError(what, where=f"search space '{space.name}'", hint="Search its members")
    check_settings(model.model, hyper)
    training = space.training if has_epochs(model.model) else {}
    spans = {f"training.{key}": span for key, span in training.items()}
    spans |= {f"hyper.{key}": span for key, span in hyper.items()}
    if not spans:
        problem = f"no setting of model '{model.name}' is searched"
        hint = f"Give its settings ranges under 'hyper: {model.model}:', or remove it from 'search: models'"
        raise ConfigError(problem, where=f"search space '{space.name}'", hint=hint)
    return spans


def narrow(spans: Mapping[str, Span], limits: Mapping[str, int]) -> tuple[dict[str, Span], list[str]]:
    """Narrow ranges to values that fit the data.

    Parameters
    ----------
    spans : mapping
        Range by name.
    limits : mapping
        Largest value that fits, by name.

    Returns
    -------
    tuple
        The ranges, and a description of each change.

    Raises
    ------
    ConfigError
        No value of a range fits.
    """
    fitting, changes = dict(spans), []
    for name, limit in limits.items():
        span = fitting.get(name)
        if span is None or span.low is None or span.high is None or span.high <= limit:
            continue
        if span.low > limit:
            hint = "Widen the range in the file of the search space (config/search)"
            raise ConfigError(f"'{name}' is searched from {span.low}, but the data allow at most {limit}", hint=hint)
        fitting[name] = span.model_copy(update={"high": limit})
        changes.append(f"{name} up to {limit} instead of {span.high}")
    return fitting, changes


def values_of(model: Model, spans: Mapping[str, Span]) -> dict[str, Any]:
    """Return the model's own values, clipped to their ranges; a value that is not among the choices is omitted."""
    values: dict[str, Any] = {}
    for name, span in spans.items():
        group, key = name.split(".")
        if name == "training.learning_rate":
            value: Any = highest_rate(model)
        else:
            own = group == "training"
            value = getattr(model.training, key) if own else model.hyper.get(key, defaults_of(model.model).get(key))
        if span.choices is not None:
            if value in span.choices:
                values[name] = value
        elif isinstance(value, int | float) and span.low is not None and span.high is not None:
            value = min(max(value, span.low), span.high)
            values[name] = round(value) if span.whole else float(value)
    return values


def highest_rate(model: Model) -> float:
    """Return the highest learning rate of a model's schedule: the first, the peak, or the last."""
    training = model.training
    if training.schedule == "constant":
        return training.learning_rate
    rates = [training.peak_learning_rate]
    rates += [training.learning_rate] if training.warmup_epochs else []
    rates += [training.final_learning_rate] if training.schedule in ("linear", "cosine") else []
    return max(rates)


def rounded(values: Mapping[str, Any]) -> dict[str, Any]:
    """Round values to few digits, so that the written values are exactly those that were tried."""
    return {name: _round(value) if isinstance(value, float) else value for name, value in values.items()}


def _round(value: float) -> float:
    """Round to `DIGITS` significant digits."""
    return float(f"{value:.{DIGITS}g}")


def settings_of(model: Model, values: Mapping[str, Any]) -> FoldSettings:
    """Convert values of a search to a model's settings: the keys that differ from its configuration.

    The schedule keeps its shape: all learning rates are scaled by the same factor, and warm-up and steps keep their
    share of the epochs.
    """
    groups: dict[str, dict[str, Any]] = {"training": {}, "hyper": {}}
    for name, value in values.items():
        group, key = name.split(".")
        groups[group][key] = value
    original, training = model.training, groups["training"]
    if "learning_rate" in training:
        factor = training["learning_rate"] / highest_rate(model)
        for key in ("learning_rate", "peak_learning_rate", "final_learning_rate"):
            training[key] = _round(getattr(original, key) * factor)
    if "epochs" in training:
        factor = training["epochs"] / original.epochs
        training.setdefault("warmup_epochs", _round(original.warmup_epochs * factor))
        training.setdefault("step_epochs", max(1, round(original.step_epochs * factor)))
    return FoldSettings(**groups)


def keys_with(model: Model, scheme: str, settings: FoldSettings) -> dict[str, Any]:
    """Return the keys of a model's file with the values that a search chose, which hold on every dataset.

    Without ``name``, ``title`` and ``by_fold``.
    """
    keys = model.model_dump(mode="json", exclude_unset=True, exclude={"name", "title", "by_fold"})
    for group, chosen in settings.model_dump(mode="json").items():
        keys |= {group: {**keys.get(group, {}), **chosen}} if chosen else {}
    for of_dataset in keys.get("by_dataset", {}).values():
        own = of_dataset.pop("training", {})
        if kept := {key: value for key, value in own.items() if key not in settings.training}:
            of_dataset["training"] = kept
    return keys | {"searched": scheme}
