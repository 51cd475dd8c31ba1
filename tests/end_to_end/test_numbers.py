"""A dataset whose label is a number, from the table of scans to the report."""

import json

import pandas as pd
import pytest
import yaml

from bolt.cli import main as cli
from bolt.config.study import Study
from bolt.io.errors import DataError
from bolt.io.files import read_json, read_table
from bolt.workflow.run import Run
from tests.snake import series_dataset, write_yaml
from tests.stages import stage


@pytest.fixture
def config(tmp_path, monkeypatch):
    """Ages of 24 people to be predicted; one age is missing, one is no number."""
    monkeypatch.chdir(tmp_path)
    path = series_dataset(tmp_path, n_subjects=26, folds={"outer": 3})
    dataset = yaml.safe_load((tmp_path / "mine.yaml").read_text())
    del dataset["classes"]
    write_yaml(tmp_path / "mine.yaml", dataset | {"label": "years", "age": None})
    table = pd.read_csv("series/scans.tsv", sep="\t").rename(columns={"age": "years"}).astype({"years": str})
    table.loc[[3, 7], "years"] = ["n/a", "young"]
    table.to_csv("series/scans.tsv", sep="\t", index=False)
    return path


def test_from_scans_to_report(config, tmp_path):
    assert stage(config, "index") == 0
    scans = read_table("results/mine/scans.tsv").set_index("subject")
    reasons = scans["exclude_reason"].dropna()
    assert sorted(reasons.index) == ["sub-03", "sub-07"] and "'young' is not a number" in reasons["sub-07"]
    for rule in ("rois", "cache", "exclusions", "folds"):
        assert stage(config, rule, atlas="dosenbach160") == 0
    folds = read_table("results/mine/folds.tsv").merge(scans["label"].rename("years"), on="subject")
    spread = folds[folds.role == "test"].astype({"years": float}).groupby("fold")["years"]
    assert (spread.max() - spread.min()).min() > 15  # every fold tests all quarters

    model = next(iter(Study.read(config).models))
    names = {"atlas": "dosenbach160", "model": model, "seed": 0}
    assert stage(config, "train_folds", "--fold", "0", "1", "2", **names) == 0
    assert stage(config, "evaluate", **names) == 0
    assert stage(config, "connections", **names) == 0
    assert stage(config, "explanation") == 0
    assert "with the predicted years" in (tmp_path / "results/mine/report/explanation.html").read_text()
    assert stage(config, "report") == 0
    folder = next((tmp_path / "results/mine/runs").rglob("seed-0"))
    assert read_json(folder / "summary.json")["pooled"]["n_scans"] == 24
    names = ("index", "performance", "cohort", "explanation")
    page = "".join((tmp_path / f"results/mine/report/{name}.html").read_text() for name in names)
    for text in (
        "mean absolute error",
        "years, a number",
        "connections only. Landmarks are regressions",
        "quarters of the label",
    ):
        assert text in page, text
    assert "Algorithm 1" not in page
    json.dumps(read_json(folder / "fold-0/checkpoint.json"), allow_nan=False)


def test_the_workflow_asks_for_connections_alone(config):
    run = Run(yaml.safe_load(config.read_text()))
    assert [file.name for file in run.explanations()] == ["connections.tsv"]
    assert run.truth() == [] and len(run.metrics()) == 1


def test_landmarks_say_that_they_need_classes(config):
    with pytest.raises(DataError, match="'regions' needs classes, but the label of this dataset is a number"):
        cli.run(_options(config))


def _options(config):
    from bolt.cli.main import make_parser

    return make_parser().parse_args(
        ["regions", "--config", str(config), "--atlas", "dosenbach160", "--model", "x", "--seed", "0"]
    )
