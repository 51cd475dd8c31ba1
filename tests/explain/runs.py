"""A made-up run with importance weights: the class shows in a few volumes of each scan only."""

import numpy as np
import pandas as pd
import torch

from bolt.explain.weights import write_controls, write_importance
from bolt.io.files import write_status
from bolt.models.registry import create_model
from bolt.training.checkpoint import save_checkpoint

N_ROIS = 30
INFORMATIVE = [3, 7, 20]
HYPER = {"hidden": 16, "n_blocks": 2, "n_heads": 2, "head_dim": 8, "window": 10}


class MemoryCache:
    """As much of `bolt.series.cache.SeriesCache` as the explanations use."""

    def __init__(self, series, labels, networks=None):
        names = [f"sub-{i:02d}" for i in range(len(series))]
        self.index = pd.DataFrame({"scan_id": [f"{n}_task-rest" for n in names], "subject": names, "group": names})
        self.index["label"] = labels
        self.arrays, self.n_rois = series, series[0].shape[1]
        values = 10 + 10 * np.arange(self.n_rois)  # not consecutive
        self.rois = pd.DataFrame({"value": values, "name": [f"roi{i}" for i in range(self.n_rois)], "hemisphere": "L"})
        self.rois["network"] = networks or np.nan

    def series(self, i):
        return self.arrays[i]

    finite_series = series


def make_run(folder, classes, n_scans=24):
    """Write ``fold-0`` and ``fold-1`` with importance that marks the informative volumes."""
    random, two = np.random.default_rng(0), len(classes) == 2
    series, marks = [], []
    labels = np.arange(n_scans) % len(classes)
    for i, label in enumerate(labels):
        x = random.standard_normal((60 + i % 3, N_ROIS)).astype(np.float32)
        when = random.choice(len(x), 6, replace=False)
        pattern = 4.0 if two else 5.0
        x[when, INFORMATIVE[0 if two else label]] += pattern if label else -pattern
        series.append(x)
        marks.append(random.uniform(0, 0.1, len(x)))
        marks[-1][when] += 1
    cache = MemoryCache(series, np.array(classes)[labels])
    for fold in (0, 1):
        test = np.arange(n_scans) % (4 if two else 2) // (2 if two else 1) == fold
        table = cache.index[["scan_id"]].assign(role=np.where(test, "test", "train"), predicted=cache.index["label"])
        write_importance(table.assign(wrong=classes[0]), marks, folder / f"fold-{fold}")
        write_controls([random.uniform(0, 1, (2, len(w))) for w in marks], folder / f"fold-{fold}")
        write_status(folder / f"fold-{fold}/status.json", "ok", "train")
    return cache


def save_bolt(folder, model, classes, hyper=HYPER, n_rois=N_ROIS, fold=0):
    about = {"model": {"model": "bolt", "hyper": hyper}, "n_rois": n_rois, "classes": classes, "fold": fold, "seed": 0}
    save_checkpoint(folder, model, about)


def untrained_fold(folder, classes="ab"):
    """Write the checkpoint and predictions of a fold, whose order of scans is not the cache's."""
    random, names = np.random.default_rng(0), np.array(list(classes))
    series = [random.standard_normal((30 + i % 2 * 7, N_ROIS)).astype(np.float32) for i in range(11)]
    cache = MemoryCache(series, names[np.arange(11) % len(names)])
    torch.manual_seed(0)
    model = create_model("bolt", N_ROIS, len(names), **HYPER).eval()
    save_bolt(folder, model, list(classes))
    order = [7, 0, 3, 10, 1, 2, 4, 5, 6, 8, 9]
    with torch.no_grad():
        p = torch.cat([model(torch.from_numpy(cache.series(i))[None]).logits.softmax(-1) for i in order]).numpy()
    table = pd.DataFrame(
        {"scan_id": cache.index["scan_id"].iloc[order], "role": "test", "predicted": names[p.argmax(1)]}
    )
    table = table.assign(**{f"p_{name}": p[:, i] for i, name in enumerate(names)})
    table.to_csv(folder / "predictions.tsv", sep="\t", index=False)
    return cache, folder, model
