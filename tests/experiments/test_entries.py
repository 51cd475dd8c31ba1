"""Experiments as data: rows, sweeps, what cannot be run, what is shared."""

from argparse import Namespace

import pytest
import yaml

from bolt.cli import main as cli
from bolt.config import Config, FoldSettings, Model, load_dataset, load_experiment, load_model
from bolt.config.study import Study
from bolt.experiments.entries import all_entries, entries, experiment_models, rows_of, with_first_looks
from bolt.io.errors import ConfigError, DataError
from bolt.io.files import read_table
from tests.snake import write_yaml
from tests.test_docs import blocks

BY_FOLD = {
    0: FoldSettings(hyper={"window": 40, "fringe_coefficient": 3}, training={"epochs": 7}),
    1: FoldSettings(hyper={"window": 30}, training={"batch_size": 5}),
}
SWEEP = {"row": "{model}, {value}", "models": ["bolt"], "key": "train_share", "values": [1]}
PAPER = "config/experiments/paper"


def configured(**keys) -> Config:
    return Config(**({"dataset": "abide1", "atlases": ["cc200"]} | keys))


def experiment(folder, **keys):
    file = write_yaml(folder / "mine.yaml", {"title": "Mine"} | keys)
    return load_experiment(str(file))


def test_every_window_size_of_the_paper_has_its_row():
    theirs = set(read_table(f"{PAPER}/window_size.tsv", text=("window_size",))["window_size"])
    rows = [(row.paper["window_size"], model) for row, model in rows_of(load_experiment("window_size"), configured())]
    assert [size for size, _ in rows] == [str(model.hyper["window"]) for _, model in rows] and len(rows) == len(theirs)
    assert {size for size, _ in rows} == theirs


def test_equal_models_are_one_run():
    config = configured(seeds=[1, 0])
    whole = entries(config, load_experiment("ablation"))[-1]
    window = next(e for e in entries(config, load_experiment("window_size")) if e.paper == {"window_size": "20"})
    bolt = next(e for e in entries(config, load_experiment("comparison")) if e.row == "BolT")
    assert whole.folders == window.folders == bolt.folders
    runs = [Study.of(config).layout.run("cc200", whole.model, seed) for seed in (1, 0)]
    assert (whole.folders, whole.explanations) == ([r.folder for r in runs], [r.explanation for r in runs])
    windows = [e for e in entries(config, load_experiment("windows_only")) if e.line == "windows only"]
    assert entries(config, load_experiment("ablation"))[3].folders == windows[1].folders
    assert whole.model.run_name in experiment_models(config)


def test_a_window_longer_than_the_crop_is_noted_and_has_no_run():
    found = {e.row: e for e in entries(configured(), load_experiment("window_size"))}
    assert found["BolT, W = 200"].note == "the model needs 200 volumes, more than the crop of 100"
    assert not found["BolT, W = 200"].folders
    assert found["BolT, W = 80"].folders and not found["BolT, W = 80"].note


def test_what_a_row_changes(tmp_path):
    row = {"model": "bolt", "hyper": {"window": 10}, "training": {"epochs": 3}, "train_share": 0.5}
    [(_, model)] = rows_of(experiment(tmp_path, rows=[{"row": "small", **row}]), configured())
    assert (model.hyper["window"], model.hyper["hidden"]) == (10, 400)
    assert (model.training.epochs, model.training.batch_size, model.train_share) == (3, 32, 0.5)
    assert model.name == "bolt"


def test_what_a_row_changes_holds_in_every_fold_of_a_searched_model(tmp_path):
    searched = load_model("bolt").model_copy(update={"by_fold": BY_FOLD})
    file = write_yaml(tmp_path / "bolt_search.yaml", searched.model_dump(mode="json", exclude={"name"}))
    row = {"model": str(file), "hyper": {"window": 80}, "training": {"epochs": 20}}
    mine = experiment(tmp_path, rows=[{"row": "80", **row}, {"row": "whole", "model": str(file)}])
    [(_, model), (_, whole)] = rows_of(mine, configured())
    first, second = model.for_fold(0), model.for_fold(1)
    assert (first.hyper["window"], second.hyper["window"], first.training.epochs) == (80, 80, 20)
    assert (first.hyper["fringe_coefficient"], second.training.batch_size) == (3, 5)  # as they were searched
    assert whole.hash() == searched.hash()


