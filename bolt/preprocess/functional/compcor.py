"""Noise of white matter and CSF: pure tissue masks, their mean signals, and aCompCor.

aCompCor (Behzadi et al. 2007, doi:10.1016/j.neuroimage.2007.04.042) as fMRIPrep computes it: voxels without slow
drift and of unit variance; the components that explain half of the variance.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from nilearn.signal import create_cosine_drift
from scipy import ndimage

PURE = 0.99
"""Share of a voxel that must be the tissue."""
FEWEST = 100
"""Where fewer voxels are that pure, the purest so many are taken, as long as more than half is the tissue."""
MOST = 10_000
"""Voxels of a mask, evenly spread, whose series are kept for the components: bounds memory."""
EXPLAINED = 0.5
"""Components are kept until they explain this share of the variance."""
PERIOD = 128.0
"""Seconds; slower fluctuations are drift."""
MASKS = {"a": "combined", "c": "CSF", "w": "WM"}
"""First letter of a component's name, and what fMRIPrep calls its mask."""


def voxel_share(probability: np.ndarray, sizes: np.ndarray, voxel: float) -> np.ndarray:
    """Share of a tissue in the neighbourhood that a BOLD voxel mixes.

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
    """(N,) bool: the voxels of a tissue, from its (N,) shares; none where it is nowhere the larger part."""
    if share.size == 0:
        return np.zeros(0, dtype=bool)
    rank = min(FEWEST, share.size)
    threshold = max(min(PURE, float(np.partition(share, -rank)[-rank])), 0.5)
    chosen: np.ndarray = (share >= threshold) & (share > 0.5)
    return chosen


class TissueSignals:
    """Mean signals and noise components of white matter and CSF, fed one volume at a time.

    Parameters
    ----------
    masks : mapping
        ``white_matter`` and ``csf`` to (N,) bool arrays over the values that `add` takes; empty ones are left out.
    """

    def __init__(self, masks: Mapping[str, np.ndarray]) -> None:
        self._voxels = {name: np.flatnonzero(mask) for name, mask in masks.items() if mask.any()}
        self._means: dict[str, list[float]] = {name: [] for name in self._voxels}
        self._series: dict[str, list[np.ndarray]] = {name: [] for name in self._voxels}
        self._steps = {name: max(1, -(-len(voxels) // MOST)) for name, voxels in self._voxels.items()}

    def add(self, values: np.ndarray) -> None:
        """Take the (N,) values of the next volume."""
        for name, voxels in self._voxels.items():
            inside = values[voxels]
            self._means[name].append(float(inside.mean(dtype=np.float64)))
            self._series[name].append(inside[:: self._steps[name]].copy())

    def means(self) -> dict[str, np.ndarray]:
        """(T,) series: csf, white_matter, and csf_wm where both are there."""
        found = {name: np.asarray(values) for name, values in sorted(self._means.items())}
        if len(found) == 2:
            sizes = [len(self._voxels[name]) for name in found]
            found["csf_wm"] = np.average(list(found.values()), axis=0, weights=sizes)
        return found

    def components(self, tr: float, unsteady: int) -> tuple[pd.DataFrame, dict[str, dict[str, Any]]]:
        """aCompCor of both masks together and of each.

        Parameters
        ----------
        tr : float
            Seconds.
        unsteady : int
            Volumes at the start that have no say; their rows are zero.

        Returns
        -------
        table : DataFrame
            (T, C), ``a_comp_cor_00``, …
        metadata : dict
            For the JSON sidecar, as fMRIPrep writes it.
        """
        products = {  # each voxel that is kept stands for a step of them: so tissues weigh as much as they have voxels
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
                    "Description": f"Component {i + 1} of the noise in {MASKS[letter]} voxels",
                    "Method": "aCompCor",
                    "Mask": MASKS[letter],
                    "SingularValue": float(values[i]),
                    "VarianceExplained": float(explained[i]),
                    "CumulativeVarianceExplained": float(explained[: i + 1].sum()),
                    "Retained": True,
                }
        return pd.DataFrame(columns), metadata


def cosine_drift(n_volumes: int, tr: float) -> np.ndarray:
    """(T, C) cosines slower than `PERIOD`; short scans have none."""
    return np.asarray(create_cosine_drift(1 / PERIOD, tr * np.arange(n_volumes))[:, :-1])  # the last is constant


def _products(series: np.ndarray, tr: float) -> np.ndarray:
    """(T, T) products between volumes of the (N, T) voxels, drift-free and at unit variance.

    All that a singular value decomposition needs, and T × T is small; voxels go through in pieces.
    """
    n_volumes = series.shape[1]
    basis = np.linalg.qr(np.column_stack([np.ones(n_volumes), cosine_drift(n_volumes, tr)]))[0]
    total = np.zeros((n_volumes, n_volumes))
    for start in range(0, len(series), 1000):
        piece = series[start : start + 1000].astype(np.float64)
        piece -= piece @ basis @ basis.T
        sd = piece.std(axis=1)
        piece = piece[sd > 1e-9] / sd[sd > 1e-9, None]
        total += piece.T @ piece
    return total


def _decompose(products: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Left singular vectors (T, K) that explain `EXPLAINED`, all singular values, and shares of variance."""
    values, vectors = np.linalg.eigh(products)
    values, vectors = np.clip(values[::-1], 0, None), vectors[:, ::-1]
    if values.sum() == 0:
        return vectors[:, :0], values, values
    explained = values / values.sum()
    kept = int(np.searchsorted(np.cumsum(explained), EXPLAINED)) + 1
    chosen = vectors[:, :kept]
    chosen = chosen * np.sign(chosen[np.abs(chosen).argmax(axis=0), np.arange(kept)])  # one sign on every machine
    return chosen, np.sqrt(values), explained
