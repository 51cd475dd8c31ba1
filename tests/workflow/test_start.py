"""What is refused before any work, and what series alone do not need."""

import re
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import yaml

from bolt.cli.main import main
from bolt.config import ROOT
from bolt.io.files import read_yaml
from bolt.workflow.start import start
from tests.snake import half_written, series_dataset, snakemake
from tests.workflow.test_dag import jobs


def changed(folder, **keys):
    """Change the dataset's file of `series_dataset`."""
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | keys))


def table(folder, change):
    """Change the table of scans of `series_dataset`."""
    path = folder / "series/scans.tsv"
    change(pd.read_csv(path, sep="\t")).to_csv(path, sep="\t", index=False)


def other_rois(folder):
    for path in (folder / "series").glob("*.npy"):
        np.save(path, np.load(path)[:, :116])


WRONG = [
    (
        "label",
        lambda folder: changed(folder, label="diagnosis"),
        "column 'diagnosis' is missing; found subject, file, dx",
    ),
    ("age", lambda folder: changed(folder, age="years"), "column 'years' is missing.*Set 'age'"),
    (
        "classes",
        lambda folder: changed(folder, classes=["a", "patient"]),
        r"nobody has the label patient \(column 'dx': a, b",
    ),
    ("one class", lambda folder: table(folder, lambda t: t.assign(dx="a")), r"nobody has the label b"),
    ("folds", lambda folder: table(folder, lambda t: t[:4]), "3 folds for 2 subjects of class a. Set"),
    ("one number", lambda folder: (changed(folder, classes=None), table(folder, lambda t: t.assign(dx=1))), "same dx"),
    ("column twice", lambda folder: table(folder, lambda t: pd.concat([t, t.dx], axis=1)), "duplicate columns: dx"),
    ("atlas", other_rois, "116 ROIs, but atlas 'dosenbach160' has 160.*or --atlas.* 116 ROIs: aal116"),
    ("no label", lambda folder: changed(folder, label=None), "has no label.*the target 'series'"),
]


@pytest.mark.parametrize(("name", "change", "message"), WRONG, ids=[name for name, *_ in WRONG])
def test_what_models_cannot_learn_from_is_refused_before_any_work(tmp_path, monkeypatch, capsys, name, change, message):
    monkeypatch.chdir(tmp_path)
    config = series_dataset(tmp_path)
    start(read_yaml(config), [config], targets=["train"])
    change(tmp_path)
    with pytest.raises(SystemExit, match=message):
        start(read_yaml(config), [config], targets=["train"])
    if name != "no label":  # which `bolt check` cannot know to be wrong
        assert main(["check", "--config", str(config)]) == 2
        assert re.search(message, capsys.readouterr().err)
    if name not in ("atlas", "column twice"):
        start(read_yaml(config), [config], targets=["series"])


@pytest.mark.parametrize(
    ("n_subjects", "message"), [(4, "3 folds for 2 subjects.*to at most 2"), (2, "1 subj.* a. Add")]
)
def test_a_remedy_for_too_many_folds_is_a_possible_one(tmp_path, monkeypatch, n_subjects, message):
    monkeypatch.chdir(tmp_path)
    config = series_dataset(tmp_path, n_subjects=n_subjects)
    with pytest.raises(SystemExit, match=message):
        start(read_yaml(config), [config], targets=["train"])
    start(read_yaml(config), [config], targets=["series"])


@pytest.mark.parametrize("change", [{"folds": {"outer": 10**21}}, {"seeds": [2**70]}, {"folds": {"seed": -1}}])
def test_numbers_beyond_reason_are_refused(tmp_path, monkeypatch, change):
    monkeypatch.chdir(tmp_path)
    config = series_dataset(tmp_path)
    with pytest.raises(SystemExit, match="Correct the value"):
        start(read_yaml(config) | change, [config])


def test_a_key_that_is_there_twice_is_refused_although_snakemake_reads_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = series_dataset(tmp_path)
    config.write_text(config.read_text() + "models: [svm]\n")
    with pytest.raises(SystemExit, match="'models' is there twice"):
        start(yaml.safe_load(config.read_text()), [config])


def test_without_a_configuration_nothing_is_planned_elsewhere(tmp_path):
    """Of all data, the phantom is what nobody means there; in the clone, and with --directory, it is meant."""
    words = [sys.executable, "-m", "snakemake", "-n", "--quiet", "--snakefile", str(ROOT / "Snakefile")]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0 and "bolt: no configuration. Name one with --configfile" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] in ([], [".snakemake"])
    meant = subprocess.run([*words, "--directory", str(tmp_path)], cwd=tmp_path, capture_output=True, check=False)
    assert meant.returncode == 0


def test_series_of_one_person_of_one_class_need_no_folds(tmp_path):
    config = series_dataset(tmp_path, n_subjects=1)
    done = snakemake(tmp_path, "series", config=config)
    assert done.returncode == 0, done.stdout
    assert (tmp_path / "results/mine/exclusions.tsv").is_file() and not half_written(tmp_path)
    assert not (tmp_path / "results/mine/folds.tsv").exists()


def test_everything_of_a_dataset_without_a_label_is_its_series(tmp_path):
    config = series_dataset(tmp_path, n_subjects=2)
    changed(tmp_path, label=None, classes=None)
    planned = snakemake(tmp_path, "-n", config=config)
    assert planned.returncode == 0, planned.stdout
    assert {"index", "cache", "exclusions"} <= jobs(planned.stdout).keys()
    assert not {"folds", "train_fold", "report"} & jobs(planned.stdout).keys()
    done = snakemake(tmp_path, config=config)
    assert done.returncode == 0, done.stdout
    index = pd.read_csv(next((tmp_path / "results").rglob("index.tsv")), sep="\t")
    assert len(index) == 2


def test_exclusions_are_listed_although_the_folds_fail(tmp_path):
    """A leak, for example: the reasons for what is missing must not vanish with it."""
    config = series_dataset(tmp_path)
    series = tmp_path / "series"
    np.save(series / "sub-03_task-rest.npy", np.load(series / "sub-08_task-rest.npy"))
    np.save(series / "sub-05_task-rest.npy", np.ones((40, 160)))
    done = snakemake(tmp_path, "folds", config=config)
    assert done.returncode != 0 and done.stdout.count("hold one recording, with the people") == 1  # not tried again
    listed = pd.read_csv(tmp_path / "results/mine/exclusions.tsv", sep="\t")
    assert listed.scan_id.tolist() == ["sub-05_task-rest"] and "no ROI varies" in listed.reason[0]
