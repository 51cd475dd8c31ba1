"""Stages that show what others computed: truth table, explanation, report, ledger."""

from __future__ import annotations

import logging
from pathlib import Path

from bolt.cohort.exclusions import write_cohort
from bolt.io.files import read_table
from bolt.io.integrity import require_outputs
from bolt.jobs.ledger import write_ledger
from bolt.jobs.provenance import provenance_path
from bolt.workflow.job import Job

log = logging.getLogger("bolt")
EXPLAINED = (
    *("roi_weights.tsv", "connections.tsv", "tasks.tsv", "landmarks.tsv"),
    *("stability.tsv", "sanity.tsv", "faithfulness_areas.tsv", "connection_stability.tsv"),
)
"""What the pages of the explanation show of a run."""


def _results(job: Job, *names: str) -> list[list[Path]]:
    """Return the files of these names in the folders of runs and explanations, a group per name."""
    results = job.layout.results
    return [sorted(path for top in ("runs", "explain") for path in (results / top).rglob(name)) for name in names]


def _require_results(job: Job) -> None:
    """Refuse tables of scans, runs and explanations that were altered after they were made."""
    layout = job.layout
    for table in (layout.scans, layout.exclusions, layout.folds, layout.quality):
        require_outputs(provenance_path(table))
    for records in _results(job, "*provenance.json"):
        for record in records:
            require_outputs(record)


def truth(job: Job) -> None:
    """Write the truth table."""
    from bolt.truth import write_truth_table

    write_truth_table(job.study)
    job.note(job.layout.tables / "truth.tsv", _results(job, "metrics.tsv", "roi_weights.tsv"))


def explanation(job: Job) -> None:
    """Write the pages of the explanation of all runs."""
    from bolt.report.pages.explanation import write_explanation

    _require_results(job)
    write_explanation(job.study)
    job.note(job.layout.explanation_page, _results(job, *EXPLAINED, "metrics.tsv"))


def report(job: Job) -> None:
    """Write the report."""
    from bolt.report.pages.report import write_report, zip_report

    layout = job.layout
    if job.options.zip:
        log.info("The report: %s", zip_report(layout, job.options.zip))
        return
    _require_results(job)
    if layout.exclusions.is_file():
        job.refuse_bad(read_table(layout.exclusions, text=("scan_id",)))
    write_cohort(job.scans(), job.dataset.published, layout.cohort)  # the published numbers may be newer than the index
    write_report(job.study)
    tables = [layout.scans, layout.folds, layout.exclusions, layout.quality, layout.tables / "truth.tsv"]
    present = [path for path in (*tables, layout.explanation_page, layout.trust_page) if path.is_file()]
    job.note(layout.report, [*present, *_results(job, "metrics.tsv", "predictions.tsv")])


def ledger(job: Job) -> None:
    """Write the ledger of all jobs."""
    write_ledger(job.layout.ledger)
