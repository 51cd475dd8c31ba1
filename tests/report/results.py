"""A made-up results tree: what a run of the workflow leaves behind, in small."""

import shutil
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from bolt.atlases.image import load_atlas
from bolt.atlases.labels import load_labels
from bolt.cohort.exclusions import EXCLUSION_COLUMNS
from bolt.cohort.quality import QUALITY_COLUMNS
from bolt.config import Config, Dataset
from bolt.config.study import Study
from bolt.datasets import COLUMNS
from bolt.evaluate.balanced import write_balanced
from bolt.evaluate.metrics import write_metrics
from bolt.explain.connections import write_connections
from bolt.explain.landmarks import landmark_regression, write_landmarks
from bolt.explain.regions import write_regions
from bolt.explain.weights import write_controls, write_importance
from bolt.folds.splits import FOLD_COLUMNS
from bolt.io.errors import DataError
from bolt.io.files import write_status, write_table, write_text, write_yaml
from bolt.preprocess.quality.measures import MEASURES
from bolt.report.figures import brains, style
from bolt.report.figures.brains import Brain
from bolt.series.cache import SeriesCache
from bolt.series.gather import build_cache

ATLAS = "dosenbach160"
CLASSES = ["control", "patient"]
INFORMATIVE = [10, 25, 60]
TRUTH = [
    ("registration error over grey matter, median", 1.31, "mm", 4.9, np.nan, np.nan, 2.0, True),
    ("correlation of ROI series with the true ones, median", 0.91, "1", 0.02, 1.0, 0.8, np.nan, True),
    ("pooled accuracy", 0.71, "1", 0.5, 0.96, 0.8, np.nan, False),
    ("landmark AUC, position alone", 0.52, "1", np.nan, np.nan, 0.4, 0.6, True),
]


def settings(folder, **changes):
    """Return the made-up study, whose model and paths are in `folder`."""
    write_yaml({"model": "bolt", "training": {"epochs": 3}}, folder / "tiny.yaml")
    places = {"results": str(folder / "results"), "work": str(folder / "work")}
    keys = {"dataset": "phantom", "atlases": [ATLAS], "models": [str(folder / "tiny.yaml")], "paths": places}
    keys |= {"folds": {"outer": 3}, "quality": {"min_coverage": 0.5}}
    about = {"name": "phantom", "source": "phantom", "description": "Simulated heads with a known answer."}
    about |= {"path": str(folder), "label": "diagnosis", "classes": CLASSES}
    return Study(Config.model_validate(keys | changes), Dataset.model_validate(about))


def first_run(study):
    """Return the run of the first model."""
    return study.layout.run(ATLAS, next(iter(study.models)), 0)


