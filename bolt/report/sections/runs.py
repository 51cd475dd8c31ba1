"""One run: how well it predicts.

The hyper-parameter search: what it tried and chose, and how its two schemes compare if both were trained.

What the models predicted of each test scan.

The course of importance in every explained test scan.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bolt.config import load_model
from bolt.config.layout import ModelRun
from bolt.config.study import Study
from bolt.evaluate.areas import FEWEST_PER_CLASS
from bolt.evaluate.chance import LEVEL
from bolt.evaluate.intervals import FEWEST_GROUPS
from bolt.experiments.entries import Entry
from bolt.explain.weights import explained_folds, read_importance
from bolt.io.files import read_json, read_table
from bolt.report.figures import performance as figures
from bolt.report.figures import search
from bolt.report.figures.series import course_strip
from bolt.report.html import Block, Chapter, Picture, Table, Text
from bolt.report.runs import figure_folder, run_figure, run_scope, run_title
from bolt.report.sections.comparison import Compared, positive_class, reference
from bolt.report.sections.explanation.measures import averaged
from bolt.report.sections.images import Figure
from bolt.report.tables import readable
from bolt.report.tables.numbers import (
    KIND_OF_INTERVAL_OF_NUMBERS,
    KINDS_OF_INTERVALS,
    WITHIN_FOLDS,
    decimal,
    number,
    p_value,
)
from bolt.series.cache import SeriesCache
from bolt.series.joining import volumes_of
from bolt.training.tuning.choice import read_trials

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


COURSE = (
    "Left: smallest validation loss so far, one line per fold; dots are single trials, except those beyond the axis or "
    "pruned. Right: all values tried (grey), the configured value (open diamond), and the value chosen in each fold "
    "(colour). If the chosen values scatter over the whole range, the setting matters little, or there are too few "
    "validation scans to tell."
)


def search_sections(study: Study) -> list[Chapter]:
    """Return one section per searched model and atlas."""
    sections = []
    for atlas in study.config.atlas_places:
        folder = study.layout.study(atlas, "any", 0).parents[1]
        for searched in sorted(path for path in folder.glob("*") if any(path.glob("fold-*/best.json"))):
            sections.append(_section(study, atlas, searched))
    return sections


def _section(study: Study, atlas: str, folder: Path) -> Chapter:
    files = {int(path.parent.name.removeprefix("fold-")): path for path in folder.glob("fold-*/best.json")}
    best = {fold: read_json(files[fold]) for fold in sorted(files)}
    trials = {fold: read_trials(files[fold].with_name("trials.tsv")) for fold in best}
    picture = figure_folder(study.layout) / f"{atlas}_{folder.name}_search.png"
    search.draw(best, trials, picture)
    first = next(iter(best.values()))
    counts = f"{sum(map(len, trials.values()))} trials on {len(best)} folds"
    caption = (
        f"Hyper-parameters chosen by the search ({counts}; {first['n_validation']} validation scans in fold "
        f"{first['fold']}). The objective is the mean loss of the validation scans; test scans were not used."
    )
    blocks: list[Block] = [Table(chosen(best, trials), caption, folder), Picture(picture, COURSE)]
    return Chapter(f"Search of {folder.name} on {atlas}", blocks + _schemes(study, atlas, folder.name))


def chosen(best: Mapping[int, dict[str, Any]], trials: Mapping[int, pd.DataFrame]) -> pd.DataFrame:
    """Return a row per setting: the configured value, the first fold's (scheme 'paper'), and the range over folds."""
    first = min(best)
    configured = trials[first].iloc[0]
    rows = []
    for name in [*best[first]["values"], "validation_loss"]:
        values = [found["values"].get(name, found.get(name)) for found in best.values()]
        rows.append(
            {
                "": name.replace("_", " ").split(".")[-1],
                "configured": number(configured[name]),
                f"fold {first} (scheme 'paper')": number(values[0]),
                "over folds": _summary(values),
            }
        )
    return pd.DataFrame(rows)


def _summary(values: list[Any]) -> str:
    """Return median and range of numbers, or the counts of words."""
    if any(isinstance(value, str) for value in values):
        counts = pd.Series(values).value_counts()
        return ", ".join(f"{value} ({count})" for value, count in counts.sort_index().items())
    low, median, high = (number(float(np.quantile(values, q))) for q in (0, 0.5, 1))
    return f"{median} ({low} to {high})"


def _schemes(study: Study, atlas: str, model: str) -> list[Block]:
    """Compare the test results of both schemes, if both were chosen and trained."""
    evaluated = {}
    for scheme in ("per-fold", "paper"):
        choice = study.layout.choice(atlas, scheme, model)
        if not choice.is_file():
            continue
        run = study.layout.run(atlas, load_model(str(choice)), study.config.seeds[0])
        if metrics := readable.read_evaluated(run.folder):
            evaluated[f"scheme '{scheme}'"] = metrics
    if len(evaluated) < 2:
        text = "Its two schemes are compared here once `models` names the files that both wrote, and they are trained."
        return [Text(text)]
    metric, unit, of = ("accuracy", 100, "percentage points of accuracy") if study.dataset.classes else ("r", 1, "in r")
    per_fold, paper = (
        table[table["state"] == "ok"].set_index("fold")[metric] * unit for table, _ in evaluated.values()
    )
    differences = (paper - per_fold).dropna()
    caption = (
        "Test results of both schemes. With scheme 'paper', one validation set chose for all folds, and its scans are "
        f"test scans of other folds. Scheme 'paper' minus 'per-fold', over {len(differences)} folds: "
        f"{differences.mean():+.2f} {of} on average ({differences.min():+.2f} to {differences.max():+.2f})."
    )
    return [Table(readable.comparison(evaluated), caption)]


