"""Which configuration is read, what is refused before any work, and what series alone do not need."""

from argparse import Namespace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from bolt.config import ROOT
from bolt.io.errors import DataError
from bolt.io.files import read_yaml
from bolt.workflow.job import CONFIG, Job
from bolt.workflow.start import start
from tests.forks import run_module
from tests.snake import half_written, series_dataset, snakemake, write_yaml


@pytest.fixture
def config(here, experiments_known):
    return series_dataset(here)


def changed(**keys):
    """Change the dataset's file of `series_dataset`."""
    write_yaml(Path("mine.yaml"), read_yaml("mine.yaml") | keys)


def table(change):
    """Change the table of scans of `series_dataset`."""
    path = Path("series/scans.tsv")
    change(pd.read_csv(path, sep="\t")).to_csv(path, sep="\t", index=False)


def other_rois():
    for path in Path("series").glob("*.npy"):
        np.save(path, np.load(path)[:, :116])


WRONG = {
    "label": (lambda: changed(label="diagnosis"), "column 'diagnosis' is missing; found subject, file, dx"),
    "age": (lambda: changed(age="years"), "column 'years' is missing.*Set 'age'"),
    "classes": (lambda: changed(classes=["a", "patient"]), r"no usable scan has the label patient \(column 'dx': a, b"),
    "folds": (lambda: table(lambda t: t[:4]), "3 folds for 2 subjects of class a. Set .* to at most 2"),
    "one subject": (lambda: table(lambda t: t[:2]), "1 subj.* a. Add"),
    "one number": (lambda: (changed(classes=None), table(lambda t: t.assign(dx=1))), "same dx"),
    "no label": (lambda: changed(label=None), "has no label.*the target 'series'"),
    "column twice": (lambda: table(lambda t: pd.concat([t, t.dx], axis=1)), "duplicate columns: dx"),
    "atlas": (other_rois, "116 ROIs, but atlas 'dosenbach160' has 160.*or --atlas.* 116 ROIs: aal116"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_models_cannot_learn_from_is_refused_before_any_work(config, name):
    change, message = WRONG[name]
    start(read_yaml(config), [config], targets=["train"])
    change()
    with pytest.raises(SystemExit, match=message):
        start(read_yaml(config), [config], targets=["train"])
    if name not in ("atlas", "column twice"):
        start(read_yaml(config), [config], targets=["series"])


def test_people_without_a_family_are_counted_one_by_one(config):
    changed(group="family")
    table(lambda t: t.assign(family="None"))
    start(read_yaml(config), [config], targets=["train"])


PHANTOM = {"dataset": "phantom", "preprocess": {"space": "MNI152NLin2009aSym"}}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"folds": {"outer": 10**21}, "seeds": [2**70]}, "Correct the value"),
        ({"folds": {"outer": 3, "run": {"bolr": [0]}}}, "names model 'bolr'"),
        ({"folds": {"outer": 3, "run": {"tiny": [3]}}}, "names fold 3"),
        ({"dataset": "phantm"}, r"unknown dataset 'phantm'\. Known: .*did you mean 'phantom'"),
        (PHANTOM | {"atlases": ["schaefer400"]}, r"'schaefer400' is drawn in .*, but .* will be in MNI152NLin2009aSym"),
    ],
)
def test_a_wrong_value_is_one_clear_line(config, change, words):
    with pytest.raises(SystemExit, match=words) as refused:
        start(read_yaml(config) | change, [config])
    assert "\n" not in str(refused.value)


def test_folds_of_a_row_of_an_experiment_can_be_chosen(config):
    start(read_yaml(config) | {"folds": {"outer": 3, "run": {"meanmlp": [1]}}}, [config])  # of `baselines`
    with pytest.raises(SystemExit, match="names fold 4"):
        start(read_yaml(config) | {"folds": {"outer": 3, "run": {"meanmlp": [4]}}}, [config])


def test_settings_of_a_single_fold_are_checked_too(config):
    write_yaml(Path("tiny.yaml"), read_yaml("tiny.yaml") | {"by_fold": {0: {"hyper": {"windw": 3}}}})
    with pytest.raises(SystemExit, match="model 'bolt' has no setting 'windw'"):
        start(read_yaml(config), [config])


def test_a_key_that_is_there_twice_is_refused_although_snakemake_reads_it(config):
    config.write_text(config.read_text() + "models: [svm]\n")
    with pytest.raises(SystemExit, match="'models' is there twice"):
        start(yaml.safe_load(config.read_text()), [config])


def test_without_a_configuration_nothing_is_planned_elsewhere(tmp_path):
    """Of all data, the phantom is what nobody means there; in the clone, and with --directory, it is meant."""
    words = ["snakemake", "-n", "--quiet", "--snakefile", str(ROOT / "Snakefile")]
    done = run_module(words, tmp_path)
    assert done.returncode != 0 and "bolt: no configuration. Name one with --configfile" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] in ([], [".snakemake"])
    assert run_module([*words, "--directory", str(tmp_path)], tmp_path).returncode == 0


@pytest.mark.parametrize("labelled", [True, False])
def test_series_of_one_person_need_no_folds_and_are_everything_of_a_dataset_without_a_label(here, labelled):
    config = series_dataset(here, n_subjects=1)
    if not labelled:
        changed(label=None, classes=None)
    done = snakemake(here, *["series"] * labelled, config=config)
    assert done.returncode == 0, done.stdout
    assert (here / "results/mine/exclusions.tsv").is_file() and not half_written(here)
    assert len(pd.read_csv(next((here / "results").rglob("index.tsv")), sep="\t")) == 1
    assert not (here / "results/mine/folds.tsv").exists()


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


def job(config=None):
    return Job(Namespace(stage="index", config=config))


def test_a_given_configuration_must_exist_else_the_folders_own_is_read_or_the_one_that_comes_with_bolt(here):
    shipped = job()
    assert shipped.config_file == ROOT / "config/config.yaml"
    assert shipped.config.dataset == shipped.dataset.name == "phantom"
    CONFIG.parent.mkdir()
    CONFIG.write_text("{dataset: phantom, atlases: [cc200]}")
    assert job().config_file == CONFIG and job().config.atlases == ["cc200"]
    given = here / "my_study.yaml"
    with pytest.raises(DataError, match="my_study.yaml: file not found"):
        job(given)
    given.write_text("{dataset: phantom, atlases: [aal116]}")
    assert job(given).config.atlases == ["aal116"]
