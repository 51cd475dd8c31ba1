"""Mean signals and noise components (aCompCor) of white matter and CSF.

aCompCor (Behzadi et al. 2007, doi:10.1016/j.neuroimage.2007.04.042) is computed as in fMRIPrep: voxel series are
high-pass filtered and scaled to unit variance, and the components that explain half of the variance are kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from nilearn.signal import create_cosine_drift
from scipy import ndimage

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
MASKS = {"a": "combined", "c": "CSF", "w": "WM"}
"""fMRIPrep's name of a mask, by the first letter of its components' names."""
SIGNAL_OF = {"a": "csf_wm", "c": "csf", "w": "white_matter"}
"""Mean signal of the same mask."""


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

    def components(self, tr: float, unsteady: int) -> tuple[pd.DataFrame, dict[str, dict[str, Any]]]:
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
            letter: self._steps[name] * _products(np.stack(volumes[unsteady:], axis=1), tr)
            for letter, name in (("c", "csf"), ("w", "white_matter"))
            if (volumes := self._series.get(name))
        }
        if len(products) == 2:
            products = {"a": products["c"] + products["w"], **products}
        columns: dict[str, np.ndarray] = {}
        metadata: dict[str, dict[str, Any]] = {}
        for letter, product in products.items():
            vectors, values, explained = _decompose(product)
            for i, vector in enumerate(vectors.T):
                name = f"{letter}_comp_cor_{i:02d}"
                columns[name] = np.concatenate([np.zeros(unsteady), vector])
                metadata[name] = {
                    "Description": f"Noise component {i + 1} of {MASKS[letter]} voxels",
                    "Method": "aCompCor",
                    "Mask": MASKS[letter],
                    "MaskVoxels": self.sizes[SIGNAL_OF[letter]],
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