def test_what_a_row_changes_holds_on_every_dataset_of_a_recipe(tmp_path):
    base = load_model("bolt_published")
    changed = base.model_dump(mode="json", exclude={"name"}, exclude_unset=True)
    changed["by_dataset"]["abide1"]["training"] = {"epochs": 30, "batch_size": 8}
    file = write_yaml(tmp_path / "recipe.yaml", changed)
    mine = experiment(tmp_path, rows=[{"row": "r", "model": str(file), "training": {"batch_size": 5}}])
    [(_, model)], [(_, quick)] = (rows_of(mine, configured(quick=look)) for look in (None, {"epochs": 2}))
    (on_abide, dataset), (first_look, _) = (each.on(load_dataset("abide1")) for each in (model, quick))
    assert (on_abide.training.batch_size, on_abide.training.epochs, dataset.crop) == (5, 30, 60)
    assert (first_look.training.batch_size, first_look.training.epochs) == (5, 2)


def test_a_first_look_bounds_the_epochs_of_torch_models():
    rows = [rows_of(load_experiment("comparison"), configured(quick=look)) for look in (None, {"epochs": 2})]
    whole, cheap = ({row.row: model for row, model in found} for found in rows)
    assert cheap["BolT"].training.epochs == 2
    assert cheap["BolT"].run_name != whole["BolT"].run_name  # its runs are never taken for real ones
    assert cheap["SVM"].run_name == whole["SVM"].run_name


def test_a_first_look_bounds_the_epochs_of_members(tmp_path):
    mine, members = experiment(tmp_path, rows=[{"model": "bolt_hybrid"}]), load_model("bolt_hybrid").members
    [(_, short)], [(_, whole)] = (rows_of(mine, configured(quick={"epochs": n})) for n in (2, 1000))
    assert [member.training.epochs for member in short.members[:3]] == [2, 2, 2]
    assert short.members[3:] == members[3:]
    assert [m.training.epochs for m in whole.members] == [m.training.epochs for m in members]


def test_a_sweep_is_a_row_a_model_and_value(tmp_path):
    sweep = {"row": "{model}: {value:.0%}", "models": ["svm", "bolt"], "key": "train_share", "values": [0.5, 1]}
    found = rows_of(experiment(tmp_path, sweeps=[sweep]), configured())
    assert [row.row for row, _ in found] == ["SVM: 50%", "SVM: 100%", "BolT: 50%", "BolT: 100%"]
    assert [model.train_share for _, model in found] == [0.5, 1, 0.5, 1]
    assert [(row.line, row.value) for row, _ in found[:2]] == [("SVM", 0.5), ("SVM", 1)]


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"rows": [{"model": "bolt", "training": {"epoch": 1}}]}, "row 'BolT'.*training.epoch.*did you mean 'epochs'"),
        ({"rows": [{"model": "bolt"}, {"model": "bolt"}]}, "two rows are named 'BolT'"),
        ({"rows": [{"model": "bolt", "hyperr": {}}]}, "hyperr"),
        ({"sweeps": [{"row": "x", "models": ["bolt"], "key": "window", "values": [1]}]}, "hyper.<setting>"),
        ({"sweeps": [SWEEP | {"row": "{modell}"}]}, "mine.yaml: 'sweeps.0'.*may contain {model}.*'{modell}'"),
        ({"sweeps": [SWEEP | {"row": "{model, {value}"}]}, "mine.yaml: 'sweeps.0'.*cannot be filled in"),
        (
            {"sweeps": [SWEEP | {"row": "{value:d}", "key": "hyper.cwr_weight", "values": [1, 0.5]}]},
            "'sweeps.0'.*0.5 cannot be filled in",
        ),
        ({"sweeps": [SWEEP | {"values": [0.5, 10]}]}, "mine.yaml: 'sweeps.0'.*found 10 for train_share"),
        ({}, "needs 'rows' or 'sweeps'"),
        ({"rows": [{"model": "svm"}, {"model": "bol"}]}, "'mine', row 'bol': unknown model 'bol'.*did you mean 'bolt'"),
        ({"rows": [{"row": "Ours", "model": "bol"}]}, "experiment 'mine', row 'Ours': unknown model 'bol'"),
        ({"sweeps": [SWEEP | {"models": ["bolt", "bol"]}]}, "'mine', sweep '{model}, {value}': unknown model 'bol'"),
        ({"rows": [{"row": "Odd", "model": "odd.yaml"}]}, "'mine', row 'Odd', .*odd.yaml: unknown key 'hypr'"),
    ],
)
def test_what_is_wrong_in_an_experiment_is_said(tmp_path, monkeypatch, keys, words):
    monkeypatch.chdir(tmp_path)
    write_yaml(tmp_path / "odd.yaml", {"model": "bolt", "hypr": {}})
    with pytest.raises(ConfigError, match=f"(?s){words}"):
        rows_of(experiment(tmp_path, **keys), configured())


