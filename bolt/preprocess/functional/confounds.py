"""Confound time series under fMRIPrep's names.

Framewise displacement and DVARS follow Power et al. (2012, doi:10.1016/j.neuroimage.2011.10.018), ``rmsd`` Jenkinson
et al. (2002, doi:10.1006/nimg.2002.1132), standardised DVARS Nichols (2013, "Notes on creating a standardized version
of DVARS").

Mean signals and noise components (aCompCor) of white matter and CSF.

aCompCor (Behzadi et al. 2007, doi:10.1016/j.neuroimage.2007.04.042) is computed as in fMRIPrep: voxel series are
high-pass filtered and scaled to unit variance, and the components that explain half of the variance are kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from nilearn.signal import create_cosine_drift
from scipy import ndimage

from bolt.io.files import read_table, read_yaml, write_table
from bolt.preprocess.images import rigid_matrix, rigid_parameters
from bolt.preprocess.quality.measures import HEAD_RADIUS, MOVED, OUTLIER

PURE = 0.99
"""Tissue share of a voxel that counts as pure."""
MIN_VOXELS = 100
"""If fewer voxels are pure, this many of the purest are taken, as long as the tissue is more than half of each."""
MAX_VOXELS = 10_000
"""Evenly spread voxels per mask whose series are kept for the components: bounds memory."""
EXPLAINED = 0.5
"""Share of the variance that the components kept explain."""
PERIOD = 128.0
"""Seconds; slower fluctuations are drift."""
MASKS = {"a": ("combined", "csf_wm"), "c": ("CSF", "csf"), "w": ("WM", "white_matter")}
"""fMRIPrep's name of a mask, and of its mean signal, by the first letter of its components' names."""


def voxel_share(probability: np.ndarray, sizes: np.ndarray, voxel: float) -> np.ndarray:
    """Return the share of a tissue within a BOLD voxel centred at each voxel of its probability map.

    Parameters
    ----------
    probability : (X, Y, Z) array
    sizes : (3,) array
        Voxel size of the map, mm.
    voxel : float
        Longest edge of a BOLD voxel, mm.
    """
    width = np.maximum(1, np.round(voxel / np.asarray(sizes))).astype(int)
    share: np.ndarray = ndimage.uniform_filter(probability.astype(np.float32), width, mode="nearest")
    return share


def purest(share: np.ndarray) -> np.ndarray:
    """Select the purest voxels of a tissue, (N,) bool, by their (N,) shares; none if no share exceeds one half."""
    if share.size == 0:
        return np.zeros(0, dtype=bool)
    rank = min(MIN_VOXELS, share.size)
    threshold = max(min(PURE, float(np.partition(share, -rank)[-rank])), 0.5)
    chosen: np.ndarray = (share >= threshold) & (share > 0.5)
    return chosen


class TissueSignals:
    """Mean signals and noise components of white matter and CSF, fed one volume at a time.

    Parameters
    ----------
    masks : mapping
        ``white_matter`` and ``csf`` to (N,) bool arrays over the values that `add` takes; empty ones are skipped.
    """

    def __init__(self, masks: Mapping[str, np.ndarray]) -> None:
        self._voxels = {name: np.flatnonzero(mask) for name, mask in masks.items() if mask.any()}
        self._means: dict[str, list[float]] = {name: [] for name in self._voxels}
        self._series: dict[str, list[np.ndarray]] = {name: [] for name in self._voxels}
        self._steps = {name: max(1, -(-len(voxels) // MAX_VOXELS)) for name, voxels in self._voxels.items()}

    @property
    def sizes(self) -> dict[str, int]:
        """Return the number of voxels of each mask, by the name of its mean signal."""
        sizes = {name: len(voxels) for name, voxels in sorted(self._voxels.items())}
        return sizes | ({"csf_wm": sum(sizes.values())} if len(sizes) == 2 else {})

    def add(self, values: np.ndarray) -> None:
        """Add the (N,) values of the next volume."""
        for name, voxels in self._voxels.items():
            inside = values[voxels]
            self._means[name].append(float(inside.mean(dtype=np.float64)))
            self._series[name].append(inside[:: self._steps[name]].copy())

    def means(self) -> dict[str, np.ndarray]:
        """Return the (T,) mean signals csf and white_matter, and csf_wm if there are both."""
        means = {name: np.asarray(values) for name, values in sorted(self._means.items())}
        if len(means) == 2:
            sizes = [len(self._voxels[name]) for name in means]
            means["csf_wm"] = np.average(list(means.values()), axis=0, weights=sizes)
        return means

    def components(self, tr: float, unsteady: int) -> tuple[pd.DataFrame, dict[str, Any]]:
        """Compute the aCompCor components of each mask and of both combined.

        Parameters
        ----------
        tr : float
            Seconds.
        unsteady : int
            Non-steady-state volumes at the start; they are ignored, and their rows are zero.

        Returns
        -------
        table : DataFrame
            (T, C), ``a_comp_cor_00``, …
        metadata : dict
            For the JSON sidecar, as fMRIPrep writes it.
        """
        products = {  # each voxel kept stands for `step` voxels, so that tissues are weighted by their true size
            letter: self._steps[name] * _products(np.stack(self._series[name][unsteady:], axis=1), tr)
            for letter, (_, name) in MASKS.items()
            if name in self._series
        }
        if len(products) == 2:
            products = {"a": products["c"] + products["w"], **products}
        columns: dict[str, np.ndarray] = {}
        metadata: dict[str, Any] = {}
        for letter, product in products.items():
            vectors, values, explained = _decompose(product)
            mask, signal = MASKS[letter]
            for i, vector in enumerate(vectors.T):
                name = f"{letter}_comp_cor_{i:02d}"
                columns[name] = np.concatenate([np.zeros(unsteady), vector])
                metadata[name] = {
                    "Description": f"Noise component {i + 1} of {mask} voxels",
                    "Method": "aCompCor",
                    "Mask": mask,
                    "MaskVoxels": self.sizes[signal],
                    "SingularValue": float(values[i]),
                    "VarianceExplained": float(explained[i]),
                    "CumulativeVarianceExplained": float(explained[: i + 1].sum()),
                    "Retained": True,
                }
        return pd.DataFrame(columns), metadata


def cosine_drift(n_volumes: int, tr: float) -> np.ndarray:
    """Return the (T, C) cosine regressors slower than `PERIOD`; short scans have none."""
    return np.asarray(create_cosine_drift(1 / PERIOD, tr * np.arange(n_volumes))[:, :-1])  # the last is constant


def _products(series: np.ndarray, tr: float) -> np.ndarray:
    """Return the (T, T) inner products of volumes over (N, T) voxel series without drift and at unit variance.

    The small T × T matrix is all that a singular value decomposition needs; voxels are processed in chunks.
    """
    n_volumes = series.shape[1]
    basis = np.linalg.qr(np.column_stack([np.ones(n_volumes), cosine_drift(n_volumes, tr)]))[0]
    total = np.zeros((n_volumes, n_volumes))
    for start in range(0, len(series), 1000):
        chunk = series[start : start + 1000].astype(np.float64)
        chunk -= chunk @ basis @ basis.T
        sd = chunk.std(axis=1)
        chunk = chunk[sd > 1e-9] / sd[sd > 1e-9, None]
        total += chunk.T @ chunk
    return total


def _decompose(products: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the (T, K) left singular vectors that explain `EXPLAINED`, all singular values, and variance shares."""
    values, vectors = np.linalg.eigh(products)
    values, vectors = np.clip(values[::-1], 0, None), vectors[:, ::-1]
    if values.sum() == 0:
        return vectors[:, :0], values, values
    explained = values / values.sum()
    n_kept = int(np.searchsorted(np.cumsum(explained), EXPLAINED)) + 1
    kept = vectors[:, :n_kept]
    kept = kept * np.sign(kept[np.abs(kept).argmax(axis=0), np.arange(n_kept)])  # the same sign on every machine
    return kept, np.sqrt(values), explained


