"""Does a regression get worse on less important volumes? The paper's figure of subset indices.

The volumes of each scan are sorted by importance, and a window of a few consecutive ones slides down that list: at
offset 0 they are the landmarks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bolt.evaluate.classes import METRICS
from bolt.explain.token_regression import LEVELS, FoldScans

SUBSET_COLUMNS = {
    "fold": "outer fold; 'mean' and 'sd' (ddof 0) over folds",
    "offset": "subset index: number of volumes of the scan that are more important than those of the subset",
    "score": "mean weight of the subset's volumes, divided by the scan's smallest weight above zero (at least 1/1000 "
    "of its mean weight); mean over test scans",
    "level": "; ".join(f"{name}: {words}" for name, words in LEVELS.items()),
    "n_test": "number of test scans; in the rows mean and sd, number of folds",
    **dict.fromkeys(METRICS, "as in landmarks.tsv"),
}
FLOOR = 1e-3
"""Share of a scan's mean weight: the smallest denominator of scores. Volumes that no window reaches have no weight at
all, and a weight near zero would let one scan dominate the mean."""


def subset_offsets(shortest: int, tokens: int, n_offsets: int) -> NDArray[np.intp]:
    """Return offsets in the sorted list, evenly spaced from the first to the last of the shortest scan.

    Parameters
    ----------
    shortest : int
        Volumes of the shortest scan, so that every scan has volumes at every offset.
    tokens : int
        Volumes of the subset.
    n_offsets : int
        Largest number of offsets; 0: none.
    """
    last = shortest - tokens
    if n_offsets == 0 or last < 0:
        return np.empty(0, int)
    return np.unique(np.linspace(0, last, min(n_offsets, last + 1)).round().astype(int))


def subset_rows(
    data: FoldScans, weights: Mapping[str, NDArray[np.floating]], offsets: NDArray[np.intp], tokens: int
) -> list[dict[str, Any]]:
    """Return the subset-index curve of one fold.

    Parameters
    ----------
    data : FoldScans
    weights : mapping
        Scan to the importance of its volumes (T,).
    offsets : int array
    tokens : int

    Returns
    -------
    list of dict
        Columns of `SUBSET_COLUMNS` but ``fold``.
    """
    if not len(offsets):
        return []
    needed = np.unique(offsets[:, None] + np.arange(tokens))  # ranks in any subset
    order = {scan: np.argsort(-w, kind="stable")[needed] for scan, w in weights.items()}
    ordered = data.only(order)  # every series is read once for all offsets
    relative = np.stack([_relative(weights[scan.name])[order[scan.name]] for scan in data.parts["test"]])
    rows = []
    for offset in offsets:
        subset = np.searchsorted(needed, offset + np.arange(tokens))
        metrics, _ = ordered.regress(dict.fromkeys(weights, subset))
        score = float(relative[:, subset].mean())
        rows += [{"offset": int(offset), "score": score, **row} for row in metrics]
    return rows


def _relative(weights: NDArray[np.floating]) -> NDArray[np.floating]:
    """Divide weights by the scan's smallest above zero; ones if all are zero."""
    positive = weights[weights > 0]
    if not len(positive):
        return np.ones(len(weights))
    return weights / max(float(positive.min()), FLOOR * float(weights.mean()))
