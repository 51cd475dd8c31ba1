"""Dry runs of experiments: each is a target, what two share is trained once, and what is done is not done again."""

import re
from types import SimpleNamespace

import pytest

from bolt.config import known
from bolt.io.files import read_yaml
from bolt.workflow.estimate import estimate, job_counts, plan_of
from bolt.workflow.run import Run
from bolt.workflow.start import start
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
    model = str(write_yaml(folder / "tiny.yaml", TINY_MODEL))
    places = []
    for name, keys in ROWS.items():
        rows = [row | {"model": model} for row in keys["rows"]]
        sweeps = [sweep | {"models": [model]} for sweep in keys.get("sweeps", [])]
        places.append(str(write_yaml(folder / f"{name}.yaml", {"title": name, "rows": rows, "sweeps": sweeps})))
    return series_dataset(folder, experiments=places, **config)


def test_runs_that_are_shared_are_planned_once(tmp_path, monkeypatch):
    config = configured(tmp_path)
    done = snakemake(tmp_path, "-n", "extras", config=config)
    assert done.returncode == 0, done.stdout
    planned = jobs(done.stdout)
    assert (planned["experiment"], planned["train_fold"]) == (2, 9)  # three models, three folds
    said = int(re.search(r"(\d+) jobs", last_line(done.stdout))[1])
    assert said == sum(planned.values()) - 1  # the target rule is none
    monkeypatch.chdir(tmp_path)
    run = Run(read_yaml(config))
    one, two = (run.predictions(run.experiment_runs(name)) for name in ROWS)
    assert (len(one), len(two)) == (6, 9)
    assert set(run.predictions()) <= set(one) <= set(two)  # the configured model is a row of both
    assert estimate(run, ["one"]).jobs < estimate(run, list(ROWS)).jobs == said
    assert set(run.experiments) == {*known("experiment"), *ROWS}


def test_all_folds_of_a_run_can_be_one_job(tmp_path):
    config = configured(tmp_path, folds={"outer": 3, "side_by_side": True})
    done = snakemake(tmp_path, "-n", "extras", config=config)
    planned = jobs(done.stdout)
    assert (planned["train_folds"], planned.get("train_fold", 0)) == (3, 0)
    assert int(re.search(r"(\d+) jobs", last_line(done.stdout))[1]) == sum(planned.values()) - 1


def test_what_is_trained_is_not_trained_again(tmp_path, monkeypatch):
    config = configured(tmp_path)
    assert snakemake(tmp_path, "folds", config=config).returncode == 0
    monkeypatch.chdir(tmp_path)
    run = Run(read_yaml(config))
    for predictions in run.predictions(run.experiment_runs("one"))[:4]:
        predictions.parent.mkdir(parents=True)
        for name in ("predictions.tsv", "checkpoint.safetensors", "status.json"):
            predictions.with_name(name).touch()
    again = snakemake(tmp_path, "-n", "one", "two", "--rerun-triggers", "mtime", config=config)
    assert jobs(again.stdout)["train_fold"] == 9 - 4


