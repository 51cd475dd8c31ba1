"""Only the demo's evaluation opens the truth, and its measures know right from wrong."""

import re

import numpy as np
import pandas as pd
import pytest

from bolt.config import ROOT, Config, Range
from bolt.evaluate import truth
from bolt.evaluate.truth import Measure, _mean_auc, _row
from bolt.files import write_json
from bolt.layout import Layout


def test_nobody_else_knows_where_the_truth_lies():
    """The simulator writes it, the layout names it, `evaluate/truth.py` reads it."""
    allowed = {"bolt/datasets/phantom.py", "bolt/layout.py", "bolt/evaluate/truth.py"}
    mentions = re.compile(r"derivatives/truth|layout\.truth\(|TRUTH\b|evaluate\.truth import|evaluate import truth")
    found = {
        str(path.relative_to(ROOT)): lines
        for path in sorted((ROOT / "bolt").rglob("*.py"))
        if (lines := [line for line in path.read_text().splitlines() if mentions.search(line)])
    }
    stages = found.pop("bolt/stages/_models.py")
    assert len(stages) == 2 and all("from bolt.evaluate.truth import" in line for line in stages)
    assert set(found) <= allowed


def test_only_the_rules_of_truth_smk_run_what_opens_it():
    for path in sorted((ROOT / "workflow/rules").glob("*.smk")):
        commands = set(re.findall(r"python -m bolt ([\w-]+)", path.read_text()))
        assert bool(commands & {"truth", "oracle-cache"}) == (path.name == "truth.smk"), path.name
        assert ("ORACLE" in path.read_text()) == (path.name == "truth.smk"), path.name


@pytest.mark.parametrize(
    ("value", "expected", "passed"),
    [
        (0.9, Range(low=0.8), "true"),
        (0.7, Range(low=0.8), "false"),
        (np.nan, Range(low=0.8), "false"),
        (0.55, Range(low=0.4, high=0.6), "true"),
        (2.1, Range(high=2.0), "false"),
        (2.1, Range(), None),
    ],
)
def test_a_value_out_of_range_or_missing_has_not_passed(value, expected, passed):
    assert _row("m", Measure(value, "mm"), expected)["passed"] == passed


def test_landmark_auc_is_a_mean_over_scans():
    marks = {"a": np.array([False, True, False]), "b": np.array([True, False, False])}
    assert _mean_auc(marks, {"a": np.array([0.1, 0.9, 0.2]), "b": np.array([0.0, 1.0, 1.0])}) == 0.5


def test_true_landmarks_are_rows_of_the_series(tmp_path):
    """Of volumes 0 to 9 the first three and the sixth were dropped."""
    layout = Layout(Config(dataset="own", paths={"results": tmp_path, "work": tmp_path}))
    write_json(
        {"NumberOfVolumes": 10, "KeptVolumes": [3, 4, 6, 7, 8, 9]}, layout.series_file("a", "x").with_suffix(".json")
    )
    write_json({"NumberOfVolumes": 10}, layout.series_file("b", "x").with_suffix(".json"))
    marks = np.isin(np.arange(10), [2, 4, 5, 6])
    rows = truth._landmark_rows({"a": marks, "b": marks}, layout, "x")
    assert rows.volume[rows.scan_id == "a"].tolist() == [1, 2]
    assert rows.volume[rows.scan_id == "b"].tolist() == [2, 4, 5, 6]


def test_matrices_are_read_row_by_row():
    table = pd.DataFrame([dict.fromkeys([f"m{r}{c}" for r in range(3) for c in range(4)], 0.0) | {"m03": 5.0}])
    matrix = truth._matrices(table)[0]
    assert matrix[0, 3] == 5.0 and matrix[3].tolist() == [0, 0, 0, 1]
