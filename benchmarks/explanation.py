"""Measure the cost of explanations in one run: importance, landmark regressions, brain figures.

    python -m benchmarks.explanation --threads 2 --repeats 5

The importance of a scan of 1200 volumes alternates with the forward and backward pass of the same scan (as in
`bolt_speed.py`). The rest uses the paper's 871 ABIDE-I scans (CC200) and is skipped if `../shared` does not contain
them: the importance of all scans under one model of the paper's size, the landmark regressions of one of ten folds with
the curve over every offset, and the brain figures of two and of seven classes. The model is not trained, because
learned weights do not affect these times.
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

from benchmarks.bolt_speed import alternate, build, data, run
from bolt.atlases.image import load_atlas
from bolt.config import load_model
from bolt.explain.importance import importance_of
from bolt.explain.landmarks import landmark_regression
from bolt.explain.regions import region_tables
from bolt.explain.weights import write_controls, write_importance
from bolt.models.registry import create_model
from bolt.report.figures.brains import plot_regions
from tests.abide import LABELS
from tests.shared import SHARED

RATIO = 1.3
"""Maximum time of a scan's importance, relative to a forward and backward pass of the same scan."""
LIMITS = {"importance of 871 scans": 300, "brain figure": 120}
"""Maximum seconds by the start of a row's name; the first on two cores."""


def importance_cost(volumes: int, repeats: int) -> tuple[float, float]:
    """Return the median seconds of a scan's importance, and of its forward and backward pass."""
    side, (x, y) = build("ours", "cpu"), data(1, volumes, "cpu")
    actions: list[Callable[[], object]] = [
        partial(run, side, kind, x, y, "float32") for kind in ("relevance", "own gradients")
    ]
    importance, passes = alternate(actions, repeats, "cpu")
    return median(importance), median(passes)


def abide_cache(folder: Path) -> Any:
    """Return the 871 scans as the part of a cache that explanations read: `index` and z-scored `series(i)`."""
    packed = dict(np.load(folder / "cc200_nofilt_noglobal_871.npz"))
    groups = pd.read_csv(folder / "Phenotypic_V1_0b_preprocessed1.csv").set_index("FILE_ID")["DX_GROUP"]
    names = [str(name) for name in packed["file_id"]]
    parts = np.split(packed["data"].astype(np.float32), packed["offsets"][1:-1])
    parts = [np.nan_to_num((x - x.mean(0)) / np.where(x.std(0) > 0, x.std(0), 1)) for x in parts]
    index = pd.DataFrame({"scan_id": names, "subject": names, "label": [LABELS[groups[name]] for name in names]})
    return SimpleNamespace(index=index, series=lambda i: parts[i], rois=packed["roi_labels"])


def seconds(work: Callable[[], object]) -> float:
    """Return the wall time of a call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def time_figures(cache: Any, folder: Path, atlas_dir: Path) -> dict[str, float]:
    """Return the seconds of the brain figures of two and seven classes, drawn from random regression weights."""
    image = load_atlas("cc200", atlas_dir=atlas_dir).image
    values = np.asarray(cache.rois).astype(int)
    rois = pd.DataFrame({"value": values, "name": [f"ROI {v}" for v in values], "network": None, "hemisphere": None})
    times = {}
    for classes in (list(LABELS.values()), [f"task {i}" for i in range(7)]):
        draws = np.random.default_rng(0).normal(size=(10, len(classes), len(rois)))
        table, _ = region_tables(draws, rois, classes, 0.02)
        figure = folder / f"{len(classes)}.png"
        times[f"brain figure of {len(classes)} classes"] = seconds(partial(plot_regions, table, image, classes, figure))
    return times


def time_explanations(cache: Any, folder: Path) -> dict[str, float]:
    """Return the seconds of the importance of all scans and of one fold's landmark regressions at every offset."""
    hyper = load_model("bolt").hyper
    model = create_model("bolt", len(cache.rois), 2, **hyper).eval()
    series = [cache.series(i) for i in range(len(cache.index))]
    weights: list[Any] = []
    times = {"importance of 871 scans": seconds(lambda: weights.extend(importance_of(model, series, "cpu")))}
    roles = np.where(np.arange(len(series)) % 10 == 0, "test", "train")
    table = cache.index[["scan_id"]].assign(role=roles, predicted="control")
    write_importance(table, weights, folder / "fold-0")
    write_controls([np.stack([w, w]) for w in weights], folder / "fold-0")
    offsets = min(map(len, series))
    work = partial(landmark_regression, cache, folder, [0], list(LABELS.values()), offsets=offsets)
    times[f"landmark regressions of a fold, {offsets - 4} offsets, 20 random draws"] = seconds(work)
    return times


def main() -> None:
    """Print a table of times and their limits."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--volumes", type=int, default=1200)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    load = os.getloadavg()
    importance, passes = importance_cost(options.volumes, options.repeats)
    print(f"- {date.today()}: {len(os.sched_getaffinity(0))} cores, threads {options.threads}, load {load[0]:.1f}")
    print(f"- Python {sys.version.split()[0]}, torch {torch.__version__}, numpy {np.__version__}\n")
    print("| | seconds | limit |\n| --- | --- | --- |")
    limit = f"{importance / passes:.2f} × the latter; ≤ {RATIO}"
    print(f"| importance of a scan, T = {options.volumes} | {importance:.3g} | {limit} |")
    print(f"| its forward and backward pass | {passes:.3g} | |")
    folder = SHARED / "data/abide1"
    if not folder.exists():
        sys.exit(f"ABIDE-I data not found: {folder}")
    cache = abide_cache(folder)
    with tempfile.TemporaryDirectory() as temporary:
        rows = time_explanations(cache, Path(temporary))
        rows |= time_figures(cache, Path(temporary), SHARED / "data/atlases")
    for name, value in rows.items():
        limit = next((f"≤ {most}" for start, most in LIMITS.items() if name.startswith(start)), "")
        print(f"| {name} | {value:.3g} | {limit} |")


if __name__ == "__main__":
    main()
