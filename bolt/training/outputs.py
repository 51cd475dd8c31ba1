"""A fold's scans with their roles, what is predicted of them, and the files of a trained fold of any kind of model.

Targets are classes or a number, with everything in training that depends on which it is. Torch is not imported: models
without epochs do not need it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from safetensors import SafetensorError

from bolt.cohort.exclusions import EXCLUSION_COLUMNS
from bolt.config import Dataset
from bolt.io.errors import BoltError, ConfigError, DataError
from bolt.io.files import columns, read_json, read_table, write_status, write_table, write_yaml
from bolt.io.people import people
from bolt.series.cache import SeriesCache

if TYPE_CHECKING:
    from torch import Tensor

log = logging.getLogger(__name__)


class Training(NamedTuple):
    """One training on a dataset: its fold, its seed, and the folder for its results."""

    fold: int
    seed: int
    folder: Path


def one_by_one(trainings: Sequence[Training], train: Callable[[Training], None]) -> list[BoltError | None]:
    """Train folds one after the other; return for each None, or the error that ended it.

    Raises
    ------
    ConfigError
        It concerns all folds.
    """
    errors: list[BoltError | None] = [None] * len(trainings)
    for number, training in enumerate(trainings):
        try:
            train(training)
        except ConfigError:
            raise
        except BoltError as error:
            errors[number] = error
    return errors


PREDICTIONS = columns("training", "predictions")


def write_predictions(table: pd.DataFrame, path: Path) -> None:
    """Write ``predictions.tsv``.

    Parameters
    ----------
    table : DataFrame
        One row per scan, with the columns of `PREDICTIONS` and one ``p_<class>`` per class; others are not written.
    path : Path
    """
    probabilities = {name: f"Probability of class {name[2:]}" for name in table if name.startswith("p_")}
    write_table(table[[*PREDICTIONS, *probabilities]], path, PREDICTIONS | probabilities)


def write_run(
    out: Path, info: Mapping[str, Any], dataset: Dataset, excluded: pd.DataFrame, table: pd.DataFrame
) -> None:
    """Write the files of a trained fold besides its checkpoint: settings, exclusions, predictions and, last, status.

    Parameters
    ----------
    out : Path
    info : mapping
        Contents of ``checkpoint.json``.
    dataset : Dataset
    excluded : DataFrame
        `EXCLUSION_COLUMNS`; scans that the model cannot read.
    table : DataFrame
        As for `write_predictions`, but for fold and seed.
    """
    about = {name: info[name] for name in ("model", "fold", "seed")}
    write_yaml({**about, "dataset": dataset.model_dump(mode="json")}, out / "config.yaml")
    write_table(excluded, out / "exclusions.tsv", EXCLUSION_COLUMNS)
    write_predictions(table.assign(fold=info["fold"], seed=info["seed"]), out / "predictions.tsv")
    write_status(out / "status.json", "ok", "train")


@contextmanager
def checked_info(folder: Path, name: str = "checkpoint.json") -> Iterator[None]:
    """Turn errors from the contents of ``checkpoint.json``, used within the block, into a `DataError`."""
    where, hint = folder / name, "Restore the file that was written with these weights"
    try:
        yield
    except ConfigError as error:
        raise DataError(error.what, where=where, hint=hint) from None
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        reason = " ".join(str(error).split())[:200]
        raise DataError(
            f"not a model's description ({type(error).__name__}: {reason})", where=where, hint=hint
        ) from None


@contextmanager
def checked_files(folder: Path) -> Iterator[tuple[dict[str, Any], Path]]:
    """Yield the contents of a fold's ``checkpoint.json`` and the path of its weights.

    Errors from either, used within the block, become a `DataError`.
    """
    weights = folder / "checkpoint.safetensors"
    info: dict[str, Any] = read_json(folder / "checkpoint.json")
    try:
        with checked_info(folder):
            yield info, weights
    except FileNotFoundError:
        raise DataError("file not found", where=weights, hint="Train this fold again") from None
    except (SafetensorError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        what = f"not a readable checkpoint, or its weights do not fit checkpoint.json: {reason}"
        raise DataError(what, where=weights, hint="Train this fold again") from None


def fold_table(
    series: SeriesCache, folds: Path, fold: int, *, share: float = 1.0, seed: int = 0, numbers: bool = False
) -> pd.DataFrame:
    """Return the scans of a fold: rows of the cache's index, by position, sorted by scan, with their roles.

    Parameters
    ----------
    series : SeriesCache
    folds : Path
        ``folds.tsv``.
    fold : int
    share : float
        Share of the training groups (families, else subjects) to keep, drawn by `seed` and stratified by class; a
        smaller share is a subset of a larger one.
    seed : int
    numbers : bool
        Whether labels are numbers.
    """
    rows = read_table(folds, text=("scan_id", "subject", "group"))
    rows = rows.loc[rows["fold"] == fold].set_index("scan_id")
    index = series.index.reset_index(drop=True)
    table = index.assign(role=index["scan_id"].map(rows["role"])).dropna(subset="role").sort_values("scan_id")
    groups = table["scan_id"].map(rows["group"])  # the folds' where copies of a recording have joined several
    joined = groups.notna() & (groups != table["group"]) & (groups != table["subject"])
    table["group"] = table["group"].where(~joined, groups)
    missing = sorted(set(rows.index) - set(table["scan_id"]))
    if missing:
        log.warning("%d scans of fold %d are not in the cache: %s", len(missing), fold, ", ".join(missing))
    if share == 1:
        return table
    train = table[table["role"] == "train"]
    groups = people(train).astype(str)
    labels = train.groupby(groups)["label"].first()  # sorted by group
    kept: set[str] = set()
    for _, stratum in labels.groupby(labels.astype(str) if not numbers else np.zeros(len(labels))):
        shuffled = np.random.default_rng(seed).permutation(stratum.index.to_numpy())
        kept |= set(shuffled[: max(1, round(share * len(shuffled)))])
    return table[(table["role"] != "train") | table.index.isin(groups.index[groups.isin(kept)])]


# ---- targets: classes or a number ------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Classes:
    """One of several classes; a model has one logit per class."""

    names: list[str]
    metric: ClassVar[str] = "accuracy"

    def encode(self, scans: pd.DataFrame) -> NDArray[Any]:
        """Encode labels as positions in the list of classes, (scans,) int64."""
        positions = scans["label"].map({name: position for position, name in enumerate(self.names)})
        if positions.isna().any():
            scan, label = scans[positions.isna()].iloc[0][["scan_id", "label"]]
            raise DataError(f"scan '{scan}' has label '{label}', not one of {self.names}", hint="Correct 'classes'")
        return positions.to_numpy(np.int64)

    def loss(self, logits: Tensor, truth: Tensor, smoothing: float = 0.0) -> Tensor:
        """Compute the cross entropy with labels of which a share is spread evenly over all classes."""
        from torch.nn.functional import cross_entropy

        return cross_entropy(logits, truth, label_smoothing=smoothing)

    def score(self, logits: Tensor, truth: Tensor) -> float:
        """Compute the accuracy."""
        return float((logits.argmax(-1) == truth).double().mean())

    def decode(self, logits: Tensor) -> NDArray[np.floating]:
        """Compute class probabilities, (scans, classes) float64."""
        return logits.double().softmax(-1).cpu().numpy()

    def columns(self, values: NDArray[np.floating]) -> dict[str, Any]:
        """Return the columns of ``predictions.tsv`` from the output of `decode`."""
        named = {f"p_{name}": values[:, i] for i, name in enumerate(self.names)}
        return {"predicted": [self.names[i] for i in values.argmax(1)], **named}


@dataclass(frozen=True)
class Number:
    """A number, standardised over the training scans; a model has one output."""

    mean: float
    sd: float
    metric: ClassVar[str] = "r2"

    @classmethod
    def fit(cls, scans: pd.DataFrame) -> Number:
        """Estimate mean and standard deviation (ddof 0) from the labels of training scans."""
        values = numbers(scans)
        if len(values) == 0 or np.ptp(values) == 0:
            raise DataError("the training scans have fewer than two different labels", hint="Check the label column")
        return cls(float(values.mean()), float(values.std()))

    def encode(self, scans: pd.DataFrame) -> NDArray[Any]:
        """Encode labels in standard deviations from the training mean, (scans,) float32."""
        return ((numbers(scans) - self.mean) / self.sd).astype(np.float32)

    def loss(self, logits: Tensor, truth: Tensor, smoothing: float = 0.0) -> Tensor:
        """Compute the mean squared error, in standard deviations; numbers are not smoothed."""
        from torch.nn.functional import mse_loss

        return mse_loss(logits[:, 0], truth)

    def score(self, logits: Tensor, truth: Tensor) -> float:
        """Compute the explained share of the variance, R²; NaN if all labels are equal."""
        errors, spread = (logits[:, 0] - truth).double(), (truth - truth.mean()).double()
        total = float(spread.square().sum())
        return 1 - float(errors.square().sum()) / total if total else float("nan")

    def decode(self, logits: Tensor) -> NDArray[np.floating]:
        """Convert to the unit of the label, (scans,) float64."""
        return logits[:, 0].double().cpu().numpy() * self.sd + self.mean

    def columns(self, values: NDArray[np.floating]) -> dict[str, Any]:
        """Return the columns of ``predictions.tsv`` from the output of `decode`."""
        return {"predicted": values}


Target = Classes | Number


def numbers(scans: pd.DataFrame) -> NDArray[np.floating]:
    """Read labels as numbers, (scans,) float64.

    Raises
    ------
    DataError
        A label is missing or not a number; names the scan.
    """
    values = pd.to_numeric(scans["label"], errors="coerce").to_numpy(float)
    invalid = ~np.isfinite(values)
    if invalid.any():
        scan, label = scans[invalid].iloc[0][["scan_id", "label"]]
        hint = "Correct the label, exclude the scan, or name 'classes' in the dataset's file"
        raise DataError(f"scan '{scan}' has label '{label}', which is not a number", hint=hint)
    return values


def fit_target(classes: Sequence[str] | None, scans: pd.DataFrame, fold: int, where: Path) -> Target:
    """Define the target of one fold from its training scans.

    Parameters
    ----------
    classes : sequence of str or None
        None if the label is a number.
    scans : DataFrame
        With columns scan_id, label, role.
    fold : int
    where : Path
        The table of folds, for error messages.

    Raises
    ------
    DataError
        A class without a training scan; a label that is not one of the classes, or not a number.
    """
    train = scans[scans["role"] == "train"]
    if classes is None:
        return Number.fit(train)
    target = Classes(list(classes))
    target.encode(scans)
    for name in classes:
        if not (train["label"] == name).any():
            raise DataError(
                f"fold {fold} has no training scan of class '{name}'", where=where, hint="Use fewer folds or more scans"
            )
    return target


def stored_target(info: dict[str, Any]) -> Target:
    """Return the target of a trained model from its ``checkpoint.json``."""
    return Number(**info["label"]) if info["classes"] is None else Classes(info["classes"])
