"""Checks of the configuration, and their errors."""

import json

import pytest
import yaml

from bolt import config as configuration
from bolt.config import ROOT, Config, Dataset, Experiment, Model, Space, Training, parse
from bolt.config.costs import FILE, load_costs
from bolt.config.layout import Layout, folder_of, prefix_of
from bolt.config.models import Fidelity, told_apart
from bolt.io.errors import ConfigError
from bolt.io.files import write_text


def test_unknown_key_is_named_with_the_nearest_known_one():
    with pytest.raises(ConfigError, match=r"mine\.yaml: unknown key 'folds\.outr'.*did you mean 'outer'"):
        parse(Config, {"dataset": "phantom", "folds": {"outr": 5}}, "mine.yaml")


def test_an_unknown_key_is_named_before_a_missing_one():
    with pytest.raises(ConfigError, match=r"unknown key 'rows.0.modl'.*did you mean 'model'"):
        parse(Experiment, {"name": "x", "title": "x", "rows": [{"modl": "bolt"}]}, "x")
    with pytest.raises(ConfigError, match=r"unknown key 'hyper.bolt.window.lw'.*did you mean 'low'"):
        parse(Space, {"name": "x", "hyper": {"bolt": {"window": {"lw": 1, "high": 2}}}}, "x")


def test_missing_key_and_wrong_type_are_named():
    with pytest.raises(ConfigError, match="key 'dataset' is missing"):
        parse(Config, {}, "mine.yaml")
    with pytest.raises(ConfigError, match=r"'folds\.outer'.*found 'many'"):
        parse(Config, {"dataset": "phantom", "folds": {"outer": "many"}}, "mine.yaml")


def test_lists_must_have_different_entries():
    with pytest.raises(ConfigError, match="'models' must be a list of different entries"):
        parse(Config, {"dataset": "phantom", "models": ["bolt", "bolt"]}, "mine.yaml")


@pytest.mark.parametrize("kind", configuration.KINDS)
def test_unknown_name_lists_the_known_ones(kind):
    load = {"dataset": configuration.load_dataset, "model": configuration.load_model}
    load |= {"denoising": configuration.load_denoise, "registration": configuration.load_registration}
    load |= {"experiment": configuration.load_experiment, "search": configuration.load_space}
    known = configuration.known(kind)
    assert known
    with pytest.raises(ConfigError, match=f"unknown {kind} 'nonesuch'. Known: .*{known[0]}"):
        load[kind]("nonesuch")


@pytest.mark.parametrize("kind", configuration.KINDS)
def test_every_shipped_file_is_valid(kind):
    for name in configuration.known(kind):
        assert configuration._load(kind, name).name == name


@pytest.mark.parametrize(
    "path", [ROOT / "config/config.yaml", *sorted((ROOT / "config/examples").glob("*.yaml"))], ids=lambda p: p.stem
)
def test_every_shipped_configuration_is_valid(path):
    config = configuration.load_config(path)
    assert config.dataset in configuration.known("dataset")
    for model in config.models:
        assert model in configuration.known("model")


def test_shipped_configuration_mentions_every_key():
    shipped = yaml.safe_load((ROOT / "config/config.yaml").read_text())
    assert set(shipped) == set(Config.model_fields)
    for group in ("paths", "preprocess", "parcellate", "folds", "explain"):
        assert set(shipped[group]) == set(Config.model_fields[group].annotation.model_fields)


def test_hash_depends_on_settings_and_not_on_the_name():
    model = Model(name="one", model="bolt", hyper={"window": 20})
    assert model.hash() == Model(name="two", model="bolt", hyper={"window": 20}).hash()
    assert model.hash() != Model(name="one", model="bolt", hyper={"window": 10}).hash()
    assert model.hash() != Model(name="one", model="bolt", hyper={"window": 20}, training=Training(epochs=3)).hash()
    fidelity = Fidelity(level="core", note="Narrower.")
    assert model.hash() == Model(name="one", model="bolt", hyper={"window": 20}, fidelity=fidelity).hash()


def test_runs_of_the_papers_bolt_keep_their_name():
    """Settings that are added later must not rename runs that do not use them."""
    assert configuration.load_model("bolt").run_name == "bolt-1b351ad4"


