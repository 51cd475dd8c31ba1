"""Measure how far importance depends on the gradient of Algorithm 1: logit, loss, and loss with its sign reversed.

    python -m benchmarks.gradients CACHE FOLD...

CACHE is the folder of a cache (`results/<dataset>/cache/<atlas>/<variant>`), FOLD that of a trained fold of BolT. Test
scans of the folds are explained for the predicted class, and for the most probable other one.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import spearmanr

from bolt.evaluate.metrics import read_predictions
from bolt.explain.importance import importance_of, load_bolt
from bolt.explain.landmarks import top_tokens
from bolt.series.cache import SeriesCache

LANDMARKS = 5
PAIRS = [
    ("logit", "minus_loss"),
    ("logit", "minus_loss without regularisation"),
    ("logit", "loss"),
    ("logit", "other class"),
    ("loss", "other class"),
]


def compare(cache: SeriesCache, folder: Path) -> pd.DataFrame:
    """Return rank correlation and shared landmarks of each test scan of a fold and each of `PAIRS`."""
    model, info = load_bolt(folder)
    table = read_predictions(folder / "predictions.tsv")
    table = table[table["role"] == "test"]
    position = {scan: i for i, scan in enumerate(cache.index["scan_id"])}
    series = [np.asarray(cache.series(position[scan])) for scan in table["scan_id"]]
    probability = table[[f"p_{name}" for name in info["classes"]]].to_numpy(float)
    predicted, other = np.argsort(-probability, axis=1)[:, :2].T.tolist()
    curves = {
        "logit": importance_of(model, series, "cpu", predicted),
        "loss": importance_of(model, series, "cpu", predicted, "loss"),
        "minus_loss": importance_of(model, series, "cpu", predicted, "minus_loss"),
        "other class": importance_of(model, series, "cpu", other),
    }
    model.cwr_weight = 0.0
    curves["minus_loss without regularisation"] = importance_of(model, series, "cpu", predicted, "minus_loss")
    rows = [
        {"pair": f"{a}, {b}", "fold": folder.name, "rho": float(spearmanr(x, y)[0]), "shared": _shared(x, y)}
        | {"chance": LANDMARKS**2 / len(x)}
        for a, b in PAIRS
        for x, y in zip(curves[a], curves[b], strict=True)
    ]
    return pd.DataFrame(rows)


def _shared(a: NDArray[np.floating], b: NDArray[np.floating]) -> int:
    """Count the landmarks that two curves share."""
    return len(set(top_tokens(a, LANDMARKS).tolist()) & set(top_tokens(b, LANDMARKS).tolist()))


def main(arguments: Sequence[str]) -> None:
    """Print means and percentiles over the scans of all folds."""
    cache = SeriesCache(Path(arguments[0]))
    table = pd.concat([compare(cache, Path(folder)) for folder in arguments[1:]])
    of_pair = table.groupby("pair", sort=False)
    summary = of_pair["rho"].describe(percentiles=[0.05, 0.5, 0.95])[["count", "mean", "5%", "50%", "95%"]]
    print(summary.join(of_pair[["shared", "chance"]].mean()).round(3).to_string())


if __name__ == "__main__":
    main(sys.argv[1:])