KEYS = ["subject", "scan_id", "fold", "label"]


def predictions_of(study: Study, compared: Mapping[str, Compared]) -> pd.DataFrame:
    """Return a row per model and test scan, of predictions averaged over seeds.

    Columns: `KEYS`; model; reference (whether it is the model that the first page is about); predicted; probability, of
    the predicted class; right (None for numbers); error, by which the most confidently wrong predictions come first;
    n_seeds, and n_right of them.
    """
    several, first = len(compared) > 1, next(iter(compared))
    tables = []
    for atlas, rows in compared.items():
        for entry, gathered in zip(*rows, strict=True):
            tests = gathered.predictions[gathered.predictions["role"] == "test"]
            if tests.empty:
                continue
            table = _classes(tests, entry) if entry.classes else _numbers(tests)
            table["n_seeds"] = tests.groupby(KEYS).size()
            table["model"] = entry.model.shown + (f" on {atlas}" if several else "")
            table["reference"] = atlas == first and entry.model is reference(study)
            tables.append(table.reset_index())
    return pd.concat(tables) if tables else pd.DataFrame(columns=[*KEYS, "reference"])


def _classes(tests: pd.DataFrame, entry: Entry) -> pd.DataFrame:
    columns = {f"p_{name}": name for name in entry.classes}
    mean = tests.groupby(KEYS)[list(columns)].mean().rename(columns=columns)
    table = pd.DataFrame({"predicted": mean.idxmax(axis=1), "probability": mean.max(axis=1)})
    table["right"] = table["predicted"] == table.index.get_level_values("label")
    table["error"] = table["probability"].where(~table["right"], -table["probability"])
    table["n_right"] = tests.assign(right=tests["predicted"] == tests["label"]).groupby(KEYS)["right"].sum()
    return table


def _numbers(tests: pd.DataFrame) -> pd.DataFrame:
    mean = tests.assign(predicted=tests["predicted"].astype(float)).groupby(KEYS)["predicted"].mean()
    error = (mean - mean.index.get_level_values("label").astype(float)).abs()
    return pd.DataFrame({"predicted": mean.map(number), "right": None, "error": error})


def in_short(tests: list[dict[Hashable, Any]]) -> str:
    """Summarise what the reference predicted of a subject's scans."""
    told = [test for test in tests if test["reference"]]
    if not told:
        return "–"
    worst = max(told, key=lambda test: test["error"])
    if worst["right"] is None:
        return f"{worst['predicted']} instead of {number(float(worst['label']))}"
    mark = "✓" if worst["right"] else "✗"
    share = f"{sum(test['right'] for test in told)} of {len(told)} right; " if len(told) > 1 else ""
    return f"{share}{mark} {worst['predicted']} {decimal(worst['probability'])}"


def worst_error(tests: list[dict[Hashable, Any]]) -> float:
    """Return the largest error of the reference; without a prediction, less than any."""
    return max((float(test["error"]) for test in tests if test["reference"]), default=-2.0)


CAPTION = (
    "{model}: importance of each moment for the prediction, relative to the scan's mean (dashed); dots: the {tokens} "
    "most important volumes.{seeds}"
)


def courses(study: Study) -> dict[str, list[Figure]]:
    """Draw the importance of each scan in the fold that tested it, one line per seed; by scan."""
    found: dict[tuple[str, str], dict[str, list[NDArray[np.floating]]]] = {}
    for run in study.runs:
        scans = found.setdefault((run.atlas, run.model), {})
        for fold in explained_folds(run.folder, range(study.config.folds.outer)):
            table, weights = read_importance(run.fold(fold))
            for scan, role, course in zip(table["scan_id"], table["role"], weights, strict=True):
                if role == "test":
                    scans.setdefault(scan, []).append(course)
    drawn: dict[str, list[Figure]] = {}
    for (atlas, model), scans in found.items():
        title = study.models[model].name + (f" on {atlas}" if len(study.config.atlas_places) > 1 else "")
        for scan, figure in _drawn(study, atlas, scans, title).items():
            drawn.setdefault(scan, []).append(figure)
    return drawn


def _drawn(study: Study, atlas: str, scans: dict[str, list[Any]], model: str) -> dict[str, Figure]:
    if not scans:
        return {}
    layout, tokens = study.layout, study.config.explain.tokens
    index = SeriesCache(layout.cache(atlas)).index
    figures = {}
    for row in index.to_dict("records"):
        scan = str(row["scan_id"])
        if scan in scans:
            volumes = volumes_of(row, layout.series_file(scan, atlas))
            n = len(scans[scan])
            seeds = f" Thin lines: {n} seeds; thick: their mean." if n > 1 else ""
            caption = CAPTION.format(model=model, tokens=tokens, seeds=seeds)
            figures[scan] = Figure("", caption, course_strip(scans[scan], volumes, float(row["tr"]), tokens))
    return figures
