"""Training on series in memory, by the same code as the workflow's: one seed, one fold, the same weights.

The settings of an estimator are those of a model's file in `config/models`, flat, by name.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import sys
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import Field

from bolt.config import Dataset, Model
from bolt.config.keys import Keys, Seed, parse
from bolt.config.models import Training as TrainingSettings
from bolt.folds.splits import FOLD_COLUMNS, hold_out, quarters
from bolt.io.errors import DataError
from bolt.io.files import read_json, write_table
from bolt.jobs.code_hash import fingerprint as code_fingerprint
from bolt.models.registry import check_model, default_of, fitted_at_once, has_epochs, inputs_of, settings_of
from bolt.models.suitability import check_covariates
from bolt.series.cache import seal, with_offsets, write_array
from bolt.share.scans import roi_table
from bolt.training.ensembles import Member, load_member
from bolt.training.modules import training_modules
from bolt.training.outputs import Training
from bolt.training.trainers import train_folds

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


def _own_keys(model: Model) -> list[str]:
    """Return the keys beside ``hyper`` and ``training`` that apply to a model."""
    keys = ["covariates"] if default_of(model.model, "n_covariates", None) is not None else []
    if inputs_of(model.model) == "connectivity":
        keys.append("connectivity")
        keys += ["fisher_z", "harmonise", "preserve", "unseen_site"] if fitted_at_once(model.model) else []
    return keys


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
    defaults = {name: default_of(model.model, name, None) for name in hyper_of(model)}
    hyper = {
        name: parameters[name]
        for name, default in defaults.items()
        if name in model.hyper or parameters[name] != default
    }
    check_model(model.model, hyper)
    keys = model.model_dump(exclude={"training"}) | {"hyper": hyper}
    keys |= {name: parameters[name] for name in _own_keys(model)}
    if has_epochs(model.model):
        keys["training"] = {name: parameters[name] for name in TrainingSettings.model_fields}
    where = f"estimator of model '{model.name}'"
    own = {name: parameters[name] for name in OfEstimator.model_fields}
    return parse(Model, keys, where), parse(OfEstimator, own, where)


def _plain(value: Any) -> Any:
    """Return a value as YAML would give it: grids of scikit-learn hold NumPy's numbers and arrays."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    return [_plain(item) for item in value] if isinstance(value, tuple | list) else value


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
            raise DataError(
                f"validation has shape {held_out.shape} and type {held_out.dtype} for {len(scans)} scans",
                hint="Give a share such as 0.1, or one True or False per scan",
            )
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
