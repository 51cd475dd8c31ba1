"""The report's table of what a run cost: of this dataset, dearest first, the rest in one line."""

from pathlib import Path

from bolt.config import load_config
from bolt.config.layout import Layout
from bolt.report.pages.report import LISTED, costs_section
from tests.jobs.test_ledger import FOLD, measured, noted
from tests.snake import series_dataset


def test_dearest_first_the_rest_in_one_line_and_all(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    layout = Layout(load_config(series_dataset(tmp_path)))
    assert costs_section(layout) == []
    for i in range(LISTED + 2):
        measured(tmp_path / "results", f"stage_{i}", "all", 360.0 * (i + 1), 360.0 * (i + 1))
    measured(tmp_path / "results", "stage_0", "all", 1e6, 1e6, dataset="other")
    (block,) = costs_section(layout)
    assert block.frame["stage"].tolist() == [*(f"stage_{i}" for i in range(9, 1, -1)), "2 other stages", "all"]
    assert block.frame["processor time"].tolist()[-2:] == ["18.0 min", "5.5 h"]
    assert block.frame["jobs"].tolist()[-2:] == ["2", "10"] and "GPU time" not in block.frame
    assert block.file == Path("results/ledger.tsv")


def test_time_on_a_gpu_has_a_column_where_there_is_some(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    layout = Layout(load_config(series_dataset(tmp_path)))
    measured(tmp_path / "results", "train_fold", FOLD.format(0), 7200.0, 3600.0)
    noted(tmp_path / "results", "train_fold", FOLD.format(0), device="cuda: NVIDIA H200")
    measured(tmp_path / "results", "folds", "all", 1.0, 1.0)
    (block,) = costs_section(layout)
    assert block.frame["GPU time"].tolist() == ["2.0 h", "–", "2.0 h"]
