"""The report: gather what the workflow produced, draw it, and write its pages; the first one says what was found.

Missing parts are omitted: ready ROI series have no registration, real data no truth table. The first page is about one
run, the reference: the first BolT model on the first atlas with the first seed. Its sentences only
repeat numbers, tests and verdicts of the other pages.
"""

from __future__ import annotations

import gc
import platform
import time
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from bolt import __version__
from bolt.cohort.confounding import DIFFERS, MAY_DIFFER, SIMILAR
from bolt.config.layout import Layout, ModelRun
from bolt.config.study import Entry, Study
from bolt.datasets import TEXT_COLUMNS
from bolt.evaluate.balanced import ALL, BALANCED
from bolt.evaluate.chance import LEVEL
from bolt.evaluate.results import Gathered, paired_tests
from bolt.explain.explainable import sees_brain
from bolt.io.errors import DataError
from bolt.io.files import atomic, read_json, read_table, write_text
from bolt.jobs.ledger import SUMS, ledger
from bolt.jobs.process import versions
from bolt.jobs.provenance import commit
from bolt.models.registry import fitted_at_once, has_epochs
from bolt.report import tables
from bolt.report.figures import performance as figures
from bolt.report.html import PAGES, Block, Picture, Table, drawn, filled, pages_of, say, write_report_page
from bolt.report.numbers import DASH, LEGEND, joined, marked, metric_name, name_of_all, reconstructed, scope_of
from bolt.report.pages.cohort import with_lengths, with_motion, write_cohort
from bolt.report.pages.explanation import unexplained
from bolt.report.pages.methods import bibtex, cite, cited, load_references, methods, methods_page, preprocessing_texts
from bolt.report.pages.performance import Compared, gathered, performance_sections, reference, reference_run
from bolt.report.pages.subjects import index_exclusions, write_subjects
from bolt.report.pages.trust import leaks_section
from bolt.report.pages.verdicts import MARKS, NOT_SUPPORTED, believed, verdicts_of
from bolt.report.runs import figure_folder, run_anchor, run_figure, run_scope
from bolt.report.tables import read_result

PREDICTED, DIFFERENT, BELIEVED = "What was predicted", "What else differs", "May the explanation be believed?"
SURE = 0.95
"""Mean probability of the predicted class from which the predictions of a bin count as sure."""


def findings(study: Study, compared: Mapping[str, Compared]) -> dict[str, Any]:
    """Summarise the study for the first screen; `compared` are the models of each atlas (`performance.gathered`).

    Returns
    -------
    dict
        sentences (by heading), verdicts on the explanation of the reference run, each with its sign ([] if it was not
        explained), link (where they are explained), moot (the first verdict is that the model predicts nothing: the
        others do not count), pictures.
    """
    run, sentences, pictures = reference_run(study), {}, []
    alike = [other for other in study.runs if (other.atlas, other.seed) == (run.atlas, run.seed)]
    evaluated = [other for other in alike if (other.folder / "summary.json").is_file()]
    read = {other: read_json(other.folder / "summary.json") for other in evaluated}
    summaries = {other: summary for other, summary in read.items() if summary["pooled"]}
    if run in summaries:
        sentences[PREDICTED] = _predicted(study, run, summaries, *compared[run.atlas])
    tests = read_result(study.layout.tables / "cohort_tests.tsv")
    if len(tests) and (text := _different(tests, study.dataset.classes is not None)):
        sentences[DIFFERENT] = text
    verdicts = verdicts_of(study, run)
    moot = bool(verdicts) and verdicts[0].state == NOT_SUPPORTED
    if verdicts:
        sentences[BELIEVED] = believed(verdicts)
    if summaries:
        pictures.append(_all_models(study, summaries))
    overview = run_figure(study, run, "overview")
    if overview.is_file() and verdicts:
        pictures.append(Picture(overview, say("findings.overview", moot=moot)))
    signs = [(MARKS[verdict.state], verdict) for verdict in verdicts]
    link = f"{study.layout.trust_page.name}#{run_anchor(run)}"
    return {"sentences": sentences, "verdicts": signs, "link": link, "moot": moot, "pictures": pictures}


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
    if chance and chance["p"] > LEVEL and (chance.get("widened") or 1) > 1 and pooled[metric]["low"] is not None:
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
    several = {"seed": run.seed} if len(study.config.seeds) > 1 else {}
    several |= {"atlas": run.atlas} if len(study.config.atlas_places) > 1 else {}
    others = []
    for other, role in roles.items():
        name, its = study.models[other.model].shown, scope_of(summaries[other])
        how = tables.standing(tests[tests["row"] == name])
        others.append((how, name, values[other], its if its != scope else "", role))
    return say(
        "findings.predicted",
        model=model.shown,
        place=f" ({', '.join(f'{key} {value}' for key, value in several.items())})" if several else "",
        classes=classes,
        label=study.dataset.label,
        scope=scope,
        pooled=pooled,
        chance=chance,
        level=LEVEL,
        excluded=excluded,
        sure=_too_sure(pooled),
        balanced=_balanced(run),
        others=others,
        metric=metric_name(metric),
    )


