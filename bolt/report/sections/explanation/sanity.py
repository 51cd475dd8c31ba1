"""Sanity checks: whether importance is reproducible, and vanishes with random weights or permuted labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from bolt.config.layout import ModelRun
from bolt.config.study import Study
from bolt.explain.trust.sanity_outcome import RETRAINED
from bolt.explain.trust.similarity import GONE
from bolt.io.files import read_table
from bolt.report.figures.trust import draw_sanity
from bolt.report.html import Block, Picture, Table, Text
from bolt.report.runs import run_figure
from bolt.report.tables.explanation import SANITY_CHECKS, sanity_table
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
