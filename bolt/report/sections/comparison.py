"""All models side by side, tested against each other and against baselines."""

from __future__ import annotations

from collections.abc import Mapping

from bolt.config import Model
from bolt.config.study import Study
from bolt.experiments.entries import Entry
from bolt.experiments.results import gather, paired_tests
from bolt.models.registry import inputs_of
from bolt.report.experiments.experiment import paired
from bolt.report.figures import performance as figures
from bolt.report.html import Block, Picture, RunSection, Table, Text
from bolt.report.runs import figure_folder, run_title
from bolt.report.tables import readable
from bolt.report.tables.baselines import baseline_warning, sees_covariates_only
from bolt.report.tables.readable import Evaluated

CAPTION = (
    "Test scans pooled over folds, with 95 % bootstrap intervals over subjects (or families), and mean ± standard "
    "deviation over folds. All models have the same folds; a model with fewer folds was tested on fewer scans."
)
PICTURE = "Pooled test scans with 95 % intervals (bars) and single folds (dots); dashed: no skill."


def comparison(study: Study) -> RunSection | None:
    """Compare all evaluated runs; None if there are fewer than two."""
    found = {run_title(study, run): readable.read_evaluated(run.folder) for run in study.runs}
    evaluated = {title: metrics for title, metrics in found.items() if metrics}
    if len(evaluated) < 2:
        return None
    blocks: list[Block] = [Table(readable.comparison(evaluated), CAPTION)]
    if study.dataset.classes:
        picture = figure_folder(study.layout) / "comparison.png"
        figures.comparison(evaluated, picture)
        table = Table(readable.comparison(evaluated), f"Per cent. {CAPTION}")
        blocks = [*baseline_warnings(study, evaluated), table, Picture(picture, PICTURE)]
    tests = [block for atlas in study.config.atlas_places for block in _tests(study, atlas)]
    return RunSection("All models side by side", blocks + tests)


def _tests(study: Study, atlas: str) -> list[Block]:
    """Test every model against the reference."""
    reference = _reference(study)
    entries = [
        Entry(
            dataset=study.dataset.name,
            atlas=atlas,
            row=model.name,
            model=model,
            folders=[study.layout.run(atlas, model, seed).folder for seed in study.config.seeds],
            folds=study.config.folds.of(model.name),
            classes=study.dataset.classes or [],
        )
        for model in study.models.values()
    ]
    tests = paired_tests(entries, [gather(entry) for entry in entries], reference.name)
    if tests.empty:
        return []
    sheet = paired("", tests)
    notes = f" {'. '.join(sheet.notes)}." if sheet.notes else ""
    return [Table(sheet.frame, f"{atlas}: tests against {reference.name}. {sheet.caption}{notes}")]


def _reference(study: Study) -> Model:
    """Return the first configured BolT model, else the first model."""
    models = list(study.models.values())
    return next((model for model in models if model.model == "bolt"), models[0])


def baseline_warnings(study: Study, evaluated: Mapping[str, Evaluated]) -> list[Block]:
    """Warn of each baseline without brain data that does as well as models with it, the reference first."""
    reference = _reference(study)
    titles = {run: run_title(study, run) for run in study.runs if run_title(study, run) in evaluated}
    blocks: list[Block] = []
    for baseline, title in titles.items():
        if not sees_covariates_only(study.models[baseline.model]):
            continue
        warnings: dict[str, str] = {}
        for run, run_name in titles.items():
            model = study.models[run.model]
            if (run.atlas, run.seed) == (baseline.atlas, baseline.seed) and inputs_of(model.model) != "covariates":
                warning = baseline_warning(title, evaluated[title][1], model.name, evaluated[run_name][1])
                warnings |= {model.name: warning} if warning else {}
        if warnings:
            first, *others = sorted(warnings, key=lambda name: name != reference.name)
            also = f" The same is true of {', '.join(others)}." if others else ""
            blocks.append(Text(warnings[first] + also, warning=True))
    return blocks
