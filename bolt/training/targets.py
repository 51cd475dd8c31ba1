"""Prediction targets: classes or a number, and everything in training that depends on which it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bolt.io.errors import DataError

if TYPE_CHECKING:  # models without epochs do not need torch
    from torch import Tensor


@dataclass(frozen=True)
class Classes:
    """One of several classes; a model has one logit per class."""

    names: list[str]
    metric: ClassVar[str] = "accuracy"

    @property
    def n_outputs(self) -> int:
        """Return the number of logits."""
        return len(self.names)

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
    n_outputs: ClassVar[int] = 1

    @classmethod
    def fit(cls, scans: pd.DataFrame) -> Number:
        """Estimate mean and standard deviation (ddof 0) from the labels of training scans."""
        values = numbers(scans)
        if len(values) == 0 or values.std() == 0:
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
        raise DataError(
            f"scan '{scan}' has label '{label}', which is not a number",
            hint="Correct the label, exclude the scan, or name 'classes' in the dataset's file",
        )
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
