"""The pages of the explanation: what a model looked at, and whether that can be believed.

Each part is made by a module of its own, and omitted if its files are missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from bolt.config.layout import ModelRun
from bolt.config.study import Study
from bolt.explain.explainable import has_importance
from bolt.io.errors import DataError
from bolt.report.html import Block, Chapter, run_anchor, run_scope, run_title, say, write_report_page
from bolt.report.sections.explanation import (
    connections_blocks,
    draw_overview,
    moments_blocks,
    regions_blocks,
    tasks_blocks,
    unexplained,
)
from bolt.report.sections.trust import (
    faithfulness_blocks,
    landmarks_blocks,
    leaks_section,
    sanity_blocks,
    stability_blocks,
    truth_blocks,
)
from bolt.report.sections.verdicts import MARKS, Verdict, believed, counted, verdicts_of

Part = Callable[[Study, ModelRun], list[Block]]
CHAPTERS: Mapping[str, Mapping[str, tuple[Part, ...]]] = {
    "explanation.html": {
        "Which moments": (tasks_blocks, moments_blocks),
        "Which regions": (regions_blocks,),
        "Which connections": (connections_blocks,),
    },
    "trust.html": {
        "Is the planted truth found?": (truth_blocks,),
        "Do these moments suffice to predict the class?": (landmarks_blocks,),
        "Is it stable?": (stability_blocks,),
        "Does it depend on what was learned?": (sanity_blocks,),
        "Does the model use these moments?": (faithfulness_blocks,),
    },
}
"""Headings of each page and the parts below them, in reading order."""


@dataclass
class Story:
    """What is known about one run.

    `note` says what of an ensemble is explained, `chapters` are those of each page, `scope` says how many of all folds
    and scans were tested.
    """

    title: str
    anchor: str
    verdicts: list[Verdict]
    believed: str
    note: str
    chapters: dict[str, list[Chapter]]
    scope: str


def write_explanation(study: Study) -> None:
    """Draw and write the pages of all explained runs.

    Raises
    ------
    DataError
        No run of this configuration was explained.
    """
    runs = study.runs
    stories = [story for run in runs if (story := story_of(study, run))]
    if not stories and not any((run.explanation / "landmarks.tsv").is_file() for run in runs):
        where = study.layout.results / "explain"
        raise DataError(
            "no run was explained",
            where=where,
            hint="Explain a model first: name one that can be in 'models' (bolt, for example)",
        )
    write_report_page(study, "explanation.html", stories=stories, unexplained=unexplained(study))
    write_report_page(study, "trust.html", stories=stories, leaks=leaks_section(study), marks=MARKS, counted=counted)


def story_of(study: Study, run: ModelRun) -> Story | None:
    """Return all that is known about one run's predictions; None if it was not explained."""
    verdicts = verdicts_of(study, run)
    if not verdicts:
        return None
    draw_overview(study, run)
    chapters = {page: _chapters(study, run, parts) for page, parts in CHAPTERS.items()}
    title, anchor, note = run_title(study, run), run_anchor(run), _note(study, run)
    return Story(title, anchor, verdicts, believed(verdicts), note, chapters, run_scope(run))


def _note(study: Study, run: ModelRun) -> str:
    """Say which part of an ensemble is explained."""
    model = study.models[run.model]
    if not model.members:
        return ""
    title = next(member.title for member in model.members if has_importance(member))
    others = sum(not has_importance(member) for member in model.members)
    return say("moments.ensemble", n=len(model.members), title=title, others=others)


def _chapters(study: Study, run: ModelRun, headings: Mapping[str, tuple[Part, ...]]) -> list[Chapter]:
    made = [Chapter(name, [block for part in parts for block in part(study, run)]) for name, parts in headings.items()]
    return [chapter for chapter in made if chapter.blocks]
