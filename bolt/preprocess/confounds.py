"""Confound time series in fMRIPrep's names.

Framewise displacement and DVARS follow Power et al. (2012, doi:10.1016/j.neuroimage.2011.10.018), standardised
DVARS follows Nichols (2013, "Notes on creating a standardized version of DVARS").
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from bolt.files import read_table, write_table
from bolt.preprocess.images import rigid_matrix, rigid_parameters

HEAD_RADIUS = 50.0
"""Power's sphere, mm: a radian of rotation moves its surface so far."""
SAMPLE = 20_000
"""So many voxels stand for the brain where a statistic needs every value over time."""
MOTION = ("trans_x", "trans_y", "trans_z", "rot_x", "rot_y", "rot_z")
CENTRE = ("centre_x", "centre_y", "centre_z")
DESCRIPTIONS = {
    **{f"trans_{axis}": f"Head translation along {axis} (RAS) from the reference, mm" for axis in "xyz"},
    **{f"rot_{axis}": f"Head rotation about {axis} (RAS) from the reference, radians" for axis in "xyz"},
    **{f"centre_{axis}": f"Point about which the head rotates, {axis} (RAS), mm" for axis in "xyz"},
    **{
        f"{name}_{axis}{ending}": f"{what} of {name}_{axis}"
        for name in ("trans", "rot")
        for axis in "xyz"
        for ending, what in (
            ("_derivative1", "Change since the volume before"),
            ("_power2", "Square"),
            ("_derivative1_power2", "Square of the change since the volume before"),
        )
    },
    "framewise_displacement": "Power's framewise displacement, mm; 50 mm radius",
    "dvars": "Root mean square over the brain of the difference to the volume before; median brightness is 1000",
    "std_dvars": "DVARS over its expected value (robust SD and lag-1 autocorrelation of the voxels)",
    "global_signal": "Mean over the brain mask",
}


def framewise_displacement(motion: np.ndarray) -> np.ndarray:
    """Sum of the absolute changes of position since the volume before.

    Parameters
    ----------
    motion : (T, 6) array
        Translations (mm) and rotations (radians).

    Returns
    -------
    (T,) array, mm
        The first is NaN.
    """
    change = np.abs(np.diff(motion, axis=0))
    change[:, 3:] *= HEAD_RADIUS
    return np.concatenate([[np.nan], change.sum(axis=1)])


class BrainStatistics:
    """Global signal, DVARS and temporal signal-to-noise of a scan, fed one volume at a time.

    Memory: a few maps, and the time series of at most `SAMPLE` voxels, evenly spread, whose median
    brightness, robust SD and autocorrelation stand for the brain.

    Parameters
    ----------
    n_voxels : int
        Voxels in the brain mask.
    """

    def __init__(self, n_voxels: int) -> None:
        self._every = slice(None, None, max(1, -(-n_voxels // SAMPLE)))
        self._sample: list[np.ndarray] = []
        self._global: list[float] = []
        self._change: list[float] = []
        self._mean = np.zeros(n_voxels)
        self._square = np.zeros(n_voxels)
        self._last: np.ndarray | None = None

    def add(self, values: np.ndarray) -> None:
        """Take the (N,) brain values of the next volume."""
        self._global.append(float(values.mean(dtype=np.float64)))
        if self._last is not None:
            self._change.append(float(np.sqrt(np.mean((values - self._last) ** 2, dtype=np.float64))))
        step = values - self._mean  # Welford's update
        self._mean += step / len(self._global)
        self._square += step * (values - self._mean)
        self._sample.append(values[self._every].copy())
        self._last = values.copy()

    @property
    def global_signal(self) -> np.ndarray:
        """(T,) array."""
        return np.asarray(self._global)

    @property
    def mean(self) -> np.ndarray:
        """(N,) array."""
        return self._mean

    @property
    def tsnr(self) -> np.ndarray:
        """(N,) array: mean over SD (ddof 1) in time; zero where nothing varies."""
        sd = np.sqrt(self._square / max(len(self._global) - 1, 1))
        return np.divide(self._mean, sd, out=np.zeros_like(sd), where=sd > 0)

    def dvars(self) -> tuple[np.ndarray, np.ndarray]:
        """DVARS at median brightness 1000, and standardised DVARS: two (T,) arrays; the first values are NaN."""
        sample = np.stack(self._sample, axis=1).astype(np.float64)
        scale = 1000.0 / np.median(sample)
        quartiles = np.percentile(sample, [25, 75], axis=1, method="lower")
        sd = (quartiles[1] - quartiles[0]) / 1.349
        varies = sd > 0
        centred = sample - sample.mean(axis=1, keepdims=True)
        variance = (centred**2).sum(axis=1)
        lag_one = (centred[:, 1:] * centred[:, :-1]).sum(axis=1)
        expected = (np.sqrt(2 * (1 - lag_one[varies] / variance[varies])) * sd[varies]).mean() if varies.any() else 0.0
        change = np.asarray([np.nan, *self._change])
        standardised = change / expected if expected > 0 else np.full_like(change, np.nan)
        return change * scale, standardised


def write_motion(matrices: np.ndarray, centre: np.ndarray, path: str | Path) -> None:
    """Write head positions as a table: `MOTION` and `CENTRE`, one row a volume.

    Parameters
    ----------
    matrices : (T, 4, 4) array
        RAS mm, points of the reference to points of the volume.
    centre : (3,) array
        About which the rotations are expressed: the brain's centre.
    """
    table = pd.DataFrame([rigid_parameters(matrix, centre) for matrix in matrices], columns=list(MOTION))
    write_table(table.assign(**dict(zip(CENTRE, centre, strict=True))), path, DESCRIPTIONS)


def read_motion(path: str | Path) -> np.ndarray:
    """The (T, 4, 4) matrices of `write_motion`."""
    table = read_table(path)
    parameters, centres = table[list(MOTION)].to_numpy(), table[list(CENTRE)].to_numpy()
    return np.stack([rigid_matrix(row, centre) for row, centre in zip(parameters, centres, strict=True)])


def write_confounds(motion: str | Path, statistics: BrainStatistics, path: str | Path) -> pd.DataFrame:
    """Write the confounds table of a scan, with its sidecar.

    Parameters
    ----------
    motion : path
        Table of `write_motion`.
    statistics : BrainStatistics
        Fed with every volume.
    path : path
    """
    table = read_table(motion)[list(MOTION)]
    displacement = framewise_displacement(table.to_numpy())
    for name in MOTION:
        derivative = table[name].diff()
        expansion = {"_derivative1": derivative, "_power2": table[name] ** 2, "_derivative1_power2": derivative**2}
        for ending, values in expansion.items():
            table[name + ending] = values
    dvars, standardised = statistics.dvars()
    table["framewise_displacement"] = displacement
    table["dvars"], table["std_dvars"], table["global_signal"] = dvars, standardised, statistics.global_signal
    write_table(table, path, DESCRIPTIONS)
    return table
