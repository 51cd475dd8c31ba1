"""What the report says of one run: how well it predicts, and what it looked at."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from bolt.config import Config, Dataset, Model
from bolt.config.layout import Layout
from bolt.io.files import read_json, read_table
from bolt.report.figures import plots
from bolt.report.figures.calibration import reliability
from bolt.report.html import Block, Picture, Run, Table, Text, figure_folder, run_stem, run_title
from bolt.report.pages.explanation import digest
from bolt.report.tables import readable


def run_section(config: Config, dataset: Dataset, layout: Layout, atlas: str, model: Model, seed: int) -> Run:
    """Performance and, where the run was explained, explanation."""
    run = Run(run_title(config, atlas, model, seed))
    folder = layout.run(atlas, model, seed).folder
    stem = run_stem(atlas, model, seed)
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
    run.performance.append(Table(readable.performance(metrics, pooled), caption, folder / "metrics.tsv"))
    run.performance += _beyond(metrics, folder, figure_folder(layout) / f"{stem}_calibration.png")
    if pooled and dataset.classes is None:
        picture = figure_folder(layout) / f"{stem}_performance.png"
        plots.predicted_numbers(pooled, picture, dataset.label)
        caption = "Predicted against true label of all test scans; a perfect prediction lies on the dashed line."
        run.performance.append(Picture(picture, caption))
    elif pooled:
        picture = figure_folder(layout) / f"{stem}_performance.png"
        plots.performance(metrics, pooled, picture)
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
        plots.training_curves(histories, picture)
        caption = (
            "Training: thin lines are folds, thick lines their mean. The training loss holds the model's own terms too."
        )
        run.performance.append(Picture(picture, caption))
    run.explanation = digest(config, dataset, layout, atlas, model, seed)
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
        blocks.append(Table(readable.beyond(metrics, pooled), caption))
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
        blocks.append(Table(readable.sites(sites), caption))
    return blocks
