"""The report: gather what the workflow produced, draw it, and write its pages.

Missing parts are omitted: ready ROI series have no registration, real data no truth table.
"""

from __future__ import annotations

import gc
import platform
import time
from collections.abc import Mapping

import pandas as pd
import yaml

from bolt import __version__
from bolt.config import Dataset
from bolt.config.layout import Layout
from bolt.config.study import Study
from bolt.datasets import TEXT_COLUMNS
from bolt.io.files import read_table, write_text
from bolt.jobs.provenance import commit
from bolt.jobs.versions import versions
from bolt.report.html import ABOUT, PAGES, Chapter, pages_of, write_report_page
from bolt.report.pages.subjects import Subject, index_exclusions, write_subjects
from bolt.report.runs import run_scope
from bolt.report.sections.cohort import cohort_section, series_section, spaces_section, with_lengths, with_motion
from bolt.report.sections.comparison import Compared, comparison, gathered, reference, reference_run
from bolt.report.sections.costs import costs_section
from bolt.report.sections.explanation.overview import unexplained
from bolt.report.sections.findings import findings
from bolt.report.sections.images import quality_section
from bolt.report.sections.leaks import leaks_section
from bolt.report.sections.methods import (
    bibtex,
    cite,
    cited,
    load_references,
    methods,
    methods_page,
    preprocessing_texts,
)
from bolt.report.sections.runs import run_section, search_sections
from bolt.report.tables import readable

MOST_NAMED = 6
"""Models that are named among the facts; more are counted."""


def write_report(study: Study) -> None:
    """Write the pages that need more than images, their figures, and the methods text; remove pages of former runs."""
    gc.freeze()  # figures leave garbage: do not search all imported modules for it
    layout, pages = study.layout, pages_of(study)
    scans = read_table(layout.scans, text=TEXT_COLUMNS)
    exclusions = _exclusions(layout, scans)
    used = scans[~scans["scan_id"].isin(exclusions["scan_id"])]
    atlas = next(iter(study.config.atlas_places))
    used = with_lengths(with_motion(used, layout, atlas), layout, atlas)
    compared = gathered(study)
    _write_cohort(study, used, exclusions, write_subjects(study, exclusions, compared))
    apart = leaks_section(study) if "trust.html" not in pages else None
    chapters = performance_sections(study, compared) + ([apart] if apart else [])
    write_report_page(study, "performance.html", runs=chapters)
    _write_methods(study, used)
    truth = layout.tables / "truth.tsv"
    write_report_page(
        study,
        "index.html",
        facts=_facts(study, used, exclusions),
        truth=readable.truth(read_table(truth, text=("measure", "unit"))) if truth.is_file() else None,
        scope=run_scope(reference_run(study)),
        findings=findings(study, compared),  # repeats the tests of the cohort
        contents={file: ABOUT[file] for file in pages if file in ABOUT},
        unexplained={} if "explanation.html" in pages else unexplained(study),
    )
    for file in PAGES.keys() - pages.keys():
        layout.report.with_name(file).unlink(missing_ok=True)


def _write_cohort(study: Study, used: pd.DataFrame, exclusions: pd.DataFrame, subjects: list[Subject]) -> None:
    atlases = study.config.atlas_places
    series = [block for atlas in atlases for block in series_section(study, atlas)]
    write_report_page(
        study,
        "cohort.html",
        used=len(used),
        subjects=subjects,
        columns=list(dict.fromkeys(name for subject in subjects for name in subject.facts)),
        reference=reference(study).shown,
        cohort=cohort_section(study, used),
        exclusions=exclusions,
        quality=quality_section(study),
        series=series + spaces_section(study.layout, used["scan_id"], atlases),
    )


def _write_methods(study: Study, used: pd.DataFrame) -> None:
    """Write the page, and its text for a manuscript: ``methods.md``, ``methods.bib``."""
    layout = study.layout
    text = methods(study, preprocessing_texts(layout, used))
    paragraphs, references = cite(text)
    write_text(methods_page(paragraphs, references), layout.report.with_name("methods.md"))
    write_text(bibtex(cited(text), load_references()), layout.report.with_name("methods.bib"))
    write_report_page(
        study,
        "methods.html",
        methods=paragraphs,
        references=references,
        provenance=_provenance(),
        costs=costs_section(layout),
        configuration=yaml.safe_dump(study.config.model_dump(mode="json"), sort_keys=False),
    )


def performance_sections(study: Study, rows: Mapping[str, Compared] | None = None) -> list[Chapter]:
    """Return the comparison of all runs (`rows`, if they were read before), the searches, and each run."""
    compared = comparison(study, rows)
    runs = [run_section(study, run) for run in study.runs]
    return [*([compared] if compared else []), *search_sections(study), *runs]


def _exclusions(layout: Layout, scans: pd.DataFrame) -> pd.DataFrame:
    if layout.exclusions.is_file():
        return read_table(layout.exclusions, text=("scan_id", "stage", "reason")).fillna("")
    return index_exclusions(scans)


def _provenance() -> dict[str, str]:
    known = commit()
    changed = ", with local changes" if known["changed"] else ""
    return {
        "date": time.strftime("%Y-%m-%d %H:%M"),
        "BolT": __version__ + (f" (commit {known['commit'][:10]}{changed})" if known["commit"] else ""),
        "Python": f"{platform.python_version()} on {platform.system()} {platform.machine()}",
        "packages": ", ".join(f"{name} {version}" for name, version in versions().items()),
    }


def _facts(study: Study, used: pd.DataFrame, exclusions: pd.DataFrame) -> dict[str, str]:
    """Return the facts at the top of the page."""
    names = [model.shown for model in study.models.values()]
    facts = {
        "scans included": f"{len(used)} of {len(used) + exclusions['scan_id'].nunique()}",
        "subjects": str(used["subject"].nunique()),
        **_label(study.dataset, used),
        "folds": _folds(study),
        "atlases": ", ".join(study.config.atlas_places),
        "models": ", ".join(names) if len(names) <= MOST_NAMED else str(len(names)),
    }
    if used["site"].notna().any():
        facts["sites"] = str(used["site"].nunique())
    return facts


def _folds(study: Study) -> str:
    """Return how many folds there are, and how many of them are run if not all."""
    folds = study.config.folds
    counts = sorted({len(folds.of(model.name)) for model in study.models.values()})
    if counts == [folds.outer]:
        return str(folds.outer)
    return f"{' to '.join(map(str, dict.fromkeys((counts[0], counts[-1]))))} of {folds.outer}"


def _label(dataset: Dataset, used: pd.DataFrame) -> dict[str, str]:
    if dataset.classes is None:
        return {"label": f"{dataset.label}, a number"}
    scans = used["label"].value_counts()
    counts = [f"{scans.get(name, 0)} {name}" for name in dataset.classes]
    return {"classes": ", ".join(counts) if len(counts) < 4 else str(len(counts))}
