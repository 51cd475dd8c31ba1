"""Whether an explanation can be believed: planted truth, landmarks, stability, sanity, faithfulness; and leaks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from bolt.config import Explain
from bolt.config.layout import ModelRun
from bolt.config.study import Study, paper_dataset
from bolt.explain.explainable import has_importance
from bolt.explain.trust.faithfulness import CONTROLS
from bolt.explain.trust.similarity import GONE, RETRAINED
from bolt.folds.audit import find_leaks
from bolt.folds.check import SAME, series_contents
from bolt.io.files import holds_something, read_table
from bolt.report import tables
from bolt.report.figures.series import Curve, draw_landmarks
from bolt.report.figures.trust import draw_faithfulness, draw_sanity, draw_stability
from bolt.report.html import Block, Chapter, Table, Text, drawn, filled, say
from bolt.report.numbers import decimal, interval
from bolt.report.runs import run_figure
from bolt.report.tables import CONTROL_NAMES, REPLACED_BY, SANITY_CHECKS, SUMMARIES, read_result
from bolt.series.cache import SeriesCache

UNITS = {"scan_id": "scans", "subject": "subjects", "group": "families", "site": "sites"}


def truth_file(study: Study, run: ModelRun) -> Path | None:
    """Return the truth table, if it is about this run: the first atlas, explained model and seed."""
    model = next((name for name, model in study.models.items() if has_importance(model)), None)
    first = (next(iter(study.config.atlas_places)), model, study.config.seeds[0])
    file = study.layout.tables / "truth.tsv"
    return file if (run.atlas, run.model, run.seed) == first and file.is_file() else None


def truth_blocks(study: Study, run: ModelRun) -> list[Block]:
    """Compare planted moments and regions with those found; [] for real data."""
    file = truth_file(study, run)
    if file is None:
        return []
    rows = tables.truth(read_result(file))
    rows = rows[rows["measure"].str.contains("landmark|planted")]
    return [Table(filled("planted", rows), say("trust.truth"), file)]


def landmarks_blocks(study: Study, run: ModelRun) -> list[Block]:
    """Compare important volumes with other choices, and more important volumes with less important ones."""
    file = run.explanation / "landmarks.tsv"
    table, subsets = read_result(file), read_result(run.explanation / "subsets.tsv")
    if table.empty:
        return []
    explain, classes = study.config.explain, study.dataset.classes or []
    comparable = explain.tokens == Explain().tokens
    compared = paper_dataset(study.dataset, study.config.folds.scheme) if comparable else None
    paper = tables.paper_of(compared, run.atlas)
    shown = tables.landmark_table(table, paper, expected=study.config.folds.outer)
    blocks: list[Block] = [
        Table(shown, say("landmarks.table", explain=explain), file),
        Text(say("landmarks.meaning", fixed=(classes or [""])[-1])),
        Text(say("landmarks.fitted", inner="inner" in set(table["importance"]))),
    ]
    if len(subsets):
        curves = [Curve("", subsets, table, 1 / max(1, len(classes)))]
        caption = say("landmarks.subsets", tokens=explain.tokens)
        blocks.append(drawn(run_figure(study, run, "subsets"), caption, draw_landmarks, curves))
    return blocks


def stability_blocks(study: Study, run: ModelRun) -> list[Block]:
    """Show agreement between folds and between seeds; [] if it was not computed."""
    file = run.explanation / "stability.tsv"
    if not file.is_file():
        return []
    table = read_result(file)
    if not table["what"].isin(["regions", "importance"]).any():
        blocks: list[Block] = [Text("Stability cannot be assessed from a single fold: train more folds.")]
    else:
        blocks = [Text(say("stability.meaning"))]
        pairs = (table["what"] != "halves") & ~table["one"].isin(SUMMARIES)
        folds = table[(table["between"] == "folds") & pairs]
        if len(folds):
            n_scans = folds.loc[folds["what"] == "importance", "n"].max()
            caption = say("stability.picture", n_classes=folds["class"].nunique(), n_scans=n_scans)
            blocks.append(drawn(run_figure(study, run, "stability"), caption, draw_stability, folds))
    return blocks if table.empty else [*blocks, Table(tables.stability_table(table), say("stability.table"), file)]


def sanity_blocks(study: Study, run: ModelRun) -> list[Block]:
    """Show how much importance remains with random weights or labels; [] if that was not checked, or is disabled."""
    file = run.explanation / "sanity.tsv"
    table = read_result(file) if study.config.explain.sanity.asked else pd.DataFrame()
    if table.empty:
        return []
    ends = table[table["verdict"].notna()].set_index("check", drop=False)
    control = ends.loc[RETRAINED].to_dict() if RETRAINED in ends.index else None
    blocks: list[Block] = [Text(say("sanity.meaning"))]
    for row in ends.to_dict("records"):
        check, verdict = SANITY_CHECKS[row["check"]], row["verdict"]
        text = say(
            "sanity.control" if row["check"] == RETRAINED and verdict != "not done" else "sanity.outcome",
            verdict=verdict,
            check=check,
            name=check if check.startswith("all") else f"a {check}",
            rho=f"ρ = {correlation(row)}",
            undefined=pd.isna(row["rho"]),
            again=f"ρ = {correlation(control)}" if control else "",
            no_control=say("sanity.no_control", control=control),
            note=row["note"],
        )
        blocks.append(Text(text, warning=verdict != ("reproducible" if row["check"] == RETRAINED else "passed")))
    cascade = table[(table["check"] == "cascade") & (table["fold"] == "all")]
    if len(cascade):
        each = "independent" in set(table["check"])
        caption = say("sanity.picture", each=each, n_scans=cascade["n_scans"].iloc[0], gone=GONE)
        blocks.append(drawn(run_figure(study, run, "sanity"), caption, draw_sanity, table))
    return [*blocks, Table(tables.sanity_table(table), say("sanity.table"), file)]


def correlation(row: Mapping[str, Any]) -> str:
    """Return ρ of a row of ``sanity.tsv`` with its interval, where it has one."""
    return decimal(row["rho"]) if pd.isna(row["low"]) else interval(row["rho"], row["low"], row["high"], decimal)


def faithfulness_blocks(study: Study, run: ModelRun) -> list[Block]:
    """Show the outcome, the curves and the areas; [] if they were not computed, or are disabled."""
    files = run.explanation / "faithfulness.tsv", run.explanation / "faithfulness_areas.tsv"
    options = study.config.explain.faithfulness
    if options.scans == 0 or not all(holds_something(file) for file in files):
        return []
    lines, areas = map(read_result, files)
    first = areas.iloc[0].to_dict()
    missing = first["missing_folds"] if isinstance(first["missing_folds"], str) else ""
    scans = f"{first['n_scans']} test scans of fold {first['folds']}{missing and f'; without fold {missing}'}."
    caption = say("faithfulness.curves", block=options.block, scans=scans, gradient=study.config.explain.gradient)
    return [
        Text(outcome(areas)),
        drawn(run_figure(study, run, "faithfulness"), caption, draw_faithfulness, lines),
        Table(tables.area_table(areas), say("faithfulness.areas", scans=scans), files[1]),
    ]


def outcome(areas: pd.DataFrame) -> str:
    """Describe whether important volumes matter more than random ones, and than the other controls."""
    judged = areas[(areas["order"] == "importance") & areas["better_than_random"].notna()]
    if judged.empty:
        return say("faithfulness.too_few")
    places: dict[tuple[str, str], list[str]] = {}
    for row in judged.to_dict("records"):
        others = [CONTROL_NAMES[c] for c in CONTROLS if c != "random" and row[f"better_than_{c}"] != "yes"]
        beats_random = row["better_than_random"]
        answer = "controls" if beats_random == "yes" and others else beats_random
        place = f"{row['direction']} ({REPLACED_BY[row['replacement']]})"
        places.setdefault((answer, " or ".join(others) if answer == "controls" else ""), []).append(place)
    order = ("yes", "controls", "no", "worse")
    ordered = sorted(places.items(), key=lambda item: order.index(item[0][0]))
    return " ".join(say("faithfulness.answer", answer=a, others=others, where=where) for (a, others), where in ordered)


def leaks_section(study: Study) -> Chapter | None:
    """Count what is on two sides of a split, by the audit of the tables that were used; None if there are no folds."""
    layout = study.layout
    if not layout.folds.is_file():
        return None
    text = tuple(UNITS)
    folds = read_table(layout.folds, text=text)
    scans = read_table(layout.scans, text=text)
    scans = scans[scans["scan_id"].isin(folds["scan_id"])]
    kinds = ["scan_id", "subject"]
    if not (scans["group"] == scans["subject"]).all():
        kinds.append("group")
    if study.config.folds.scheme == "leave-site-out":
        kinds.append("site")
    caches = {atlas: layout.cache(atlas) for atlas in study.config.atlas_places}
    contents = {
        f"recordings ({atlas})": series_contents(SeriesCache(cache))
        for atlas, cache in caches.items()
        if (cache / "manifest.json").is_file()
    }
    leaks = {leak.kind: leak for leak in find_leaks(folds, scans, kinds, contents)}
    compared = {kind: scans[kind].nunique() for kind in kinds} | {name: len(known) for name, known in contents.items()}
    rows = [
        {"unit": UNITS.get(kind, kind), "compared": number, "cases": leaks[kind].cases if kind in leaks else 0}
        for kind, number in compared.items()
    ]
    shown = filled("leaks", rows, folds=folds["fold"].nunique())
    found: list[Block] = [Text(f"{leak}.", warning=True) for leak in leaks.values()]
    apart: list[Block] = [Text(say("leaks.apart", same=SAME))]
    return Chapter(
        "Are training and test scans apart?", [*(found or apart), Table(shown, say("leaks.table"), layout.folds)]
    )
