"""What a search of hyper-parameters may change of a model, and what the values it draws mean for training.

A value has a name such as ``training.epochs`` or ``hyper.window``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bolt.config import Config, FoldSettings, Model, Space, Span, load_model, load_space
from bolt.io.errors import ConfigError
from bolt.models.registry import check_settings, default_of, fitted_at_once

DIGITS = 4  # significant ones of a value


def check_search(config: Config) -> list[Model]:
    """The models that are searched; what a search cannot begin with is refused.

    Models that are only there because `models` has them are left out where nothing of them can be searched.

    Raises
    ------
    ConfigError
        An unknown model, space or setting; a model of which nothing is searched, or that was searched before.
    """
    space, found = load_space(config.search.space), []
    for module, own in space.hyper.items():
        check_settings(module, own)
    for model in map(load_model, config.searched):
        ranges = space.hyper.get(model.model) or (space.training and not fitted_at_once(model.model))
        if not config.search.models and (model.by_fold or not ranges):
            continue
        spans_of(space, model)
        if model.by_fold:
            raise ConfigError(
                f"model '{model.name}' has settings by fold already",
                where="search: models",
                hint="Search the model that it was made from (config/models)",
            )
        found.append(model)
    return found


def spans_of(space: Space, model: Model) -> dict[str, Span]:
    """What may be changed of a model, by name.

    Raises
    ------
    ConfigError
        Nothing, or a setting that the model does not have.
    """
    own = space.hyper.get(model.model, {})
    check_settings(model.model, own)
    training = {} if fitted_at_once(model.model) else space.training
    spans = {f"training.{key}": span for key, span in training.items()}
    spans |= {f"hyper.{key}": span for key, span in own.items()}
    if not spans:
        raise ConfigError(
            f"nothing of model '{model.name}' is to be searched",
            where=f"search space '{space.name}'",
            hint=f"Give its settings ranges under 'hyper: {model.model}:', or leave it out of 'search: models'",
        )
    return spans


def narrow(spans: Mapping[str, Span], limits: Mapping[str, int]) -> tuple[dict[str, Span], list[str]]:
    """Ranges as the data allow them, and what was narrowed, in words.

    Parameters
    ----------
    spans : mapping
        Name to range.
    limits : mapping
        Name to the largest value that fits.

    Raises
    ------
    ConfigError
        A range of which nothing is left.
    """
    fitting, words = dict(spans), []
    for name, most in limits.items():
        span = fitting.get(name)
        if span is None or span.low is None or span.high is None or span.high <= most:
            continue
        if span.low > most:
            raise ConfigError(
                f"'{name}' is searched from {span.low}, but the data allow at most {most}",
                hint="Widen the range in the file of the search space (config/search)",
            )
        fitting[name] = span.model_copy(update={"high": most})
        words.append(f"{name} up to {most} instead of {span.high}")
    return fitting, words


def values_of(model: Model, spans: Mapping[str, Span]) -> dict[str, Any]:
    """The model's own values, moved into their ranges; without those that have no place there."""
    found: dict[str, Any] = {}
    for name, span in spans.items():
        group, key = name.split(".")
        if name == "training.learning_rate":
            value: Any = highest_rate(model)
        else:
            value = getattr(model.training, key) if group == "training" else _hyper(model, key)
        if span.choices is not None:
            if value in span.choices:
                found[name] = value
        elif isinstance(value, int | float) and span.low is not None and span.high is not None:
            value = min(max(value, span.low), span.high)
            found[name] = round(value) if span.whole else float(value)
    return found


def highest_rate(model: Model) -> float:
    """The highest learning rate of a model's schedule: where it begins, its peak, or where it ends."""
    training = model.training
    if training.schedule == "constant":
        return training.learning_rate
    rates = [training.peak_learning_rate]
    rates += [training.learning_rate] if training.warmup_epochs else []
    rates += [training.final_learning_rate] if training.schedule in ("linear", "cosine") else []
    return max(rates)


def rounded(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values with few digits, so that what is written is what was tried."""
    return {name: _round(value) if isinstance(value, float) else value for name, value in values.items()}


def _round(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def settings_of(model: Model, values: Mapping[str, Any]) -> FoldSettings:
    """What values of a search mean for a model: those of its keys that differ from its own configuration.

    The schedule keeps its shape: all learning rates are multiplied alike, warm-up and steps keep their share of the
    epochs.
    """
    groups: dict[str, dict[str, Any]] = {"training": {}, "hyper": {}}
    for name, value in values.items():
        group, key = name.split(".")
        groups[group][key] = value
    own, training = model.training, groups["training"]
    if "learning_rate" in training:
        factor = training["learning_rate"] / highest_rate(model)
        for key in ("learning_rate", "peak_learning_rate", "final_learning_rate"):
            training[key] = _round(getattr(own, key) * factor)
    if "epochs" in training:
        longer = training["epochs"] / own.epochs
        training.setdefault("warmup_epochs", _round(own.warmup_epochs * longer))
        training.setdefault("step_epochs", max(1, round(own.step_epochs * longer)))
    return FoldSettings(**groups)


def _hyper(model: Model, key: str) -> Any:
    return model.hyper.get(key, default_of(model.model, key, None))
