"""A fold's scans with their roles, and the files of a trained fold that do not depend on the kind of model.

Like `bolt.training.targets`, it does not import torch: models without epochs do not need it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from safetensors import SafetensorError

from bolt.cohort.exclusions import EXCLUSION_COLUMNS
from bolt.config import Dataset
from bolt.io.errors import BoltError, ConfigError, DataError
from bolt.io.files import columns, read_table, write_status, write_table, write_yaml
from bolt.series.cache import SeriesCache

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
    errors: list[BoltError | None] = []
    for training in trainings:
        try:
            train(training)
            errors.append(None)
        except ConfigError:
            raise
        except BoltError as error:
            errors.append(error)
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
def checked_weights(folder: Path) -> Iterator[Path]:
    """Yield the weights of a fold; turn errors from reading them within the block into a `DataError`."""
    weights = folder / "checkpoint.safetensors"
    try:
        yield weights
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
    groups = train["group"].fillna(train["subject"]).astype(str)
    labels = train.groupby(groups)["label"].first()  # sorted by group
    kept: set[str] = set()
    for _, stratum in labels.groupby(labels.astype(str) if not numbers else np.zeros(len(labels))):
        shuffled = np.random.default_rng(seed).permutation(stratum.index.to_numpy())
        kept |= set(shuffled[: max(1, round(share * len(shuffled)))])
    return table[(table["role"] != "train") | table.index.isin(groups.index[groups.isin(kept)])]
