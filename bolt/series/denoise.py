"""Denoising of ROI means: selection of confounds, nuisance regression, detrending and filtering."""

from __future__ import annotations

import fnmatch
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from bolt.config import AROMA, Denoise, load_denoise
from bolt.io.errors import ConfigError, DataError
from bolt.io.files import read_table

UNSTEADY = "non_steady_state_outlier"
"""Prefix of columns that flag non-steady-state volumes; these volumes are dropped, their flags never regressed."""

DERIVATIVE = "_derivative1"
"""Part of the names of columns that are differences from the previous volume."""


MIN_FREE = 3
"""Fewest degrees of freedom that regression must leave: of fewer, correlations of noise are mostly near 1 and -1."""


@dataclass(frozen=True)
class ChosenConfounds:
    """Confounds and volumes that a strategy selects for a scan of T volumes.

    Attributes
    ----------
    regressors : (T, C) float64 array, or None if nothing is regressed
    kept : (K,) integer array, or None if all volumes are kept
        Steady-state volumes that are not scrubbed, counted from 0.
    """

    regressors: np.ndarray | None = None
    kept: np.ndarray | None = None


def strategy(name: str | None, has_confounds: bool) -> Denoise:
    """Return the named strategy; without a name all columns of the table, as nilearn's maskers do.

    Parameters
    ----------
    name : str or None
        In `config/denoise`, or the path of such a file.
    has_confounds : bool
        Whether a table of confounds is given.

    Raises
    ------
    ConfigError
        The strategy reads no confounds, but a table is given.
    """
    if name is None:
        return Denoise(name="all columns", confounds=["*"]) if has_confounds else load_denoise("none")
    denoise = load_denoise(name)
    if has_confounds and not denoise.confounds and denoise.strategy is None:
        what = f"denoising '{name}' reads no confounds, but a table of confounds is given"
        raise ConfigError(what, hint="Name no strategy to regress out all its columns, or name another")
    return denoise


def choose_confounds(
    confounds: pd.DataFrame | str | Path | None, denoise: Denoise, n_volumes: int, image: str | Path
) -> ChosenConfounds:
    """Select the columns and volumes that a strategy asks for.

    Parameters
    ----------
    confounds : DataFrame, path or None
        (T, any) confounds of the scan. A `denoise.strategy` needs the path of fMRIPrep's table.
    denoise : Denoise
    n_volumes : int
        T, the number of rows that the table must have.
    image : path
        Named in errors.

    Returns
    -------
    ChosenConfounds
        Values missing up to the first steady-state row (derivatives have none there) are taken from the next row. So
        are derivatives in that row, because they refer to a volume before the steady state.

    Raises
    ------
    DataError
        The number of rows is wrong, a column that the strategy needs is missing, or a value is missing elsewhere.
    """
    if confounds is None and not denoise.confounds and denoise.strategy is None:
        return ChosenConfounds()
    if confounds is None:
        what = f"denoising '{denoise.name}' needs confounds, but the scan has none"
        raise DataError(what, where=image, hint="Provide a confounds table, or choose denoising 'none'")
    if denoise.strategy is not None:
        table, kept = _by_strategy(confounds, denoise)
    else:
        full = confounds if isinstance(confounds, pd.DataFrame) else read_table(confounds)
        columns: list[str] = []
        for pattern in denoise.confounds:
            matching = [c for c in full.columns if fnmatch.fnmatchcase(c, pattern) and c not in columns]
            if not matching:
                what = f"no confounds column matches '{pattern}' of denoising '{denoise.name}'"
                raise DataError(what, where=image, hint="Choose a strategy for which the table has columns")
            columns += matching
        table = full[[column for column in columns if not column.startswith(UNSTEADY)]]
        flags = full[[column for column in full if str(column).startswith(UNSTEADY)]]
        kept = np.flatnonzero((flags == 0).all(axis=1)) if flags.shape[1] else None
    if len(table) != n_volumes:
        what = f"{len(table)} rows of confounds for {n_volumes} volumes"
        raise DataError(what, where=image, hint="Provide the table of this scan")
    if kept is not None and len(kept) < 2:
        what = f"denoising '{denoise.name}' leaves {len(kept)} of {n_volumes} volumes"
        raise DataError(what, where=image, hint="Choose more lenient thresholds, or exclude the scan")
    words = [str(name) for name in table if not pd.api.types.is_numeric_dtype(table[name])]
    if words:
        what = f"confounds that are not numbers: {', '.join(words[:5])}"
        raise DataError(what, where=image, hint="Provide a tab-separated table of numbers")
    values = table.to_numpy(float, copy=True)
    first = 0 if kept is None else int(kept[0])
    if len(values) > first + 1:
        values[: first + 1] = np.where(np.isnan(values[: first + 1]), values[first + 1], values[: first + 1])
    if kept is not None and first > 0:  # the difference from a brighter volume would be a spike
        derivatives = [DERIVATIVE in str(column) for column in table.columns]
        values[first, derivatives] = values[kept[1], derivatives]
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        what = f"confound '{table.columns[bad[0][1]]}' is missing in row {bad[0][0]}"
        raise DataError(what, where=image, hint="Fix the table")
    return ChosenConfounds(values if values.shape[1] else None, kept)


