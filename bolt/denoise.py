"""Denoising of ROI means: choice of confounds, nuisance regression, detrending and filtering."""

from __future__ import annotations

import fnmatch
from pathlib import Path

import numpy as np
import pandas as pd
from nilearn import signal

from bolt.config import Denoise
from bolt.errors import DataError


def choose_confounds(
    table: pd.DataFrame | None, denoise: Denoise, n_volumes: int, image: str | Path
) -> np.ndarray | None:
    """Take the columns a strategy asks for.

    Parameters
    ----------
    table : DataFrame or None
        (T, any) confounds of the scan.
    denoise : Denoise
    n_volumes : int
        T, the rows the table must have.
    image : path
        Named in errors.

    Returns
    -------
    (T, C) float64 array, or None where the strategy uses no confounds
        A value missing in the first row (derivatives have none there) is taken from the second.

    Raises
    ------
    DataError
        No or another number of rows, a pattern that fits no column, or a missing value elsewhere.
    """
    if not denoise.confounds:
        return None
    if table is None:
        raise DataError(
            f"denoising '{denoise.name}' needs confounds, but the scan has none",
            where=image,
            mend="Give a confounds table, or choose denoising 'none'",
        )
    if len(table) != n_volumes:
        raise DataError(
            f"{len(table)} rows of confounds for {n_volumes} volumes", where=image, mend="Give the table of this scan"
        )
    columns: list[str] = []
    for pattern in denoise.confounds:
        found = [c for c in table.columns if fnmatch.fnmatchcase(c, pattern) and c not in columns]
        if not found:
            raise DataError(
                f"no confounds column fits '{pattern}' of denoising '{denoise.name}'",
                where=image,
                mend="Choose a strategy the table has columns for",
            )
        columns += found
    values = table[columns].to_numpy(float, copy=True)
    values[0] = np.where(np.isnan(values[0]), values[1], values[0])
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        raise DataError(
            f"confound '{columns[bad[0][1]]}' is missing in row {bad[0][0]}", where=image, mend="Mend the table"
        )
    return values


def clean(
    series: np.ndarray, regressors: np.ndarray | None, denoise: Denoise, tr: float, image: str | Path
) -> np.ndarray:
    """Regress, detrend and filter ROI means; the order within is nilearn's.

    Parameters
    ----------
    series : (T, R) array
    regressors : (T, C) array or None
    denoise : Denoise
    tr : float, seconds
    image : path
        Named in errors.

    Returns
    -------
    (T, R) array
        In the units of `series`; without detrending the mean over time stays.
    """
    filtered = denoise.high_pass is not None or denoise.low_pass is not None
    if regressors is None and not denoise.detrend and not filtered:
        return series
    try:
        return signal.clean(
            series,
            confounds=regressors,
            detrend=denoise.detrend,
            standardize=None,  # the default has moved between releases; z-scoring is the cache's
            standardize_confounds=True,
            filter="butterworth" if filtered else False,
            high_pass=denoise.high_pass,
            low_pass=denoise.low_pass,
            t_r=tr,
            ensure_finite=False,
        )
    except ValueError as error:
        raise DataError(
            f"denoising '{denoise.name}' cannot be applied to {len(series)} volumes ({error})",
            where=image,
            mend="Choose another strategy, or exclude the scan",
        ) from None
