"""What a crashed job says to type is typed: the very text does that job again, and nothing that follows."""

import re
import shlex
from pathlib import Path

import pytest
import yaml

from bolt.config import ROOT
from bolt.explain.weights import IMPORTANCE_FILES
from bolt.io.files import read_json
from bolt.jobs.outcome import Outcome
from bolt.workflow.run import Run
from tests.forks import run_module
from tests.snake import snakemake
from tests.stages import stage
from tests.workflow.test_dag import bids_config, jobs, make_up

SUBJECT, SCAN, ATLAS = "sub-01", "sub-01_task-rest", "dosenbach160"


def crash(*_, **__):
    raise RuntimeError("a crash")


def planned_by(command):
    done = run_module([*shlex.split(command), "-n"], Path.cwd())
    assert done.returncode == 0, done.stdout
    return jobs(done.stdout)


@pytest.fixture
def finished(tmp_path, monkeypatch):
    """A run that is whole: all that follows the index is made up, and said to be done by `--touch`."""
    config = bids_config(tmp_path)
    assert snakemake(tmp_path, "results/own/scans.tsv", config=config).returncode == 0
    monkeypatch.chdir(tmp_path)
    planned = Run(yaml.safe_load(config.read_text()))
    layout, model = planned.layout, next(iter(planned.models))
    fold = layout.run(ATLAS, model, 0, layout.variant).fold(0)
    outputs = [layout.folds, *(layout.cache(ATLAS) / name for name in ("manifest.json", "exclusions.tsv"))]
    outputs += [fold / name for name in ("predictions.tsv", "checkpoint.safetensors", "status.json")]
    outputs += [fold / name for name in IMPORTANCE_FILES]
    make_up(layout, ATLAS, outputs)
    whole = str(fold / "importance.tsv")
    assert snakemake(tmp_path, "--touch", whole, config=config).returncode == 0
    assert "Nothing to be done" in snakemake(tmp_path, "-n", whole, config=config).stdout
    return layout, fold, {"scan": SCAN, "folder": SUBJECT, "prefix": SUBJECT, "atlas": ATLAS, "model": model, "seed": 0}


@pytest.mark.slow
def test_the_command_of_a_crash_runs_as_it_is_written(finished, monkeypatch):
    layout, fold, names = finished
    for place in ("anatomical.preprocess_anatomical", "functional.workflow.preprocess_functional"):
        monkeypatch.setattr(f"bolt.preprocess.{place}", crash)
    for place in ("series.parcellate.parcellate", "series.cache.SeriesCache", "workflow.stages.training._train"):
        monkeypatch.setattr(f"bolt.{place}", crash)
    monkeypatch.setattr("bolt.workflow.job.Job.atlas", lambda *_: None)
    stages = [  # from the last to the first, so that none makes another's inputs new; the 4D image is gone by then
        ("explain_fold", {"explain_fold": 1}, fold / "explain_status.json"),
        ("train_fold", {"train_fold": 1}, fold / "status.json"),
        ("parcellate", {"parcellate": 1, "functional": 1}, layout.series_status(SCAN)),
        ("functional", {"functional": 1}, layout.functional_status(SCAN)),
        ("anatomical", {"anatomical": 1}, layout.anatomical_status(SUBJECT)),
    ]
    for rule, due, status in stages:
        assert stage(layout.config, rule, "--attempt", str(Outcome.ATTEMPTS), fold=0, **names) == 0
        found = read_json(status)
        assert "crashed in 2 attempts" in found["reason"], found
        command = found["hint"].split("To repeat this job: ")[1]
        planned = planned_by(command)
        assert planned == due, planned


@pytest.mark.slow
def test_the_command_of_the_outputs_page_does_a_scan_again_and_what_follows(finished):
    layout, _, _ = finished
    command = re.search(r"`(snakemake [^`]*--forcerun <its status\.json>)`", (ROOT / "docs/outputs.md").read_text())[1]
    command = command.replace("<dataset>", "own").replace("<its status.json>", str(layout.functional_status(SCAN)))
    planned = planned_by(f"{command} --snakefile {ROOT / 'Snakefile'}")
    assert planned["functional"] == planned["parcellate"] == planned["quality"] == 1 and "anatomical" not in planned
