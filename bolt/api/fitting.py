"""Training on series in memory, by the same code as the workflow's: one seed, one fold, the same weights."""

from __future__ import annotations

import fcntl
import hashlib
import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bolt.api.scans import roi_table
from bolt.api.settings import OfEstimator
from bolt.config import Dataset, Model
from bolt.folds.splits import FOLD_COLUMNS, hold_out, quarters
from bolt.io.errors import DataError
from bolt.io.files import read_json, write_table
from bolt.jobs.code_hash import fingerprint as code_fingerprint
from bolt.models.suitability import check_covariates
from bolt.series.cache import seal, with_offsets, write_array
from bolt.training.ensembles import Member, load_member
from bolt.training.modules import training_modules
from bolt.training.outputs import Training
from bolt.training.trainers import train_folds

FOLD = 0


@dataclass(frozen=True)
class Fitting:
    """How a model is trained.

    Attributes
    ----------
    model : Model
    classes : list of str or None
        None: the label is a number.
    own : OfEstimator
    """

    model: Model
    classes: list[str] | None
    own: OfEstimator

    def train(self, series: list[NDArray[np.float32]], scans: pd.DataFrame) -> tuple[Member, pd.DataFrame]:
        """Train a model.

        Parameters
        ----------
        series : list of (T, R) arrays
            z-scored.
        scans : DataFrame
            From `bolt.api.scans.scan_table`, with label and group, and ``role`` (train or validation).

        Returns
        -------
        member : Member
        history : DataFrame
            One row per epoch; empty for a model that is fitted at once.
        """
        columns = {"label": "label", "site": "site", "age": "age", "sex": "sex"}
        place = {"name": "scans", "source": "series", "path": Path("scans.tsv")}
        dataset = Dataset(**place, **columns, classes=self.classes, crop=self.own.crop)  # type: ignore[arg-type]
        check_covariates(self.model, dataset, list(scans))
        with ExitStack() as stack:
            base = Path(stack.enter_context(TemporaryDirectory(prefix="bolt-"))) if self.own.folder is None else None
            folder = base or Path(str(self.own.folder)) / self._fingerprint(series, scans)
            out = folder / f"fold-{FOLD}"
            stack.enter_context(_alone(folder))
            if not _finished(out):
                self._run(folder, series, scans, dataset)
            return _result(out)

    def _run(self, folder: Path, series: list[NDArray[np.float32]], scans: pd.DataFrame, dataset: Dataset) -> None:
        """Write a cache and a table of folds, and train on them."""
        cache, folds, out = folder / "cache", folder / "folds.tsv", folder / f"fold-{FOLD}"
        cache.mkdir(parents=True, exist_ok=True)
        index = with_offsets(scans.drop(columns="role"), map(len, series))
        index = index.assign(n_volumes=index["length"])
        write_array(cache, series, int(index["length"].sum()), series[0].shape[1])
        seal(cache, index, roi_table(series[0].shape[1]))
        write_table(scans.assign(fold=FOLD)[list(FOLD_COLUMNS)], folds, FOLD_COLUMNS)
        common: dict[str, Any] = {"device": self.own.device, "threads": self.own.threads, "needs_test": False}
        common["progress"] = self.own.progress and sys.stderr.isatty()
        trainings = [Training(FOLD, self.own.seed, out)]
        error = train_folds(cache, folds, self.model, dataset, trainings, **common)[0]
        if error is not None:
            raise error

    def _fingerprint(self, series: list[NDArray[np.float32]], scans: pd.DataFrame) -> str:
        """Name everything that the trained weights depend on."""
        code = code_fingerprint(*training_modules(self.model))
        settings = [self.model.hash(), code, self.classes, self.own.crop, self.own.seed, scans.to_csv(index=False)]
        digest = hashlib.sha256(json.dumps(settings).encode())
        for values in series:
            digest.update(f"{values.shape}".encode() + np.ascontiguousarray(values).tobytes())
        return digest.hexdigest()[:12]


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Wait until no other process trains in a folder: parallel searches may fit the same data twice."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as file:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _finished(folder: Path) -> bool:
    """Return whether a training in a folder is complete."""
    status = folder / "status.json"
    return status.is_file() and read_json(status)["state"] == "ok"


def _result(folder: Path) -> tuple[Member, pd.DataFrame]:
    """Read a finished training."""
    history = folder / "history.tsv"
    return load_member(folder), pd.read_csv(history, sep="\t") if history.is_file() else pd.DataFrame()


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
