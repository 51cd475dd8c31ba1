"""A made-up run with importance weights: the class shows in a few volumes of each scan only."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import torch

from bolt.explain.weights import IMPORTANCE_COLUMNS, write_controls
from bolt.io.files import write_status, write_table
from bolt.models.registry import create_model
from bolt.training.checkpoint import save_checkpoint

N_ROIS = 30
INFORMATIVE = [3, 7, 20]
HYPER = {"hidden": 16, "n_blocks": 2, "n_heads": 2, "head_dim": 8, "window": 10}


class MemoryCache:
    """As much of `bolt.series.cache.SeriesCache` as the explanations use."""

    def __init__(self, series: list[np.ndarray], labels: list[str]) -> None:
        names = [f"sub-{i:02d}" for i in range(len(series))]
        self.index = pd.DataFrame({"scan_id": [f"{n}_task-rest" for n in names], "subject": names, "label": labels})
        self.index["group"] = names
        self.rois = pd.DataFrame(
            {
                "value": np.arange(1, N_ROIS + 1) * 10,  # not consecutive
                "name": [f"roi{i}" for i in range(N_ROIS)],
                "network": ["default" if i in INFORMATIVE else "visual" for i in range(N_ROIS)],
                "hemisphere": ["L", "R"] * (N_ROIS // 2),
            }
        )
        self.n_rois = N_ROIS
        self._series = series

    def series(self, i: int) -> np.ndarray:
        return self._series[i]


def make_run(folder: Path, classes: list[str], n_scans: int = 24, seed: int = 0) -> MemoryCache:
    """Write ``fold-0`` and ``fold-1`` with importance that marks the informative volumes."""
    random = np.random.default_rng(seed)
    series, labels, marks = [], [], []
    for i in range(n_scans):
        length = 60 + i % 3
        label = i % len(classes)
        x = random.standard_normal((length, N_ROIS)).astype(np.float32)
        when = random.choice(length, 6, replace=False)
        pattern = 4.0 if len(classes) == 2 else 5.0
        x[when, INFORMATIVE[label if len(classes) > 2 else 0]] += pattern if label else -pattern
        weights = random.uniform(0, 0.1, length)
        weights[when] += 1
        series.append(x)
        labels.append(classes[label])
        marks.append(weights)
    cache = MemoryCache(series, labels)
    for fold in (0, 1):
        test = (
            [i % 4 // 2 == fold for i in range(n_scans)]
            if len(classes) == 2
            else [i % 2 == fold for i in range(n_scans)]
        )
        table = pd.DataFrame(
            {
                "scan_id": cache.index["scan_id"],
                "role": ["test" if t else "train" for t in test],
                "predicted": labels,
                "wrong": classes[0],
                "length": [len(w) for w in marks],
            }
        )
        table["offset"] = table["length"].cumsum() - table["length"]
        run = folder / f"fold-{fold}"
        write_table(table[list(IMPORTANCE_COLUMNS)], run / "importance.tsv", IMPORTANCE_COLUMNS)
        np.save(run / "importance.npy", np.concatenate(marks).astype(np.float32))
        write_controls([random.uniform(0, 1, (2, len(w))) for w in marks], run)
        write_status(run / "status.json", "ok", "train")
    return cache


def untrained_fold(folder: Path) -> tuple[MemoryCache, Path, torch.nn.Module]:
    """Write the checkpoint and predictions of a fold, whose order of scans is not the cache's."""
    random = np.random.default_rng(0)
    series = [random.standard_normal((30 + i % 2 * 7, N_ROIS)).astype(np.float32) for i in range(11)]
    cache = MemoryCache(series, ["a", "b"] * 5 + ["a"])
    torch.manual_seed(0)
    model = create_model("bolt", N_ROIS, 2, **HYPER).eval()
    info = {"model": {"model": "bolt", "hyper": HYPER}, "n_rois": N_ROIS, "classes": ["a", "b"]}
    save_checkpoint(folder, model, info)
    order = [7, 0, 3, 10, 1, 2, 4, 5, 6, 8, 9]
    table = pd.DataFrame({"scan_id": cache.index["scan_id"].iloc[order], "role": "test"})
    with torch.no_grad():
        p = torch.cat([model(torch.from_numpy(cache.series(i))[None]).logits.softmax(-1) for i in order]).numpy()
    table = table.assign(predicted=np.array(["a", "b"])[p.argmax(axis=1)], p_a=p[:, 0], p_b=p[:, 1])
    table.to_csv(folder / "predictions.tsv", sep="\t", index=False)
    return cache, folder, model
