"""The explanation page: which moments and regions drive the predictions, how stable they are, and how trustworthy.

Each part is made by a module of its own, and omitted if its files are missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from bolt.config.layout import ModelRun
from bolt.config.study import Study
from bolt.io.errors import DataError
from bolt.report.html import Block, Chapter, write_page
from bolt.report.runs import run_anchor, run_title
from bolt.report.sections.explanation.faithfulness import faithfulness_blocks
from bolt.report.sections.explanation.landmarks import landmarks_blocks
from bolt.report.sections.explanation.moments import moments_blocks
from bolt.report.sections.explanation.overview import draw_overview
from bolt.report.sections.explanation.questions import MARKS, Verdict, counted, verdicts_of
from bolt.report.sections.explanation.regions import regions_blocks
from bolt.report.sections.explanation.sanity import sanity_blocks
from bolt.report.sections.explanation.stability import stability_blocks
from bolt.report.sections.explanation.tasks import tasks_blocks
from bolt.report.sections.explanation.truth import truth_blocks

Part = Callable[[Study, ModelRun], list[Block]]
CHAPTERS: Mapping[str, tuple[Part, ...]] = {
    "Which moments": (tasks_blocks, moments_blocks),
    "Do these moments suffice to predict the class?": (landmarks_blocks,),
    "Which regions": (regions_blocks,),
    "How stable": (stability_blocks,),
    "How trustworthy": (truth_blocks, sanity_blocks, faithfulness_blocks),
}
"""Headings and the parts below them, in reading order."""


@dataclass
class Story:
    """The part of the page about one run."""

    title: str
    anchor: str
    verdicts: list[Verdict]
    chapters: list[Chapter]


def write_explanation(study: Study) -> None:
    """Draw and write the page of all explained runs.

    Raises
    ------
    DataError
        No run of this configuration was explained.
    """
    runs = study.runs
    stories = [story for run in runs if (story := story_of(study, run))]
    if not stories and not any((run.explanation / "landmarks.tsv").is_file() for run in runs):
        where = study.layout.results / "explain"
        raise DataError("no run was explained", where=where, hint="Run: snakemake figures")
    content = {"dataset": study.dataset, "stories": stories, "marks": MARKS, "counted": counted}
    write_page("explanation.html", study.layout.explanation_page, **content)


def story_of(study: Study, run: ModelRun) -> Story | None:
    """Return all that is known about one run's predictions; None if it was not explained."""
    verdicts = verdicts_of(study, run)
    if not verdicts:
        return None
    draw_overview(study, run)
    chapters = [
        Chapter(heading, [block for part in parts for block in part(study, run)]) for heading, parts in CHAPTERS.items()
    ]
    return Story(run_title(study, run), run_anchor(run), verdicts, [c for c in chapters if c.blocks])
