"""The paper's numbers, pinned by hand: which row has which settings and which published value."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from bolt.config import ROOT, Config, load_dataset, load_experiment
from bolt.config.study import paper_dataset
from bolt.evaluate.scores import METRICS
from bolt.experiments.entries import entries
from bolt.experiments.results import paper_values, with_paper
from bolt.io.errors import ConfigError
from bolt.io.files import read_yaml, sha256
from bolt.report.tables import paper_of
from bolt.workflow.run import Run
from tests.experiments.test_results import PUBLISHED
from tests.snake import write_yaml


def test_the_papers_tables_are_those_that_were_checked():
    files = (ROOT / "config/experiments/paper").glob("*.tsv")
    assert {file.stem: sha256(file) for file in files} == PUBLISHED["checked"]


def published(experiment, row, atlas, metric):
    """Return the paper's values for a row in per cent, by dataset."""
    table = paper_values(experiment)
    chosen = (table.atlas == atlas) & (table.metric == metric)
    for column, value in row.paper.items():
        chosen &= table[column] == value
    return (100 * table[chosen].set_index("dataset")["paper_mean"]).round(2).to_dict()


def test_every_step_of_the_ablation_has_its_settings_and_its_value():
    experiment = load_experiment("ablation")
    assert [row.row for row in experiment.rows] == list(PUBLISHED["ablation"])
    for row in experiment.rows:
        settings, accuracy, auc = PUBLISHED["ablation"][row.row]
        assert row.model == "bolt" and row.hyper == settings, row.row
        assert published(experiment, row, "schaefer400", "accuracy") == {"hcp_rest": accuracy}, row.row
        assert published(experiment, row, "aal116", "auc") == {"hcp_rest": auc}, row.row


def test_every_competing_method_has_its_own_values():
    experiment = load_experiment("comparison")
    rows = {row.model: row for row in experiment.rows if row.paper}
    assert list(rows) == list(PUBLISHED["comparison"])
    for model, (accuracies, aucs) in PUBLISHED["comparison"].items():
        for atlas, metric, values in (("schaefer400", "accuracy", accuracies), ("aal116", "auc", aucs)):
            expected = dict(zip(("hcp_rest", "hcp_task", "abide1"), values, strict=True))
            assert published(experiment, rows[model], atlas, metric) == expected, model


def shown(dataset: str, atlases: list[str], name: str) -> pd.DataFrame:
    """Return the paper's values that the table of an experiment shows, before anything is trained."""
    found = entries(Config(dataset=dataset, atlases=atlases), load_experiment(name))
    rows = [(entry.dataset, entry.atlas, entry.row, metric) for entry in found for metric in METRICS]
    table = pd.DataFrame(rows, columns=["dataset", "atlas", "row", "metric"])
    return with_paper(table, found, paper_values(load_experiment(name))).dropna(subset="paper_mean")


def test_images_of_abide_have_the_papers_values_of_both_atlases() -> None:
    table = shown("abide1_images", ["schaefer400", "aal116"], "comparison")
    assert len(table) == 14 * 2 * 4
    bolt = table[(table["row"] == "BolT") & (table["metric"] == "accuracy")].set_index("atlas")["paper_mean"]
    assert bolt.mul(100).round(2).to_dict() == {"schaefer400": 71.28, "aal116": 68.14}
    assert shown("abide1_images", ["schaefer400"], "ablation").empty  # the paper ablates on HCP-Rest alone


def copied(folder: Path, name: str, **changes: object) -> str:
    """A copy of HCP-Rest's file that differs."""
    return str(write_yaml(folder / f"{name}.yaml", read_yaml(ROOT / "config/datasets/hcp_rest.yaml") | changes))


def test_a_copied_dataset_file_keeps_the_papers_values(tmp_path: Path) -> None:
    copy = copied(tmp_path, "my_hcp", crop=300, description="Mine.")
    for name, n in {"comparison": 14 * 4, "ablation": 7 * 4, "window_size": 4 * 4}.items():
        table = shown(copy, ["schaefer400"], name)
        assert len(table) == n and set(table["dataset"]) == {"my_hcp"}, name
    assert len(paper_of(load_dataset(copy).paper, "schaefer400")) == 8
    run = Run({"dataset": copy, "atlases": ["schaefer400"], "models": ["bolt"]})
    assert paper_dataset(run.dataset) == "hcp_rest" and not run.notes


@pytest.mark.parametrize(
    "changes",
    [{"label": "Race", "classes": ["a", "b"]}, {"classes": ["female", "other"]}, {"classes": ["male", "female"]}],
)
def test_a_copy_that_predicts_something_else_is_not_compared_with_the_paper(tmp_path: Path, changes: dict) -> None:
    """In another order of the classes, recall and precision are of the other class."""
    other = copied(tmp_path, "other", red=None, **changes)
    assert all(shown(other, ["schaefer400"], name).empty for name in ("comparison", "ablation", "window_size"))
    run = Run({"dataset": other, "atlases": ["schaefer400"], "models": ["bolt"]})
    assert paper_dataset(run.dataset) == ""
    assert any("'other' predicts another label, or other classes, than 'hcp_rest'" in note for note in run.notes)


def test_sites_left_out_are_not_compared_with_the_papers_folds() -> None:
    for scheme, compared in (("kfold", "abide1"), ("leave-site-out", "")):
        config = Config(dataset="abide1_images", atlases=["aal116"], folds={"scheme": scheme})
        assert {entry.paper_dataset for entry in entries(config, load_experiment("comparison"))} == {compared}


def test_what_the_paper_does_not_have_stays_empty() -> None:
    assert shown("abide1", ["cc200"], "comparison").empty  # its atlases are Schaefer's and AAL
    assert paper_of(load_dataset("abide1").paper, "cc200").empty
    assert len(paper_of("abide1", "schaefer400")) == 8 and paper_of("abide1", "aal116").empty
    assert paper_of(None, "schaefer400").empty
    assert shown("phantom", ["schaefer400"], "comparison").empty


def test_the_papers_datasets_are_named_and_have_its_cohort() -> None:
    abide = (871, 403 + 468)
    cohorts = {"hcp_rest": (1093, 594 + 499), "hcp_task": (7450, 594 + 501), "abide1": abide, "abide1_images": abide}
    for name, (scans, people) in cohorts.items():
        dataset = load_dataset(name)
        assert dataset.paper == name.removesuffix("_images") and dataset.published.scans == scans
        assert sum((dataset.published.label or dataset.published.sex).values()) == people


def test_another_name_is_refused(tmp_path: Path) -> None:
    keys = read_yaml(ROOT / "config/datasets/abide1.yaml")
    for wrong in ("abide2", {"scans": 871}):
        with pytest.raises(ConfigError, match="'paper'.*'abide1'"):
            load_dataset(str(write_yaml(tmp_path / "mine.yaml", keys | {"paper": wrong})))
