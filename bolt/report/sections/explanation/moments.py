"""Which moments: importance over time of some test scans, above their series."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from bolt.config.layout import ModelRun
from bolt.config.study import Study
from bolt.evaluate.metrics import read_predictions
from bolt.explain.landmarks import top_tokens
from bolt.explain.weights import explained_folds, read_importance
from bolt.io.files import read_table
from bolt.report.figures.series import time_course
from bolt.report.html import Block, Picture
from bolt.report.runs import run_figure
from bolt.series.cache import SeriesCache
from bolt.series.joining import volumes_of

EXAMPLES = 1  # scans per class


def moments_blocks(study: Study, run: ModelRun) -> list[Block]:
    """Draw importance over time for the first test scans of each class, correctly predicted ones first."""
    cache = SeriesCache(run.cache)
    rows = {scan: i for i, scan in enumerate(cache.index["scan_id"])}
    truth = study.layout.tables / "true_landmarks.tsv"
    events = read_table(truth, text=("scan_id",)) if truth.is_file() else None
    blocks: list[Block] = []
    for scan in examples(study, run):
        name, row, predicted = scan["scan_id"], rows[scan["scan_id"]], scan["predicted"]
        table, weights = read_importance(run.fold(scan["fold"]))
        importance = weights[int(np.flatnonzero(table["scan_id"] == name)[0])]
        series = cache.series(row)
        correctness = ", as none was predicted correctly" if scan["wrong"] else " that was predicted correctly"
        caption = (
            f"Test scan {name}: importance of each volume for the prediction, above the ROI series. Shown is the first "
            f"scan of its class by name{correctness}."
        )
        if events is not None:
            caption += " Green: volumes with strong simulated events, unknown to the model."
        picture = run_figure(study, run, f"{name}_importance")
        time_course(
            importance,
            series,
            cache.rois,
            top_tokens(importance, study.config.explain.tokens),
            float(cache.index["tr"].iloc[row]),
            picture,
            title=f"{name} · true: {scan['label']} · predicted: {predicted} ({scan[f'p_{predicted}']:.2f})",
            landmarks=None if events is None else events.loc[events["scan_id"] == name, "volume"].to_numpy(int),
            volumes=volumes_of(cache.index.iloc[row], study.layout.series_file(name, run.atlas)),
        )
        blocks.append(Picture(picture, caption))
    return blocks


def examples(study: Study, run: ModelRun) -> list[dict[str, Any]]:
    """Return some explained test scans of each class: rows of ``predictions.tsv``."""
    folds = explained_folds(run.folder, range(study.config.folds.outer))
    tables = [read_predictions(run.fold(fold) / "predictions.tsv") for fold in folds]
    tests = [table[table["role"] == "test"] for table in tables]
    found = pd.concat(tests) if tests else pd.DataFrame(columns=["label", "predicted", "scan_id"])
    found = found.assign(wrong=found["predicted"] != found["label"]).sort_values(["wrong", "scan_id"])
    classes = study.dataset.classes or []
    return [row for name in classes for row in found[found["label"] == name].head(EXAMPLES).to_dict("records")]
