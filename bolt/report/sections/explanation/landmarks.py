"""Do the important moments suffice to predict the class? The landmark regressions."""

from __future__ import annotations

import pandas as pd

from bolt.config import Explain
from bolt.config.layout import ModelRun
from bolt.config.study import Study
from bolt.experiments.entries import paper_dataset
from bolt.report.figures.landmarks import Curve, draw_curves
from bolt.report.html import Block, Picture, Table, Text
from bolt.report.runs import run_figure
from bolt.report.tables.explanation import landmark_table
from bolt.report.tables.landmarks import paper_of, read_landmarks

MEANING = (
    "Random volumes show what any volume tells about the class. But the important volumes are chosen by the "
    "predicted class, and this choice alone can carry the prediction into volumes that hold no information about "
    "the class. Two controls are chosen by the predicted class, too: volumes far along a random direction, and "
    "volumes that support the wrong class (the most probable other one). If they predict the class as well as the "
    "important volumes do, the latter need not differ between the classes. The choice for the same class ({fixed}) "
    "in all scans does not depend on the prediction directly; it can only through the context that importance "
    "takes into account. The model may be right all the same: it sees how regions covary within windows, whereas a "
    "single volume is only the activity of all regions at one moment."
)
FITTED = (
    "Training scans are explained by the model that was fitted to them, so their landmarks may be moments that it "
    "memorised; test scans are new to it in every row."
)
SUGGEST_INNER = " Set 'explain: inner_folds' to add a row in which models explain only scans that they did not see."
INNER = (
    " The row in which training scans are explained by models that did not see them rules this out: if it agrees with "
    "the first row, memorised moments play no part."
)


def landmarks_blocks(study: Study, run: ModelRun) -> list[Block]:
    """Compare important volumes with other choices, and more important volumes with less important ones."""
    file, subset_file = run.explanation / "landmarks.tsv", run.explanation / "subsets.tsv"
    if not file.is_file():
        return []
    explain = study.config.explain
    comparable = explain.tokens == Explain().tokens
    compared = paper_dataset(study.dataset, study.config.folds.scheme) if comparable else None
    table, paper = read_landmarks(file), paper_of(compared, run.atlas)
    caption = (
        f"Logistic regression on the {explain.tokens} most important volumes of each scan, and on as many volumes "
        f"chosen in other ways ({explain.random_draws} draws of random volumes and of random directions), fitted to "
        "training scans and evaluated on test scans; mean ± standard deviation over folds, accuracy, recall and "
        "precision in per cent."
    )
    blocks: list[Block] = [
        Table(landmark_table(table, paper, expected=study.config.folds.outer), caption, file),
        Text(MEANING.format(fixed=(study.dataset.classes or [""])[-1])),
        Text(FITTED + (INNER if "inner" in set(table["importance"]) else SUGGEST_INNER)),
    ]
    subsets = read_landmarks(subset_file) if subset_file.is_file() else pd.DataFrame()
    if len(subsets):
        picture = run_figure(study, run, "subsets")
        draw_curves([Curve("", subsets, table, 1 / len(study.dataset.classes or [1]))], picture)
        caption = (
            f"Left: accuracy of the regression on {explain.tokens} volumes at a time, from the most important ones (0) "
            "to the least important ones; bands: ± standard deviation over folds; horizontal lines: volumes chosen in "
            "other ways. Right: their importance, relative to the scan's smallest weight. If importance is meaningful, "
            "both decrease."
        )
        blocks.append(Picture(picture, caption))
    return blocks
