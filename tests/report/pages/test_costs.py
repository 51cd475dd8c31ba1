"""The report's table of what a run cost: of this dataset, dearest first, the rest in one line."""

from pathlib import Path

from bolt.config import load_config
from bolt.config.layout import Layout
from bolt.report.pages.report import LISTED, costs_section
from tests.jobs.test_ledger import measured, noted
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
    noted(tmp_path / "results", "stage_9", "all", device="cuda: NVIDIA H200")
    (block,) = costs_section(layout)
    assert block.frame["GPU time"].tolist() == ["1.0 h", *["–"] * 8, "1.0 h"]
