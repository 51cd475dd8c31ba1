"""Planted truth: whether the moments and regions that were simulated are found."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from bolt.config.layout import ModelRun
from bolt.config.study import Study
from bolt.explain.explainable import has_importance
from bolt.io.files import read_table
from bolt.report.html import Block, Table
from bolt.report.tables import readable

CAPTION = (
    "Planted truth, test scans only: the data are simulated, so the moments and regions that distinguish the classes "
    "are known. Without skill: the value expected of an uninformative explanation, as described in brackets. Given the "
    "truth: the same model on the true series."
)


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
    rows = readable.truth(read_table(file, text=("measure", "unit")))
    rows = rows[rows["measure"].str.contains("landmark|planted")]
    frame = pd.DataFrame(
        {
            "measure": rows["measure"],
            "found": rows["value"],
            "without skill": [f"{v} ({why})" for v, why in zip(rows["null"], rows["null_meaning"], strict=True)],
            "given the truth": rows["oracle"],
            "expected": rows["expected"],
            "": [{True: "✓ in range", False: "✗ out of range"}.get(p, "") for p in rows["passed"]],
        }
    )
    return [Table(frame, CAPTION, file)]
