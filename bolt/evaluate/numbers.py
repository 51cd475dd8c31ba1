"""Metrics of predicted numbers: correlation, mean absolute error and explained variance."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bolt.io.errors import DataError
from bolt.io.files import columns

NUMBER_METRICS = ("r", "mae", "r2")
NUMBER_COLUMNS = columns("evaluate", "numbers")


def number_scores(
    truth: NDArray[np.floating], predicted: NDArray[np.floating], weight: NDArray[np.floating] | None = None
) -> dict[str, NDArray[np.floating]]:
    """Compute the metrics of predictions, under one or more weightings of the rows.

    Parameters
    ----------
    truth, predicted : float array (n,)
    weight : float array (draws, n), optional
        By default all 1.

    Returns
    -------
    dict
        For each of `NUMBER_METRICS` an array (draws,); r and r2 are NaN if all labels are equal, r also if all
        predictions are.
    """
    weight = np.ones((1, len(truth))) if weight is None else weight
    total = weight.sum(axis=1)

    def centred(values: NDArray[np.floating]) -> NDArray[np.floating]:
        return values - (weight @ values / total)[:, None]

    x, y = centred(truth), centred(predicted)
    spread_x, spread_y = (weight * x**2).sum(axis=1), (weight * y**2).sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        r = (weight * x * y).sum(axis=1) / np.sqrt(spread_x * spread_y)
        r2 = 1 - weight @ (truth - predicted) ** 2 / spread_x
    values = {"r": r, "mae": weight @ np.abs(truth - predicted) / total, "r2": r2}
    return {name: np.where(np.isfinite(value), value, np.nan) for name, value in values.items()}


def number_arrays(predictions: pd.DataFrame) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
    """Return labels and predictions as numbers, (n,) each.

    Raises
    ------
    DataError
        One is missing or not a number.
    """
    arrays = []
    for column in ("label", "predicted"):
        values = pd.to_numeric(predictions[column], errors="coerce").to_numpy(float)
        if not np.isfinite(values).all():
            row = predictions[~np.isfinite(values)].iloc[0]
            raise DataError(
                f"{column} '{row[column]}' is not a number",
                where=f"predictions, scan {row['scan_id']}",
                hint="Train again after changing 'classes' in the dataset's configuration",
            )
        arrays.append(values)
    return arrays[0], arrays[1]


def number_summary(truth: NDArray[np.floating], predicted: NDArray[np.floating]) -> dict[str, Any]:
    """Return the entries of ``summary.json`` besides the metrics: the error of predicting the mean, and all pairs."""
    return {
        "mean_guess_mae": float(np.abs(truth - truth.mean()).mean()),
        "n_scans": len(truth),
        "truth": truth,
        "predicted": predicted,
    }
