"""What the report says of one run: how well it predicts, and what it looked at."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bolt.atlases import load_atlas
from bolt.config import Config, Dataset, Model
from bolt.errors import BoltError
from bolt.evaluate.metrics import read_predictions
from bolt.explain.landmarks import explained_folds, top_tokens
from bolt.explain.weights import read_importance
from bolt.files import read_json, read_table
from bolt.layout import Layout
from bolt.report import figures, tables
from bolt.report.brain import plot_regions
from bolt.report.calibration import reliability
from bolt.report.html import Block, Picture, Run, Table, Text
from bolt.series import SeriesCache
from bolt.series_files import kept_volumes

EXAMPLES = 1  # time courses shown for each class


def figure_folder(layout: Layout) -> Path:
    """Where the report's own pictures are drawn."""
    return layout.report.parent / "figures"


def run_title(config: Config, atlas: str, model: Model, seed: int) -> str:
    return f"{model.name} on {atlas}" + (f", seed {seed}" if len(config.seeds) > 1 else "")


def run_section(config: Config, dataset: Dataset, layout: Layout, atlas: str, model: Model, seed: int) -> Run:
    """Performance and, where the run was explained, explanation."""
    run = Run(run_title(config, atlas, model, seed))
    folder = layout.runs(atlas, model, seed)
    stem = f"{atlas}_{model.run_name}_seed-{seed}"
    if not (folder / "metrics.tsv").is_file():
        run.performance.append(Text(f"Not judged yet: {folder / 'metrics.tsv'} is not there.", warning=True))
        return run
    metrics, pooled = (
        read_table(folder / "metrics.tsv", text=("fold", "state")),
        read_json(folder / "summary.json")["pooled"],
    )
    missing = metrics[~metrics["state"].isin(["ok"]) & metrics["state"].notna()]
    if len(missing):
        names = ", ".join(missing["fold"])
        run.performance.append(Text(f"Without fold {names}: not finished, see the table.", warning=True))
    percent = " in per cent" if dataset.classes else ""
    caption = (
        f"Metrics{percent} on test scans, by fold, over folds (standard deviation, ddof 0), and over all test scans."
    )
    run.performance.append(Table(tables.performance(metrics, pooled), caption, folder / "metrics.tsv"))
    run.performance += _beyond(metrics, folder, figure_folder(layout) / f"{stem}_calibration.png")
    if pooled and dataset.classes is None:
        picture = figure_folder(layout) / f"{stem}_performance.png"
        figures.predicted_numbers(pooled, picture, dataset.label)
        caption = "Predicted against true label of all test scans; a perfect prediction lies on the dashed line."
        run.performance.append(Picture(picture, caption))
    elif pooled:
        picture = figure_folder(layout) / f"{stem}_performance.png"
        figures.performance(metrics, pooled, picture)
        caption = "Left: metrics of all test scans with 95 % bootstrap intervals over subjects, and of single folds."
        rest = " Middle: ROC curve. Right: confusion matrix." if pooled.get("roc") else " Right: confusion matrix."
        run.performance.append(Picture(picture, caption + rest))
    histories = {
        int(f.parent.name.removeprefix("fold-")): read_table(f)
        for f in sorted(folder.glob("fold-*/history.tsv"))
        if f.stat().st_size
    }
    if histories:
        picture = figure_folder(layout) / f"{stem}_training.png"
        figures.training_curves(histories, picture)
        caption = (
            "Training: thin lines are folds, thick lines their mean. The training loss holds the model's own terms too."
        )
        run.performance.append(Picture(picture, caption))
    run.explanation = _explanation(config, dataset, layout, atlas, model, seed, stem)
    return run


