"""What holds of provenance and ledger after every run of the workflow."""

from __future__ import annotations

from pathlib import Path

from bolt.io.files import read_json, read_table, sha256
from bolt.jobs.ledger import benchmark_files, job_notes
from bolt.workflow.stage import STAGES

KEYS = {"stage", "command", "date", "job", "log", "bolt", "commit", "changed", "python", "machine", "device"}
KEYS |= {"packages", "inputs", "outputs", "wall_seconds", "cpu_seconds", "peak_memory_mb"}
ELSEWHERE = {"simulate", "download", "download_table"}
"""Stages whose results are not below results/."""


def check_provenance(folder: Path) -> set[str]:
    """Every job of a finished run has noted what its result is made of, truly; the ledger counts all of them.

    Returns the names of their stages.
    """
    results = folder / "results"
    jobs, noted = benchmark_files(results), job_notes(results)
    assert [job for job in jobs if job not in noted and job[1] not in ELSEWHERE] == []
    for file in sorted(results.rglob("*provenance.json")):
        facts = read_json(file)
        assert set(facts) >= KEYS, file
        assert facts["commit"] is None or len(facts["commit"]) == 40
        assert facts["wall_seconds"] > 0 and facts["cpu_seconds"] > 0 and facts["peak_memory_mb"] > 30, file
        assert facts["command"].startswith(f"bolt {STAGES[facts['stage']].command} "), file
        assert any(name.endswith("config.yaml") for name in facts["inputs"]), file
        lost = [name for name, value in facts["inputs"].items() if value is None]
        assert lost == [], f"{file}: {lost}"
        there = {name: folder / name for name in facts["inputs"] if (folder / name).is_file()}
        assert {name: facts["inputs"][name] for name in there} == {name: sha256(file) for name, file in there.items()}
        made = {name: file.parent / name for name in facts["outputs"] if (file.parent / name).is_file()}
        assert {name: facts["outputs"][name] for name in made} == {name: sha256(path) for name, path in made.items()}, (
            file
        )
    table = read_table(results / "ledger.tsv")
    assert table["jobs"].sum() == len(jobs) and set(table["stage"]) == {stage for _, stage, _ in jobs}
    assert (table["cpu_hours"] > 0).any() and (table["peak_memory_mb"] > 30).any()
    return set(table["stage"])
