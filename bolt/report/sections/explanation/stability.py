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
TABLE = (
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
        return [single] if table.empty else [single, Table(stability_table(table), TABLE, file)]
    blocks: list[Block] = [Text(MEANING)]
    pairs = (table["what"] != "halves") & ~table["one"].isin(SUMMARIES)
    folds = table[(table["between"] == "folds") & pairs]
    if len(folds):
        picture = run_figure(study, run, "stability")
        draw_stability(folds, picture)
        mean = ", mean over classes" if folds["class"].nunique() > 2 else ""
        scans = f"{folds.loc[folds['what'] == 'importance', 'n'].max():.0f}"
        blocks.append(Picture(picture, PICTURE.format(mean=mean, scans=scans)))
    return [*blocks, Table(stability_table(table), TABLE, file)]
