"""What is known of a scan beside its series (age, sex, site, …), as further inputs of a model.

Fitted on the training scans of a fold alone; what was fitted lies in ``checkpoint.json``.
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
    """An encoder of some columns of the scan table.

    Attributes
    ----------
    columns : list of dict
        Fit for JSON, one a column: ``{column, mean, sd}`` of a number, ``{column, levels}`` of a text.
    """

    columns: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def fit(cls, training: pd.DataFrame, names: Sequence[str]) -> Covariates:
        """Learn means, standard deviations (ddof 0) and levels.

        Parameters
        ----------
        training : DataFrame
            The training scans' rows of a cache's index.
        names : sequence of str
            Its columns to encode, in the order of the inputs.

        Raises
        ------
        DataError
            A column without any value.
        """
        columns: list[dict[str, Any]] = []
        for name in names:
            values = training[name].replace([np.inf, -np.inf], np.nan).dropna()
            if values.empty:
                raise DataError(
                    f"covariate '{name}' is known of no training scan",
                    where="covariates",
                    hint="Leave it out of the model's configuration, or fill in the column",
                )
            if is_numeric_dtype(values):
                columns.append({"column": name, "mean": float(values.mean()), "sd": float(values.std(ddof=0))})
            else:
                columns.append({"column": name, "levels": sorted(values.astype(str).unique())})
        return cls(columns)

    def __len__(self) -> int:
        """Number of inputs."""
        return sum(len(column.get("levels", [None])) for column in self.columns)

    def encode(self, scans: pd.DataFrame) -> NDArray[np.float32]:
        """Inputs for a model.

        Numbers are z-scored; a missing one, and any of a column that is constant in training, is 0, the training mean.
        A text is one-hot; one that is missing, or that no training scan has, is zeros. Both are counted in the log.

        Parameters
        ----------
        scans : DataFrame
            Rows of a cache's index.

        Returns
        -------
        ndarray
            (scans, n) float32.
        """
        blocks = [np.empty((len(scans), 0))]
        for column in self.columns:
            if column["column"] not in scans:
                raise DataError(
                    f"the scans have no column '{column['column']}', which the model was trained with",
                    hint="Add it to the table of scans and index again",
                )
            values = scans[column["column"]]
            if "levels" in column:
                text = values.astype(str).where(values.notna())
                block = np.stack([text == level for level in column["levels"]], axis=1)
                lost, taken = ~block.any(axis=1), "missing or of a level that no training scan has; all zeros"
            else:
                numbers = pd.to_numeric(values, errors="coerce").to_numpy(float)
                numbers[np.isinf(numbers)] = np.nan
                block = ((numbers - column["mean"]) * (1 / column["sd"] if column["sd"] else 0))[:, None]
                lost, taken = np.isnan(block[:, 0]), "missing; the training mean in its place"
                block[lost] = 0
            if lost.any():
                log.warning("covariate '%s' of %d of %d scans: %s", column["column"], lost.sum(), len(scans), taken)
            blocks.append(block)
        return np.concatenate(blocks, axis=1).astype(np.float32)