JENKINSON_RADIUS = 80.0
"""mm; Jenkinson's sphere."""
SAMPLE = 20_000
"""Voxels that represent the brain in statistics that need every value over time."""
DIGITS = 12
"""Significant digits of the written table: more than float32 images give."""
MOTION = ("trans_x", "trans_y", "trans_z", "rot_x", "rot_y", "rot_z")
CENTRE = ("centre_x", "centre_y", "centre_z")
SIGNALS = ("global_signal", "csf", "white_matter")
"""Mean signals that are expanded, as the parameters of motion are."""
DESCRIPTIONS = read_yaml(Path(__file__).with_suffix(".yaml"))


def framewise_displacement(motion: np.ndarray) -> np.ndarray:
    """Return the sum of the absolute changes of head position from the previous volume.

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


def root_mean_square_displacement(matrices: np.ndarray, centre: np.ndarray) -> np.ndarray:
    """Return the displacement from the previous volume, root mean square over a sphere around the brain's centre.

    Parameters
    ----------
    matrices : (T, 4, 4) array
        RAS mm, points of the reference to points of the volume.
    centre : (3,) array

    Returns
    -------
    (T,) array, mm
        The first is NaN.
    """
    change = matrices[1:] @ np.linalg.inv(matrices[:-1]) - np.eye(4)
    rotation = change[:, :3, :3]
    shift = rotation @ centre + change[:, :3, 3]
    spread = JENKINSON_RADIUS**2 / 5 * np.einsum("tij,tij->t", rotation, rotation)
    return np.concatenate([[np.nan], np.sqrt(spread + (shift**2).sum(axis=1))])


class BrainStatistics:
    """Global signal, DVARS and temporal signal-to-noise ratio of a scan, fed one volume at a time.

    Memory holds a few maps, and the time series of at most `SAMPLE` evenly spread voxels, whose median intensity,
    robust SD and autocorrelation represent the brain.

    Parameters
    ----------
    n_voxels : int
        Voxels in the brain mask.
    unsteady : int
        Non-steady-state volumes at the start; only the global signal includes them.
    """

    def __init__(self, n_voxels: int, unsteady: int = 0) -> None:
        self.unsteady = unsteady
        self._mean = np.zeros(n_voxels)
        self._every = slice(None, None, max(1, -(-n_voxels // SAMPLE)))
        self._sample: list[np.ndarray] = []
        self._global: list[float] = []
        self._change: list[float] = []
        self._square = np.zeros(n_voxels)
        self._last: np.ndarray | None = None

    def add(self, values: np.ndarray) -> None:
        """Add the (N,) brain values of the next volume."""
        self._global.append(float(values.mean(dtype=np.float64)))
        if len(self._global) <= self.unsteady:
            return
        if self._last is not None:
            self._change.append(float(np.sqrt(np.mean((values - self._last) ** 2, dtype=np.float64))))
        step = values - self._mean  # Welford's update
        self._mean += step / (len(self._global) - self.unsteady)
        self._square += step * (values - self._mean)
        self._sample.append(values[self._every].copy())
        self._last = values.copy()

    @property
    def global_signal(self) -> np.ndarray:
        """Return the (T,) global signal."""
        return np.asarray(self._global)

    @property
    def tsnr(self) -> np.ndarray:
        """Return the (N,) ratio of mean to SD (ddof 1) in time; zero in constant voxels."""
        sd = np.sqrt(self._square / max(len(self._sample) - 1, 1))
        return np.divide(self._mean, sd, out=np.zeros_like(sd), where=sd > 0)

    def dvars(self) -> tuple[np.ndarray, np.ndarray]:
        """Return DVARS at median intensity 1000, and standardised DVARS: two (T,) arrays.

        NaN up to and including the first steady-state volume.
        """
        sample = np.stack(self._sample, axis=1)
        scale = 1000.0 / float(np.median(sample))
        noise = np.concatenate([_noise(sample[i : i + 1000]) for i in range(0, len(sample), 1000)])
        expected = noise.mean() if noise.size else 0.0
        change = np.concatenate([np.full(self.unsteady + 1, np.nan), self._change])
        standardised = change / expected if expected > 0 else np.full_like(change, np.nan)
        return change * scale, standardised


def _noise(series: np.ndarray) -> np.ndarray:
    """Return the expected change between volumes of each non-constant voxel of the (N, T) series.

    It follows from the voxel's robust SD and lag-1 autocorrelation.
    """
    series = series.astype(np.float64)
    quartiles = np.percentile(series, [25, 75], axis=1, method="lower")
    sd = (quartiles[1] - quartiles[0]) / 1.349
    series, sd = series[sd > 0], sd[sd > 0]
    series -= series.mean(axis=1, keepdims=True)
    lag_one = (series[:, 1:] * series[:, :-1]).sum(axis=1) / (series**2).sum(axis=1)
    return np.asarray(np.sqrt(2 * (1 - lag_one)) * sd)


def write_motion(matrices: np.ndarray, centre: np.ndarray, path: str | Path) -> None:
    """Write head positions as a table of `MOTION` and `CENTRE`, one row per volume.

    Parameters
    ----------
    matrices : (T, 4, 4) array
        RAS mm, points of the reference to points of the volume.
    centre : (3,) array
        Centre of rotation: the brain's centre.
    """
    table = pd.DataFrame([rigid_parameters(matrix, centre) for matrix in matrices], columns=list(MOTION))
    write_table(table.assign(**dict(zip(CENTRE, centre, strict=True))), path, DESCRIPTIONS)


def read_motion(path: str | Path) -> np.ndarray:
    """Read the (T, 4, 4) matrices of a table of `write_motion`."""
    table = read_table(path)
    parameters, centres = table[list(MOTION)].to_numpy(), table[list(CENTRE)].to_numpy()
    return np.stack([rigid_matrix(row, centre) for row, centre in zip(parameters, centres, strict=True)])


def write_confounds(
    motion: str | Path, statistics: BrainStatistics, tissues: TissueSignals, tr: float, path: str | Path
) -> pd.DataFrame:
    """Write the confounds table of a scan, with its sidecar.

    Parameters
    ----------
    motion : path
        Table of `write_motion`.
    statistics, tissues
        Fed with every volume.
    tr : float
        Seconds.
    path : path
    """
    positions = read_table(motion)
    table, unsteady = positions[list(MOTION)].copy(), statistics.unsteady
    table["framewise_displacement"] = framewise_displacement(table.to_numpy())
    centre = positions[list(CENTRE)].iloc[0].to_numpy(float)
    table["rmsd"] = root_mean_square_displacement(read_motion(motion), centre)
    table["dvars"], table["std_dvars"] = statistics.dvars()
    table["global_signal"] = statistics.global_signal
    for name, values in tissues.means().items():
        table[name] = values
    for name in [name for name in (*MOTION, *SIGNALS) if name in table]:
        derivative = table[name].diff()
        expansion = {"_derivative1": derivative, "_power2": table[name] ** 2, "_derivative1_power2": derivative**2}
        for ending, values in expansion.items():
            table[name + ending] = values
    components, texts = tissues.components(tr, unsteady)
    drift, one_hot = cosine_drift(len(table) - unsteady, tr), np.eye(len(table))
    exceeds = (table["framewise_displacement"] > MOVED) | (table["std_dvars"] > OUTLIER)
    moved = np.flatnonzero(exceeds & (np.arange(len(table)) >= unsteady))
    outlier = f"1 in a volume with framewise displacement above {MOVED} mm or standardised DVARS above {OUTLIER}"
    parts = [table, components]
    for name, columns, text in (
        ("cosine", np.vstack([np.zeros((unsteady, drift.shape[1])), drift]), "Slow drift (discrete cosine)"),
        ("non_steady_state_outlier", one_hot[:, :unsteady], "1 in a non-steady-state volume"),
        ("motion_outlier", one_hot[:, moved], outlier),
    ):
        parts.append(pd.DataFrame(columns, columns=[f"{name}{i:02d}" for i in range(columns.shape[1])]))
        texts |= dict.fromkeys(parts[-1], text)
    for name, n_voxels in tissues.sizes.items():
        texts[name] = {"Description": DESCRIPTIONS[name], "MaskVoxels": n_voxels}
    table = pd.concat(parts, axis=1)
    write_table(table, path, {**DESCRIPTIONS, **texts}, digits=DIGITS)
    return table
