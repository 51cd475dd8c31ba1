"""The course of importance in every explained test scan."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bolt.config.study import Study
from bolt.explain.weights import explained_folds, read_importance
from bolt.report.figures.strips import course_strip
from bolt.report.sections.images import Figure
from bolt.series.cache import SeriesCache
from bolt.series.joining import volumes_of

CAPTION = (
    "{model}: importance of each moment for the prediction, relative to the scan's mean (dashed); dots: the {tokens} "
    "most important volumes.{seeds}"
)


def courses(study: Study) -> dict[str, list[Figure]]:
    """Draw the importance of each scan in the fold that tested it, one line per seed; by scan."""
    found: dict[tuple[str, str], dict[str, list[NDArray[np.floating]]]] = {}
    for run in study.runs:
        scans = found.setdefault((run.atlas, run.model), {})
        for fold in explained_folds(run.folder, range(study.config.folds.outer)):
            table, weights = read_importance(run.fold(fold))
            for scan, role, course in zip(table["scan_id"], table["role"], weights, strict=True):
                if role == "test":
                    scans.setdefault(scan, []).append(course)
    drawn: dict[str, list[Figure]] = {}
    for (atlas, model), scans in found.items():
        title = study.models[model].name + (f" on {atlas}" if len(study.config.atlas_places) > 1 else "")
        for scan, figure in _drawn(study, atlas, scans, title).items():
            drawn.setdefault(scan, []).append(figure)
    return drawn


def _drawn(study: Study, atlas: str, scans: dict[str, list[Any]], model: str) -> dict[str, Figure]:
    if not scans:
        return {}
    layout, tokens = study.layout, study.config.explain.tokens
    index = SeriesCache(layout.cache(atlas)).index
    figures = {}
    for row in index.to_dict("records"):
        scan = str(row["scan_id"])
        if scan in scans:
            volumes = volumes_of(row, layout.series_file(scan, atlas))
            n = len(scans[scan])
            seeds = f" Thin lines: {n} seeds; thick: their mean." if n > 1 else ""
            caption = CAPTION.format(model=model, tokens=tokens, seeds=seeds)
            figures[scan] = Figure("", caption, course_strip(scans[scan], volumes, float(row["tr"]), tokens))
    return figures