def test_a_wrong_experiment_is_one_clear_line_before_any_work(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    wrong = write_yaml(tmp_path / "wrong.yaml", {"title": "Mine", "rows": [{"model": "bolt", "hyper": {"windw": 3}}]})
    config = series_dataset(tmp_path, experiments=[str(wrong)])
    with pytest.raises(SystemExit, match="row 'BolT', hyper.windw: model 'bolt' has no setting 'windw'"):
        start(read_yaml(config))


def test_a_dry_run_of_a_search_says_what_it_takes(tmp_path, monkeypatch):
    models = [str(tmp_path / "tiny.yaml"), "svm", "majority"]  # of the last, nothing can be searched
    config = series_dataset(tmp_path, models=models, search={"scheme": "both", "n_trials": 4})
    done = snakemake(tmp_path, "-n", "search", config=config)
    assert done.returncode == 0, done.stdout
    said = re.fullmatch(r"The search: 12 scans, (\d+) jobs, (\d+) trials, .*", last_line(done.stdout))
    assert said is not None, done.stdout
    planned = jobs(done.stdout)
    assert (planned["search_fold"], planned["choose"]) == (6, 4)
    assert [int(number) for number in said.groups()] == [sum(planned.values()) - planned["search"], 6 * 4]
    monkeypatch.chdir(tmp_path)
    raw = read_yaml(config)
    few, many = (estimate(Run(raw | {"search": {"n_trials": n}}), search=True) for n in (4, 40))
    assert (few.trials, many.trials) == (24, 240) and many.core_hours > 8 * few.core_hours


def test_landmarks_wait_for_one_atlas_and_are_left_out_of_numbers(tmp_path, monkeypatch):
    config = configured(tmp_path, explain={"inner_folds": 2})
    monkeypatch.chdir(tmp_path)
    keys = read_yaml(config) | {"experiments": ["landmarks"], "atlases": ["dosenbach160", "cc200"]}
    run = Run(keys)
    (waited,) = run.experiment_inputs(SimpleNamespace(experiment="landmarks"))
    assert waited.name == "landmarks.tsv" and "dosenbach160" in waited.parts
    planned = job_counts(plan_of(run, ["landmarks"]))
    assert (planned["train_fold"], planned["train_inner"], planned["regress_landmarks"]) == (3, 6, 1)
    assert [path.name for path in run.tables_of("paper")] == ["landmarks.tsv"]
    dataset = read_yaml(keys["dataset"]) | {"label": "age"}
    del dataset["classes"]
    numbers = Run(keys | {"dataset": str(write_yaml(tmp_path / "numbers.yaml", dataset))})
    assert numbers.tables_of("paper") == [] and numbers.experiment_inputs(SimpleNamespace(experiment="landmarks")) == []


def test_figures_of_explanations_are_planned(tmp_path, monkeypatch):
    """Brain maps need the regressions on landmarks, the timing of tasks needs importance alone; both share it."""
    config = configured(tmp_path)
    monkeypatch.chdir(tmp_path)
    run = Run(read_yaml(config) | {"experiments": ["brain_maps", "landmarks", "task_timing"]})
    for name, file in {"brain_maps": "roi_weights.tsv", "landmarks": "landmarks.tsv"}.items():
        assert [path.name for path in run.experiment_inputs(SimpleNamespace(experiment=name))] == [file]
    kinds = ("train_fold", "explain_fold", "regress_landmarks", "regions", "tasks", "experiment")
    maps = job_counts(plan_of(run, ["brain_maps"]))
    assert [maps[kind] for kind in kinds] == [3, 3, 1, 1, 0, 1]
    both = job_counts(plan_of(run, ["brain_maps", "landmarks"]))
    assert [both[kind] for kind in kinds] == [3, 3, 1, 1, 0, 2]
    dataset = type(run.dataset)
    monkeypatch.setattr(dataset, "has_tasks", property(lambda self: True))
    timing = job_counts(plan_of(run, ["task_timing"]))
    assert [timing[kind] for kind in kinds] == [3, 3, 0, 0, 1, 1]
    assert sum(job_counts(plan_of(run, run.asked("paper")))[kind] for kind in kinds) == 3 + 3 + 1 + 1 + 1 + 3


def test_the_targets_paper_and_extras_are_dry_runs_of_their_own(tmp_path):
    config = configured(tmp_path, atlases=["dosenbach160"])
    keys = {"experiments": ["ablation", "windows_only", str(tmp_path / "one.yaml")]}
    write_yaml(config, read_yaml(config) | keys)
    made = {}
    for target in ("paper", "extras"):
        done = snakemake(tmp_path, "-n", target, config=config)
        assert done.returncode == 0, done.stdout
        made[target] = set(re.findall(r"results/paper/(\w+)\.tsv", done.stdout))
        said = int(re.search(r"(\d+) jobs", last_line(done.stdout))[1])
        assert said == sum(jobs(done.stdout).values()) - 1
    assert made == {"paper": {"ablation"}, "extras": {"windows_only", "one"}}


def test_values_that_no_search_has_chosen_are_not_used(tmp_path):
    """The trainings would be those of config/models, under the name of searched ones."""
    config = configured(tmp_path, search={"use": True, "scheme": "shared", "n_trials": 1})
    refused = "no search has chosen values for model tiny .in results/paper/search.*First ask for the target 'search'"
    for target in ("extras", "one", "results/paper/two.tsv"):
        done = snakemake(tmp_path, "-n", target, config=config)
        assert done.returncode != 0 and re.search(refused, done.stdout), done.stdout
        assert "--config 'search={scheme: shared, models: [tiny]}'" in done.stdout
    assert snakemake(tmp_path, "-n", config=config).returncode == 0  # the report has no experiments
    assert snakemake(tmp_path, "-n", "search", config=config).returncode == 0
    choice = tmp_path / "results/paper/search/tiny.yaml"
    choice.parent.mkdir(parents=True)
    write_yaml(choice, TINY_MODEL | {"hyper": TINY_MODEL["hyper"] | {"hidden": 32}})
    plain = snakemake(tmp_path, "-n", "one", "--config", "search={use: false}", config=config).stdout
    done = snakemake(tmp_path, "-n", "one", config=config)
    assert done.returncode == 0 and "Note: values that a search chose are used for tiny." in done.stdout
    trained, others = (set(re.findall(r"(tiny-\w+)/seed-0/fold", out)) for out in (done.stdout, plain))
    assert len(trained) == len(others) == 2 and not trained & others


def test_of_some_models_searched_it_is_said_which(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rows = {"title": "Both", "rows": [{"model": "svm"}, {"model": "bolt"}]}
    both = str(write_yaml(tmp_path / "both.yaml", rows))
    config = read_yaml(series_dataset(tmp_path, experiments=[both], search={"use": True}))
    choice = tmp_path / "results/paper/search/svm.yaml"
    choice.parent.mkdir(parents=True)
    write_yaml(choice, {"model": "svm", "hyper": {"C": 0.5}})
    start(config, targets=["both"])
    said = capsys.readouterr().err
    assert "values that a search chose are used for svm; bolt has those of config/models." in said
    with pytest.raises(SystemExit, match=r"no search has chosen values for model bolt .*models: \[bolt\]"):
        start(config | {"search": {"use": True, "models": ["svm", "bolt"]}}, targets=["both"])