@pytest.mark.parametrize(
    ("default", "used"),
    [
        ({"by_fold": {}}, {"by_fold": {0: {"training": {"epochs": 3}}}}),
        ({"by_dataset": {}}, {"by_dataset": {"mine": {"crop": 60}}}),
        ({"training": {"batches": "shuffled"}}, {"training": {"batches": "fixed"}}),
    ],
)
def test_later_settings_count_in_the_hash_where_they_are_used(default, used):
    plain = Model(name="one", model="bolt")
    assert Model(name="one", model="bolt", **default).hash() == plain.hash()
    assert Model(name="one", model="bolt", **used).hash() != plain.hash()


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
    assert folder_of("sub-01_task-rest") == "sub-01"
    assert prefix_of("sub-01/ses-a") == "sub-01_ses-a_"


def test_runs_of_different_variants_never_share_a_folder():
    layout = Layout(Config(dataset="phantom"))
    assert layout.cache("a") != layout.cache("a", "truth")
    assert layout.run("a", "bolt-1", 0).folder != layout.run("a", "bolt-1", 1).folder


KIND_OF_FOLDER = {folder: kind for kind, (folder, _) in configuration.KINDS.items()}
KIND_OF_FOLDER |= {"examples": "config", "config": "config"}


@pytest.mark.parametrize(
    "path", sorted((ROOT / "config").rglob("*.yaml")), ids=lambda p: str(p.relative_to(ROOT / "config"))
)
def test_every_file_names_its_schema_for_editors(path):
    name, value = path.read_text().splitlines()[0].split("=")
    assert name == "# yaml-language-server: $schema"
    kind = "costs" if path.stem == "costs" else KIND_OF_FOLDER[path.parent.name]
    assert (path.parent / value).resolve() == ROOT / f"config/schemas/{kind}.json"
    assert (path.parent / value).is_file()
    assert configuration.schema_line(kind, path) == f"# yaml-language-server: $schema={value}\n"


def test_a_configuration_elsewhere_names_its_schema_by_its_whole_path(tmp_path):
    schema = ROOT / "config/schemas/config.json"
    assert configuration.schema_line("config", tmp_path / "mine.yaml") == f"# yaml-language-server: $schema={schema}\n"


def test_the_configuration_that_a_run_writes_names_its_schema(tmp_path, monkeypatch):
    from bolt.workflow.run import Run

    monkeypatch.chdir(tmp_path)
    path = Run({"dataset": "phantom"}).save_config()
    schema = path.read_text().splitlines()[0].removeprefix("# yaml-language-server: $schema=")
    assert json.loads((path.parent / schema).read_text())["title"] == "Config"
    assert configuration.load_config(path) == Config(dataset="phantom")


def test_costs_are_what_their_schema_says():
    assert load_costs().megabytes_per_scan.raw == yaml.safe_load(FILE.read_text())["megabytes_per_scan"]["raw"]


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
    from argparse import Namespace

    from bolt.workflow.job import Job
    from bolt.workflow.stages import STAGES
    from tests.snake import series_dataset

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("bolt.training.tuning.objective.Objective", lambda *arguments: None)
    monkeypatch.setattr("bolt.training.tuning.search.search_fold", lambda *arguments, **__: None)
    chosen = "# found\nname: chosen\nmodel: bolt\n"
    monkeypatch.setattr("bolt.training.tuning.choice.write_choice", lambda *arguments: write_text(chosen, arguments[3]))
    monkeypatch.setattr(Job, "note", lambda *arguments, **facts: None)
    config = series_dataset(tmp_path)
    options = {"atlas": "dosenbach160", "model": "tiny", "scheme": "paper", "fold": None, "threads": 1}
    job = Job(Namespace(stage="search", config=config, **options))
    STAGES["search"].work(job)
    written = job.layout.choice("dosenbach160", "paper", "tiny")
    assert written.read_text() == f"# yaml-language-server: $schema={ROOT}/config/schemas/model.json\n{chosen}"
    assert configuration.load_model(str(written)).model == "bolt"


def test_models_with_one_title_are_told_apart_by_their_names():
    models = [
        Model(name=name, title=title, model="svm") for name, title in (("a", "SVM"), ("b", "SVM"), ("c", "My SVM"))
    ]
    assert [model.shown for model in told_apart(models)] == ["a", "b", "My SVM"]
    assert [model.run_name for model in told_apart(models)] == [model.run_name for model in models]
    twice = [models[0], models[0].model_copy(update={"covariates": ["age"]})]  # one file's, with other settings
    assert [model.shown for model in told_apart(twice)] == ["SVM", "SVM"]
