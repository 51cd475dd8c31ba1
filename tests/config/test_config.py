"""Checks of the configuration, and their errors."""

import json

import pytest
import yaml

from bolt import config as configuration
from bolt.config import ROOT, Config, Dataset, Denoise, Experiment, Model, Space, parse
from bolt.config.layout import folder_of, prefix_of
from bolt.config.models import Fidelity, told_apart
from bolt.config.study import Study
from bolt.io.errors import ConfigError
from bolt.io.files import write_text
from bolt.workflow.job import Job
from bolt.workflow.run import Run
from tests.snake import series_dataset
from tests.stages import stage


@pytest.mark.parametrize(
    ("kind", "keys", "message"),
    [
        (Config, {"dataset": "x", "folds": {"outr": 5}}, r"mine\.yaml: unknown key 'folds\.outr'.*mean 'outer'"),
        (Experiment, {"name": "x", "title": "x", "rows": [{"modl": "bolt"}]}, "unknown key 'rows.0.modl'.*'model'"),
        (Space, {"name": "x", "hyper": {"bolt": {"window": {"lw": 1, "high": 2}}}}, r"'hyper.bolt.window.lw'.*'low'"),
        (Config, {}, "key 'dataset' is missing"),
        (Config, {"dataset": "x", "folds": {"outer": "many"}}, r"'folds\.outer'.*found 'many'"),
        (Config, {"dataset": "x", "models": ["bolt", "bolt"]}, "'models': .*has duplicate entries"),
        (Model, {"name": "a", "model": "bolt", "covariates": ["age", "age"]}, "'covariates': .*has duplicate entries"),
        (Config, {"dataset": "x", "seeds": [-1]}, "seeds"),
        (Config, {"dataset": "x", "folds": {"run": []}}, "'folds': .*'run' must name at least one fold"),
        (Config, {"dataset": "x", "folds": {"run": [0, 0]}}, "'folds': .*and none twice"),
        (Config, {"dataset": "x", "folds": {"run": {"svm": [1, 1]}}}, "'folds': .*and none twice"),
        (Denoise, {"name": "x", "high_pass": 0.1, "low_pass": 0.1}, "'high_pass' must be below 'low_pass'"),
    ],
)
def test_mistakes_are_named_with_their_key(kind, keys, message):
    with pytest.raises(ConfigError, match=message):
        parse(kind, keys, "mine.yaml")


@pytest.mark.parametrize("kind", configuration.KINDS)
def test_unknown_name_lists_the_known_ones(kind):
    known = configuration.known(kind)
    assert known and all(configuration._load(kind, name).name == name for name in known)
    with pytest.raises(ConfigError, match=f"unknown {kind} 'nonesuch'. Known: .*{known[0]}"):
        configuration._load(kind, "nonesuch")


def test_shipped_configuration_mentions_every_key():
    shipped = yaml.safe_load((ROOT / "config/config.yaml").read_text())
    assert set(shipped) == set(Config.model_fields)
    for group in ("paths", "preprocess", "parcellate", "folds", "explain"):
        assert set(shipped[group]) == set(Config.model_fields[group].annotation.model_fields)


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        ({"name": "two"}, True),
        ({"fidelity": Fidelity(level="core", note="Narrower.")}, True),
        ({"by_fold": {}}, True),  # settings that were added later
        ({"by_dataset": {}}, True),
        ({"training": {"batches": "shuffled"}}, True),
        ({"hyper": {"window": 10}}, False),
        ({"training": {"epochs": 3}}, False),
        ({"by_fold": {0: {"training": {"epochs": 3}}}}, False),
        ({"by_dataset": {"mine": {"crop": 60}}}, False),
        ({"training": {"batches": "fixed"}}, False),
    ],
)
def test_hash_depends_on_settings_and_not_on_the_name(changes, same):
    keys = {"name": "one", "model": "bolt", "hyper": {"window": 20}}
    assert (Model(**keys | changes).hash() == Model(**keys).hash()) == same
    assert configuration.load_model("bolt").run_name == "bolt-1b351ad4"  # runs of the paper's BolT keep their name


