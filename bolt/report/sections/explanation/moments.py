"""Which moments: importance over time of some test scans, above their series.

Do the important moments suffice to predict the class? The landmark regressions.

Importance over the course of a task, and where it lies relative to the task's events.

Planted truth: whether the moments and regions that were simulated are found.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bolt.config import Explain
from bolt.config.layout import ModelRun
from bolt.config.study import Study
from bolt.evaluate.metrics import read_predictions
from bolt.experiments.entries import paper_dataset
from bolt.explain.explainable import has_importance
from bolt.explain.landmarks import top_tokens
from bolt.explain.weights import explained_folds, read_importance
from bolt.io.files import read_json, read_table
from bolt.report.figures.landmarks import Curve, draw_curves
from bolt.report.figures.series import time_course
from bolt.report.figures.tasks import draw_masked, draw_tasks, of_task
from bolt.report.html import Block, Picture, Table, Text
from bolt.report.runs import run_figure
from bolt.report.tables import readable
from bolt.report.tables.explanation import (
    TASK_KEYS,
    alignment_table,
    landmark_table,
    paper_of,
    read_landmarks,
    task_titles,
)
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


MEANING = (
    "Random volumes show what any volume tells about the class. But the important volumes are chosen by the "
    "predicted class, and this choice alone can carry the prediction into volumes that hold no information about "
    "the class. Two controls are chosen by the predicted class, too: volumes far along a random direction, and "
    "volumes that support the wrong class (the most probable other one). If they predict the class as well as the "
    "important volumes do, the latter need not differ between the classes. The choice for the same class ({fixed}) "
    "in all scans does not depend on the prediction directly; it can only through the context that importance "
    "takes into account. The model may be right all the same: it sees how regions covary within windows, whereas a "
    "single volume is only the activity of all regions at one moment."
)
FITTED = (
    "Training scans are explained by the model that was fitted to them, so their landmarks may be moments that it "
    "memorised; test scans are new to it in every row."
)
SUGGEST_INNER = " Set 'explain: inner_folds' to add a row in which models explain only scans that they did not see."
INNER = (
    " The row in which training scans are explained by models that did not see them rules this out: if it agrees with "
    "the first row, memorised moments play no part."
)


def landmarks_blocks(study: Study, run: ModelRun) -> list[Block]:
    """Compare important volumes with other choices, and more important volumes with less important ones."""
    file, subset_file = run.explanation / "landmarks.tsv", run.explanation / "subsets.tsv"
    if not file.is_file():
        return []
    explain = study.config.explain
    comparable = explain.tokens == Explain().tokens
    compared = paper_dataset(study.dataset, study.config.folds.scheme) if comparable else None
    table, paper = read_landmarks(file), paper_of(compared, run.atlas)
    samples = " (side by side, one sample per scan)" if explain.landmark_samples == "scans" else ""
    caption = (
        f"Logistic regression on the {explain.tokens} most important volumes of each scan{samples}, and on as many "
        f"volumes chosen in other ways ({explain.random_draws} draws of random volumes and of random directions), "
        "fitted to training scans and evaluated on test scans; mean ± standard deviation over folds, accuracy, recall "
        "and precision in per cent."
    )
    blocks: list[Block] = [
        Table(landmark_table(table, paper, expected=study.config.folds.outer), caption, file),
        Text(MEANING.format(fixed=(study.dataset.classes or [""])[-1])),
        Text(FITTED + (INNER if "inner" in set(table["importance"]) else SUGGEST_INNER)),
    ]
    subsets = read_landmarks(subset_file) if subset_file.is_file() else pd.DataFrame()
    if len(subsets):
        picture = run_figure(study, run, "subsets")
        draw_curves([Curve("", subsets, table, 1 / len(study.dataset.classes or [1]))], picture)
        caption = (
            f"Left: accuracy of the regression on {explain.tokens} volumes at a time, from the most important ones (0) "
            "to the least important ones; bands: ± standard deviation over folds; horizontal lines: volumes chosen in "
            "other ways. Right: their importance, relative to the scan's smallest weight. If importance is meaningful, "
            "both decrease."
        )
        blocks.append(Picture(picture, caption))
    return blocks


COURSE = (
    "Importance of each moment for the prediction, relative to untrained models and to the scan's mean: mean over test "
    "scans (line) with its 95 % interval (grey). Thin grey line: importance under untrained models of the same "
    "architecture, by which it is divided; it is lower at both ends, where fewer windows overlap, whatever the task. "
    "Events are drawn {onset}, where at least half of the scans agree; paler where fewer do."
)
ALIGNMENT = (
    "Is importance higher during the task's events? Importance is relative to untrained models, so that an effect of "
    "position in the scan does not count. Ratio: importance during events relative to the scan's mean; 1 is no more "
    "than elsewhere. By position alone: the ratio under untrained models, which was divided out; a ratio is convincing "
    "only if it is further from 1 than that. p: permutation test over all shifts in time, applied to the events of all "
    "scans together; Holm-corrected within a task."
)
MASKED = (
    "{title}: importance relative to untrained models (top), the ROI series, mean over test scans (middle), and the "
    "series times importance, scaled from 0 (lowest) to 1 (highest), so that the moments behind the decision remain "
    "visible (bottom)."
)


def onset(study: Study) -> str:
    """Return when events are drawn."""
    shift = study.config.explain.hrf_shift
    return f"{shift:g} s after they were shown" if shift else "when they were shown (the BOLD response follows later)"


def tasks_blocks(study: Study, run: ModelRun) -> list[Block]:
    """Show importance over each task, its relation to events, and one task's masked series; [] without events."""
    out, missing = run.explanation, dict.fromkeys(TASK_KEYS, "")
    if not (out / "tasks.tsv").is_file():
        return []
    curves = read_table(out / "tasks.tsv", text=tuple(TASK_KEYS)).fillna(missing)
    if curves.empty:
        return []
    events, aligned = (
        read_table(out / name, text=(*TASK_KEYS, "trial_type")).fillna(missing)
        for name in ("tasks_blocks.tsv", "tasks_alignment.tsv")
    )
    picture = run_figure(study, run, "tasks")
    draw_tasks(curves, events, picture)
    blocks: list[Block] = [
        Picture(picture, COURSE.format(onset=onset(study))),
        Table(alignment_table(aligned), ALIGNMENT, out / "tasks_alignment.tsv"),
    ]
    if (out / "tasks_series.npy").is_file():
        about = read_json(out / "tasks_series.json")
        key = (about["class"], about["task"], about["run"])
        series, masked = np.load(out / "tasks_series.npy", allow_pickle=False)
        picture = run_figure(study, run, "masked_task")
        rois = read_table(run.cache / "rois.tsv", text=("name", "network", "hemisphere"))
        curve, shown = of_task(curves, key), of_task(events, key)
        draw_masked(curve, shown, series, masked, rois, about["RepetitionTime"], picture)
        blocks.append(Picture(picture, MASKED.format(title=task_titles([key])[key])))
    return blocks