def make_scans(layout, n, length=60):
    random, subjects = np.random.default_rng(0), [f"sub-{i:02d}" for i in range(n)]
    scans = pd.DataFrame({name: pd.Series(index=range(n), dtype=object) for name in COLUMNS})
    scans = scans.assign(subject=subjects, group=subjects, scan_id=[f"{subject}_task-rest" for subject in subjects])
    scans = scans.assign(task="rest", kind="raw", tr=2.0, n_volumes=length, bold="bold.nii.gz")
    scans["label"] = [CLASSES[i % 2] for i in range(n)]
    scans["site"] = ["london" if i < n / 2 else "york" for i in range(n)]
    scans["sex"] = [["F", "M"][i // 2 % 2] for i in range(n)]
    scans["age"] = random.normal(30, 6, n).round(1)
    write_table(scans, layout.scans, COLUMNS)
    excluded = (scans["scan_id"].iloc[-1], "functional", "bold.nii.gz: the file ends within volume 17. Copy it again.")
    write_table(pd.DataFrame([excluded], columns=list(EXCLUSION_COLUMNS)), layout.exclusions, EXCLUSION_COLUMNS)
    return scans


def make_folds(layout, scans):
    """Write folds in the way of `make_run`, with a validation part."""
    roles, part = np.array(["test", "validation", "train"]), np.arange(len(scans)) // 2
    whose = scans[["scan_id", "subject", "group"]]
    tables = [whose.assign(fold=fold, role=roles[(part - fold) % 3]) for fold in range(3)]
    write_table(pd.concat(tables), layout.folds, FOLD_COLUMNS)


def make_series(layout, scans):
    """Series with class-dependent events, the cache, and the volumes of the events."""
    random = np.random.default_rng(1)
    events = {}
    for scan in scans.itertuples():
        x = random.standard_normal((scan.n_volumes, 160))
        x = (x + np.roll(x, 1, axis=0)).astype(np.float32)
        when = np.concatenate([np.arange(s, s + 4) for s in (8 + scan.Index % 5, 33 + scan.Index % 7)])
        x[np.ix_(when, INFORMATIVE)] += 3 if scan.label == "patient" else -3
        events[scan.scan_id] = when
        path = layout.series_file(scan.scan_id, ATLAS)
        path.parent.mkdir(parents=True, exist_ok=True)
        x[:, 100] = np.nan if scan.Index == 1 else x[:, 100]
        x[:, 101] = 7 if scan.Index == 2 else x[:, 101]
        np.save(path, x)
        write_status(layout.series_status(scan.scan_id), "ok", "parcellate")
        coverage = np.clip(random.beta(12, 1, 160), 0, 1)
        damaged = np.where(np.arange(160) < 2, 3 if scan.Index == 0 else 0, 0)
        table = load_labels(ATLAS)[["value", "name"]].assign(coverage=coverage, covered=1, n_nonfinite=damaged)
        write_table(table, layout.coverage(scan.scan_id, ATLAS), dict.fromkeys(table.columns, "Test"))
    build_cache(scans, ATLAS, load_labels(ATLAS), lambda s: layout.series_file(s.scan_id, ATLAS), layout.cache(ATLAS))
    return events


def make_run(run, scans, events):
    """Write two finished folds and a failed one, evaluated and explained."""
    random = np.random.default_rng(2)
    for fold in (0, 1):
        role = ["test" if i // 2 % 3 == fold else "train" for i in range(len(scans))]
        p = np.clip(np.where(scans["label"] == "patient", 0.8, 0.25) + random.normal(0, 0.25, len(scans)), 0.02, 0.98)
        table = scans[["scan_id", "subject", "group", "site"]].assign(
            role=role, fold=fold, seed=0, label=scans["label"]
        )
        table["predicted"] = np.where(p > 0.5, "patient", "control")
        table["p_control"], table["p_patient"] = 1 - p, p
        folder = run.fold(fold)
        write_table(table, folder / "predictions.tsv", dict.fromkeys(table.columns, "Test"))
        weights = []
        for scan in scans.itertuples():
            w = np.convolve(random.uniform(0, 1, scan.n_volumes), np.ones(3) / 3, "same")
            w[events[scan.scan_id]] += 1.2
            weights.append(w * 0.01)
        wrong = np.where(p > 0.5, "control", "patient")
        write_importance(table[["scan_id", "role", "predicted"]].assign(wrong=wrong), weights, folder)
        others = np.random.default_rng(20 + fold)
        write_controls([others.uniform(0, 1, (2, len(w))) for w in weights], folder)
        epochs = np.arange(1, 21)
        history = pd.DataFrame({"epoch": epochs, "train_loss": 0.8 * np.exp(-epochs / 7) + random.uniform(0, 0.05, 20)})
        history["validation_loss"] = history["train_loss"] + 0.2
        history["train_accuracy"], history["validation_accuracy"] = 1 - history["train_loss"] / 2, 0.8
        write_table(history, folder / "history.tsv", dict.fromkeys(history.columns, "Test"))
        write_status(folder / "status.json", "ok", "train")
    write_status(run.fold(2) / "status.json", "failed", "train", DataError("loss is NaN at epoch 3"))
    write_metrics(run.folder, CLASSES, range(3), run.folder)
    write_balanced(run.folder, CLASSES, range(3), scans, run.folder / "balanced.tsv")
    cache, out = SeriesCache(run.cache), run.explanation
    write_landmarks(landmark_regression(cache, run.folder, [0, 1], CLASSES, random_draws=3), out)
    image = load_atlas(ATLAS).image
    write_regions(out / "coefficients.npy", cache.rois, CLASSES, image, out, fraction=0.02)
    write_connections(cache, run.folder, [0, 1], CLASSES, out)


def make_quality(layout, scans):
    """The table of quality, and images that were preprocessed."""
    random = np.random.default_rng(3)
    table = scans[["scan_id", "subject"]].assign(anatomy=scans["subject"], state="ok", reason="")
    for name in MEASURES:
        table[name] = {"mean_fd": random.gamma(4, 0.05, len(table)), "coverage": 0.9}.get(name, np.nan)
    write_table(table, layout.quality, QUALITY_COLUMNS)
    for scan in table.itertuples():
        write_status(layout.anatomical_status(scan.anatomy), "ok", "anatomical")
        write_status(layout.functional_status(scan.scan_id), "ok", "functional")


def make_truth(layout, events):
    columns = ["measure", "value", "unit", "null", "oracle", "low", "high", "passed"]
    table = pd.DataFrame(TRUTH, columns=columns).assign(null_meaning="chance")
    write_table(table, layout.tables / "truth.tsv", dict.fromkeys(table.columns, "Test"))
    rows = pd.DataFrame([(s, v) for s, volumes in events.items() for v in volumes], columns=["scan_id", "volume"])
    write_table(rows, layout.tables / "true_landmarks.tsv", {"scan_id": "Scan", "volume": "Volume"})


def make_results(folder, n=12, *, everything=True):
    """Write the whole tree; with ``everything=False`` no preprocessing and no truth, as for ready series."""
    made, used, events = _ready_series(n)
    shutil.copytree(Path(made.name) / "results", folder / "results")
    study = settings(folder)
    if everything:
        make_quality(study.layout, used)
        make_truth(study.layout, events)
    return study


@cache
def _ready_series(n):
    """Make a tree once a process, to be copied; returns also its scans, and the volumes of their events."""
    made = TemporaryDirectory()
    study = settings(Path(made.name))
    used = make_scans(study.layout, n).iloc[:-1]
    make_folds(study.layout, used)
    events = make_series(study.layout, used)
    make_run(first_run(study), used, events)
    return made, used, events


@contextmanager
def words_only():
    """Pictures are composed, without brains, but saved empty, as this takes longest: for questions about the words."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(style, "_save", lambda _, out: write_text("", out))
        for view in ("glass", "slices", "surfaces"):
            patch.setattr(Brain, view, lambda *_: None)
        for view in ("view_img", "view_surf"):
            patch.setattr(brains.plotting, view, lambda *_, **__: SimpleNamespace(html=""))
        yield