def test_settings_of_single_datasets():
    model = Model(
        name="one",
        model="bolt",
        training={"epochs": 7},
        by_dataset={"mine": {"crop": 60, "training": {"batch_size": 16}}, "theirs": {}},
        by_fold={0: {"training": {"batch_size": 4}}},
    )
    mine, theirs, other = (
        Dataset(name=name, source="series", path="x", label=None, crop=100) for name in ("mine", "theirs", "other")
    )
    on_mine, as_trained = model.on(mine)
    assert (on_mine.training.batch_size, on_mine.training.epochs, as_trained.crop) == (16, 7, 60)
    assert on_mine.for_fold(0).training.batch_size == 4  # a search chose it for this fold
    assert on_mine.on(as_trained) == (on_mine, as_trained)  # only once
    copied = mine.model_copy(update={"name": "my_hcp", "paper": "hcp_task"})
    for_paper = model.model_copy(update={"by_dataset": {"hcp_task": model.by_dataset["mine"]}})
    assert for_paper.on(copied)[1].crop == 60 and for_paper.on(copied)[0].training.batch_size == 16
    for dataset in (theirs, other):
        assert model.on(dataset)[0].training == model.training and model.on(dataset)[1] == dataset
    with pytest.raises(ConfigError, match="batchsize"):
        Model(name="one", model="bolt", by_dataset={"mine": {"training": {"batchsize": 16}}})


def test_folders_and_prefixes():
    assert folder_of("/data/sub-01/ses-a/func/sub-01_ses-a_task-rest_bold.nii.gz") == "sub-01/ses-a"
    assert folder_of("sub-01_task-rest") == "sub-01" and prefix_of("sub-01/ses-a") == "sub-01_ses-a_"


KIND_OF_FOLDER = {folder: kind for kind, (folder, _) in configuration.KINDS.items()}
KIND_OF_FOLDER |= {"examples": "config", "config": "config"}


def test_every_file_names_its_schema_for_editors(tmp_path):
    for path in {*(ROOT / "config").rglob("*.yaml")} - {ROOT / "config/costs.yaml"}:
        name, value = path.read_text().splitlines()[0].split("=")
        kind = KIND_OF_FOLDER[path.parent.name]
        schema = path.parent / value
        assert name == "# yaml-language-server: $schema" and schema.is_file(), path
        assert schema.resolve() == ROOT / f"config/schemas/{kind}.json", path
        assert configuration.schema_line(kind, path) == f"# yaml-language-server: $schema={value}\n", path
    elsewhere = configuration.schema_line("config", tmp_path / "mine.yaml")
    assert elsewhere == f"# yaml-language-server: $schema={ROOT}/config/schemas/config.json\n"


def test_the_configuration_that_a_run_writes_names_its_schema(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = Run({"dataset": "phantom"}).save_config()
    schema = path.read_text().splitlines()[0].removeprefix("# yaml-language-server: $schema=")
    assert json.loads((path.parent / schema).read_text())["title"] == "Config"
    assert configuration.load_config(path) == Config(dataset="phantom")
    monkeypatch.setattr("bolt.workflow.run.is_alone", lambda folder: folder != path.parent)
    Run({"dataset": "phantom"}).save_config()
    with pytest.raises(ConfigError, match="other settings"):  # others run here: their next jobs would read them
        Run({"dataset": "phantom", "seeds": [5]}).save_config()


def test_schemas_for_editors_are_up_to_date():
    """`make schemas` writes them."""
    for name, schema in configuration.schemas().items():
        assert json.loads((ROOT / f"config/schemas/{name}.json").read_text()) == json.loads(json.dumps(schema)), name


@pytest.mark.parametrize("name", ["../x", "/tmp/x", "my study", ""])
def test_a_dataset_is_named_so_that_its_results_stay_in_their_folder(tmp_path, name):
    (tmp_path / "mine.yaml").write_text(f"name: '{name}'\nsource: bids\npath: {tmp_path}\nlabel: diagnosis\n")
    with pytest.raises(ConfigError, match=r"mine.yaml: 'name': .*cannot be used in file names"):
        configuration.load_dataset(str(tmp_path / "mine.yaml"))


def test_the_model_that_a_search_writes_names_its_schema(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    chosen = "# found\nname: chosen\nmodel: bolt\n"
    monkeypatch.setattr("bolt.training.choice.write_choice", lambda *arguments: write_text(chosen, arguments[3]))
    monkeypatch.setattr(Job, "note", lambda *arguments, **facts: None)
    config = series_dataset(tmp_path)
    assert stage(config, "choose", atlas="dosenbach160", model="tiny", scheme="paper") == 0
    written = Study.read(config).layout.choice("dosenbach160", "paper", "tiny")
    assert written.read_text() == configuration.schema_line("model", written) + chosen


def test_models_with_one_title_are_told_apart_by_their_names():
    titles = {"a": "SVM", "b": "SVM", "c": "My SVM"}
    models = [Model(name=name, title=title, model="svm") for name, title in titles.items()]
    assert [model.shown for model in told_apart(models)] == ["a", "b", "My SVM"]
    assert [model.run_name for model in told_apart(models)] == [model.run_name for model in models]
    twice = [models[0], models[0].model_copy(update={"covariates": ["age"]})]  # one file's, with other settings
    assert [model.shown for model in told_apart(twice)] == ["SVM", "SVM"]
