"""Dry runs of experiments: each is a target, what two share is trained once, and what is done is not done again."""

import re
from types import SimpleNamespace

import pytest

from bolt.config import known
from bolt.io.files import read_yaml
from bolt.workflow.estimate import estimate, job_counts
from bolt.workflow.run import Run
from bolt.workflow.start import start
from tests.snake import TINY_MODEL, series_dataset, snakemake, write_yaml
from tests.workflow.test_dag import jobs_said, last_line, planned_by

WINDOWS = {"whole": {}, "short": {"hyper": {"window": 5}}, "long": {"hyper": {"window": 31}}}


def row(folder, name):
    return {"row": name, "model": str(folder / "tiny.yaml")} | WINDOWS[name]


def configured(folder, **config):
    """Two experiments on series: four different models in six rows, of which one cannot be trained."""
    sweep = {"row": "{value}", "models": [str(folder / "tiny.yaml")], "key": "hyper.window", "values": [5, 10, 20]}
    one = {"title": "one", "rows": [row(folder, "whole"), row(folder, "short")]}
    two = {"title": "two", "rows": [row(folder, "long")], "sweeps": [sweep]}
    places = [str(write_yaml(folder / f"{keys['title']}.yaml", keys)) for keys in (one, two)]
    return series_dataset(folder, experiments=places, **config)


def test_runs_that_are_shared_are_planned_once_and_what_is_trained_is_not_trained_again(here):
    config = configured(here)
    planned, said = planned_by(here, "extras", config=config)
    assert (planned["experiment"], planned["train_fold"]) == (2, 9)  # three models, three folds
    assert jobs_said(said) == sum(planned.values()) - 1
    run = Run(read_yaml(config))
    one, two = (run.predictions(run.experiment_runs(name)) for name in ("one", "two"))
    assert (len(one), len(two)) == (6, 9)
    assert set(run.predictions()) <= set(one) <= set(two)  # the configured model is a row of both
    assert estimate(run, ["one"]).jobs < estimate(run, ["one", "two"]).jobs == jobs_said(said)
    assert set(run.experiments) == {*known("experiment"), "one", "two"}
    assert snakemake(here, "folds", config=config).returncode == 0
    for predictions in one[:4]:
        predictions.parent.mkdir(parents=True)
        for name in ("predictions.tsv", "checkpoint.safetensors", "status.json"):
            predictions.with_name(name).touch()
    again, _ = planned_by(here, "one", "two", "--rerun-triggers", "mtime", config=config)
    assert again["train_fold"] == 9 - 4


def test_all_folds_of_a_run_can_be_one_job(tmp_path):
    config = configured(tmp_path, folds={"outer": 3, "side_by_side": True})
    planned, said = planned_by(tmp_path, "extras", config=config)
    assert planned["train_folds"] == 3 and "train_fold" not in planned
    assert jobs_said(said) == sum(planned.values()) - 1


def test_a_wrong_experiment_is_one_clear_line_before_any_work(here):
    wrong = write_yaml(here / "wrong.yaml", {"title": "Mine", "rows": [{"model": "bolt", "hyper": {"windw": 3}}]})
    with pytest.raises(SystemExit, match="row 'BolT', hyper.windw: model 'bolt' has no setting 'windw'"):
        start(read_yaml(series_dataset(here, experiments=[str(wrong)])))


def test_a_dry_run_of_a_search_says_what_it_takes(here):
    models = [str(here / "tiny.yaml"), "svm", "majority"]  # of the last, nothing can be searched
    config = series_dataset(here, models=models, search={"scheme": "both", "n_trials": 4})
    planned, said = planned_by(here, "search", config=config)
    numbers = re.fullmatch(r"The search: 12 scans, (\d+) jobs, (\d+) trials, .*", last_line(said)).groups()
    assert (planned["search_fold"], planned["choose"]) == (6, 4)
    assert [int(number) for number in numbers] == [sum(planned.values()) - planned["search"], 6 * 4]
    raw = read_yaml(config)
    few, many = (estimate(Run(raw | {"search": {"n_trials": n}}), search=True) for n in (4, 40))
    assert (few.trials, many.trials) == (24, 240) and many.core_hours > 8 * few.core_hours


