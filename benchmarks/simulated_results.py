"""Simulate a cohort and what its preprocessing, parcellation and training leave behind, without computing any of it.

Names and formats are those of real runs, contents are random; images have a few voxels, figures none.
"""

from __future__ import annotations

import json
import os
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bolt.atlases.image import load_atlas
from bolt.atlases.labels import load_labels
from bolt.config import ROOT, load_config, load_dataset, load_denoise
from bolt.config.layout import Layout, ModelRun, folder_of
from bolt.config.study import Study
from bolt.datasets import TEXT_COLUMNS
from bolt.evaluate.scores import METRICS
from bolt.explain.landmarks import (
    CONTROLS,
    LANDMARK_COLUMNS,
    LEVELS,
    SUBSET_COLUMNS,
    TEST_COLUMNS,
    landmark_tests,
    with_means,
)
from bolt.explain.regions import write_regions
from bolt.explain.weights import SIGN_CONTROLS, write_controls, write_importance
from bolt.folds.splits import make_folds
from bolt.io.files import read_table, read_yaml, write_status, write_table, write_yaml
from bolt.preprocess.quality.measures import MEASURES
from bolt.report.html import all_words
from bolt.series.cache import ROI_COLUMNS
from tests.fake_bids import write_bids

ATLAS = "dosenbach160"
VOLUMES = 100
SITES = 20
CLASSES = ("control", "patient")
BENCHMARK = "s\th:m:s\tmax_rss\tmax_vms\tmax_uss\tmax_pss\tio_in\tio_out\tmean_load\tcpu_time\n"
METHODS = "Head motion was estimated by rigid least-squares registration [@friston_realign] of every BOLD volume."


def write_cohort(folder: Path, n: int) -> None:
    """Write `n` subjects as raw BIDS at several sites, and the configuration of a run on them."""
    write_bids(folder / "bids", n, VOLUMES)
    random = np.random.default_rng(0)
    subjects = pd.DataFrame({"participant_id": [f"sub-{i + 1:02d}" for i in range(n)]})
    subjects["diagnosis"] = [CLASSES[i % 2] for i in range(n)]
    subjects["site"] = [f"site{i // 2 % SITES:02d}" for i in range(n)]
    subjects["age"] = random.uniform(18, 80, n).round(1)
    subjects["sex"] = random.choice(["F", "M"], n)
    subjects.to_csv(folder / "bids/participants.tsv", sep="\t", index=False)
    dataset = read_yaml(ROOT / "config/datasets/own_bids.yaml")
    write_yaml(dataset | {"path": str(folder / "bids"), "site": "site", "crop": 20}, folder / "cohort.yaml")
    config = {"dataset": str(folder / "cohort.yaml"), "atlases": [ATLAS], "models": ["bolt"], "folds": {"outer": 10}}
    write_yaml(config, folder / "config.yaml")


def study_of(folder: Path) -> Study:
    """Return the study of a cohort, with paths relative to its folder."""
    config = load_config(folder / "config.yaml")
    return Study(config, load_dataset(config.dataset))


def simulate_results(folder: Path) -> None:
    """Write the results of a cohort that is indexed."""
    before = Path.cwd()
    os.chdir(folder)  # paths in results are relative, as in a real run
    try:
        study, random = study_of(folder), np.random.default_rng(1)
        scans = read_table(study.layout.scans, text=TEXT_COLUMNS)
        labels = load_labels(ATLAS)
        write_table(labels[list(ROI_COLUMNS)], study.layout.rois(ATLAS), ROI_COLUMNS)
        for scan in scans.itertuples():
            _write_preprocessed(study.layout, scan, random)
            _write_series(study, scan, labels, random)
        for model in study.models:
            _write_run(study, study.layout.run(ATLAS, model, 0), scans, random)
    finally:
        os.chdir(before)


def _write_preprocessed(layout: Layout, scan: Any, random: np.random.Generator) -> None:
    """Write statuses, sidecars, quality and pictures of a subject's T1w and BOLD."""
    name, subject, folder = str(scan.scan_id), str(scan.subject), folder_of(str(scan.scan_id))
    good = {"mask_dice": 0.95, "shift_margin": 3.0, "flip_margin": 3.0, "template_correlation": 0.9}
    quality: dict[str, dict[str, float]] = {"T1w": {}, "BOLD": {}, "motion": {}, "ROIs": {}}
    for measure, about in MEASURES.items():
        value = next((value for ending, value in good.items() if measure.endswith(ending)), 0.2)
        quality[about.about][measure] = value * random.lognormal(0, 0.02)
    anatomical, functional = layout.anatomical(folder), layout.functional(folder)
    for place, start, stage in ((anatomical, subject, "anatomical"), (functional, name, "functional")):
        place.mkdir(parents=True, exist_ok=True)
        write_status(place / f"{start}_status.json", "ok", stage)
        _write_note(place / f"{start}_provenance.json", layout, stage, f"{folder}/{start}")
    _write_json(quality["T1w"], anatomical / f"{subject}_desc-quality.json")
    _write_json(
        {**quality["BOLD"], **quality["motion"], "n_volumes": VOLUMES}, functional / f"{name}_desc-quality.json"
    )
    _write_json({"Methods": [METHODS]}, anatomical / f"{subject}_desc-preproc_T1w.json")
    _write_json({"Methods": [METHODS]}, functional / f"{name}_space-{layout.space}_boldref.json")
    figures = layout.derivatives / folder / "figures"
    figures.mkdir(exist_ok=True)
    for picture in all_words()["pictures"]:
        start = subject if picture.endswith("T1w") else name
        (figures / f"{start}_desc-{picture}.webp").touch()


