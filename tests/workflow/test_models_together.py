"""The SVM and BolT in one run of the workflow: each is planned for its own folds, in jobs of its own kind."""

import pytest

from bolt.config import Folds
from bolt.io.files import holds_something, read_json, read_table, read_yaml
from bolt.workflow.estimate import estimate
from bolt.workflow.run import Run
from tests.snake import QUICK_EXPLANATION, series_dataset, snakemake, write_yaml
from tests.workflow.test_dag import jobs_said, planned_by


def configure(folder, **folds):
    models = [str(folder / "tiny.yaml"), "svm"]
    return series_dataset(folder, models=models, folds={"outer": 3} | folds, explain=QUICK_EXPLANATION)


def test_each_model_is_planned_for_its_own_folds(here):
    run = Run(read_yaml(configure(here, run={"tiny": [0]})))
    names = {model.name: run_name for run_name, model in run.models.items()}
    assert run.folds_of(names["tiny"]) == [0] and run.folds_of(names["svm"]) == [0, 1, 2]
    assert Folds(outer=3).of("any") == [0, 1, 2] and Folds(outer=3, run=[1]).of("any") == [1]
    assert len(run.predictions()) == 4
    assert run.fitted_at_once(names["svm"]) and not run.fitted_at_once(names["tiny"])
    assert run.model_code(names["svm"]) != run.model_code(names["tiny"])
    alone = Run(read_yaml(here / "config.yaml") | {"models": ["svm"], "folds": {"outer": 3}})
    assert estimate(alone).core_hours < 0.1  # 12 scans: three folds in seconds, none of BolT's minutes


def test_all_folds_of_a_model_that_is_fitted_at_once_are_one_job_unless_some_are_named(tmp_path):
    planned, _ = planned_by(tmp_path, "train", config=configure(tmp_path))
    assert (planned["train_fold"], planned["train_folds"]) == (3, 1)
    config = tmp_path / "config.yaml"
    write_yaml(config, read_yaml(config) | {"folds": {"outer": 3, "run": {"svm": [0, 2]}}})
    planned, said = planned_by(tmp_path, config=config)
    assert planned["train_fold"] == 5 and "train_folds" not in planned
    assert jobs_said(said) == sum(planned.values()) - 1


@pytest.mark.slow
def test_a_fold_that_fails_leaves_the_others(tmp_path):
    config = configure(tmp_path)
    write_yaml(config, read_yaml(config) | {"models": ["svm"]})
    assert snakemake(tmp_path, "folds", config=config).returncode == 0
    table = read_table(tmp_path / "results/mine/folds.tsv", text=("scan_id",))
    table.loc[(table["fold"] == 1) & (table["role"] == "test"), "role"] = "validation"
    table.to_csv(tmp_path / "results/mine/folds.tsv", sep="\t", index=False)
    assert snakemake(tmp_path, "train", "--rerun-triggers", "mtime", config=config).returncode == 0
    folders = sorted(path.parent for path in (tmp_path / "results/mine/runs").rglob("predictions.tsv"))
    states = {folder.name: read_json(folder / "status.json") for folder in folders}
    assert [states[f"fold-{fold}"]["state"] for fold in range(3)] == ["ok", "failed", "ok"]
    assert "fold 1 has no test scan" in states["fold-1"]["reason"]
    assert [holds_something(folder / "predictions.tsv") for folder in folders] == [True, False, True]
    assert [(folder / "provenance.json").is_file() for folder in folders] == [True, False, True]