def test_landmarks_wait_for_one_atlas_and_are_left_out_of_numbers(here):
    configured(here, explain={"inner_folds": 2})
    keys = read_yaml(here / "config.yaml") | {"experiments": ["landmarks"], "atlases": ["dosenbach160", "cc200"]}
    run = Run(keys)
    (waited,) = run.experiment_inputs(SimpleNamespace(experiment="landmarks"))
    assert waited.name == "landmarks.tsv" and "dosenbach160" in waited.parts
    planned = job_counts(run, ["landmarks"])
    assert (planned["train_fold"], planned["train_inner"], planned["regress_landmarks"]) == (3, 6, 1)
    assert [path.name for path in run.tables_of("paper")] == ["landmarks.tsv"]
    dataset = read_yaml(keys["dataset"]) | {"label": "age"}
    del dataset["classes"]
    numbers = Run(keys | {"dataset": str(write_yaml(here / "numbers.yaml", dataset))})
    assert numbers.tables_of("paper") == [] and numbers.experiment_inputs(SimpleNamespace(experiment="landmarks")) == []


def test_figures_of_explanations_are_planned(here, monkeypatch):
    """Brain maps need the regressions on landmarks, the timing of tasks needs importance alone; both share it."""
    run = Run(read_yaml(configured(here)) | {"experiments": ["brain_maps", "landmarks", "task_timing"]})

    def planned(names):
        counts = job_counts(run, names)
        kinds = ("train_fold", "explain_fold", "regress_landmarks", "regions", "tasks", "experiment")
        return [counts[kind] for kind in kinds]

    for name, file in {"brain_maps": "roi_weights.tsv", "landmarks": "landmarks.tsv"}.items():
        assert [path.name for path in run.experiment_inputs(SimpleNamespace(experiment=name))] == [file]
    assert planned(["brain_maps"]) == [3, 3, 1, 1, 0, 1]
    assert planned(["brain_maps", "landmarks"]) == [3, 3, 1, 1, 0, 2]
    monkeypatch.setattr(type(run.dataset), "has_tasks", property(lambda self: True))
    assert planned(["task_timing"]) == [3, 3, 0, 0, 1, 1]
    assert planned(run.asked("paper")) == [3, 3, 1, 1, 1, 3]


def test_the_targets_paper_and_extras_are_dry_runs_of_their_own(here):
    config, made = configured(here), {}
    write_yaml(config, read_yaml(config) | {"experiments": ["ablation", "windows_only", str(here / "one.yaml")]})
    for target in ("paper", "extras"):
        planned, said = planned_by(here, target, config=config)
        made[target] = set(re.findall(r"results/paper/(\w+)\.tsv", said))
        assert jobs_said(said) == sum(planned.values()) - 1
    assert made == {"paper": {"ablation"}, "extras": {"windows_only", "one"}}


def choose(folder, model, keys):
    """What a search would have written."""
    place = folder / "results/paper/search" / f"{model}.yaml"
    place.parent.mkdir(parents=True)
    write_yaml(place, {"model": model} | keys)


def test_values_that_no_search_has_chosen_are_not_used(here, capsys):
    """The trainings would be those of config/models, under the name of searched ones."""
    config = configured(here, search={"use": True, "scheme": "shared", "n_trials": 1})
    keys = read_yaml(config)
    refused = "no search has chosen values for model tiny .in results/paper/search.*First ask for the target 'search'"
    refused += r".*--config 'search={scheme: shared, models: \[tiny\]}'"
    for target in ("one", "results/paper/two.tsv"):
        with pytest.raises(SystemExit, match=refused):
            start(keys, targets=[target])
    done = snakemake(here, "-n", "extras", config=config)
    assert done.returncode != 0 and re.search(refused, done.stdout), done.stdout
    for targets in ([], ["search"]):  # the report has no experiments
        planned_by(here, *targets, config=config)
    choose(here, "tiny", TINY_MODEL | {"hyper": TINY_MODEL["hyper"] | {"hidden": 32}})
    plain, run = start(keys | {"search": {"use": False}}, targets=["one"]), start(keys, targets=["one"])
    assert "Note: values that a search chose are used for tiny." in capsys.readouterr().err
    trained, others = ({run.model for run in each.experiment_runs("one")} for each in (run, plain))
    assert len(trained) == len(others) == 2 and not trained & others


def test_of_some_models_searched_it_is_said_which(here, capsys):
    both = write_yaml(here / "both.yaml", {"title": "Both", "rows": [{"model": "svm"}, {"model": "bolt"}]})
    config = read_yaml(series_dataset(here, experiments=[str(both)], search={"use": True}))
    choose(here, "svm", {"hyper": {"C": 0.5}})
    start(config, targets=["both"])
    said = capsys.readouterr().err
    assert "values that a search chose are used for svm; bolt has those of config/models." in said
    with pytest.raises(SystemExit, match=r"no search has chosen values for model bolt .*models: \[bolt\]"):
        start(config | {"search": {"use": True, "models": ["svm", "bolt"]}}, targets=["both"])
