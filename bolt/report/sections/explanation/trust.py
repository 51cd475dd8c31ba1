"""Sanity checks: whether importance is reproducible, and vanishes with random weights or permuted labels.

Would other folds or seeds give the same explanation? Correlations between maps and between importance curves.

Does the prediction depend on the important volumes? Curves of deletion and insertion, and the areas under them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from bolt.config.layout import ModelRun
from bolt.config.study import Study
from bolt.explain.trust.faithfulness import CONTROLS
from bolt.explain.trust.sanity_outcome import RETRAINED
from bolt.explain.trust.similarity import GONE
from bolt.io.files import holds_something, read_table
from bolt.report.figures.trust import draw_faithfulness, draw_sanity, draw_stability
from bolt.report.html import Block, Picture, Table, Text
from bolt.report.runs import run_figure
from bolt.report.tables.explanation import (
    CONTROL_NAMES,
    REPLACED_BY,
    SANITY_CHECKS,
    SUMMARIES,
    area_table,
    sanity_table,
    stability_table,
)
from bolt.report.tables.numbers import decimal, interval

MEANING = (
    "A plausible importance curve may still reveal nothing about what a model has learned: attention to windows "
    "follows the scan in any model, and is lower at both ends. The checks therefore destroy what was learned and "
    "recompute the importance of the same test scans, for the class that the model had predicted (Adebayo et al. 2018, "
    "arXiv 1810.03292). Curves that stay similar do not show what was learned. Similarity is Spearman's ρ (1: "
    "identical, 0: unrelated) after removing the mean curve of the other scans, because position in the scan alone "
    "makes all curves similar. Curves that mean nothing, such as random numbers, would vanish just as well. Therefore "
    "the positive control: a model trained in the same way with another seed must give similar importance. A check is "
    "passed if the control is, and if the whole interval of the remaining ρ is near 0."
)
CAPTION = (
    "Similarity of the importance of test scans to the original while the model's layers are randomised. Left: layers "
    "randomised cumulatively from the classifier to the input (cascade). {right}Blue: ρ after removing the mean curve, "
    "mean over {scans} test scans with 95 % interval over families; thin lines: folds. Orange: without removing it. "
    f"Grey band: |ρ| < {GONE}, where the whole interval must be at the end of the cascade. Single points: other models."
)
TABLE = (
    "Outcome of the checks. ρ: mean over test scans with its 95 % interval over families. Beyond what remains: ρ of "
    "the model trained again minus |ρ|, on the scans of both; its interval must be above 0."
)


def sanity_blocks(study: Study, run: ModelRun) -> list[Block]:
    """Show how much importance remains with random weights or labels; [] if that was not checked, or is disabled."""
    file = run.explanation / "sanity.tsv"
    if not study.config.explain.sanity.asked or not file.is_file():
        return []
    table = read_table(file, text=("check", "layer", "fold", "verdict", "note"))
    if table.empty:
        return []
    ends = table[table["verdict"].notna()].set_index("check", drop=False)
    control = ends.loc[RETRAINED].to_dict() if RETRAINED in ends.index else None
    blocks: list[Block] = [Text(MEANING), *(_outcome(row, control) for row in ends.to_dict("records"))]
    cascade = table[(table["check"] == "cascade") & (table["fold"] == "all")]
    if len(cascade):
        picture = run_figure(study, run, "sanity")
        draw_sanity(table, picture)
        right = "Right: each layer alone. " if "independent" in set(table["check"]) else ""
        blocks.append(Picture(picture, CAPTION.format(right=right, scans=f"{cascade['n_scans'].iloc[0]:.0f}")))
    return [*blocks, Table(sanity_table(table), TABLE, file)]


def _outcome(row: Mapping[str, Any], control: Mapping[str, Any] | None) -> Text:
    """Describe the outcome of one check in a sentence, beside its control."""
    check, verdict = SANITY_CHECKS[row["check"]], row["verdict"]
    name = check if check.startswith("all") else f"a {check}"
    rho = _rho(row)
    if verdict == "not done":
        return Text(f"'{check.capitalize()}' was not done: {row['note']}.", warning=True)
    if row["check"] == RETRAINED:
        return _control(verdict, rho)
    if verdict == "passed":
        again = f"whereas a model trained again agrees with the original ({_rho(control or {})})"
        return Text(f"Passed: with {name}, little of the importance remains ({rho}), {again}.")
    if verdict == "not shown":
        return Text(f"Not shown: with {name}, {rho}; the scans are too few to tell whether importance vanishes.", True)
    if verdict == "no control":
        return Text(f"Not tested: with {name}, little of the importance remains ({rho}). {no_control(control)}", True)
    if verdict == "not reproducible":
        reason = f"little of the importance remains ({rho}), but a model trained again does not agree clearly more"
        return Text(f"Not passed: with {name}, {reason} ({_rho(control or {})}).", warning=True)
    if pd.isna(row["rho"]):
        reason = "once the mean curve is removed nothing remains to compare: importance reflects position alone"
    else:
        reason = (
            f"importance keeps a correlation of {rho} with the original. This much reflects the scan or the "
            "architecture and must not be interpreted as learned"
        )
    return Text(f"Not passed: with {name}, {reason}.", warning=True)


def _control(verdict: str, rho: str) -> Text:
    """Describe the positive control in a sentence."""
    told = {
        "reproducible": "importance is reproducible to this extent",
        "not reproducible": "importance is not shown to be reproducible, so that its vanishing would be no evidence",
        "not shown": "the scans are too few to tell whether importance is reproducible",
    }
    return Text(f"Trained again with another seed, {rho}: {told[verdict]}.", warning=verdict != "reproducible")


def no_control(control: Mapping[str, Any] | None) -> str:
    """Return why the checks have no positive control, as a sentence; `control` is its row of ``sanity.tsv``."""
    if control is None:
        reason = "no model was trained again (explain: sanity: retrained)"
    elif control["verdict"] == "not done":
        reason = f"the model trained again cannot be used: {control['note']}"
    else:
        reason = "too few scans have been compared with the model trained again"
    return f"Whether it was reproducible to begin with is not known, because {reason}."


def correlation(row: Mapping[str, Any]) -> str:
    """Return ρ of a row of ``sanity.tsv`` with its interval, where it has one."""
    return decimal(row["rho"]) if pd.isna(row["low"]) else interval(row["rho"], row["low"], row["high"], decimal)


def _rho(row: Mapping[str, Any]) -> str:
    return f"ρ = {correlation(row)}"


STABILITY_MEANING = (
    "Each fold has its own model, whose regions and moments may differ; below, the models are compared pairwise. Folds "
    "share most of their training subjects, so maps correlate even on noise: the correlation counts only as far as it "
    "exceeds that of maps fitted with permuted labels. Agreement between folds means that a result does not depend on "
    "a few subjects. Whether it is replicated in new ones is shown by the maps of disjoint halves of the people. A "
    "region is only as reliable as the share of folds that select it."
)
PICTURE = (
    "Pairwise agreement between folds. Left: correlation of the regression weights of all ROIs{mean}. Right: rank "
    "correlation of the importance curves of the same scans, mean over {scans} scans, after removing the mean curve of "
    "the other scans. 1: identical; 0: unrelated."
)
STABILITY_TABLE = (
    "Mean over pairs of folds (or seeds), lowest and highest in brackets. Halves of people: maps of the test scans of "
    "one half of the people against those of the other half, mean over splits. Permuted labels: mean correlation of "
    "maps of the same volumes with permuted labels, and below which value it lies in 95 % of permutations; p: share of "
    "permutations that correlate at least as highly, in the mean over classes. Dice: overlap of the two selections of "
    "ROIs, 1 if they are identical. Same class: scans for which both models predict the same class."
)


def stability_blocks(study: Study, run: ModelRun) -> list[Block]:
    """Show agreement between folds and between seeds; [] if it was not computed."""
    file = run.explanation / "stability.tsv"
    if not file.is_file():
        return []
    table = read_table(file, text=("between", "what", "class", "one", "other"))
    if not table["what"].isin(["regions", "importance"]).any():
        single = Text("Stability cannot be assessed from a single fold: train more folds.")
        return [single] if table.empty else [single, Table(stability_table(table), STABILITY_TABLE, file)]
    blocks: list[Block] = [Text(STABILITY_MEANING)]
    pairs = (table["what"] != "halves") & ~table["one"].isin(SUMMARIES)
    folds = table[(table["between"] == "folds") & pairs]
    if len(folds):
        picture = run_figure(study, run, "stability")
        draw_stability(folds, picture)
        mean = ", mean over classes" if folds["class"].nunique() > 2 else ""
        scans = f"{folds.loc[folds['what'] == 'importance', 'n'].max():.0f}"
        blocks.append(Picture(picture, PICTURE.format(mean=mean, scans=scans)))
    return [*blocks, Table(stability_table(table), STABILITY_TABLE, file)]


TEXT = (
    "replacement",
    "direction",
    "order",
    "folds",
    "missing_folds",
    *(f"better_than_{control}" for control in CONTROLS),
)
CURVES = (
    "Left (deletion): parts of each test scan are replaced, the most important first; if the prediction rests on "
    "them, the probability of the originally predicted class falls early. Right (insertion): the most important parts "
    "are put back first into a fully replaced scan; the probability should rise early. Top: volumes are replaced by "
    "the scan's mean volume. Bottom: because a single volume can be inferred from its neighbours, blocks of {block} "
    "volumes are replaced by those of a copy of the scan that keeps spectra and correlations of the regions, but not "
    "the timing of events. If the bottom left curve ends high, the copy is predicted like the scan itself: the model "
    "does not need single moments, though it may use them. Importance counts evidence for the predicted class only; "
    "rollout and integrated gradients do not distinguish evidence for and against it. Controls: position alone (mean "
    "importance of the other test scans at each position), the scan's own importance shifted in time, and random "
    "orders. {scans} Bands: 95 % bootstrap intervals over subjects or families."
)
AREAS = (
    "Area under each curve, mean over test scans: lower is better for deletion, higher for insertion. Differences from "
    "the controls are those of the same scans; 'better than' names the controls for which the 95 % interval of the "
    "difference is on the better side of 0. {scans}"
)
SENTENCES = {
    "yes": "The prediction depends on important volumes more than on the controls (random orders, position alone, "
    "shifted importance): {}.",
    "controls": "Importance is better than a random order, but not shown to be better than {}: {}.",
    "no": "Importance is not shown to be better than a random order: {}.",
    "worse": "Importance is worse than a random order: {}.",
}


def faithfulness_blocks(study: Study, run: ModelRun) -> list[Block]:
    """Show the outcome, the curves and the areas; [] if they were not computed, or are disabled."""
    files = run.explanation / "faithfulness.tsv", run.explanation / "faithfulness_areas.tsv"
    options = study.config.explain.faithfulness
    if options.scans == 0 or not all(holds_something(file) for file in files):
        return []
    lines, areas = (read_table(file, text=TEXT) for file in files)
    picture = run_figure(study, run, "faithfulness")
    draw_faithfulness(lines, picture)
    scans = _scans(areas)
    return [
        Text(outcome(areas)),
        Picture(picture, CURVES.format(block=options.block, scans=scans)),
        Table(area_table(areas), AREAS.format(scans=scans), files[1]),
    ]


def outcome(areas: pd.DataFrame) -> str:
    """Describe whether important volumes matter more than random ones, and than the other controls."""
    judged = areas[(areas["order"] == "importance") & areas["better_than_random"].notna()]
    if judged.empty:
        return "Too few subjects to tell whether important volumes matter more to the model than random ones."
    places: dict[tuple[str, str], list[str]] = {}
    for row in judged.to_dict("records"):
        others = [CONTROL_NAMES[c] for c in CONTROLS if c != "random" and row[f"better_than_{c}"] != "yes"]
        beats_random = row["better_than_random"]
        answer = "controls" if beats_random == "yes" and others else beats_random
        place = f"{row['direction']} ({REPLACED_BY[row['replacement']]})"
        places.setdefault((answer, " or ".join(others) if answer == "controls" else ""), []).append(place)
    ordered = sorted(places.items(), key=lambda item: list(SENTENCES).index(item[0][0]))
    return " ".join(
        SENTENCES[answer].format(*([others] if others else []), ", ".join(where)) for (answer, others), where in ordered
    )


def _scans(areas: pd.DataFrame) -> str:
    """Name the test scans and folds behind the areas."""
    first = areas.iloc[0]
    missing = first["missing_folds"]
    without = f"; without fold {missing}" if isinstance(missing, str) else ""
    return f"{first['n_scans']} test scans of fold {first['folds']}{without}."
