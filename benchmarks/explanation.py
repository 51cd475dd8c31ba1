"""What explanations cost, in one run: importance, landmark regressions, pictures of brains.

    python benchmarks/explanation.py --threads 2 --repeats 5

The importance of a scan of 1200 volumes is compared with the forward and backward pass of the same scan, which take
turns with it (`bolt_speed.py` has both). All else is of the paper's 871 ABIDE-I scans (CC200), which are left out where
`../shared` does not hold them: the importance of all of them under one model of the paper's size, the landmark
regressions of one of ten folds with the curve over every offset, and the brain figures of two classes and of seven.
No training is needed: what a model has learned changes none of these times.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import date
from functools import partial
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import torch
from bolt_speed import alternate, build, data, run

from bolt.atlases.image import load_atlas
from bolt.config import load_model
from bolt.explain.importance import importance_of
from bolt.explain.landmarks import landmark_regression
from bolt.explain.regions import roi_weights
from bolt.explain.weights import write_importance
from bolt.models.registry import create_model
from bolt.report.figures.brain import plot_regions
from tests.abide import LABELS
from tests.shared import SHARED

RATIO = 1.3
"""Largest price of a scan's importance, in forward and backward passes of the same scan."""
BARS = {"importance of 871 scans": 300, "brain figure": 120}
"""Most seconds, by how a row begins; the former on two cores."""


def price(volumes: int, repeats: int) -> tuple[float, float]:
    """Seconds of a scan's importance, and of its forward and backward pass; medians."""
    side, (x, y) = build("ours", "cpu"), data(1, volumes, "cpu")
    actions: list[Callable[[], object]] = [
        partial(run, side, kind, x, y, "float32") for kind in ("relevance", "own gradients")
    ]
    ours, own = alternate(actions, repeats, "cpu")
    return median(ours), median(own)


def abide(folder: Path) -> Any:
    """The 871 scans as what explanations read of a cache: `index`, and `series(i)`, z-scored."""
    packed = dict(np.load(folder / "cc200_nofilt_noglobal_871.npz"))
    groups = pd.read_csv(folder / "Phenotypic_V1_0b_preprocessed1.csv").set_index("FILE_ID")["DX_GROUP"]
    names = [str(name) for name in packed["file_id"]]
    parts = np.split(packed["data"].astype(np.float32), packed["offsets"][1:-1])
    parts = [np.nan_to_num((x - x.mean(0)) / np.where(x.std(0) > 0, x.std(0), 1)) for x in parts]
    index = pd.DataFrame({"scan_id": names, "subject": names, "label": [LABELS[groups[name]] for name in names]})
    return SimpleNamespace(index=index, series=lambda i: parts[i], rois=packed["roi_labels"])


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def figures(cache: Any, folder: Path, atlas_dir: Path) -> dict[str, float]:
    """Seconds of the brain figures of two and seven classes, from regression weights that say nothing."""
    image = load_atlas("cc200", atlas_dir=atlas_dir).image
    values = np.asarray(cache.rois).astype(int)
    rois = pd.DataFrame({"value": values, "name": [f"ROI {v}" for v in values], "network": None, "hemisphere": None})
    found = {}
    for classes in (list(LABELS.values()), [f"task {i}" for i in range(7)]):
        draws = np.random.default_rng(0).normal(size=(10, len(classes), len(rois)))
        table = roi_weights(draws, rois, classes, 0.02)
        picture = folder / f"{len(classes)}.png"
        found[f"brain figure of {len(classes)} classes"] = seconds(
            partial(plot_regions, table, image, classes, picture)
        )
    return found


def explained(cache: Any, folder: Path) -> dict[str, float]:
    """Seconds of the importance of all scans, and of one fold's landmark regressions over every offset."""
    hyper = load_model("bolt").hyper
    model = create_model("bolt", len(cache.rois), 2, **hyper).eval()
    series = [cache.series(i) for i in range(len(cache.index))]
    weights: list[Any] = []
    found = {"importance of 871 scans": seconds(lambda: weights.extend(importance_of(model, series, "cpu")))}
    roles = np.where(np.arange(len(series)) % 10 == 0, "test", "train")
    table = cache.index[["scan_id"]].assign(role=roles, predicted="control")
    write_importance(table, weights, folder / "fold-0")
    every = min(map(len, series))
    work = partial(landmark_regression, cache, folder, [0], list(LABELS.values()), offsets=every)
    found[f"landmark regressions of a fold, {every - 4} offsets, 20 random draws"] = seconds(work)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--volumes", type=int, default=1200)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    load = os.getloadavg()
    ours, own = price(options.volumes, options.repeats)
    print(f"- {date.today()}: {len(os.sched_getaffinity(0))} cores, threads {options.threads}, load {load[0]:.1f}")
    print(f"- Python {sys.version.split()[0]}, torch {torch.__version__}, numpy {np.__version__}\n")
    print("| | seconds | bar |\n| --- | --- | --- |")
    bar = f"{ours / own:.2f} × the latter; ≤ {RATIO}"
    print(f"| importance of a scan, T = {options.volumes} | {ours:.3g} | {bar} |")
    print(f"| its forward and backward pass | {own:.3g} | |")
    folder = SHARED / "data/abide1"
    if not folder.exists():
        sys.exit(f"no real data: {folder}")
    cache = abide(folder)
    with tempfile.TemporaryDirectory() as place:
        rows = explained(cache, Path(place)) | figures(cache, Path(place), SHARED / "data/atlases")
    for name, value in rows.items():
        limit = next((f"≤ {most}" for start, most in BARS.items() if name.startswith(start)), "")
        print(f"| {name} | {value:.3g} | {limit} |")


if __name__ == "__main__":
    main()
