"""The report: gather what the workflow produced, draw it, and write its pages.

Missing parts are omitted: ready ROI series have no registration, real data no truth table.
"""

from __future__ import annotations

import gc
import platform
import time

import pandas as pd
import yaml

from bolt import __version__
from bolt.config.layout import Layout
from bolt.config.study import Study
from bolt.datasets import TEXT_COLUMNS
from bolt.io.files import read_table, write_text
from bolt.jobs.ledger import SUMS, ledger
from bolt.jobs.provenance import commit
from bolt.jobs.versions import versions
from bolt.report.html import PAGES, Block, Table, pages_of, run_scope, say, write_report_page
from bolt.report.pages.subjects import index_exclusions, write_subjects
from bolt.report.sections.cohort import (
    cohort_section,
    quality_section,
    series_section,
    spaces_section,
    with_lengths,
    with_motion,
)
from bolt.report.sections.explanation import unexplained
from bolt.report.sections.findings import findings
from bolt.report.sections.methods import (
    bibtex,
    cite,
    cited,
    load_references,
    methods,
    methods_page,
    preprocessing_texts,
)
from bolt.report.sections.performance import gathered, performance_sections, reference, reference_run
from bolt.report.sections.trust import leaks_section
from bolt.report.tables import readable
from bolt.report.tables.numbers import DASH

MOST_NAMED = 6
"""Models that are named among the facts; more are counted."""
LISTED = 8
"""Stages with a row of their own among the computing resources; the rest share one."""


def write_report(study: Study) -> None:
    """Write the pages that need more than images, their figures, and the methods text; remove pages of former runs."""
    gc.freeze()  # figures leave garbage: do not search all imported modules for it
    layout, pages, atlases = study.layout, pages_of(study), study.config.atlas_places
    scans = read_table(layout.scans, text=TEXT_COLUMNS)
    exclusions = index_exclusions(scans)
    if layout.exclusions.is_file():
        exclusions = read_table(layout.exclusions, text=("scan_id", "stage", "reason")).fillna("")
    used, first = scans[~scans["scan_id"].isin(exclusions["scan_id"])], next(iter(atlases))
    used = with_lengths(with_motion(used, layout, first), layout, first)
    compared = gathered(study)
    subjects = write_subjects(study, exclusions, compared)
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
        series=series + spaces_section(layout, used["scan_id"], atlases),
    )
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
        unexplained={} if "explanation.html" in pages else unexplained(study),
    )
    for file in PAGES.keys() - pages.keys():
        layout.report.with_name(file).unlink(missing_ok=True)


def _write_methods(study: Study, used: pd.DataFrame) -> None:
    """Write the page, and its text for a manuscript: ``methods.md``, ``methods.bib``."""
    layout, known = study.layout, commit()
    text = methods(study, preprocessing_texts(layout, used))
    paragraphs, references = cite(text)
    write_text(methods_page(paragraphs, references), layout.report.with_name("methods.md"))
    write_text(bibtex(cited(text), load_references()), layout.report.with_name("methods.bib"))
    changed = ", with local changes" if known["changed"] else ""
    provenance = {
        "date": time.strftime("%Y-%m-%d %H:%M"),
        "BolT": __version__ + (f" (commit {known['commit'][:10]}{changed})" if known["commit"] else ""),
        "Python": f"{platform.python_version()} on {platform.system()} {platform.machine()}",
        "packages": ", ".join(f"{name} {version}" for name, version in versions().items()),
    }
    write_report_page(
        study,
        "methods.html",
        methods=paragraphs,
        references=references,
        provenance=provenance,
        costs=costs_section(layout),
        configuration=yaml.safe_dump(study.config.model_dump(mode="json"), sort_keys=False),
    )


def _facts(study: Study, used: pd.DataFrame, exclusions: pd.DataFrame) -> dict[str, str]:
    """Return the facts at the top of the page."""
    dataset, folds, models = study.dataset, study.config.folds, list(study.models.values())
    facts = {
        "scans included": f"{len(used)} of {len(used) + exclusions['scan_id'].nunique()}",
        "subjects": str(used["subject"].nunique()),
    }
    if dataset.classes is None:
        facts["label"] = f"{dataset.label}, a number"
    else:
        scans = used["label"].value_counts()
        counts = [f"{scans.get(name, 0)} {name}" for name in dataset.classes]
        facts["classes"] = ", ".join(counts) if len(counts) < 4 else str(len(counts))
    run = sorted({len(folds.of(model.name)) for model in models})
    some = " to ".join(map(str, dict.fromkeys((run[0], run[-1]))))
    facts["folds"] = str(folds.outer) if run == [folds.outer] else f"{some} of {folds.outer}"
    facts["atlases"] = ", ".join(study.config.atlas_places)
    facts["models"] = ", ".join(model.shown for model in models) if len(models) <= MOST_NAMED else str(len(models))
    if used["site"].notna().any():
        facts["sites"] = str(used["site"].nunique())
    return facts


def costs_section(layout: Layout) -> list[Block]:
    """Return the most expensive stages of this dataset, the others together, and the total; [] without measurements."""
    table, _ = ledger(layout.ledger.parent, layout.results.name)
    if table.empty:
        return []
    stages = table.groupby("stage").agg(dict.fromkeys(SUMS, "sum") | {"peak_memory_mb": "max"})
    stages = stages.sort_values("cpu_hours", ascending=False, kind="stable")
    parts = {str(name): stages.loc[[name]] for name in stages.index[:LISTED]}
    if len(stages) > LISTED:
        parts[f"{len(stages) - LISTED} other stages"] = stages.iloc[LISTED:]
    frame = pd.DataFrame(
        {
            "stage": name,
            "jobs": str(int(part["jobs"].sum())),
            "wall time": _time(part["wall_hours"].sum()),
            "processor time": _time(part["cpu_hours"].sum()),
            "GPU time": _time(part["gpu_hours"].sum()),
            "peak memory (MB)": f"{part['peak_memory_mb'].max():.0f}",
        }
        for name, part in {**parts, "all": stages}.items()
    )
    if not stages["gpu_hours"].any():
        frame = frame.drop(columns="GPU time")
    return [Table(frame, say("costs.caption"), layout.ledger)]


def _time(hours: float) -> str:
    """Return a time in a suitable unit."""
    if not hours:
        return DASH
    if hours >= 1:
        return f"{hours:.1f} h"
    return f"{hours * 60:.1f} min" if hours >= 1 / 60 else f"{hours * 3600:.0f} s"