CAPTION = (
    "Planted truth, test scans only: the data are simulated, so the moments and regions that distinguish the classes "
    "are known. Without skill: the value expected of an uninformative explanation, as described in brackets. Given the "
    "truth: the same model on the true series."
)


def truth_file(study: Study, run: ModelRun) -> Path | None:
    """Return the truth table, if it is about this run: the first atlas, explained model and seed."""
    model = next((name for name, model in study.models.items() if has_importance(model)), None)
    first = (next(iter(study.config.atlas_places)), model, study.config.seeds[0])
    file = study.layout.tables / "truth.tsv"
    return file if (run.atlas, run.model, run.seed) == first and file.is_file() else None


def truth_blocks(study: Study, run: ModelRun) -> list[Block]:
    """Compare planted moments and regions with those found; [] for real data."""
    file = truth_file(study, run)
    if file is None:
        return []
    rows = readable.truth(read_table(file, text=("measure", "unit")))
    rows = rows[rows["measure"].str.contains("landmark|planted")]
    frame = pd.DataFrame(
        {
            "measure": rows["measure"],
            "found": rows["value"],
            "without skill": [f"{v} ({why})" for v, why in zip(rows["null"], rows["null_meaning"], strict=True)],
            "given the truth": rows["oracle"],
            "expected": rows["expected"],
            "": [{True: "✓ in range", False: "✗ out of range"}.get(p, "") for p in rows["passed"]],
        }
    )
    return [Table(frame, CAPTION, file)]
