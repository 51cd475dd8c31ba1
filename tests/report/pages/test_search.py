"""What the report says of a search."""

import pandas as pd
import pytest
import yaml

from bolt.config import Config, Dataset, load_model
from bolt.config.study import Study
from bolt.evaluate.scores import METRICS
from bolt.io.files import read_table, write_json, write_table
from bolt.report.pages.performance import chosen, search_sections
from bolt.training.choice import trials_of, write_choice
from bolt.training.search import TRIALS

DATASET = Dataset(name="toy", source="series", path="x", label="label", classes=["no", "yes"])
RATES = {0: 1e-3, 1: 4e-3}


def write_studies(layout):
    studies = {}
    for fold, rate in RATES.items():
        folder = studies[fold] = layout.study("toy", "bolt", fold)
        best = {
            "fold": fold, "trial": 2, "validation_loss": 0.5, "validation_accuracy": 0.75, "first_loss": 0.7,
            "n_trials": 3, "n_complete": 2, "n_train": 8, "n_validation": 4, "seed": 0, "optuna": "5.0.0",
            "narrowed": [], "values": {"training.learning_rate": rate, "hyper.window": 10 + fold},
            "settings": {"training": {"peak_learning_rate": rate}, "hyper": {"window": 10 + fold}},
        }  # fmt: skip
        rows = [
            (1, "complete", 0.7, 0.5, 2e-4, 20, None),
            (2, "complete", 0.5, 0.75, rate, 10 + fold, None),
            (3, "pruned", None, None, 0.1, 15, "the loss is not finite"),
        ]
        columns = ["trial", "state", "validation_loss", "validation_accuracy", *best["values"], "reason"]
        write_json(best, folder / "best.json")
        described = TRIALS | dict.fromkeys(best["values"], "as it was tried")
        write_table(pd.DataFrame(rows, columns=columns), folder / "trials.tsv", described)
    return studies


def write_run(layout, choice, accuracies):
    folder = layout.run("toy", load_model(str(choice)), 0).folder
    rows = {"fold": ["0", "1", "mean", "sd"], "state": ["ok", "ok", None, None]}
    scores = [*accuracies, sum(accuracies) / 2, 0.0]
    table = pd.DataFrame(rows | dict.fromkeys(["n_test", *METRICS], scores))
    write_table(table, folder / "metrics.tsv", dict.fromkeys(table, ""))
    value = {"value": scores[2], "low": 0.4, "high": 0.9}
    pooled = dict.fromkeys(METRICS, value) | {"majority_accuracy": 0.5, "n_scans": 24}
    write_json({"pooled": pooled, "missing_folds": []}, folder / "summary.json")


@pytest.fixture
def searched(tmp_path):
    paths = {"results": tmp_path / "results", "work": tmp_path / "work"}
    study = Study(Config(dataset="toy", atlases=["toy"], models=["bolt"], paths=paths), DATASET)
    assert search_sections(study) == []
    layout, model = study.layout, load_model("bolt")
    studies = write_studies(layout)
    write_choice(studies, model, "per-fold", layout.choice("toy", "per-fold", "bolt"))
    write_choice({0: studies[0]}, model, "paper", layout.choice("toy", "paper", "bolt"))
    return study


def test_what_is_written_is_a_model_that_can_be_loaded(searched):
    layout = searched.layout
    apart = load_model(str(layout.choice("toy", "per-fold", "bolt")))
    shared = load_model(str(layout.choice("toy", "paper", "bolt")))
    for fold, rate in RATES.items():
        own = apart.for_fold(fold)
        assert (own.training.peak_learning_rate, own.hyper["window"]) == (rate, 10 + fold)
        assert own.hyper["hidden"] == 400 and own.training.epochs == 20  # the rest is the model's own
        assert shared.for_fold(fold).training.peak_learning_rate == RATES[0]
    assert len({apart.hash(), shared.hash(), load_model("bolt").hash()}) == 3
    text = layout.choice("toy", "per-fold", "bolt").read_text()
    assert "validation loss 0.5000 (trial 2 of 3, 4 scans); with the model's own values: 0.7000" in text
    assert yaml.safe_load(text)["by_fold"][1]["hyper"] == {"window": 11}
    table = read_table(trials_of(layout.choice("toy", "per-fold", "bolt")), text=("state", "reason"))
    assert table["fold"].tolist() == [0, 0, 0, 1, 1, 1]


def test_the_section_shows_course_and_spread(searched):
    (run,) = search_sections(searched)
    table, picture, text = run.blocks
    frame = table.frame.set_index("")
    assert frame.loc["learning rate"].tolist() == ["0.0002", "0.001", "0.0025 (0.001 to 0.004)"]
    assert picture.file.is_file() and picture.file.with_suffix(".svg").is_file()
    assert "once `models` names" in text.text


def test_both_schemes_side_by_side(searched):
    layout = searched.layout
    write_run(layout, layout.choice("toy", "per-fold", "bolt"), [0.6, 0.7])
    write_run(layout, layout.choice("toy", "paper", "bolt"), [0.65, 0.8])
    (run,) = search_sections(searched)
    difference = "over 2 folds: +7.50 percentage points of accuracy on average (+5.00 to +10.00)"
    assert difference in run.blocks[-1].caption
    assert len(run.blocks[-1].frame) == 2


def test_choices_that_are_words_are_counted():
    kernels = enumerate(["rbf", "linear", "rbf"])
    found = {fold: {"values": {"hyper.kernel": kernel}, "validation_loss": 1.0} for fold, kernel in kernels}
    trials = {fold: pd.DataFrame({"hyper.kernel": ["linear"], "validation_loss": [1.0]}) for fold in found}
    assert chosen(found, trials)["over folds"][0] == "linear (1), rbf (2)"
