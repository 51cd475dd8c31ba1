"""Which moments: importance over time of a few test scans, above their series."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bolt.config import Config, Dataset, Model
from bolt.config.layout import Layout
from bolt.evaluate.metrics import read_predictions
from bolt.explain.landmarks import top_tokens
from bolt.explain.weights import explained_folds, read_importance
from bolt.io.files import read_table
from bolt.io.series_files import kept_volumes
from bolt.report.figures import plots
from bolt.report.html import Block, Picture, figure_folder
from bolt.series.cache import SeriesCache

EXAMPLES = 1  # time courses shown for each class


def moments_blocks(
    config: Config, dataset: Dataset, layout: Layout, atlas: str, model: Model, seed: int, stem: str
) -> list[Block]:
    """Importance over time of the first test scans of each class (those predicted right come first)."""
    run = layout.run(atlas, model, seed).folder
    cache = SeriesCache(layout.cache(atlas))
    rows = {scan: i for i, scan in enumerate(cache.index["scan_id"])}
    known = layout.tables / "true_landmarks.tsv"
    landmarks = read_table(known, text=("scan_id",)) if known.is_file() else None
    blocks: list[Block] = []
    for scan in _examples(run, config.folds.outer, dataset.classes or []):
        table, weights = read_importance(run / f"fold-{scan['fold']}")
        importance = weights[int(np.flatnonzero(table["scan_id"] == scan["scan_id"])[0])]
        picture = figure_folder(layout) / f"{stem}_{scan['scan_id']}_importance.png"
        probability = scan[f"p_{scan['predicted']}"]
        caption = (
            f"Test scan {scan['scan_id']}: importance of each volume for the prediction, above the ROI series. The "
            f"first test scan of its class, by name{'; none' if scan['wrong'] else ', that'} was predicted right."
        )
        events = None
        if landmarks is not None:
            events = landmarks.loc[landmarks["scan_id"] == scan["scan_id"], "volume"].to_numpy(int)
            caption += " Green: volumes at which a simulated event is strong (the model was not told)."
        series = cache.series(rows[scan["scan_id"]])
        plots.time_course(
            importance,
            series,
            cache.rois,
            top_tokens(importance, config.explain.tokens),
            float(cache.index["tr"].iloc[rows[scan["scan_id"]]]),
            picture,
            title=f"{scan['scan_id']} · true: {scan['label']} · predicted: {scan['predicted']} ({probability:.2f})",
            landmarks=events,
            volumes=kept_volumes(layout.series_file(scan["scan_id"], atlas), len(series)),
        )
        blocks.append(Picture(picture, caption))
    return blocks


def _examples(run: Path, folds: int, classes: Sequence[str]) -> list[dict[str, Any]]:
    """Rows of predictions.tsv: a few explained test scans of each class."""
    found = []
    for fold in explained_folds(run, range(folds)):
        table = read_predictions(run / f"fold-{fold}" / "predictions.tsv")
        found.append(table[table["role"] == "test"])
    tests = pd.concat(found) if found else pd.DataFrame(columns=["label", "predicted", "scan_id"])
    tests = tests.assign(wrong=tests["predicted"] != tests["label"]).sort_values(["wrong", "scan_id"])
    return [row for name in classes for row in tests[tests["label"] == name].head(EXAMPLES).to_dict("records")]
