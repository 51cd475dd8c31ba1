"""Would other folds or seeds give the same explanation? Correlations between maps and between importance curves."""

from __future__ import annotations

from bolt.config.layout import ModelRun
from bolt.config.study import Study
from bolt.io.files import read_table
from bolt.report.figures.trust import draw_stability
from bolt.report.html import Block, Picture, Table, Text
from bolt.report.runs import run_figure
from bolt.report.tables.explanation import SUMMARIES, stability_table

MEANING = (
    "Each fold has its own model, whose regions and moments may differ; below, the models are compared pairwise. Folds "
    "share most of their training subjects: agreement means that a result does not depend on a few of them, not that "
    "it is replicated in new ones. A region is only as reliable as the share of folds that select it."
)
PICTURE = (
    "Pairwise agreement between folds. Left: correlation of the regression weights of all ROIs{mean}. Right: rank "
    "correlation of the importance curves of the same scans, mean over {scans} scans, after removing the mean curve of "
    "the other scans. 1: identical; 0: unrelated."
)
TABLE = (
    "Mean over pairs of folds (or seeds), lowest and highest in brackets. Dice: overlap of the two selections of ROIs, "
    "1 if they are identical; in brackets, the overlap expected by chance. Same class: scans for which both models "
    "predict the same class."
)


def stability_blocks(study: Study, run: ModelRun) -> list[Block]:
    """Show agreement between folds and between seeds; [] if it was not computed."""
    file = run.explanation / "stability.tsv"
    if not file.is_file():
        return []
    table = read_table(file, text=("between", "what", "class", "one", "other"))
    if table.empty:
        return [Text("Stability cannot be assessed from a single fold: train more folds.")]
    blocks: list[Block] = [Text(MEANING)]
    folds = table[(table["between"] == "folds") & ~table["one"].isin(SUMMARIES)]
    if len(folds):
        picture = run_figure(study, run, "stability")
        draw_stability(folds, picture)
        mean = ", mean over classes" if folds["class"].nunique() > 2 else ""
        scans = f"{folds.loc[folds['what'] == 'importance', 'n'].max():.0f}"
        blocks.append(Picture(picture, PICTURE.format(mean=mean, scans=scans)))
    return [*blocks, Table(stability_table(table), TABLE, file)]
