"""Why runs are not explained."""

from __future__ import annotations

from bolt.config.layout import ModelRun
from bolt.config.study import Study
from bolt.explain.explainable import has_importance
from bolt.report.runs import run_title
from bolt.report.sections.explanation.questions import verdicts_of


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