def _beyond(metrics: pd.DataFrame, folder: Path, picture: Path) -> list[Block]:
    """Balance and calibration of the probabilities, and every site alone."""
    summary = read_json(folder / "summary.json")
    pooled, sites = summary["pooled"], summary["sites"]
    blocks: list[Block] = []
    if pooled and "brier" in pooled:
        caption = (
            "Balanced accuracy (per cent) gives every class the same weight. Brier score and calibration error say "
            "whether the probabilities can be believed; less is better, and few scans alone make the "
            "calibration error larger."
        )
        blocks.append(Table(tables.beyond(metrics, pooled), caption))
        reliability(pooled["calibration"], picture)
        caption = (
            "Left: test scans by the probability of their predicted class, and how many of them are right. On the "
            "dashed line probabilities say what they mean; below it the model is too sure. Right: how many scans."
        )
        blocks.append(Picture(picture, caption))
    if sites:
        caption = (
            "Each site's test scans alone, with 95 % bootstrap intervals. Few scans: wide intervals; that the highest "
            "and the lowest of many sites differ is no finding in itself."
        )
        blocks.append(Table(tables.sites(sites), caption))
    return blocks


def _explanation(
    config: Config, dataset: Dataset, layout: Layout, atlas: str, model: Model, seed: int, stem: str
) -> list[Block]:
    out = layout.explanation(atlas, model, seed)
    if dataset.classes is None:
        return [Text("No landmarks and regions: they are regressions of classes, and the label here is a number.")]
    if model.covariates:
        return [Text("No importance weights: Algorithm 1 follows series, and this model has covariates as well.")]
    if not (out / "landmarks.tsv").is_file():
        return []
    blocks = _time_courses(config, dataset, layout, atlas, layout.runs(atlas, model, seed), stem)
    caption = (
        f"Logistic regression on the {config.explain.tokens} most important volumes of each scan against as many "
        f"random ones ({config.explain.random_draws} draws), fitted on training scans, judged on test scans; per cent, "
        "mean ± sd over folds. If importance means anything, important volumes do better."
    )
    blocks.append(
        Table(tables.landmarks(read_table(out / "landmarks.tsv", text=("fold",))), caption, out / "landmarks.tsv")
    )
    if (out / "roi_weights.tsv").is_file():
        blocks += _regions(config, dataset, layout, atlas, out, stem)
    return blocks


def _regions(config: Config, dataset: Dataset, layout: Layout, atlas: str, out: Path, stem: str) -> list[Block]:
    classes = dataset.classes or []
    weights = read_table(out / "roi_weights.tsv", text=("class", "name", "network", "hemisphere"))
    blocks: list[Block] = []
    try:
        paths = config.paths
        image = load_atlas(
            config.atlas_places[atlas], atlas_dir=paths.atlas_dir, templateflow_home=paths.templateflow_home
        ).image
        picture = figure_folder(layout) / f"{stem}_brain.png"
        plot_regions(weights, image, classes, picture)
        caption = (
            f"Regions whose activity at landmark volumes speaks for a class: the top {config.explain.top_rois:.0%} of "
            "ROIs by regression weight. Above on a glass brain (from the left, behind, right and above), below on the "
            "inflated fsaverage5 cortex. Colour shows the class; all selected ROIs are drawn alike."
        )
        blocks.append(Picture(picture, caption))
    except BoltError as error:
        blocks.append(Text(f"No brain map: {error}", warning=True))
    caption = (
        "Selected ROIs. The weight is the change in log odds per standard deviation of BOLD, mean ± sd over folds. "
        "Trust a region only as far as it is selected in most folds."
    )
    blocks.append(Table(tables.top_rois(weights), caption, out / "roi_weights.tsv"))
    networks = read_table(out / "networks.tsv", text=("class", "network"))
    blocks.append(Table(tables.networks(networks), "Networks of the selected ROIs.", out / "networks.tsv"))
    return blocks


def _time_courses(config: Config, dataset: Dataset, layout: Layout, atlas: str, run: Path, stem: str) -> list[Block]:
    """Importance over time of the first test scans of each class (those predicted right come first)."""
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
        caption = f"Test scan {scan['scan_id']}: importance of each volume for the prediction, above the ROI series."
        events = None
        if landmarks is not None:
            events = landmarks.loc[landmarks["scan_id"] == scan["scan_id"], "volume"].to_numpy(int)
            caption += " Green: volumes at which a simulated event is strong (the model was not told)."
        series = cache.series(rows[scan["scan_id"]])
        figures.time_course(
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