def _by_strategy(path: pd.DataFrame | str | Path, denoise: Denoise) -> tuple[pd.DataFrame, np.ndarray | None]:
    """Select confounds (T, C) and volumes by one of nilearn's strategies."""
    if isinstance(path, pd.DataFrame):
        raise TypeError("a strategy reads fMRIPrep's table and its JSON sidecar: pass the path of the table")
    table = Path(path).absolute()  # of a link, as DataLad makes them, the sidecar is beside the link
    if not table.is_file():
        raise DataError("file not found", where=path, hint="Correct the path of the confounds table")
    from nilearn.interfaces.fmriprep import load_confounds_strategy  # a second that other strategies need not wait

    with tempfile.TemporaryDirectory() as folder:
        # nilearn finds the table by the image's name: link it under a matching one
        os.symlink(table, Path(folder) / "sub-1_desc-confounds_timeseries.tsv")
        if table.with_suffix(".json").is_file():
            os.symlink(table.with_suffix(".json"), Path(folder) / "sub-1_desc-confounds_timeseries.json")
        kind = AROMA if denoise.strategy == "ica_aroma" else "preproc"
        try:
            return load_confounds_strategy(
                str(Path(folder) / f"sub-1_desc-{kind}_bold.nii.gz"), denoise.strategy, **denoise.parameters
            )
        except (ValueError, KeyError, IndexError, TypeError, OSError) as error:
            reason = " ".join(str(error).split()).replace(f"{folder}/sub-1_desc-confounds_timeseries", table.stem)
            what = f"nilearn's strategy '{denoise.strategy}' does not fit this table ({reason})"
            hint = "Choose another strategy or other parameters, or let fMRIPrep write these confounds"
            raise DataError(what, where=path, hint=hint) from None


def clean(series: np.ndarray, chosen: ChosenConfounds, denoise: Denoise, tr: float, image: str | Path) -> np.ndarray:
    """Regress, detrend and filter ROI means, and drop volumes, in nilearn's order.

    Filters bridge dropped volumes by interpolation; regression and detrending are fitted to the kept ones.

    Parameters
    ----------
    series : (T, R) array
    chosen : ChosenConfounds
    denoise : Denoise
    tr : float, seconds
    image : path
        Named in errors.

    Returns
    -------
    (K, R) array
        The kept volumes, in the units of `series`; without detrending, the mean over time is preserved.
    """
    filtered = denoise.high_pass is not None or denoise.low_pass is not None
    if chosen.regressors is None and not denoise.detrend and not filtered:
        return series if chosen.kept is None else series[chosen.kept]
    n_kept = len(series) if chosen.kept is None else len(chosen.kept)
    n_regressors = 0 if chosen.regressors is None else chosen.regressors.shape[1]
    share = 1.0  # of the frequencies
    if filtered:
        share = min(1, 2 * tr * (denoise.low_pass or np.inf)) - 2 * tr * (denoise.high_pass or 0)
    fitted = 0 if denoise.high_pass else 1 + denoise.detrend  # mean and trend; a high-pass filter removes both anyway
    free = n_kept * share - n_regressors - fitted
    if n_regressors and free < MIN_FREE:
        what = f"denoising '{denoise.name}' would regress {n_regressors} confounds on {n_kept} volumes"
        what += f", which leaves {max(0, int(free))} degrees of freedom, fewer than {MIN_FREE}"
        raise DataError(what, where=image, hint="Choose a strategy with fewer confounds, or exclude the scan")
    from nilearn import signal  # half a second, which series that stay as they are need not wait for
    from scipy.interpolate import CubicSpline

    regressors, kept = chosen.regressors, chosen.kept
    try:
        if filtered and kept is not None:  # nilearn 0.13 takes ~ of indices, and so interpolates others
            rows = np.arange(kept[0], kept[-1] + 1)
            series = CubicSpline(kept, series[kept])(rows)
            regressors = None if regressors is None else CubicSpline(kept, regressors[kept])(rows)
            kept = kept - kept[0]
        return signal.clean(
            series,
            confounds=regressors,
            sample_mask=kept,
            detrend=denoise.detrend,
            standardize=None,  # explicit because the default changes between releases; the cache z-scores
            standardize_confounds=True,
            filter="butterworth" if filtered else False,
            high_pass=denoise.high_pass,
            low_pass=denoise.low_pass,
            t_r=tr,
            ensure_finite=False,
        )
    except ValueError as error:
        what = f"denoising '{denoise.name}' cannot be applied to {n_kept} volumes ({error})"
        raise DataError(what, where=image, hint="Choose another strategy, or exclude the scan") from None