def _write_series(study: Study, scan: Any, labels: pd.DataFrame, random: np.random.Generator) -> None:
    """Write the ROI series of a scan with what parcellation writes beside them."""
    layout, name = study.layout, str(scan.scan_id)
    path = layout.series_file(name, ATLAS)
    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(path, random.standard_normal((VOLUMES, len(labels)), dtype=np.float32))
    denoising = load_denoise(study.config.denoise).model_dump(mode="json")
    about = {"Atlas": ATLAS, "Denoising": denoising, "NumberOfVolumes": VOLUMES, "NumberOfVolumesKept": VOLUMES}
    _write_json(about, path.with_suffix(".json"))
    coverage = random.beta(30, 1, len(labels)).round(4)
    lines = [
        f"{value}\t{roi}\t30\t1.0\t0\t0\t0\t{share}\t{int(share > 0.5)}"
        for value, roi, share in zip(labels["value"], labels["name"], coverage, strict=True)
    ]
    header = "value\tname\tn_voxels\tinside\tn_masked\tn_nonfinite\tn_constant\tcoverage\tcovered"
    layout.coverage(name, ATLAS).write_text("\n".join([header, *lines, ""]))
    write_status(layout.series_status(name), "ok", "parcellate")
    _write_note(path.parent / "provenance.json", layout, "parcellate", name)


def _write_run(study: Study, run: ModelRun, scans: pd.DataFrame, random: np.random.Generator) -> None:
    """Write predictions and importance of every fold, and the regions of a run."""
    folds = make_folds(scans, study.config.folds)
    by_scan = scans.set_index("scan_id")
    for fold, rows in folds.groupby("fold"):
        folder = run.fold(int(fold))
        table = rows[["scan_id", "subject", "group"]].assign(site=rows["scan_id"].map(by_scan["site"]))
        table = table.assign(role=rows["role"], fold=fold, seed=0, label=rows["scan_id"].map(by_scan["label"]))
        p = np.clip(np.where(table["label"] == "patient", 0.6, 0.4) + random.normal(0, 0.2, len(table)), 0.01, 0.99)
        table = table.assign(predicted=np.where(p > 0.5, "patient", "control"), p_control=1 - p, p_patient=p)
        write_table(table, folder / "predictions.tsv", dict.fromkeys(table.columns, "Simulated"))
        weights = list(random.uniform(0, 1, (len(table), VOLUMES)))
        write_importance(table, weights, folder)
        write_controls(list(random.uniform(0, 1, (len(table), 2, VOLUMES))), folder)
        history = pd.DataFrame({"epoch": np.arange(1, 21)})
        for column in ("train_loss", "validation_loss", "train_accuracy", "validation_accuracy"):
            history[column] = random.uniform(0.4, 0.6, len(history))
        write_table(history, folder / "history.tsv", dict.fromkeys(history.columns, "Simulated"))
        write_status(folder / "status.json", "ok", "train")
    _write_explanation(run.explanation, folds["fold"].nunique(), random)


def _write_explanation(out: Path, n_folds: int, random: np.random.Generator) -> None:
    """Write landmark regressions and regions of a run."""
    rois = load_labels(ATLAS)
    out.mkdir(parents=True, exist_ok=True)
    coefficients = random.normal(0, 0.1, (1 + len(SIGN_CONTROLS), n_folds, len(CLASSES), len(rois)))
    np.save(out / "coefficients.npy", coefficients[0])
    np.save(out / "coefficients_controls.npy", coefficients[1:])
    write_regions(out / "coefficients.npy", rois, CLASSES, load_atlas(ATLAS).image, out, fraction=0.02)
    kinds = [("none" if name == "random" else "fitted", name) for name in ("important", *CONTROLS)]
    landmarks = [
        {"fold": str(fold), "importance": importance, "tokens": tokens, "level": level, "n_test": 10}
        for fold, (importance, tokens), level in product(range(n_folds), kinds, LEVELS)
    ]
    subsets = [
        {"fold": str(fold), "offset": offset, "score": 1.0, "level": level, "n_test": 10}
        for fold, offset, level in product(range(n_folds), range(0, VOLUMES, 10), LEVELS)
    ]
    tables = []
    for name, rows, keys, columns in (
        ("landmarks", landmarks, ["importance", "tokens", "level"], LANDMARK_COLUMNS),
        ("subsets", subsets, ["offset", "level"], SUBSET_COLUMNS),
    ):
        table = pd.DataFrame(rows)
        table[list(METRICS)] = random.uniform(0.5, 0.7, (len(table), len(METRICS)))
        write_table(with_means(table, keys)[list(columns)], out / f"{name}.tsv", columns)
        tables.append(table)
    ratio = pd.Series(1 / (n_folds - 1), [str(fold) for fold in range(n_folds)])
    write_table(landmark_tests(*tables, ratio), out / "landmark_tests.tsv", TEST_COLUMNS)


def _write_note(path: Path, layout: Layout, stage: str, name: str) -> None:
    """Write what a job notes of its cost: benchmark file and provenance."""
    benchmark = layout.benchmark(stage, name)
    benchmark.parent.mkdir(parents=True, exist_ok=True)
    benchmark.write_text(f"{BENCHMARK}43.6\t0:00:43\t470.5\t729.8\t339.2\t392.0\t6.57\t6.21\t33.2\t14.9\n")
    log = os.path.relpath(layout.log(stage, name))
    _write_json(
        {
            "stage": stage,
            "log": log,
            "job": {"attempt": 1},
            "device": "cpu",
            "cpu_seconds": 14.9,
            "peak_memory_mb": 470.5,
        },
        path,
    )


def _write_json(data: Any, path: Path) -> None:
    path.write_text(json.dumps(data, indent=2))
