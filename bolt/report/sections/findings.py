"""The first screen of the report: what was found, against what, and whether it may be believed.

Everything is about one run, the reference: the first BolT model on the first atlas with the first seed. The sentences
(``templates/words.yaml``) only repeat numbers, tests and verdicts of the pages below.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from bolt.cohort.confounding import DIFFERS, MAY_DIFFER, SIMILAR, effect_text, interval_text
from bolt.config.layout import ModelRun
from bolt.config.study import Entry, Study
from bolt.evaluate.chance import LEVEL
from bolt.evaluate.results import Gathered, paired_tests
from bolt.io.files import read_json, read_table
from bolt.models.registry import fitted_at_once, has_epochs
from bolt.report.figures import performance as figures
from bolt.report.html import Picture, figure_folder, run_anchor, run_figure, say
from bolt.report.sections.performance import Compared, reference_run
from bolt.report.sections.verdicts import MARKS, NOT_SUPPORTED, Verdict, believed, verdicts_of
from bolt.report.tables.numbers import (
    LEGEND,
    Formatter,
    decimal,
    joined,
    marked,
    metric_name,
    name_of_all,
    percent,
    reconstructed,
    scope_of,
)
from bolt.report.tables.readable import sees_brain, standing

PREDICTED, DIFFERENT, BELIEVED = "What was predicted", "What else differs", "May the explanation be believed?"
SURE = 0.95
"""Mean probability of the predicted class from which the predictions of a bin count as sure."""


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
    """Summarise the study; `compared` are the models of each atlas (`performance.gathered`)."""
    run = reference_run(study)
    found, summaries = Findings({}), _summaries(study, run)
    if run in summaries:
        found.sentences[PREDICTED] = _predicted(study, run, summaries, *compared[run.atlas])
    tests = study.layout.tables / "cohort_tests.tsv"
    if tests.is_file() and (text := _different(read_table(tests), study.dataset.classes is not None)):
        found.sentences[DIFFERENT] = text
    verdicts = verdicts_of(study, run)
    if verdicts:
        found.sentences[BELIEVED] = believed(verdicts)
        found.verdicts = [(MARKS[verdict.state], verdict) for verdict in verdicts]
        found.moot = verdicts[0].state == NOT_SUPPORTED
        found.link = f"{study.layout.trust_page.name}#{run_anchor(run)}"
    if summaries:
        found.pictures.append(_all_models(study, summaries))
    overview = run_figure(study, run, "overview")
    if overview.is_file() and verdicts:
        found.pictures.append(Picture(overview, say("findings.overview", moot=found.moot)))
    return found


def _summaries(study: Study, run: ModelRun) -> dict[ModelRun, dict[str, Any]]:
    """Return ``summary.json`` of all evaluated runs with the atlas and seed of a run."""
    alike = [other for other in study.runs if (other.atlas, other.seed) == (run.atlas, run.seed)]
    files = {other: other.folder / "summary.json" for other in alike}
    read = {other: read_json(file) for other, file in files.items() if file.is_file()}
    return {other: summary for other, summary in read.items() if summary["pooled"]}


def _predicted(
    study: Study,
    run: ModelRun,
    summaries: Mapping[ModelRun, dict[str, Any]],
    entries: Sequence[Entry],
    gathered: Sequence[Gathered],
) -> str:
    """State how well the reference predicts, against chance, the strongest other model and those without brain data."""
    model, classes = study.models[run.model], study.dataset.classes or []
    pooled, chance = summaries[run]["pooled"], summaries[run].get("chance")
    chance = chance if chance and chance["value"] is not None else None
    metric, scope = "auc" if classes else "r", scope_of(summaries[run])
    excluded = None  # an interval may exclude chance where the test does not
    if chance and chance["p"] > LEVEL and chance.get("widened") and pooled[metric]["low"] is not None:
        no_skill = "0.5" if chance["metric"] == "auc" else "0"
        excluded = no_skill if pooled[metric]["low"] > float(no_skill) else None

    values = {other: summary["pooled"][metric]["value"] for other, summary in summaries.items() if other != run}
    ranked = sorted((other for other in values if values[other] is not None), key=lambda other: -values[other])
    brains = [other for other in ranked if sees_brain(study.models[other.model])]
    # the best of a few folds may only have had easy ones
    as_many = [other for other in brains if summaries[other]["pooled"]["n_scans"] >= pooled["n_scans"]] or brains
    strongest = "the strongest other model" + (" tested on as many scans" if len(as_many) < len(brains) else "")
    at_once = [other for other in as_many if fitted_at_once(study.models[other.model].model)]
    simple = at_once[:1] if has_epochs(model.model) else []
    roles = {other: strongest + (", which is simpler" if [other] == simple else "") for other in as_many[:1]}
    roles |= {other: "which is simpler" for other in simple if other not in roles}
    for other in ranked:
        if other not in brains and study.models[other.model].model != "majority":
            roles[other] = "which sees no brain data"
    tests = paired_tests(entries, gathered, model.shown)
    others: list[dict[str, Any]] = []
    for other, role in roles.items():
        name, its = study.models[other.model].shown, scope_of(summaries[other])
        how = standing(tests[tests["row"] == name])
        about = {"name": name, "value": values[other], "scope": its if its != scope else ""}
        others.append({"how": how, "role": role, **about})
    return say(
        "findings.predicted",
        model=model.shown,
        classes=classes,
        label=study.dataset.label,
        scope=scope,
        n_scans=pooled["n_scans"],
        result=_with_interval(pooled, metric),
        accuracy=_with_interval(pooled, "accuracy") if classes else "",
        majority=pooled.get("majority_accuracy"),
        chance=chance,
        level=LEVEL,
        excluded=excluded,
        sure=_too_sure(pooled),
        others=others,
        metric=metric_name(metric),
    )


def _too_sure(pooled: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return how sure a model was, if its probabilities are worse than the shares of the classes."""
    loss = pooled.get("log_loss", {}).get("value")
    if loss is None:
        return None
    shares = np.array(pooled["confusion"]).sum(axis=1) / np.sum(pooled["confusion"])
    guess = float(-(shares[shares > 0] * np.log(shares[shares > 0])).sum())
    if loss <= guess:
        return None
    bins = zip(pooled["calibration"]["probability"], pooled["calibration"]["n_scans"], strict=True)
    sure = sum(n for probability, n in bins if probability >= SURE)
    return {"loss": loss, "guess": guess, "n": sure, "n_all": np.sum(pooled["confusion"]), "level": SURE}


