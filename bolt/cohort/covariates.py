"""Covariates (age, sex, site, …) as additional model inputs.

The encoder is fitted to the training scans of a fold alone, and saved in ``checkpoint.json``.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import is_numeric_dtype

from bolt.io.errors import DataError

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Covariates:
    """Encoder of columns of the scan table.

    Attributes
    ----------
    columns : list of dict
        JSON-compatible, one per column: ``{column, mean, sd}`` for numbers, ``{column, levels}`` for text.
    """

    columns: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def fit(cls, training: pd.DataFrame, names: Sequence[str]) -> Covariates:
        """Learn means, standard deviations (ddof 0) and levels.

        Parameters
        ----------
        training : DataFrame
            Rows of the training scans in a cache's index.
        names : sequence of str
            Columns to encode, in the order of the inputs.

        Raises
        ------
        DataError
            A column has no value.
        """
        columns: list[dict[str, Any]] = []
        for name in names:
            values = training[name].replace([np.inf, -np.inf], np.nan).dropna()
            if values.empty:
                hint = "Remove it from the model's configuration, or fill in the column"
                raise DataError(f"covariate '{name}' is missing for all training scans", where="covariates", hint=hint)
            if is_numeric_dtype(values):
                sd = float(values.std(ddof=0)) if values.nunique() > 1 else 0.0  # of equal fractions it is rarely 0
                columns.append({"column": name, "mean": float(values.mean()), "sd": sd})
            else:
                columns.append({"column": name, "levels": sorted(values.astype(str).unique())})
        return cls(columns)

    def __len__(self) -> int:
        """Return the number of model inputs."""
        return sum(len(column.get("levels", [None])) for column in self.columns)

    def encode(self, scans: pd.DataFrame) -> NDArray[np.float32]:
        """Encode covariates as model inputs.

        Numbers are z-scored; missing ones, and all of a column that is constant in training, become 0, the training
        mean. Text is one-hot encoded; values that are missing or absent from training become all zeros. Both are
        counted in the log.

        Parameters
        ----------
        scans : DataFrame
            Rows of a cache's index.

        Returns
        -------
        (scans, n) float32 array
        """
        blocks = [np.empty((len(scans), 0))]
        for column in self.columns:
            name = column["column"]
            if name not in scans:
                what = f"the scans have no column '{name}', with which the model was trained"
                raise DataError(what, hint="Add it to the table of scans and index again")
            values = scans[name]
            if "levels" in column:
                text = values.astype(str).where(values.notna())
                block = np.stack([text == level for level in column["levels"]], axis=1)
                lost, problem = ~block.any(axis=1), "missing or absent from the training scans; set to all zeros"
            else:
                numbers = pd.to_numeric(values, errors="coerce").to_numpy(float)
                numbers[np.isinf(numbers)] = np.nan
                block = ((numbers - column["mean"]) * (1 / column["sd"] if column["sd"] else 0))[:, None]
                lost, problem = np.isnan(block[:, 0]), "missing; replaced by the training mean"
                block[lost] = 0
            if lost.any():
                log.warning("covariate '%s' of %d of %d scans: %s", name, lost.sum(), len(scans), problem)
            blocks.append(block)
        return np.concatenate(blocks, axis=1).astype(np.float32)
