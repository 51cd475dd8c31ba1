"""One choice of hyper-parameters for all datasets: the same candidates everywhere, and one near the best of each."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from bolt.config import Config, Model, load_experiment, load_model
from bolt.config.layout import Layout
from bolt.experiments.entries import rows_of
from bolt.io.errors import ConfigError, DataError
from bolt.io.files import read_table, write_json, write_table
from bolt.training.tuning.choice import write_shared
from bolt.training.tuning.search import Objective, search_fold
from tests.training.test_runner import DATASET, write_toy
from tests.training.tuning.test_search import SPACE, TOO_SLOW, trials

MODEL = Model(name="svm", model="svm", title="SVM", hyper={"C": 1.0})


def study(folder: Path, losses: list[float | None], values: tuple[float, ...] = (1.0, 0.1, 10.0)) -> Path:
    """A search as it is left: losses of candidates; None: pruned."""
    table = pd.DataFrame({"trial": range(1, len(losses) + 1), "validation_loss": losses, "hyper.C": values})
    table["training.epochs"] = 7
    table = table.assign(state=["pruned" if v is None else "complete" for v in losses], reason=None)
    table["validation_accuracy"] = 0.5
    write_table(table, folder / "trials.tsv", dict.fromkeys(table.columns, "Made up"))
    write_json({"n_trials": len(losses), "seed": 0, "fold": 0}, folder / "best.json")
    return folder


def test_the_choice_is_near_the_best_of_every_study(tmp_path: Path) -> None:
    """Candidate 1 is best in the first study, 2 in the second; 3 is never best, but 4 % from it in both."""
    first = study(tmp_path / "a", [0.50, 0.80, 0.52])
    second = study(tmp_path / "b", [0.90, 0.50, 0.52])
    write_shared({"one, x": first, "two, y": second}, MODEL, tmp_path / "svm.yaml")
    chosen = load_model(str(tmp_path / "svm.yaml"))
    assert chosen.hyper["C"] == 10.0 and chosen.by_fold == {} and chosen.title == "SVM"
    text = (tmp_path / "svm.yaml").read_text()
    assert "epochs: 7\n" in text  # a whole number, although the others are not
    assert "#   one, x: 4.0 %" in text and "#   two, y: 4.0 %" in text and "Candidate 3 of 3" in text
    table = read_table(tmp_path / "svm_trials.tsv", text=("study",))
    assert len(table) == 6 and table.groupby("trial")["worst_excess"].first().round(2).tolist() == [0.8, 0.6, 0.04]


def test_a_candidate_that_failed_anywhere_is_not_chosen(tmp_path: Path) -> None:
    studies = {"a": study(tmp_path / "a", [0.9, 0.5, 0.5]), "b": study(tmp_path / "b", [0.9, 0.5, None])}
    write_shared(studies, MODEL, tmp_path / "svm.yaml")
    assert load_model(str(tmp_path / "svm.yaml")).hyper["C"] == 0.1
    studies["c"] = study(tmp_path / "c", [None, None, 0.5])
    with pytest.raises(ConfigError, match="no candidate of model 'svm' was completed in all studies: a, b, c"):
        write_shared(studies, MODEL, tmp_path / "svm.yaml")


def test_studies_of_other_candidates_are_refused(tmp_path: Path) -> None:
    studies = {"a": study(tmp_path / "a", [1.0] * 3), "b": study(tmp_path / "b", [1.0] * 3, (1.0, 0.1, 9.0))}
    with pytest.raises(DataError, match="a and b tried different candidates"):
        write_shared(studies, MODEL, tmp_path / "svm.yaml")


def test_all_datasets_try_the_same_candidates(tmp_path: Path) -> None:
    """Although other scans, or shorter ones, allow other windows and batches."""
    tables = []
    for name, crop in (("a", DATASET.crop), ("b", 6)):
        toy = write_toy(tmp_path / name)
        objective = Objective(*toy, TOO_SLOW, DATASET.model_copy(update={"crop": crop}), 1, 0, "cpu")
        search_fold(objective, TOO_SLOW, SPACE, 6, tmp_path / name / "out", tmp_path / name / "s", shared=True)
        tables.append(trials(tmp_path / name / "out"))
    drawn = [table.filter(regex=r"\.") for table in tables]
    pd.testing.assert_frame_equal(*drawn)
    assert drawn[0]["hyper.window"].max() > 100  # the ranges are not narrowed
    too_long = tables[1][tables[1]["hyper.window"] > 6]
    assert len(too_long) and (too_long["state"] == "pruned").all()
    assert too_long["reason"].str.contains("the data allow at most").all()
    assert tables[1]["state"][0] == "complete"  # the model's own values


def test_experiments_use_the_choice_where_it_is_switched_on(tmp_path: Path) -> None:
    config = Config(dataset="abide1", atlases=["cc200"], paths={"results": tmp_path})
    on = config.model_copy(update={"search": config.search.model_copy(update={"use": True})})
    write_shared({"a": study(tmp_path / "a", [1.0, 0.5, 0.8])}, load_model("svm"), Layout(config).shared_choice("svm"))
    comparison = load_experiment("comparison")
    plain, searched = ({row.row: model for row, model in rows_of(comparison, c)} for c in (config, on))
    assert list(plain) == list(searched)  # titles, and so the paper's rows, are the same
    assert searched["SVM"].hyper["C"] == 0.1 and plain["SVM"].hyper.get("C", 1.0) == 1.0
    assert searched["SVM"].run_name != plain["SVM"].run_name and searched["SVM"].run_name.startswith("svm-")
    assert searched["BolT"].run_name == plain["BolT"].run_name  # was not searched
