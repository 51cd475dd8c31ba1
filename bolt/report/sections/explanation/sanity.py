"""Sanity checks: whether importance vanishes when the weights are randomised, or the labels permuted."""

from __future__ import annotations

import pandas as pd

from bolt.config.layout import ModelRun
from bolt.config.study import Study
from bolt.explain.trust.similarity import GONE
from bolt.io.files import read_table
from bolt.report.figures.trust import draw_sanity
from bolt.report.html import Block, Picture, Table, Text
from bolt.report.runs import run_figure
from bolt.report.tables.explanation import SANITY_CHECKS, sanity_table
from bolt.report.tables.numbers import decimal

MEANING = (
    "A plausible importance curve may still reveal nothing about what a model has learned: attention to windows "
    "follows the scan in any model, and is lower at both ends. The checks therefore destroy what was learned and "
    "recompute the importance of the same test scans, for the class that the model had predicted (Adebayo et al. 2018, "
    "arXiv 1810.03292). Curves that stay similar do not show what was learned. Similarity is Spearman's ρ (1: "
    "identical, 0: unrelated) after removing the mean curve of the other scans, because position in the scan alone "
    "makes all curves similar."
)
CAPTION = (
    "Similarity of the importance of test scans to the original while the model's layers are randomised. Left: layers "
    "randomised cumulatively from the classifier to the input (cascade). {right}Blue: ρ after removing the mean curve, "
    "mean over {scans} test scans with 95 % interval over families; thin lines: folds. Orange: without removing it. "
    f"Grey band: |ρ| < {GONE}, required at the end of the cascade."
)
TABLE = "Outcome of the checks. ρ: mean over test scans with its 95 % interval over families."


def sanity_blocks(study: Study, run: ModelRun) -> list[Block]:
    """Show how much importance remains with random weights or labels; [] if that was not checked, or is disabled."""
    file = run.explanation / "sanity.tsv"
    if not study.config.explain.sanity.asked or not file.is_file():
        return []
    table = read_table(file, text=("check", "layer", "fold", "verdict", "note"))
    if table.empty:
        return []
    blocks: list[Block] = [Text(MEANING), *map(_outcome, table[table["verdict"].notna()].to_dict("records"))]
    cascade = table[(table["check"] == "cascade") & (table["fold"] == "all")]
    if len(cascade):
        picture = run_figure(study, run, "sanity")
        draw_sanity(table, picture)
        right = "Right: each layer alone. " if "independent" in set(table["check"]) else ""
        blocks.append(Picture(picture, CAPTION.format(right=right, scans=f"{cascade['n_scans'].iloc[0]:.0f}")))
    return [*blocks, Table(sanity_table(table), TABLE, file)]


def _outcome(row: dict[str, object]) -> Text:
    """Describe the outcome of one check in a sentence."""
    check, verdict, rho = SANITY_CHECKS[str(row["check"])], row["verdict"], row["rho"]
    name = check if check.startswith("all") else f"a {check}"
    if verdict == "not done":
        return Text(f"The check '{check}' was not done: {row['note']}.", warning=True)
    if verdict == "passed":
        return Text(f"Passed: with {name}, little of the importance remains (ρ = {decimal(rho)}).")
    if pd.isna(rho):  # type: ignore[call-overload]
        reason = "once the mean curve is removed nothing remains to compare: importance reflects position alone"
    else:
        reason = (
            f"importance keeps a correlation of ρ = {decimal(rho)} with the original. This much reflects the scan or "
            "the architecture and must not be interpreted as learned"
        )
    return Text(f"Not passed: with {name}, {reason}.", warning=True)
