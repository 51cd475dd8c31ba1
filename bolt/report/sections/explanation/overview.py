"""The explanation in one picture: the brain with its regions beside the importance course of a test scan.

Why runs are not explained.
"""

from __future__ import annotations

import numpy as np

from bolt.config.layout import ModelRun
from bolt.config.study import Study
from bolt.explain.explainable import has_importance
from bolt.explain.landmarks import top_tokens
from bolt.explain.weights import read_importance
from bolt.io.errors import BoltError
from bolt.io.files import read_table
from bolt.report.runs import run_figure, run_title
from bolt.report.sections.explanation.moments import examples
from bolt.report.sections.explanation.questions import verdicts_of
from bolt.report.sections.explanation.regions import atlas_of
from bolt.series.cache import SeriesCache
from bolt.series.joining import volumes_of


def draw_overview(study: Study, run: ModelRun) -> None:
    """Draw the first scan that `moments` shows, and the regions if the atlas has an image."""
    from bolt.report.figures.brains.maps import plot_overview  # nilearn is slow to import

    scans = examples(study, run)
    if not scans:
        return
    scan, cache = scans[0], SeriesCache(run.cache)
    name = scan["scan_id"]
    row = cache.index["scan_id"].tolist().index(name)
    table, weights = read_importance(run.fold(scan["fold"]))
    importance = weights[int(np.flatnonzero(table["scan_id"] == name)[0])]
    selected = image = None
    if (run.explanation / "roi_weights.tsv").is_file():
        try:
            image = atlas_of(study, run.atlas).label_image
            selected = read_table(run.explanation / "roi_weights.tsv", text=("class", "name", "network", "hemisphere"))
        except BoltError:
            pass  # an atlas without an image has no brain map; the page of the explanation says so
    plot_overview(
        selected,
        image,
        study.dataset.coloured,
        importance,
        top_tokens(importance, study.config.explain.tokens),
        float(cache.index["tr"].iloc[row]),
        run_figure(study, run, "overview"),
        title=f"{name}, predicted: {scan['predicted']}",
        volumes=volumes_of(cache.index.iloc[row], study.layout.series_file(name, run.atlas)),
    )


def unexplained(study: Study) -> dict[str, list[str]]:
    """Return the titles of runs that are not explained, by reason."""
    titles: dict[str, list[str]] = {}
    for run in study.runs:
        if reason := _reason(study, run):
            titles.setdefault(reason, []).append(run_title(study, run))
    return titles


def _reason(study: Study, run: ModelRun) -> str:
    model = study.models[run.model]
    if study.dataset.classes is None:
        return "No landmarks and regions: they are regressions of classes, but the label is a number."
    if model.covariates:
        return "No importance weights: Algorithm 1 is defined for series, but this model also has covariates."
    if not has_importance(model):
        return "No importance weights: Algorithm 1 requires CLS tokens, which this model does not have."
    if (run.explanation / "landmarks.tsv").is_file() and not verdicts_of(study, run):
        return "No fold of this run was trained and explained."
    return ""
