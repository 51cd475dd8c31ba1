"""One run: how well it predicts."""

from __future__ import annotations

import pandas as pd

from bolt.config.layout import ModelRun
from bolt.config.study import Study
from bolt.evaluate.areas import FEWEST_PER_CLASS
from bolt.evaluate.chance import LEVEL
from bolt.evaluate.intervals import FEWEST_GROUPS
from bolt.io.files import read_json, read_table
from bolt.report.figures import performance as figures
from bolt.report.html import Block, Chapter, Picture, Table, Text
from bolt.report.runs import run_figure, run_scope, run_title
from bolt.report.sections.comparison import positive_class
from bolt.report.sections.explanation.measures import averaged
from bolt.report.tables import readable
from bolt.report.tables.numbers import KIND_OF_INTERVAL_OF_NUMBERS, KINDS_OF_INTERVALS, WITHIN_FOLDS, decimal, p_value

METRICS = (
    "Test metrics{unit}: per fold, mean ± standard deviation (ddof 0) over folds, and of all test scans. {within}"
    "{kinds}"
)
PERFORMANCE = "Left: metrics of all test scans (AUC: within folds) with 95 % intervals, and of each fold. {others}"
NUMBERS = "Predicted against true label of all test scans; dashed: perfect prediction."
TRAINING = "Training: thin lines are folds, thick lines their mean. The training loss includes penalty terms."
PROBABILITIES = (
    "Balanced accuracy (per cent) weights all classes equally. Brier score and log loss measure how good the predicted "
    "probabilities are; lower is better. The expected calibration error only describes: few scans alone inflate it, so "
    "compare it with that of a perfectly calibrated model of the same probabilities. Scaled: after the logits of each "
    "fold were divided by a temperature fitted to its validation scans; above 1, the model was too sure."
)
RELIABILITY = (
    "Left: share of correct predictions among test scans of similar predicted probability. Dashed: perfect "
    "calibration; below it, the model is overconfident. Right: number of scans."
)
SITES = (
    "Test scans of each site, with 95 % intervals; too few: fewer than {groups} subjects or families, or (AUC) fewer "
    "than {per_class} in a class. A difference between the best and the worst of many sites is no finding in itself."
)


def run_section(study: Study, run: ModelRun) -> Chapter:
    """Return the metrics of a run, its calibration, sites and training."""
    file = run.folder / "metrics.tsv"
    if not file.is_file():
        missing = Text(f"Not evaluated yet: {file} is missing.", warning=True)
        return Chapter(run_title(study, run), [missing])
    metrics, summary = read_table(file, text=("fold", "state")), read_json(run.folder / "summary.json")
    unit = " (accuracy, recall and precision in per cent)" if study.dataset.classes else ""
    kinds = KINDS_OF_INTERVALS if study.dataset.classes else KIND_OF_INTERVAL_OF_NUMBERS
    within = f"{positive_class(study)}{WITHIN_FOLDS} " if study.dataset.classes else ""
    blocks: list[Block] = [
        *_unfinished(metrics),
        *_part(study, run),
        Table(
            readable.performance(metrics, summary["pooled"]),
            METRICS.format(unit=unit, within=within, kinds=kinds),
            file,
        ),
    ]
    blocks += _chance(summary.get("chance"))
    if summary["pooled"]:
        blocks += _calibration(study, run, metrics, summary["pooled"])
    if summary["sites"]:
        blocks.append(
            Table(readable.sites(summary["sites"]), SITES.format(groups=FEWEST_GROUPS, per_class=FEWEST_PER_CLASS))
        )
    if summary["pooled"]:
        blocks.append(_performance(study, run, metrics, summary["pooled"]))
    blocks += _training(study, run)
    return Chapter(run_title(study, run), blocks)


def _unfinished(metrics: pd.DataFrame) -> list[Block]:
    folds = metrics.loc[metrics["state"].notna() & (metrics["state"] != "ok"), "fold"]
    if folds.empty:
        return []
    return [Text(f"Without fold {', '.join(folds)}: not finished, see the table.", warning=True)]


def _part(study: Study, run: ModelRun) -> list[Block]:
    """State how many of the folds and scans were tested, if not all were, and how many were asked for."""
    scope, asked = run_scope(run), len(study.config.folds.of(study.models[run.model].name))
    if not scope:
        return []
    wish = "" if asked == study.config.folds.outer else f" ('folds: run' asks for {asked})"
    return [Text(f"{scope}{wish}.", warning=True)]


def _chance(found: dict | None) -> list[Block]:
    """State whether the model predicts better than chance."""
    if not found or found["value"] is None:
        return []
    name = "AUC" if found["metric"] == "auc" else "correlation"
    value, bar = decimal(found["value"]), decimal(found["bar"])
    side = "above" if found["p"] <= LEVEL else "not above"
    text = (
        f"Compared with chance: {name} {value} ({averaged(found)}), {side} {bar}, which one in forty models that "
        f"predict nothing would reach (permuted labels, one-sided p {p_value(found['p'])})."
    )
    return [Text(text, warning=found["p"] > LEVEL)]


def _calibration(study: Study, run: ModelRun, metrics: pd.DataFrame, pooled: dict) -> list[Block]:
    if "brier" not in pooled:
        return []
    picture = run_figure(study, run, "calibration")
    figures.reliability(pooled["calibration"], picture)
    return [Table(readable.calibration(metrics, pooled), PROBABILITIES), Picture(picture, RELIABILITY)]


def _performance(study: Study, run: ModelRun, metrics: pd.DataFrame, pooled: dict) -> Picture:
    picture = run_figure(study, run, "performance")
    if study.dataset.classes is None:
        figures.predicted_numbers(pooled, picture, study.dataset.label or "")
        return Picture(picture, NUMBERS)
    figures.performance(metrics, pooled, picture)
    roc = "Middle: ROC curve, mean over folds. " if pooled.get("roc") else ""
    return Picture(picture, PERFORMANCE.format(others=f"{roc}Right: confusion matrix."))


def _training(study: Study, run: ModelRun) -> list[Block]:
    files = [file for file in sorted(run.folder.glob("fold-*/history.tsv")) if file.stat().st_size]
    if not files:
        return []
    picture = run_figure(study, run, "training")
    figures.training_curves({int(file.parent.name.removeprefix("fold-")): read_table(file) for file in files}, picture)
    return [Picture(picture, TRAINING)]
