"""Settings of an estimator: those of a model's file in `config/models`, flat, by name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from bolt.config import Model
from bolt.config.keys import Keys, Seed, parse
from bolt.config.models import Training
from bolt.models.registry import check_model, default_of, fitted_at_once, has_epochs, inputs_of, settings_of

FILLED_IN = ("n_covariates", "crop")
"""Settings of models that follow from the data."""


class OfEstimator(Keys):
    """Settings of every estimator, whatever its model."""

    crop: int = Field(100, ge=1, description="volumes of a random training crop")
    seed: Seed = Field(0, description="of weights, order, crops and dropout")
    device: Literal["auto", "cpu", "cuda"] = "auto"
    threads: int | None = Field(None, ge=1, description="CPU threads of torch")
    folder: Path | str | None = Field(None, description="where an interrupted training resumes")
    progress: bool = Field(True, description="show a progress bar, in a terminal")


def hyper_of(model: Model) -> dict[str, Any]:
    """Return the settings of a model's class with their values: those of its file, or else the defaults."""
    names = [name for name in settings_of(model.model) if name not in FILLED_IN]
    return {name: model.hyper.get(name, default_of(model.model, name, None)) for name in names}


def parameters_of(model: Model) -> dict[str, Any]:
    """Return the parameters of a model's estimator with their defaults, in the order of its signature.

    Parameters
    ----------
    model : Model
        From a file in `config/models`.

    Returns
    -------
    dict
        Keys of ``hyper``; of ``training``, unless the model is fitted at once; those that apply of ``covariates``,
        ``connectivity``, ``fisher_z``, ``harmonise``, ``preserve`` and ``unseen_site``; then those of `OfEstimator`.
    """
    training = model.training.model_dump() if has_epochs(model.model) else {}
    own = {name: getattr(model, name) for name in _own_keys(model)}
    values = hyper_of(model) | training | own | OfEstimator().model_dump()
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}


def _plain(value: Any) -> Any:
    """Return a value as YAML would give it: grids of scikit-learn hold NumPy's numbers and arrays."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    return [_plain(item) for item in value] if isinstance(value, tuple | list) else value


def configured(model: Model, parameters: Mapping[str, Any]) -> tuple[Model, OfEstimator]:
    """Return a model with the parameters of its estimator, and the parameters of every estimator.

    Parameters
    ----------
    model : Model
        From a file in `config/models`.
    parameters : mapping
        As `parameters_of` returns them, with the user's values.

    Raises
    ------
    ConfigError
        A value that the setting cannot have.
    """
    parameters = {name: _plain(value) for name, value in parameters.items()}
    given = {name: parameters[name] for name in hyper_of(model)}
    hyper = {
        name: value
        for name, value in given.items()
        if name in model.hyper or value != default_of(model.model, name, None)
    }
    check_model(model.model, hyper)
    update: dict[str, Any] = {"hyper": hyper} | {name: parameters[name] for name in _own_keys(model)}
    if has_epochs(model.model):
        update["training"] = {name: parameters[name] for name in Training.model_fields}
    keys = {**model.model_dump(exclude={"training"} if "training" not in update else set()), **update}
    where = f"estimator of model '{model.name}'"
    own = {name: parameters[name] for name in OfEstimator.model_fields}
    return parse(Model, keys, where), parse(OfEstimator, own, where)


def _own_keys(model: Model) -> list[str]:
    """Return the keys beside ``hyper`` and ``training`` that apply to a model."""
    inputs, at_once = inputs_of(model.model), fitted_at_once(model.model)
    keys = ["covariates"] if default_of(model.model, "n_covariates", None) is not None else []
    keys += ["connectivity"] if inputs == "connectivity" else []
    return keys + (["fisher_z", "harmonise", "preserve", "unseen_site"] if at_once and inputs == "connectivity" else [])