def _with_interval(pooled: Mapping[str, Any], metric: str) -> str:
    """Write a metric with its interval: ``an AUC within folds of 0.87 (95 % interval 0.80 to 0.93)``."""
    found, unit = pooled[metric], " %" if metric == "accuracy" else ""
    shown: Formatter = percent if metric == "accuracy" else decimal
    words = "a correlation" if metric == "r" else f"an {name_of_all(metric)}"
    notes = [] if found["low"] is None else [f"95 % interval {shown(found['low'])} to {shown(found['high'])}{unit}"]
    across = pooled.get("auc_across") if metric == "auc" else None
    if across is not None and decimal(across) != decimal(found["value"]):
        notes.append(f"across folds, where scores of different models are compared, {decimal(across)}")
    ends = f" ({'; '.join(notes)})" if notes else ""
    return f"{words} of {shown(found['value'])}{unit}{ends}"


def _different(tests: pd.DataFrame, classes: bool) -> str:
    """State which of site, sex, age and motion go with the label, the largest effect first."""
    known = tests[tests["verdict"].notna()]
    known = known.assign(size=known["effect"].abs() / known["medium"]).sort_values("size", ascending=False)
    headings = {
        DIFFERS: "Differs between the classes" if classes else "Differs with the label",
        MAY_DIFFER: "Too few people to tell whether these differ",
        SIMILAR: "Similar",
    }
    effects = map(effect_text, known["effect_name"], known["effect"])
    known["words"] = [a + b for a, b in zip(effects, map(interval_text, known["low"], known["high"]), strict=True)]
    listed = {text: known[known["verdict"] == verdict].to_dict("records") for verdict, text in headings.items()}
    unknown = tests.loc[tests["n"] == 0, "measure"].str.lower().tolist()
    return say("findings.different", listed=listed, unknown=unknown)


def _all_models(study: Study, summaries: Mapping[ModelRun, dict[str, Any]]) -> Picture:
    """Draw all models in one plot."""
    models = [study.models[run.model] for run in summaries]
    unknown = reconstructed({model.shown: model.fidelity for model in models})
    scopes = {model.shown: scope_of(summary) for model, summary in zip(models, summaries.values(), strict=True)}
    rows = [
        figures.Row(marked(model.shown, unknown), summary["pooled"], sees_brain(model), not scopes[model.shown])
        for model, summary in zip(models, summaries.values(), strict=True)
    ]
    metric, file = "auc" if study.dataset.classes else "r", figure_folder(study.layout) / "models.png"
    figures.overview(rows, metric, file)
    notes = ["Hollow: tested on some of the folds"] * any(scopes.values()) + joined(scopes) + [LEGEND] * bool(unknown)
    return Picture(file, say("findings.models", metric=name_of_all(metric), notes=notes))