def begun(results, dataset, *models: Model, **keys) -> Config:
    """A dataset below `results` that has begun with runs of these models."""
    config = configured(dataset=dataset, paths={"results": results}, **keys)
    (results / dataset).mkdir(parents=True)
    write_yaml(results / dataset / "config.yaml", config.model_dump(mode="json"))
    for model in models:
        Study.of(config).layout.run("cc200", model, 0).folder.mkdir(parents=True)
    return config


def test_every_dataset_that_has_begun_is_in_the_table_whatever_it_lists(tmp_path):
    mine, results = experiment(tmp_path, rows=[{"model": "svm"}]), tmp_path / "results"
    begun(results, "abide1")
    assert all_entries(mine, results) == []
    begun(results, "hcp_rest", svm(), experiments=["spectra"])
    begun(results, "hcp_task", svm())
    first, second = all_entries(mine, results)
    assert (first.dataset, first.classes, second.dataset) == ("hcp_rest", ["female", "male"], "hcp_task")
    assert first.folders[0].is_dir()


def test_a_run_that_every_dataset_has_begins_no_experiment_but_of_the_present_one(tmp_path):
    mine, results = experiment(tmp_path, rows=[{"model": "svm"}, {"model": "bolt"}]), tmp_path / "results"
    for name in ("abide1", "hcp_rest"):
        begun(results, name, load_model("bolt"))
    assert all_entries(mine, results) == []
    assert {entry.dataset for entry in all_entries(mine, results, "hcp_rest")} == {"hcp_rest"}


def test_a_run_of_two_experiments_begins_neither(tmp_path):
    shared = {"model": "svm"}
    first = write_yaml(tmp_path / "first.yaml", {"title": "First", "rows": [shared]})
    mine = experiment(tmp_path, rows=[shared, {"model": "lstm", "train_share": 0.3}])
    results = tmp_path / "results"
    begun(results, "hcp_rest", svm(), experiments=[str(first)])
    assert all_entries(mine, results) == []
    [telling] = [model for row, model in rows_of(mine, configured()) if row.row == "LSTM"]
    begun(results, "hcp_task", telling, experiments=[str(first), str(tmp_path / "moved.yaml")])
    assert {entry.dataset for entry in all_entries(mine, results)} == {"hcp_task"}


def test_an_old_configuration_of_another_dataset_is_passed_over(tmp_path, caplog):
    mine, results = experiment(tmp_path, rows=[{"model": "svm"}]), tmp_path / "results"
    begun(results, "hcp_rest", svm())
    for name, keys in {"earlier": {"dataset": "abide1", "experimnts": []}, "gone": {"dataset": "gone.yaml"}}.items():
        (results / name).mkdir()
        write_yaml(results / name / "config.yaml", keys)
    assert {entry.dataset for entry in all_entries(mine, results, "hcp_rest")} == {"hcp_rest"}
    assert "dataset 'earlier' is excluded: " in caplog.text and "dataset 'gone' is excluded from 'mine'" in caplog.text
    with pytest.raises(ConfigError, match="unknown key 'experimnts'"):
        all_entries(mine, results, "earlier")


def test_a_table_of_nothing_is_an_error(tmp_path):
    file = write_yaml(tmp_path / "mine.yaml", {"title": "Mine", "rows": [{"model": "svm"}]})
    begun(tmp_path, "abide1", experiments=[str(file)])
    with pytest.raises(DataError, match="'mine' has no run of any dataset.*the target 'mine'"):
        cli.run(Namespace(stage="experiment", config=tmp_path / "abide1/config.yaml", name="mine"))


def svm() -> Model:
    return rows_of(load_experiment("comparison"), configured())[0][1]


def test_the_examples_of_the_page_are_experiments(tmp_path):
    examples = (yaml.safe_load(block) for block in blocks("experiments.md", "yaml"))
    rows, sweep = (rows_of(experiment(tmp_path, **example), configured()) for example in examples)
    assert [row.row for row, _ in rows] == ["BolT", "no fringe", "slow start"]
    assert [model.hyper["cwr_weight"] for _, model in sweep] == [0, 0.1, 1]


def test_a_table_says_where_it_is_a_first_look_or_folds_or_landmarks_are_not_the_papers(tmp_path):
    begun(tmp_path, "abide1", folds={"scheme": "leave-site-out"}, explain={"tokens": 3}, quick={"epochs": 2})
    for name, quick in (("hcp_rest", None), ("hcp_task", {"epochs": 3})):
        begun(tmp_path, name, quick=quick)
    for name in ("ablation", "landmarks"):
        said = with_first_looks(load_experiment(name), tmp_path, {"abide1", "hcp_rest"}).description
        assert "a first look at abide1: torch models were trained for at most 2 epoch(s)" in said
        assert "Each fold of abide1 is a site, predicted by models that never saw it." in said and "hcp" not in said
        assert ("has 3 landmarks, in the paper 5" in said) is (name == "landmarks")