def _balanced(run: ModelRun) -> dict[str, Any] | None:
    """Return the AUC of a run if the classes were alike, and that of all scans; None if no covariate is known."""
    table = read_result(run.folder / "balanced.tsv")
    rows = table.query("metric == 'auc'").set_index("population", drop=False) if len(table) else table
    if rows.empty or pd.isna(rows.loc[ALL, "value"]):  # no covariate is known, or no fold has tested both classes
        return None
    return rows.loc[BALANCED].to_dict() | {"raw": rows.loc[ALL, "value"]}


def _too_sure(pooled: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return how sure a model was, if its probabilities are worse than the shares of the classes."""
    loss, low = (pooled.get("log_loss", {}).get(key) for key in ("value", "low"))
    if loss is None or low is None:
        return None
    shares = np.array(pooled["confusion"]).sum(axis=1) / np.sum(pooled["confusion"])
    guess = float(-(shares[shares > 0] * np.log(shares[shares > 0])).sum())
    if min(loss, low) <= guess:
        return None
    bins = zip(pooled["calibration"]["probability"], pooled["calibration"]["n_scans"], strict=True)
    sure = sum(n for probability, n in bins if probability >= SURE)
    return {"loss": loss, "guess": guess, "n": sure, "n_all": np.sum(pooled["confusion"]), "level": SURE}


def _different(tests: pd.DataFrame, classes: bool) -> str:
    """State which of site, sex, age and motion go with the label, the largest effect first."""
    known = tests[tests["verdict"].notna()]
    known = known.assign(size=known["effect"].abs() / known["medium"]).sort_values("size", ascending=False)
    headings = {
        DIFFERS: "Differs between the classes" if classes else "Differs with the label",
        MAY_DIFFER: "Too few people to tell whether these differ",
        SIMILAR: "Similar",
    }
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
    notes = ["Hollow: tested on some of the folds"] * any(scopes.values()) + joined(scopes) + [LEGEND] * bool(unknown)
    return drawn(file, say("findings.models", metric=name_of_all(metric), notes=notes), figures.overview, rows, metric)


def write_report(study: Study) -> None:
    """Write the pages that need more than images, their figures, and the methods text; remove pages of former runs."""
    gc.freeze()  # figures leave garbage: do not search all imported modules for it
    layout, pages, atlases = study.layout, pages_of(study), study.config.atlas_places
    scans = read_table(layout.scans, text=TEXT_COLUMNS)
    exclusions = read_result(layout.exclusions).fillna("") if layout.exclusions.is_file() else index_exclusions(scans)
    used, first = scans[~scans["scan_id"].isin(exclusions["scan_id"])], next(iter(atlases))
    used = with_lengths(with_motion(used, layout, first), layout, first)
    compared = gathered(study)
    subjects = write_subjects(study, exclusions, compared)
    write_cohort(study, used, exclusions, subjects, reference(study).shown)
    chapters = performance_sections(study, compared)
    if "trust.html" not in pages and (apart := leaks_section(study)):
        chapters.append(apart)
    write_report_page(study, "performance.html", runs=chapters)
    _write_methods(study, used)
    truth = read_result(layout.tables / "truth.tsv")
    write_report_page(
        study,
        "index.html",
        used=used,
        n_all=len(used) + exclusions["scan_id"].nunique(),
        folds_run=sorted({len(study.config.folds.of(model.name)) for model in study.models.values()}),
        outer=study.config.folds.outer,
        atlases=atlases,
        models=[model.shown for model in study.models.values()],
        truth=None if truth.empty else tables.truth(truth),
        scope=run_scope(reference_run(study)),
        findings=findings(study, compared),  # repeats the tests of the cohort
        unexplained={} if "explanation.html" in pages else unexplained(study),
    )
    for file in PAGES.keys() - pages.keys():
        layout.report.with_name(file).unlink(missing_ok=True)


LISTED = 8
"""Stages with a row of their own among the computing resources; the rest share one."""


def _write_methods(study: Study, used: pd.DataFrame) -> None:
    """Write the page, and its text for a manuscript: ``methods.md``, ``methods.bib``."""
    layout, known = study.layout, commit()
    text = methods(study, preprocessing_texts(layout, used))
    paragraphs, references = cite(text)
    write_text(methods_page(paragraphs, references), layout.report.with_name("methods.md"))
    write_text(bibtex(cited(text), load_references()), layout.report.with_name("methods.bib"))
    provenance = {"commit": known["commit"][:10] if known["commit"] else "", "changed": known["changed"]}
    provenance |= {"date": time.strftime("%Y-%m-%d %H:%M"), "version": __version__, "packages": versions()}
    provenance |= {"python": f"{platform.python_version()} on {platform.system()} {platform.machine()}"}
    write_report_page(
        study,
        "methods.html",
        methods=paragraphs,
        references=references,
        provenance=provenance,
        costs=costs_section(layout),
        configuration=yaml.safe_dump(study.config.model_dump(mode="json"), sort_keys=False),
    )


def costs_section(layout: Layout) -> list[Block]:
    """Return the most expensive stages of this dataset, the others together, and the total; [] without measurements."""
    table, _ = ledger(layout.ledger.parent, layout.results.name)
    if table.empty:
        return []
    stages = table.groupby("stage").agg(dict.fromkeys(SUMS, "sum") | {"peak_memory_mb": "max"})
    stages = stages.sort_values("cpu_hours", ascending=False, kind="stable")
    parts = {str(name): stages.loc[[name]] for name in stages.index[:LISTED]}
    if len(stages) > LISTED:
        parts[f"{len(stages) - LISTED} other stages"] = stages.iloc[LISTED:]
    rows = [{"name": name, "part": part} for name, part in {**parts, "all": stages}.items()]
    return [Table(filled("costs", rows, duration=_time), say("costs.caption"), layout.ledger)]


def _time(hours: float) -> str:
    """Return a time in a suitable unit."""
    if not hours:
        return DASH
    if hours >= 1:
        return f"{hours:.1f} h"
    return f"{hours * 60:.1f} min" if hours >= 1 / 60 else f"{hours * 3600:.0f} s"


START = '<!doctype html><meta charset="utf-8"><title>Report</title><meta http-equiv="refresh" content="0; url={place}">'
SHOWN = ("**/figures/*", "**/*_crash.txt")
"""What the pages show of ``derivatives/``."""


def zip_report(layout: Layout, out: Path) -> Path:
    """Write all pages of a study, their figures and crash reports to a ZIP file that begins with ``open_me.html``.

    Raises
    ------
    DataError
        There is no report yet.
    """
    if not layout.report.is_file():
        raise DataError("there is no report yet", where=layout.report, hint="Run the workflow first: snakemake")
    root, name = layout.results, layout.results.name
    files = [path for path in layout.report.parent.rglob("*") if path.is_file() and not path.name.startswith(".")]
    files += layout.subjects.glob("*.html")
    files += [path for pattern in SHOWN for path in layout.derivatives.glob(pattern) if path.is_file()]
    out.parent.mkdir(parents=True, exist_ok=True)
    with atomic(out) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{name}/open_me.html", START.format(place=layout.report.relative_to(root).as_posix()))
        for path in sorted(set(files)):
            archive.write(path, f"{name}/{path.relative_to(root).as_posix()}")
    return out
