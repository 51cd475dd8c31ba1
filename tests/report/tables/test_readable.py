"""What people read: rounding, missing values, ranges in words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from bolt.io.files import write_json, write_table
from bolt.preprocess.quality.measures import MEASURES
from bolt.report.tables import numbers, readable
from tests.report.results import TRUTH


def test_numbers() -> None:
    assert [numbers.number(v) for v in (3.0, 0.12345, 1234.5, np.nan, None, 104)] == [
        "3",
        "0.123",
        "1234",
        "–",
        "–",
        "104",
    ]
    assert numbers.percent(0.8333) == "83.3" and numbers.percent(None) == "–"


def test_truth_puts_ranges_in_words_and_keeps_the_verdict() -> None:
    columns = ["measure", "value", "unit", "null", "oracle", "low", "high", "passed"]
    table = readable.truth(pd.DataFrame(TRUTH, columns=columns).assign(null_meaning="chance"))
    assert table["expected"].tolist() == ["≤ 2", "≥ 0.8", "≥ 0.8", "0.4 to 0.6"]
    assert table["value"].iloc[0] == "1.31 mm" and table["passed"].tolist() == [True, True, False, True]
    as_read = pd.DataFrame([("m", 1.0, "mm", None, None, None, None, "False")], columns=columns)
    as_read = readable.truth(as_read.assign(null_meaning=None))
    assert as_read["passed"].tolist() == [False] and as_read["expected"].iloc[0] == "–"


def test_quality_sums_up_every_measure_that_is_known() -> None:
    known = pd.DataFrame({name: [np.nan] * 3 for name in MEASURES}).assign(mean_fd=[0.1, 0.2, 0.6], brain_ml=1500.0)
    table = readable.quality(known, {"mean_fd": ("max", 0.5)})
    assert table[""].tolist() == ["mean FD (mm)", "brain volume (ml)"]
    assert table.iloc[0, 1:].tolist() == ["0.2", "0.1", "0.6", "≤ 0.5", "1"]
    assert table.iloc[1, 1:].tolist() == ["1500", "1500", "1500", "–", "–"]


def test_performance_lists_missing_folds() -> None:
    metrics = pd.DataFrame(
        {
            "fold": ["0", "1", "mean", "sd"],
            "state": ["ok", "failed", None, None],
            "n_test": [8, 0, 1, 1],
            "note": [None, "loss is NaN", "without fold 1", "without fold 1"],
            **{m: [0.75, np.nan, 0.75, 0.0] for m in ("accuracy", "recall", "precision", "auc")},
        }
    )
    table = readable.performance(metrics, None)
    assert table["accuracy"].tolist() == ["75.0", "–", "75.0 ± 0.0"]
    assert table["note"].tolist() == ["", "loss is NaN", "without fold 1"]


def test_cohort_leaves_out_what_is_not_known() -> None:
    unknown = dict.fromkeys(["site", "age", "sex", "mean_fd"], np.nan)
    scans = pd.DataFrame({"label": ["a", "b", "b"], "subject": ["1", "2", "2"], "n_volumes": [100, 90, 90], "tr": 2.0})
    table = readable.cohort(scans.assign(**unknown), ["a", "b"])
    assert list(table.columns) == ["class", "scans", "subjects", "volumes", "TR (s)"]
    assert table["volumes"].tolist() == ["100", "90", "90 to 100"] and table["subjects"].tolist() == [1, 1, 2]


def test_a_run_that_was_not_evaluated_has_no_numbers(tmp_path: Path) -> None:
    assert readable.read_evaluated(tmp_path) is None
    table = pd.DataFrame({"fold": ["0", "mean", "sd"], "state": ["ok", None, None], "accuracy": [0.5, 0.5, 0.0]})
    write_table(table, tmp_path / "metrics.tsv", dict.fromkeys(table, "Test"))
    write_json({"pooled": None}, tmp_path / "summary.json")
    assert readable.read_evaluated(tmp_path) is None
    write_json({"pooled": {"n_scans": 3}}, tmp_path / "summary.json")
    found, pooled = readable.read_evaluated(tmp_path)
    assert pooled == {"n_scans": 3} and found["fold"].tolist() == ["0", "mean", "sd"]
