"""The page of performance: all models side by side and against baselines, hyper-parameter searches, and each run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bolt.config import Model, load_model
from bolt.config.layout import ModelRun
from bolt.config.study import Entry, Study
from bolt.evaluate.balanced import BALANCED
from bolt.evaluate.chance import LEVEL
from bolt.evaluate.intervals import FEWEST_GROUPS, FEWEST_PER_CLASS
from bolt.evaluate.results import Gathered, gather, paired_tests, sites, summaries
from bolt.io.files import holds_something, read_json, read_table
from bolt.models.registry import inputs_of
from bolt.report import tables
from bolt.report.figures import performance as figures
from bolt.report.html import Block, Chapter, Table, Text, drawn, say
from bolt.report.numbers import DASH, LEGEND, joined, marked, number, reconstructed
from bolt.report.pages.verdicts import averaged
from bolt.report.runs import figure_folder, run_figure, run_scope, run_title
from bolt.report.tables import read_result

Compared = tuple[list[Entry], list[Gathered]]
"""All models on one atlas, and their predictions by all seeds."""


def reference(study: Study) -> Model:
    """Return the first configured BolT model, else the first model."""
    models = list(study.models.values())
    return next((model for model in models if model.model == "bolt"), models[0])


def reference_run(study: Study) -> ModelRun:
    """Return the run that the first screen is about: of the reference, with the first atlas and seed."""
    return next(run for run in study.runs if study.models[run.model] is reference(study))


def gathered(study: Study) -> dict[str, Compared]:
    """Return all models on each atlas, and their predictions by all seeds."""
    found = {}
    for atlas in study.config.atlas_places:
        entries = [
            Entry(
                dataset=study.dataset.name,
                atlas=atlas,
                row=model.shown,
                model=model,
                folders=[study.layout.run(atlas, model, seed).folder for seed in study.config.seeds],
                folds=study.config.folds.of(model.name),
                classes=study.dataset.classes or [],
                outer=study.config.folds.outer,
            )
            for model in study.models.values()
        ]
        found[atlas] = entries, [gather(entry) for entry in entries]
    return found


def performance_sections(study: Study, rows: Mapping[str, Compared]) -> list[Chapter]:
    """Return the comparison of all runs (`gathered`), the searches, and each run."""
    compared = filter(None, [comparison(study, rows)])
    return [*compared, *search_sections(study), *(run_section(study, run) for run in study.runs)]


def comparison(study: Study, rows: Mapping[str, Compared]) -> Chapter | None:
    """Compare all evaluated runs (`gathered`); None if there are fewer than two."""
    runs = {run_title(study, run): run for run in study.runs}
    read = {title: tables.read_evaluated(run.folder) for title, run in runs.items()}
    evaluated = {title: metrics for title, metrics in read.items() if metrics}
    if len(evaluated) < 2:
        return None
    pairs = [pair for of_atlas in rows.values() for pair in zip(*of_atlas, strict=True)]
    name = reference(study).shown
    scopes = joined({title: run_scope(runs[title]) for title in evaluated})
    blocks: list[Block] = [Text(f"{'. '.join(scopes)}.", warning=True)] if scopes else []
    if study.dataset.classes:
        blocks += [warning for of_atlas in rows.values() for warning in baseline_warnings(study, *of_atlas)]
    fidelities = {title: study.models[run.model].fidelity for title, run in runs.items()}
    table = tables.comparison(evaluated)
    levels = [fidelity.level if (fidelity := fidelities[title]) else DASH for title in table[""]]
    table.insert(1, "fidelity", levels)
    blocks.append(Table(table, say("performance.comparison", classes=study.dataset.classes)))
    if study.dataset.classes:
        picture, unknown = figure_folder(study.layout) / "comparison.png", reconstructed(fidelities)
        caption = say("performance.picture", legend=LEGEND if unknown else "")
        shown = {marked(title, unknown): found for title, found in evaluated.items()}
        blocks.append(drawn(picture, caption, figures.comparison, shown))
    by_site = [sites(*pair) for pair in pairs]
    of_sites = pd.concat([found for found in by_site if len(found)] or by_site[:1], ignore_index=True)
    notes = reconstructed({model.shown: model.fidelity for model in study.models.values()})
    if figures.has_sites(of_sites):
        picture, caption = figure_folder(study.layout) / "sites.png", say("performance.sites", most=figures.MOST)
        blocks.append(drawn(picture, caption, figures.draw_sites, of_sites, reference=name, unknown=notes))
    if len(study.config.seeds) > 1:
        numbers = pd.concat([summaries(*pair) for pair in pairs])
        blocks.append(Table(tables.seeds(numbers), say("performance.seeds", n=len(study.config.seeds))))
    blocks += [Text(f"{name} is reconstructed, not the original method: {note}") for name, note in notes.items()]
    for atlas, (entries, found) in rows.items():
        tests = paired_tests(entries, found, name)
        if len(tests):
            sheet = tables.paired("", tests)
            sentences = [f"{atlas}: tests against {name}. {sheet.caption}", *(f"{note}." for note in sheet.notes)]
            blocks.append(Table(sheet.frame, " ".join(sentences)))
    return Chapter("All models side by side", blocks)


def baseline_warnings(study: Study, entries: Sequence[Entry], gathered: Sequence[Gathered]) -> list[Block]:
    """Warn of each baseline without brain data that models with it do not outperform, the reference first.

    `entries` are the models on one atlas.
    """
    blocks: list[Block] = []
    for baseline in entries:
        if not tables.sees_covariates_only(baseline.model):
            continue
        tests = paired_tests(entries, gathered, baseline.row)
        differences = ["difference", "pooled_difference"]
        tests[differences] = -tests[differences].astype(float)  # model minus baseline
        warnings: dict[str, str] = {}
        for entry in entries:
            if inputs_of(entry.model.model) != "covariates":
                warning = tables.baseline_warning(baseline.row, entry.row, tests[tests["row"] == entry.row])
                warnings |= {entry.row: warning} if warning else {}
        if warnings:
            first, *others = sorted(warnings, key=lambda name: name != reference(study).shown)
            also = f" The same is true of {', '.join(others)}." if others else ""
            place = f"{baseline.atlas}: " if len(study.config.atlas_places) > 1 else ""
            blocks.append(Text(f"{place}{warnings[first]}{also}", warning=True))
    return blocks


def run_section(study: Study, run: ModelRun) -> Chapter:
    """Return the metrics of a run, its calibration, sites and training."""
    file, title = run.folder / "metrics.tsv", run_title(study, run)
    if not file.is_file():
        return Chapter(title, [Text(f"Not evaluated yet: {file} is missing.", warning=True)])
    metrics, summary = read_result(file), read_json(run.folder / "summary.json")
    pooled, chance = summary["pooled"], summary.get("chance")
    blocks: list[Block] = []
    unfinished = metrics.loc[metrics["state"].notna() & (metrics["state"] != "ok"), "fold"]
    if len(unfinished):
        blocks.append(Text(f"Without fold {', '.join(unfinished)}: not finished, see the table.", warning=True))
    if scope := run_scope(run):
        asked = len(study.folds_of(run))
        wish = "" if asked == study.config.folds.outer else f" ('folds: run' asks for {asked})"
        blocks.append(Text(f"{scope}{wish}.", warning=True))
    if (model := study.models[run.model]).file is not None:
        infos = map(read_json, filter(Path.is_file, (run.fold(k) / "checkpoint.json" for k in study.folds_of(run))))
        separating: list[str] = next((found for info in infos if (found := info.get("separating"))), [])
        blocks.append(Text(say("performance.others", model=model, separating=separating), warning=True))
    caption = say("performance.metrics", classes=study.dataset.classes)
    blocks.append(Table(tables.performance(metrics, pooled), caption, file))
    if chance and chance["value"] is not None:
        text = say("performance.chance", **chance, averaged=averaged(chance), level=LEVEL)
        blocks.append(Text(text, warning=chance["p"] > LEVEL))
    if pooled and "brier" in pooled:
        picture, caption = run_figure(study, run, "calibration"), say("performance.reliability")
        blocks.append(Table(tables.calibration(metrics, pooled), say("performance.probabilities")))
        blocks.append(drawn(picture, caption, figures.reliability, pooled["calibration"]))
    blocks += balanced_blocks(run)
    if summary["sites"]:
        caption = say("performance.of_sites", groups=FEWEST_GROUPS, per_class=FEWEST_PER_CLASS)
        blocks.append(Table(tables.sites(summary["sites"]), caption))
    if pooled:
        picture = run_figure(study, run, "performance")
        if study.dataset.classes is None:
            label = study.dataset.label or ""
            blocks.append(drawn(picture, say("performance.numbers"), figures.predicted_numbers, pooled, label=label))
        else:
            caption = say("performance.run", roc=pooled.get("roc"))
            blocks.append(drawn(picture, caption, figures.performance, metrics, pooled))
    files = {fold: run.fold(fold) / "history.tsv" for fold in study.folds_of(run)}
    if histories := {fold: read_table(file) for fold, file in files.items() if holds_something(file)}:
        picture = run_figure(study, run, "training")
        blocks.append(drawn(picture, say("performance.training"), figures.training_curves, histories))
    return Chapter(title, blocks)


def balanced_blocks(run: ModelRun) -> list[Block]:
    """Show what performance would be if the classes were alike in motion, age, sex and site, or say why not."""
    file = run.folder / "balanced.tsv"
    table = read_result(file)
    if table.empty:
        return []
    of_balanced = table[table["population"] == BALANCED].iloc[0]
    blocks: list[Block] = []
    if isinstance(of_balanced["note"], str):
        blocks.append(Text(say("performance.not_balanced", note=of_balanced["note"])))
    if table["value"].notna().any():
        caption = say("performance.balanced", covariates=of_balanced["covariates"])
        blocks.append(Table(tables.balanced(table), caption, file))
    return blocks


def search_sections(study: Study) -> list[Chapter]:
    """Return one section per searched model and atlas: what was tried and chosen, and what both schemes gave."""
    sections = []
    for atlas in study.config.atlas_places:
        folder = study.layout.study(atlas, "any", 0).parents[1]
        for searched in sorted(path for path in folder.glob("*") if any(path.glob("fold-*/best.json"))):
            found = [read_json(file) for file in searched.glob("fold-*/best.json")]
            best = {about["fold"]: about for about in sorted(found, key=lambda about: about["fold"])}
            trials = {fold: read_result(searched / f"fold-{fold}" / "trials.tsv") for fold in best}
            picture = figure_folder(study.layout) / f"{atlas}_{searched.name}_search.png"
            n_trials, first = sum(map(len, trials.values())), next(iter(best.values()))
            caption = say("performance.chosen", n_trials=n_trials, n_folds=len(best), first=first)
            blocks: list[Block] = [
                Table(chosen(best, trials), caption, searched),
                drawn(picture, say("performance.search"), figures.search, best, trials),
                _schemes(study, atlas, searched.name),
            ]
            sections.append(Chapter(f"Search of {searched.name} on {atlas}", blocks))
    return sections


def chosen(best: Mapping[int, dict[str, Any]], trials: Mapping[int, pd.DataFrame]) -> pd.DataFrame:
    """Return a row per setting: the configured value, the first fold's (scheme 'paper'), and the range over folds."""
    first = min(best)
    configured = trials[first].iloc[0]
    rows = []
    for name in [*best[first]["values"], "validation_loss"]:
        values = [found["values"].get(name, found.get(name)) for found in best.values()]
        if any(isinstance(value, str) for value in values):
            counts = pd.Series(values).value_counts()
            over_folds = ", ".join(f"{value} ({count})" for value, count in counts.sort_index().items())
        else:
            low, median, high = (number(float(np.quantile(values, q))) for q in (0, 0.5, 1))
            over_folds = f"{median} ({low} to {high})"
        row = {"": name.replace("_", " ").split(".")[-1], "configured": number(configured[name])}
        rows.append(row | {f"fold {first} (scheme 'paper')": number(values[0]), "over folds": over_folds})
    return pd.DataFrame(rows)


def _schemes(study: Study, atlas: str, model: str) -> Block:
    """Compare the test results of both schemes, if both were chosen and trained."""
    evaluated = {}
    for scheme in ("per-fold", "paper"):
        choice = study.layout.choice(atlas, scheme, model)
        if choice.is_file():
            run = study.layout.run(atlas, load_model(str(choice)), study.config.seeds[0])
            if metrics := tables.read_evaluated(run.folder):
                evaluated[f"scheme '{scheme}'"] = metrics
    if len(evaluated) < 2:
        return Text(say("performance.one_scheme"))
    metric, unit = ("accuracy", 100) if study.dataset.classes else ("r", 1)
    finished = [table[table["state"] == "ok"].set_index("fold")[metric] * unit for table, _ in evaluated.values()]
    caption = say("performance.schemes", differences=(finished[1] - finished[0]).dropna(), metric=metric)
    return Table(tables.comparison(evaluated), caption)
