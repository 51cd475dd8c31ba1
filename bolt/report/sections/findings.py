"""The first screen of the report: what was found, against what, and whether it may be believed.

Everything is about one run, the reference: the first BolT model on the first atlas with the first seed. The sentences
only repeat numbers, tests and verdicts of the pages below.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from bolt.cohort.confounding import DIFFERS, MAY_DIFFER, SIMILAR, effect_text, interval_text
from bolt.config import Model
from bolt.config.layout import ModelRun
from bolt.config.study import Study
from bolt.evaluate.chance import LEVEL
from bolt.experiments.entries import Entry
from bolt.experiments.results import Gathered, paired_tests
from bolt.io.files import read_json, read_table
from bolt.models.registry import fitted_at_once, has_epochs
from bolt.report.figures import performance as figures
from bolt.report.html import Picture
from bolt.report.runs import figure_folder, run_anchor, run_figure, run_title
from bolt.report.sections.comparison import Compared, reference_run
from bolt.report.sections.explanation.questions import MARKS, NOT_SUPPORTED, Verdict, believed, verdicts_of
from bolt.report.tables.baselines import sees_brain, standing
from bolt.report.tables.numbers import (
    LEGEND,
    decimal,
    joined,
    marked,
    metric_name,
    name_of_all,
    number,
    p_value,
    percent,
    reconstructed,
    scope_of,
)

PREDICTED, DIFFERENT, BELIEVED = "What was predicted", "What else differs", "May the explanation be believed?"
MODELS = "{metric} of all test scans with its 95 % interval; dashed: no skill. Grey: models that see no brain data."
SURE = 0.95
"""Mean probability of the predicted class from which the predictions of a bin count as sure."""
HOLLOW = "Hollow: tested on some of the folds"
OVERVIEW = (
    "Left: regions whose activity at important moments favours a class (pale: selected in few folds). Right: how "
    "important each moment of one test scan was for its prediction."
)
NOT_TO_BE_READ = "Not to be interpreted, because the model is not shown to predict better than chance. "


@dataclass
class Findings:
    """What the first screen shows.

    Attributes
    ----------
    sentences : dict
        Heading and text.
    verdicts : list of (sign, Verdict)
        On the explanation of the reference run; [] if it was not explained.
    moot : bool
        The first verdict is that the model predicts nothing: the others do not count.
    link : str
        Where they are explained.
    pictures : list of Picture
    """

    sentences: dict[str, str]
    verdicts: list[tuple[str, Verdict]] = field(default_factory=list)
    moot: bool = False
    link: str = ""
    pictures: list[Picture] = field(default_factory=list)


def findings(study: Study, compared: Mapping[str, Compared]) -> Findings:
    """Summarise the study; `compared` are the models of each atlas (`comparison.gathered`)."""
    run = reference_run(study)
    found = Findings({})
    if text := _predicted(study, run, *compared[run.atlas]):
        found.sentences[PREDICTED] = text
    tests = study.layout.tables / "cohort_tests.tsv"
    if tests.is_file() and (text := _different(read_table(tests), study.dataset.classes is not None)):
        found.sentences[DIFFERENT] = text
    if verdicts := verdicts_of(study, run):
        found.sentences[BELIEVED] = believed(verdicts)
        found.verdicts = [(MARKS[verdict.state], verdict) for verdict in verdicts]
        found.moot = verdicts[0].state == NOT_SUPPORTED
        found.link = f"{study.layout.trust_page.name}#{run_anchor(run)}"
    found.pictures = _pictures(study, run, NOT_TO_BE_READ if found.moot else "")
    return found


def _predicted(study: Study, run: ModelRun, entries: Sequence[Entry], gathered: Sequence[Gathered]) -> str:
    """State how well the reference predicts, against chance, the strongest other model and those without brain data."""
    summaries = _summaries(study, run)
    if run_title(study, run) not in summaries:
        return ""
    model, summary = study.models[run.model], summaries[run_title(study, run)]
    pooled, label, metric = summary["pooled"], study.dataset.label, _metric(study)
    scope = scope_of(summary)
    scans = f"test scans ({scope})" if scope else f"{number(pooled['n_scans'])} test scans"
    classes = study.dataset.classes or []
    what = f"{' or '.join(classes)} in" if len(classes) == 2 else f"{label} of"
    parts = [f"{model.shown} predicts {what} {scans} with {_with_interval(pooled, metric)}"]
    if study.dataset.classes:
        parts[0] += f" and {_with_interval(pooled, 'accuracy')}"
        parts[0] += f"; always naming the largest class gives {percent(pooled['majority_accuracy'])} %"
    chance = summary.get("chance")
    if chance and chance["value"] is not None:
        side = "better" if chance["p"] <= LEVEL else "not shown to be better"
        p = f"p = {p_value(chance['p'])}".replace("= <", "<")
        parts.append(f"This is {side} than chance (permuted labels, {p}){_both_right(pooled[metric], chance)}")
    parts += _too_sure(pooled)
    tests = paired_tests(entries, gathered, model.shown)
    others = _others(study, run, summaries, metric)
    brains = [other for other in others if sees_brain(other[1])]
    blind = [other for other in others if not sees_brain(other[1]) and other[1].model != "majority"]
    # the best of a few folds may only have had easy ones
    as_many = [other for other in brains if other[2]["pooled"]["n_scans"] >= pooled["n_scans"]] or brains
    strongest = "the strongest other model" + (" tested on as many scans" if len(as_many) < len(brains) else "")
    simple = [other for other in as_many if has_epochs(model.model) and fitted_at_once(other[1].model)][:1]
    roles = [(other, f"{strongest}, which is simpler" if [other] == simple else strongest) for other in as_many[:1]]
    roles += [(other, "which is simpler") for other in simple if other not in as_many[:1]]
    roles += [(other, "which sees no brain data") for other in blind]
    for (value, other, found), words in roles:
        how = standing(tests[tests["row"] == other.shown])
        tested = f"; {its}" if (its := scope_of(found)) != scope and its else ""
        parts.append(f"It is {how} than {other.shown} ({metric_name(metric)} {decimal(value)}{tested}), {words}")
    return ". ".join(parts) + "."


def _too_sure(pooled: Mapping[str, Any]) -> list[str]:
    """Say that probabilities are worse than the shares of the classes, where they are, and how sure the model was."""
    loss = pooled.get("log_loss", {}).get("value")
    if loss is None:
        return []
    shares = np.array(pooled["confusion"]).sum(axis=1) / np.sum(pooled["confusion"])
    guess = float(-(shares[shares > 0] * np.log(shares[shares > 0])).sum())
    if loss <= guess:
        return []
    bins = zip(pooled["calibration"]["probability"], pooled["calibration"]["n_scans"], strict=True)
    sure = sum(n for probability, n in bins if probability >= SURE)
    return [
        f"Its probabilities are too confident to be used: their log loss of {decimal(loss)} is worse than the "
        f"{decimal(guess)} of always stating the shares of the classes ({sure} of {np.sum(pooled['confusion'])} "
        f"predictions have a probability of about {SURE:g} or more)"
    ]


def _both_right(found: Mapping[str, Any], chance: Mapping[str, Any]) -> str:
    """Say why an interval may exclude chance where the test does not."""
    no_skill = 0.5 if chance["metric"] == "auc" else 0.0
    if found["low"] is None or found["low"] <= no_skill or chance["p"] <= LEVEL or not chance.get("widened"):
        return ""
    return (
        f", although the interval excludes {no_skill:g}: it takes the trained models as they are, while the test "
        "allows for what their common training scans give to all folds alike"
    )


def _metric(study: Study) -> str:
    return "auc" if study.dataset.classes else "r"


def _with_interval(pooled: Mapping[str, Any], metric: str) -> str:
    """Write a metric with its interval: ``an AUC within folds of 0.87 (95 % interval 0.80 to 0.93)``."""
    found, shown = pooled[metric], percent if metric == "accuracy" else decimal
    unit = " %" if metric == "accuracy" else ""
    article = "an" if metric in ("auc", "accuracy") else "a correlation"
    words = article if metric == "r" else f"{article} {name_of_all(metric)}"
    notes = [] if found["low"] is None else [f"95 % interval {shown(found['low'])} to {shown(found['high'])}{unit}"]
    across = pooled.get("auc_across") if metric == "auc" else None
    if across is not None and decimal(across) != decimal(found["value"]):
        notes.append(f"across folds, where scores of different models are compared, {decimal(across)}")
    ends = f" ({'; '.join(notes)})" if notes else ""
    return f"{words} of {shown(found['value'])}{unit}{ends}"


def _summaries(study: Study, run: ModelRun) -> dict[str, dict[str, Any]]:
    """Return ``summary.json`` of all evaluated runs with the atlas and seed of a run, by title."""
    alike = [other for other in study.runs if (other.atlas, other.seed) == (run.atlas, run.seed)]
    files = {run_title(study, other): other.folder / "summary.json" for other in alike}
    read = {title: read_json(file) for title, file in files.items() if file.is_file()}
    return {title: summary for title, summary in read.items() if summary["pooled"]}


def _others(
    study: Study, run: ModelRun, summaries: Mapping[str, dict[str, Any]], metric: str
) -> list[tuple[float, Model, dict[str, Any]]]:
    """Return value, model and summary of all other runs, best first."""
    rows = []
    for other in study.runs:
        title = run_title(study, other)
        if other != run and title in summaries:
            value = summaries[title]["pooled"][metric]["value"]
            if value is not None:
                rows.append((float(value), study.models[other.model], summaries[title]))
    return sorted(rows, key=lambda row: -row[0])


def _different(tests: pd.DataFrame, classes: bool) -> str:
    """State which of site, sex, age and motion go with the label, the largest effect first."""
    known = tests[tests["verdict"].notna()]
    known = known.assign(size=known["effect"].abs() / known["medium"]).sort_values("size", ascending=False)

    def listed(verdict: str) -> str:
        rows = known[known["verdict"] == verdict].itertuples()
        return "; ".join(
            f"{row.measure.lower()} ({f'{row.groups}; ' if isinstance(row.groups, str) else ''}"
            f"{effect_text(row.effect_name, row.effect)}{interval_text(row.low, row.high)})"
            for row in rows
        )

    where = "between the classes" if classes else "with the label"
    verbs = {
        DIFFERS: f"Differs {where}: ",
        MAY_DIFFER: "Too few people to tell whether these differ: ",
        SIMILAR: "Similar: ",
    }
    parts = [f"{verb}{listed(verdict)}" for verdict, verb in verbs.items() if (known["verdict"] == verdict).any()]
    unknown = ", ".join(tests.loc[tests["n"] == 0, "measure"].str.lower())
    parts += [f"Not known: {unknown}"] if unknown else []
    return ". ".join(parts) + "." if parts else ""


def _pictures(study: Study, run: ModelRun, caution: str) -> list[Picture]:
    """Draw all models in one plot; show the overview of the explanation beside it."""
    summaries, pictures = _summaries(study, run), []
    if summaries:
        models = {title: study.models[other.model] for other in study.runs if (title := run_title(study, other))}
        evaluated = {models[title].shown: (models[title], summary) for title, summary in summaries.items()}
        unknown = reconstructed({name: model.fidelity for name, (model, _) in evaluated.items()})
        scopes = {name: scope_of(summary) for name, (_, summary) in evaluated.items()}
        rows = [
            figures.Row(marked(name, unknown), summary["pooled"], sees_brain(model), not scopes[name])
            for name, (model, summary) in evaluated.items()
        ]
        file = figure_folder(study.layout) / "models.png"
        figures.overview(rows, _metric(study), file)
        notes = [HOLLOW] * any(scopes.values()) + joined(scopes) + [LEGEND] * bool(unknown)
        caption = " ".join([MODELS.format(metric=name_of_all(_metric(study))), *(f"{note}." for note in notes)])
        pictures.append(Picture(file, caption))
    overview = run_figure(study, run, "overview")
    if overview.is_file() and verdicts_of(study, run):
        pictures.append(Picture(overview, caution + OVERVIEW))
    return pictures
