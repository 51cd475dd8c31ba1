"""What a model predicts: one of several classes, or a number. All that differs between the two in training is here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy, mse_loss

from bolt.io.errors import DataError


@dataclass(frozen=True)
class Classes:
    """One of several classes; a model has a logit for each."""

    names: list[str]
    metric: ClassVar[str] = "accuracy"

    @property
    def n_outputs(self) -> int:
        return len(self.names)

    def encode(self, scans: pd.DataFrame) -> NDArray[Any]:
        """(scans,) int64 numbers of the classes."""
        numbers = scans["label"].map({name: number for number, name in enumerate(self.names)})
        if numbers.isna().any():
            scan, label = scans[numbers.isna()].iloc[0][["scan_id", "label"]]
            raise DataError(f"scan '{scan}' has label '{label}', not one of {self.names}", hint="Correct 'classes'")
        return numbers.to_numpy(np.int64)

    def loss(self, logits: Tensor, truth: Tensor) -> Tensor:
        return cross_entropy(logits, truth)

    def score(self, logits: Tensor, truth: Tensor) -> float:
        """Share of scans classified rightly."""
        return float((logits.argmax(-1) == truth).double().mean())

    def decode(self, logits: Tensor) -> NDArray[np.floating]:
        """Probabilities, (scans, classes) float64."""
        return logits.double().softmax(-1).cpu().numpy()

    def columns(self, values: NDArray[np.floating]) -> dict[str, Any]:
        """Columns of ``predictions.tsv``, from what `decode` returned."""
        named = {f"p_{name}": values[:, i] for i, name in enumerate(self.names)}
        return {"predicted": [self.names[i] for i in values.argmax(1)], **named}


@dataclass(frozen=True)
class Number:
    """A number, standardised by the training scans; a model has one output."""

    mean: float
    sd: float
    metric: ClassVar[str] = "r2"
    n_outputs: ClassVar[int] = 1

    @classmethod
    def fit(cls, scans: pd.DataFrame) -> Number:
        """Mean and standard deviation (ddof 0) of the labels of training scans."""
        values = numbers(scans)
        if len(values) == 0 or values.std() == 0:
            raise DataError("the training scans have no two different labels", hint="Check the label column")
        return cls(float(values.mean()), float(values.std()))

    def encode(self, scans: pd.DataFrame) -> NDArray[Any]:
        """(scans,) float32, in standard deviations from the training mean."""
        return ((numbers(scans) - self.mean) / self.sd).astype(np.float32)

    def loss(self, logits: Tensor, truth: Tensor) -> Tensor:
        return mse_loss(logits[:, 0], truth)

    def score(self, logits: Tensor, truth: Tensor) -> float:
        """Explained share of the variance, r²; NaN where the labels are all alike."""
        errors, spread = (logits[:, 0] - truth).double(), (truth - truth.mean()).double()
        total = float(spread.square().sum())
        return 1 - float(errors.square().sum()) / total if total else float("nan")

    def decode(self, logits: Tensor) -> NDArray[np.floating]:
        """In the label's own unit, (scans,) float64."""
        return logits[:, 0].double().cpu().numpy() * self.sd + self.mean

    def columns(self, values: NDArray[np.floating]) -> dict[str, Any]:
        """Columns of ``predictions.tsv``, from what `decode` returned."""
        return {"predicted": values}


Target = Classes | Number


def numbers(scans: pd.DataFrame) -> NDArray[np.floating]:
    """Labels as numbers, (scans,) float64.

    Raises
    ------
    DataError
        A label that is missing or no number, with its scan.
    """
    values = pd.to_numeric(scans["label"], errors="coerce").to_numpy(float)
    wrong = ~np.isfinite(values)
    if wrong.any():
        scan, label = scans[wrong].iloc[0][["scan_id", "label"]]
        raise DataError(
            f"scan '{scan}' has the label '{label}', which is no number",
            hint="Mend or exclude the scan, or name the 'classes' in the dataset's file",
        )
    return values


def fit_target(classes: Sequence[str] | None, scans: pd.DataFrame, fold: int, where: Path) -> Target:
    """What is to be predicted in one fold, as its training scans define it.

    Parameters
    ----------
    classes : sequence of str or None
        None: the label is a number.
    scans : DataFrame
        scan_id, label, role.
    fold : int
    where : Path
        The table of folds, for error messages.

    Raises
    ------
    DataError
        A class without a training scan; labels that are no class, or no number.
    """
    training = scans[scans["role"] == "train"]
    if classes is None:
        return Number.fit(training)
    target = Classes(list(classes))
    target.encode(scans)
    for name in classes:
        if not (training["label"] == name).any():
            raise DataError(
                f"fold {fold} has no training scan of class '{name}'", where=where, hint="Use fewer folds or more scans"
            )
    return target


def stored_target(info: dict[str, Any]) -> Target:
    """What a trained model predicts, from its ``checkpoint.json``."""
    return Number(**info["label"]) if info["classes"] is None else Classes(info["classes"])
