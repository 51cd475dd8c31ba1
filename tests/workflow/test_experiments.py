"""Dry runs of experiments: each is a target, what two share is trained once, and what is done is not done again."""

import re
import shutil

import pytest

from bolt.config import known
from bolt.files import read_yaml
from bolt.workflow import Run
from tests.snake import TINY_MODEL, series_dataset, snakemake, write_yaml
from tests.workflow.test_dag import jobs, last_line

ROWS = {
    "one": {"rows": [{"row": "whole", "model": "tiny"}, {"row": "short", "model": "tiny", "hyper": {"window": 5}}]},
    "two": {
        "rows": [{"row": "long", "model": "tiny", "hyper": {"window": 31}}],
        "sweeps": [{"row": "{value}", "models": ["tiny"], "key": "hyper.window", "values": [5, 10, 20]}],
    },
}


def configured(folder, **config):
    """Two experiments on series: four different models in six rows, of which one cannot be trained."""
    model = str(write_yaml(folder / "model.yaml", TINY_MODEL))
    places = []
    for name, keys in ROWS.items():
        rows = [row | {"model": model} for row in keys["rows"]]
        sweeps = [sweep | {"models": [model]} for sweep in keys.get("sweeps", [])]
        places.append(str(write_yaml(folder / f"{name}.yaml", {"title": name, "rows": rows, "sweeps": sweeps})))
    return series_dataset(folder, experiments=places, **config)


@pytest.mark.parametrize(("target", "folds"), [("one", 6), ("two", 9), ("paper", 9), ("all", 3)])
def test_runs_that_are_shared_are_planned_once(tmp_path, target, folds):
    done = snakemake(tmp_path, "-n", target, config=configured(tmp_path))
    assert done.returncode == 0, done.stdout
    planned = jobs(done.stdout)
    assert planned["train_fold"] == folds
    assert planned.get("experiment", 0) == {"paper": 2, "all": 0}.get(target, 1)
    said = int(re.search(r"(\d+) jobs", last_line(done.stdout))[1])
    assert said == sum(planned.values()) - 1  # the target rule is none


def test_all_folds_of_a_run_can_be_one_job(tmp_path):
    config = configured(tmp_path, folds={"outer": 3, "side_by_side": True})
    done = snakemake(tmp_path, "-n", "paper", config=config)
    planned = jobs(done.stdout)
    assert (planned["train_folds"], planned.get("train_fold", 0)) == (3, 0)
    assert int(re.search(r"(\d+) jobs", last_line(done.stdout))[1]) == sum(planned.values()) - 1


def test_what_is_trained_is_not_trained_again(tmp_path):
    """A fold that is there, done by hand or by `all`, is not planned; a run that differs in one setting is."""
    config = configured(tmp_path)
    asked = snakemake(tmp_path, "-n", "one", "--summary", config=config)
    assert asked.returncode == 0, asked.stdout
    run = Run(read_yaml(config))
    folds = [path.parent for path in run.predictions(run.experiment_runs("one"))]
    assert len(folds) == 6
    assert set(run.predictions()) <= {fold / "predictions.tsv" for fold in folds}  # the configured model is a row
    assert snakemake(tmp_path, "series", config=config).returncode == 0
    for fold in folds[:5]:
        (tmp_path / fold).mkdir(parents=True)
        for name in ("predictions.tsv", "checkpoint.safetensors", "status.json"):
            (tmp_path / fold / name).touch()
    again = snakemake(tmp_path, "-n", "one", "--rerun-triggers", "mtime", config=config)
    assert jobs(again.stdout)["train_fold"] == 1
    shutil.rmtree(tmp_path / folds[0])
    again = snakemake(tmp_path, "-n", "one", "--rerun-triggers", "mtime", config=config)
    assert jobs(again.stdout)["train_fold"] == 2


def test_every_shipped_experiment_is_a_target(tmp_path):
    config = series_dataset(tmp_path, experiments=["spectra"])
    listed = snakemake(tmp_path, "--list-rules", config=config).stdout.split()
    assert {*known("experiment"), "paper"} <= set(listed)


def test_a_wrong_experiment_is_one_clear_line(tmp_path):
    write_yaml(tmp_path / "mine.yaml", {"title": "Mine", "rows": [{"model": "bolt", "hyper": {"windw": 3}}]})
    done = snakemake(tmp_path, "-n", config=series_dataset(tmp_path, experiments=[str(tmp_path / "mine.yaml")]))
    assert done.returncode != 0
    assert "row 'BolT', hyper.windw: model 'bolt' has no setting 'windw'" in done.stdout
    assert "Traceback" not in done.stdout
