"""The explanation page: what a run looked at, told in the order in which a reader asks.

Which moments, which regions, how stable, how far to trust them. Each part is drawn by a module of its own, and is left
out where its files are not there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pandas as pd

from bolt.config import Config, Dataset, Model, load_model
from bolt.config.layout import Layout
from bolt.explain.explainable import has_importance
from bolt.io.errors import DataError
from bolt.io.files import holds_something, read_table
from bolt.report.html import Block, Chapter, Story, Table, Text, run_stem, run_title, write_page
from bolt.report.sections.explanation.faithfulness import faithfulness_blocks
from bolt.report.sections.explanation.landmarks import landmarks_blocks
from bolt.report.sections.explanation.moments import moments_blocks
from bolt.report.sections.explanation.regions import brain_block, brain_picture, regions_blocks
from bolt.report.sections.explanation.sanity import sanity_blocks
from bolt.report.sections.explanation.stability import stability_blocks
from bolt.report.sections.explanation.tasks import tasks_blocks
from bolt.report.sections.explanation.trust import (
    answers,
    deletion_hurts,
    insertion_helps,
    permuted_labels_destroy_it,
    random_weights_destroy_it,
)
from bolt.report.sections.explanation.verdicts import MARKS, Evidence, Verdict, counted
from bolt.report.tables import readable

Part = Callable[[Config, Dataset, Layout, str, Model, int, str], list[Block]]


def truth_blocks(
    config: Config, dataset: Dataset, layout: Layout, atlas: str, model: Model, seed: int, stem: str
) -> list[Block]:
    """What was planted and found, of simulated data."""
    file = _truth(config, layout, atlas, model, seed)
    if file is None:
        return []
    rows = readable.truth(read_table(file, text=("measure", "unit")))
    rows = rows[rows["measure"].str.contains("landmark|planted")]
    caption = (
        "Planted truth: the data are simulated, so the moments and regions that tell the classes apart are known. Test "
        "scans alone. Without skill: what the measure would be otherwise, as the words below it say. Truth given: the "
        "same model on the true series."
    )
    frame = pd.DataFrame(
        {
            "measure": rows["measure"],
            "found": rows["value"],
            "without skill": [f"{v} ({why})" for v, why in zip(rows["null"], rows["null_meaning"], strict=True)],
            "truth given": rows["oracle"],
            "expected": rows["expected"],
            "": [{True: "✓ in range", False: "✗ out of range"}.get(p, "") for p in rows["passed"]],
        }
    )
    return [Table(frame, caption, file)]


CHAPTERS: Mapping[str, tuple[Part, ...]] = {
    "Which moments": (tasks_blocks, moments_blocks),
    "Are these moments enough to tell the class?": (landmarks_blocks,),
    "Which regions": (regions_blocks,),
    "How stable": (stability_blocks,),
    "How far to trust it": (truth_blocks, sanity_blocks, faithfulness_blocks),
}
"""Headings of the page and the parts that fill them, in the order in which they are read."""


def write_explanation(config: Config, dataset: Dataset, layout: Layout) -> None:
    """Draw and write the page of all runs that were explained.

    Raises
    ------
    DataError
        No run of this configuration was explained.
    """
    runs = [(atlas, model, seed) for atlas in config.atlas_places for model in _models(config) for seed in config.seeds]
    stories = [story for run in runs if (story := story_of(config, dataset, layout, *run))]
    if not stories and not any((layout.run(*run).explanation / "landmarks.tsv").is_file() for run in runs):
        raise DataError("no run was explained", where=layout.results / "explain", hint="Run: snakemake figures")
    content = {"dataset": dataset, "stories": stories, "marks": MARKS, "counted": counted}
    write_page("explanation.html", layout.explanation_page, **content)


def story_of(config: Config, dataset: Dataset, layout: Layout, atlas: str, model: Model, seed: int) -> Story | None:
    """All that is known of why one run decided as it did; None where it was not explained."""
    verdicts = verdicts_of(config, layout, atlas, model, seed)
    if not verdicts:
        return None
    stem = run_stem(atlas, model, seed)
    left, run = _passed_over(config), (config, dataset, layout, atlas, model, seed, stem)
    chapters = [
        Chapter(heading, [block for part in parts if part not in left for block in part(*run)])
        for heading, parts in CHAPTERS.items()
    ]
    return Story(run_title(config, atlas, model, seed), stem, verdicts, [c for c in chapters if c.blocks])


def verdicts_of(config: Config, layout: Layout, atlas: str, model: Model, seed: int) -> list[Verdict]:
    """Every question to the explanation of a run; [] where it was not explained."""
    out = layout.run(atlas, model, seed).explanation
    if not holds_something(out / "landmarks.tsv"):
        return []
    truth = _truth(config, layout, atlas, model, seed)
    return answers(
        Evidence(layout.run(atlas, model, seed).folder, out, config.explain.tokens, truth), _passed_over(config)
    )


def _passed_over(config: Config) -> list[object]:
    """Parts and questions that are switched off: their files, of an earlier configuration, are not refreshed."""
    found: list[object] = []
    if not config.explain.sanity.asked:
        found += [sanity_blocks, random_weights_destroy_it, permuted_labels_destroy_it]
    if config.explain.faithfulness.scans == 0:
        found += [faithfulness_blocks, deletion_hurts, insertion_helps]
    return found


def _truth(config: Config, layout: Layout, atlas: str, model: Model, seed: int) -> Path | None:
    """The truth table, of the run that `bolt.truth.table` judges: the first atlas, explained model and seed."""
    judged = next((m.run_name for m in _models(config) if has_importance(m)), None)
    first = (next(iter(config.atlas_places)), judged, config.seeds[0])
    file = layout.tables / "truth.tsv"
    return file if (atlas, model.run_name, seed) == first and file.is_file() else None


def digest(config: Config, dataset: Dataset, layout: Layout, atlas: str, model: Model, seed: int) -> list[Block]:
    """What the report says of a run's explanation: the summary, the brain, and where to read on."""
    if dataset.classes is None:
        return [Text("No landmarks and regions: they are regressions of classes, and the label here is a number.")]
    if model.covariates:
        return [Text("No importance weights: Algorithm 1 follows series, and this model has covariates as well.")]
    if not has_importance(model):
        return [Text("No importance weights: Algorithm 1 follows CLS tokens, and this model has none.")]
    verdicts = verdicts_of(config, layout, atlas, model, seed)
    if not verdicts:
        failed = (layout.run(atlas, model, seed).explanation / "landmarks.tsv").is_file()
        return [Text("Not explained: no fold of this run was trained and explained.", warning=True)] if failed else []
    stem = run_stem(atlas, model, seed)
    blocks: list[Block] = [Text(" ".join([*(v.sentence for v in verdicts if v.sentence), counted(verdicts)]))]
    if brain_picture(layout, stem).is_file():
        blocks.append(brain_block(config, layout, stem))
    link = f"{layout.explanation_page.name}#{stem}"
    return [*blocks, Text("All figures, and how far to trust them:", link=link)]


def _models(config: Config) -> list[Model]:
    return [load_model(name) for name in config.models]
