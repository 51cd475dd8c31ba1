"""A user's own files are found by name beside the configuration, and win over shipped ones."""

import shutil

import pytest

from bolt import config as configuration
from bolt.atlases.description import describe_atlas
from bolt.config import ROOT, Config, parse, with_own_files
from bolt.io.files import read_yaml, write_yaml
from bolt.workflow.start import start
from tests.snake import series_dataset

FOLDERS = ("datasets", "models", "experiments", "denoise", "registration", "search")


@pytest.fixture
def study(tmp_path, monkeypatch):
    """A folder with an own file `mine` of every kind; the working folder is another."""
    for folder in FOLDERS:
        write_yaml({}, tmp_path / "study" / folder / "mine.yaml")
    write_yaml({"name": "mine"}, tmp_path / "study/atlases/mine/atlas.yaml")
    (tmp_path / "run").mkdir()
    monkeypatch.chdir(tmp_path / "run")
    return tmp_path / "study"


ALL = {
    "dataset": "mine",
    "models": ["mine", "svm"],
    "experiments": ["mine"],
    "atlases": ["mine", "dosenbach160"],
    "denoise": "mine",
    "preprocess": {"registration": ["mine", "fast"], "resolution": 3.0},
    "search": {"space": "mine", "models": ["mine"]},
}


@pytest.mark.parametrize("place", ["config.yaml", "examples/config.yaml"])
def test_names_of_every_kind_are_found_beside_the_configuration_and_above_it(study, place):
    raw, notes = with_own_files(ALL, [study / place])
    assert raw == {
        "dataset": f"{study}/datasets/mine.yaml",
        "models": [f"{study}/models/mine.yaml", "svm"],
        "experiments": [f"{study}/experiments/mine.yaml"],
        "atlases": [f"{study}/atlases/mine", "dosenbach160"],
        "denoise": f"{study}/denoise/mine.yaml",
        "preprocess": {"registration": [f"{study}/registration/mine.yaml", "fast"], "resolution": 3.0},
        "search": {"space": f"{study}/search/mine.yaml", "models": [f"{study}/models/mine.yaml"]},
    }
    assert notes == [] and ALL["dataset"] == "mine"


def test_paths_below_the_working_folder_are_relative(study, monkeypatch):
    monkeypatch.chdir(study)
    raw, _ = with_own_files({"dataset": "mine", "atlases": ["mine"]}, ["config.yaml"])
    assert raw == {"dataset": "datasets/mine.yaml", "atlases": ["atlases/mine"]}
    monkeypatch.chdir(study / "models")
    assert with_own_files({"dataset": "mine"}, ["../config.yaml"])[0] == {"dataset": str(study / "datasets/mine.yaml")}


def test_an_own_file_wins_over_the_shipped_one_and_a_note_says_so(study):
    own = study / "models/bolt.yaml"
    shutil.copy(ROOT / "config/models/bolt.yaml", own)
    for name in ("dosenbach160", "schaefer200_17"):  # the second is described by its family's file
        write_yaml({"name": name}, study / "atlases" / name / "atlas.yaml")
    raw, notes = with_own_files({"models": ["bolt"], "atlases": ["dosenbach160", "schaefer200_17"]}, [study / "c.yaml"])
    assert raw["models"] == [str(own)] and raw["atlases"][1] == str(study / "atlases/schaefer200_17")
    named = [note.split("'")[1] for note in notes]
    assert named == ["atlases: dosenbach160", "atlases: schaefer200_17", "models: bolt"]
    assert str(own) in notes[2] and "\n" not in "".join(notes)


def test_shipped_files_stay_names():
    for path in (*(ROOT / "config").glob("examples/*.yaml"), ROOT / "config/config.yaml"):
        raw = read_yaml(path)
        assert with_own_files(raw, [path]) == (raw, [])


def test_the_last_configuration_is_searched_first(study, tmp_path):
    write_yaml({}, tmp_path / "other/datasets/mine.yaml")
    files = [tmp_path / "other/b.yaml", study / "a.yaml"]
    assert with_own_files({"dataset": "mine"}, files)[0]["dataset"] == str(study / "datasets/mine.yaml")


@pytest.mark.parametrize("raw", [{}, {"models": None}, {"search": "paper"}, {"dataset": 3}, {"models": [1, {"a": 2}]}])
def test_mistakes_and_paths_are_left_to_parsing(study, raw):
    assert with_own_files(raw, [study / "config.yaml"]) == (raw, [])
    named = {"dataset": "datasets/mine.yaml", "atlases": ["atlases/mine"]}
    assert with_own_files(named, [study / "config.yaml"]) == (named, [])


def test_the_workflow_uses_them_and_saves_their_paths(study, tmp_path, capsys):
    """From another folder; what the jobs read names the files by their paths."""
    series_dataset(tmp_path)
    dataset = read_yaml(tmp_path / "mine.yaml") | {"path": str(tmp_path / "series/scans.tsv")}
    write_yaml(dataset, study / "datasets/mine.yaml")
    shutil.copytree(ROOT / "atlases/dosenbach160", study / "atlases/own160")
    write_yaml(read_yaml(study / "atlases/own160/atlas.yaml") | {"name": "own160"}, study / "atlases/own160/atlas.yaml")
    shutil.copy(tmp_path / "tiny.yaml", study / "models/svm.yaml")
    keys = {"dataset": "mine", "models": ["svm"], "atlases": ["own160"], "folds": {"outer": 3}}
    saved = read_yaml(start(keys, [study / "config.yaml"]).save_config())
    assert [line for line in capsys.readouterr().err.splitlines() if "own" in line] == [
        f"Note: 'models: svm' is your own {study}/models/svm.yaml, not the file of this name that comes with BolT."
    ]
    assert configuration.load_dataset(saved["dataset"]).path == tmp_path / "series/scans.tsv"
    assert describe_atlas(parse(Config, saved, "saved").atlas_places["own160"]).name == "own160"
    assert configuration.load_model(saved["models"][0]).model == "bolt"
    start(keys, [study / "config.yaml"], checked=True)  # a job of the run repeats nothing
    assert capsys.readouterr().err == ""
