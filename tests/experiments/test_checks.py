"""What is wrong in an experiment's file is said before any work."""

import re
from pathlib import Path

import pytest

from bolt.config import ROOT, known, load_experiment
from bolt.experiments.checks import check_experiment, check_experiment_names, lacks_reference
from bolt.experiments.entries import rows_of
from bolt.io.errors import ConfigError
from bolt.workflow.run import RESERVED, Run
from tests.experiments.test_entries import SWEEP, configured
from tests.snake import write_yaml

COMPARED = {"name": "comparison"}


def check(folder: Path, name: str = "mine", **keys):
    experiment = load_experiment(str(write_yaml(folder / f"{name}.yaml", {"title": "Mine"} | keys)))
    rows = rows_of(experiment, configured())
    check_experiment(experiment, rows)
    return lacks_reference(experiment, rows)


@pytest.mark.parametrize("name", known("experiment"))
def test_every_shipped_experiment_is_right(name):
    experiment = load_experiment(name)
    rows = rows_of(experiment, configured())
    check_experiment(experiment, rows)
    assert bool(rows) == (experiment.kind != "spectra")


def test_every_rule_of_the_workflow_is_reserved():
    files = [ROOT / "Snakefile", *(ROOT / "workflow/rules").glob("*.smk")]
    rules = {rule for file in files for rule in re.findall(r"^ *(?:rule|checkpoint) (\w+):", file.read_text(), re.M)}
    assert rules == RESERVED


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["x/search.yaml"], "'search' is already a target"),
        (["x/a b.yaml"], "'a b' has other characters than letters"),
        (["x/one.yaml", "y/one.yaml"], "'one' is the name of two files"),
    ],
)
def test_names_that_are_no_target(names, words):
    with pytest.raises(ConfigError, match=words):
        check_experiment_names(configured(experiments=names), RESERVED)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"reference": "Bolt", "rows": [{"model": "bolt"}]}, "'mine'.*no row is named 'Bolt'. Rows: 'BolT'"),
        ({"rows": [{"model": "bolt", "paper": {"model": "BolT"}}]}, "no table 'mine'.*of its tables: ablation, "),
        (COMPARED | {"rows": [{"model": "bolt", "paper": {"modle": "BolT"}}]}, "'BolT', paper: .* no column 'modle'"),
        (
            COMPARED | {"rows": [{"model": "bolt", "paper": {"model": "Bolt"}}]},
            "no row with Bolt. Rows of compar.*BolT",
        ),
        ({"complexity": {}, "rows": [{"model": "svm"}]}, "'SVM': only the cost of .*'svm' takes connectivity"),
        ({"landmarks": {}, "rows": [{"model": "bolt", "hyper": {"cls_token": "none"}}]}, "only BolT with CLS tokens"),
        ({"rows": [{"model": "bolt", "hyper": {"windw": 3}}]}, "row 'BolT', hyper.windw: .*did you mean 'window'"),
        ({"sweeps": [SWEEP | {"key": "hyper.window", "values": [-5]}]}, "row 'BolT, -5', hyper.window: "),
    ],
)
def test_what_an_experiment_cannot_have(tmp_path, keys, words):
    with pytest.raises(ConfigError, match=f"(?s){words}"):
        check(tmp_path, **keys)


def test_a_default_reference_that_is_not_there_is_no_error(tmp_path):
    assert check(tmp_path, rows=[{"model": "svm"}])
    assert not check(tmp_path, rows=[{"model": "bolt"}])


def test_another_title_or_family_makes_the_table_anew(tmp_path):
    def settings(**keys) -> str:
        model = str(write_yaml(tmp_path / "m.yaml", {"model": "svm"} | keys))
        mine = str(write_yaml(tmp_path / "mine.yaml", {"title": "Mine", "rows": [{"row": "x", "model": model}]}))
        return Run(configured(experiments=[mine]).model_dump(mode="json")).experiment_settings("mine")

    assert len({settings(), settings(title="SVM"), settings(family="RNN")}) == 3
    assert settings() == settings()
