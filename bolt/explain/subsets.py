"""Does a regression get worse the less important the volumes are that it sees? The paper's figure of subset indices.

The volumes of each scan are ordered by importance, and five consecutive ones slide down that list: at offset 0 they are
the landmarks.
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
    "offset": "subset index: how many volumes of the scan are more important than those that are seen",
    "score": "mean weight of the volumes that are seen over the scan's smallest weight that is not zero (at least "
    "1/1000 of its mean weight), mean over test scans",
    "level": "; ".join(f"{name}: {words}" for name, words in LEVELS.items()),
    "n_test": "test scans; number of folds in the last rows",
    **dict.fromkeys(METRICS, "as in landmarks.tsv"),
}
FLOOR = 1e-3
"""Of a scan's mean weight: the least that scores are relative to. Volumes that no window reaches have no weight at all,
and one that is next to nothing would make a scan's score the mean of all."""


def subset_offsets(shortest: int, tokens: int, n_offsets: int) -> NDArray[np.intp]:
    """Places of the subset in the ordered list: evenly spread from the first to the last of the shortest scan.

    Parameters
    ----------
    shortest : int
        Volumes of the shortest scan, so that every scan has volumes at every offset.
    tokens : int
        Volumes of the subset.
    n_offsets : int
        How many places at most; 0: none.
    """
    last = shortest - tokens
    if n_offsets == 0 or last < 0:
        return np.empty(0, int)
    return np.unique(np.linspace(0, last, min(n_offsets, last + 1)).round().astype(int))


def subset_rows(
    data: FoldScans, weights: Mapping[str, NDArray[np.floating]], offsets: NDArray[np.intp], tokens: int
) -> list[dict[str, Any]]:
    """The curve of one fold.

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
    needed = np.unique(offsets[:, None] + np.arange(tokens))  # places in the ordered list that any subset holds
    order = {scan: np.argsort(-w, kind="stable")[needed] for scan, w in weights.items()}
    ordered = data.only(order)  # every series is read once for all offsets
    relative = np.stack([_relative(weights[scan.name])[order[scan.name]] for scan in data.parts["test"]])
    rows = []
    for offset in offsets:
        own = np.searchsorted(needed, offset + np.arange(tokens))
        found, _ = ordered.regress(dict.fromkeys(weights, own))
        score = float(relative[:, own].mean())
        rows += [{"offset": int(offset), "score": score, **row} for row in found]
    return rows


def _relative(weights: NDArray[np.floating]) -> NDArray[np.floating]:
    """Weights over the scan's smallest that is not zero; ones where all are zero."""
    positive = weights[weights > 0]
    if not len(positive):
        return np.ones(len(weights))
    return weights / max(float(positive.min()), FLOOR * float(weights.mean()))
