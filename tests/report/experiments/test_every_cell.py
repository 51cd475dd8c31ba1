"""Every cell of an experiment's tables, from numbers of which no two are equal.

The digits of a number name its place: 0.213 is row 2, metric 1 (recall), column 3 (high), and is shown as 21.3.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bolt.config import Experiment, Model
from bolt.evaluate.classes import METRICS
from bolt.evaluate.paired import TEST_COLUMNS
from bolt.experiments.entries import Entry
from bolt.experiments.results import FAMILY_COLUMNS, RESULT_COLUMNS
from bolt.io.files import write_table
from bolt.report.experiments.complexity import write_complexity
from bolt.report.experiments.experiment import calibration, family_sheet, fold_tests, paired, performance
from bolt.report.experiments.landmarks import _rows
from bolt.report.experiments.spectra import _means, _sheets, atlas_differences
from tests.experiments.test_results import entry

ORDER = [*METRICS, "balanced_accuracy", "brier", "log_loss"]
NUMBERS = ["mean", "sd", "low", "high", "pooled", "pooled_low", "pooled_high", "no_skill", "paper_mean", "paper_sd"]
FOLDS = {"BolT": (5, 5), "LSTM": (6, 6), "cut": (3, 7), "Site only": (8, 8), "none": (0, 0)}
"""Finished and expected folds per row, numbered from 1."""
MISSING = {"cut": ("2, 4", "loss is NaN.")}


def results() -> pd.DataFrame:
    """Rows in which LSTM beats the paper's values (difference positive in odd rows) and is above BolT everywhere."""
    rows = []
    for r, (row, (done, expected)) in enumerate(FOLDS.items(), start=1):
        for m, metric in enumerate(ORDER):
            values = {name: (100 * r + 10 * m + c) / 1000 for c, name in enumerate(NUMBERS)} if done else {}
            difference = (1 if r % 2 else -1) * (10 * r + m) / 1000
            missing, note = MISSING.get(row, (None, None))
            about = {"dataset": "d", "atlas": "a", "row": row, "metric": metric, "n_folds": done, "note": note}
            about |= {"expected_folds": expected, "missing_folds": missing, "n_scans": 1000 * r, "n_all_scans": 9000}
            about |= {"difference": difference, "paper_inside": "false" if (r + m) % 2 else "true"}
            rows.append(about | values)
    return pd.DataFrame(rows).reindex(columns=list(RESULT_COLUMNS))


def entries() -> list[Entry]:
    rows = [entry(name, []) for name in FOLDS]
    site_only = Model(name="site_only", model="logistic", family="baseline", covariates=["site"])
    return [replace(row, model=site_only) if row.row == "Site only" else row for row in rows]


def test_performance_beside_the_paper() -> None:
    table = results()
    table.loc[(table["row"] == "LSTM") & (table["metric"] == "auc"), ["paper_mean", "paper_sd", "difference"]] = None
    table.loc[(table["row"] == "cut") & (table["metric"] == "auc"), "difference"] = None
    tests = pd.DataFrame({"row": ["Site only", "LSTM"], "metric": "accuracy"}).assign(
        pooled_difference=0.011, permutation_p=[0.3, 0.9]
    )
    sheet = performance("T", table, entries(), "BolT", tests)
    assert list(sheet.frame) == ["", "folds", *(f"{m}{p}" for m in (*METRICS[:3], "AUC") for p in ("", ", paper"))]
    assert sheet.frame.to_numpy().tolist() == [
        ["BolT", "5 of 5", "10.0 ± 10.1", "10.8 ± 10.9 (+1.0)*", "11.0 ± 11.1", "11.8 ± 11.9 (+1.1)",
         "12.0 ± 12.1", "12.8 ± 12.9 (+1.2)*", "13.0 ± 13.1", "13.8 ± 13.9 (+1.3)"],
        ["LSTM", "6 of 6", "20.0 ± 20.1", "20.8 ± 20.9 (−2.0)", "21.0 ± 21.1", "21.8 ± 21.9 (−2.1)*",
         "22.0 ± 22.1", "22.8 ± 22.9 (−2.2)", "23.0 ± 23.1", "–"],
        ["cut", "3 of 7", "30.0 ± 30.1", "30.8 ± 30.9 (+3.0)*", "31.0 ± 31.1", "31.8 ± 31.9 (+3.1)",
         "32.0 ± 32.1", "32.8 ± 32.9 (+3.2)*", "33.0 ± 33.1", "33.8 ± 33.9"],
        ["Site only", "8 of 8", "40.0 ± 40.1", "40.8 ± 40.9 (−4.0)", "41.0 ± 41.1", "41.8 ± 41.9 (−4.1)*",
         "42.0 ± 42.1", "42.8 ± 42.9 (−4.2)", "43.0 ± 43.1", "43.8 ± 43.9 (−4.3)*"],
        ["none", "not applicable", "–", "–", "–", "–", "–", "–", "–", "–"],
    ]  # fmt: skip
    assert sheet.bold == {(1, "accuracy"), (1, "recall"), (1, "precision"), (1, "AUC")}  # whole rows that see the brain
    assert sheet.notes == [
        "cut: 3 of 7 folds, 3000 of 9000 scans tested",
        "cut: without fold 2, 4: loss is NaN",
        "Site only, which sees no brain data, is not clearly worse than BolT: BolT is better by 1.1 points in accuracy "
        "(sign flips per subject or family, p = 0.3). BolT may rely on the same information",
    ]


def test_notes_stand_in_the_order_of_the_rows() -> None:
    table = results()
    table.loc[table["row"] == "none", "note"] = "W = 200 is longer than the crop"
    table.loc[table["row"] == "BolT", ["note", "missing_folds"]] = ["stopped", "1"]
    assert performance("T", table.iloc[::-1], entries(), "").notes == [
        "cut: 3 of 7 folds, 3000 of 9000 scans tested", "none: W = 200 is longer than the crop",
        "cut: without fold 2, 4: loss is NaN", "BolT: without fold 1: stopped",
    ]  # fmt: skip


def test_without_values_of_the_paper_there_are_no_columns_for_them() -> None:
    sheet = performance("T", results().assign(paper_mean=None), entries(), "BolT")
    assert list(sheet.frame) == ["", "folds", *METRICS[:3], "AUC"] and "paper" not in sheet.caption


def test_numbers_are_no_percentages() -> None:
    table = results().iloc[:3].assign(metric=["r", "r2", "mae"])
    sheet = performance("T", table.assign(paper_mean=None), entries(), "BolT")
    assert sheet.frame.to_numpy().tolist() == [["BolT", "5 of 5", "0.1 ± 0.101", "0.11 ± 0.111", "0.12 ± 0.121"]]
    assert list(sheet.frame) == ["", "folds", "r", "r²", "mean absolute error"]
    assert sheet.caption.startswith("Mean ± standard deviation")


def test_calibration_and_intervals() -> None:
    table = results()
    of_brier = (table["row"] == "LSTM") & (table["metric"] == "brier")
    table.loc[of_brier, ["calibration_error", "calibration_error_scaled", "scaled"]] = [0.2, 0.05, 0.21]
    sheet = calibration("T", table, entries())
    assert list(sheet.frame) == [
        "", *(f"{name} [95 %]" for name in ("accuracy", "AUC", "balanced accuracy", "Brier score", "log loss")),
        "calibration error", "Brier score, scaled",
    ]  # fmt: skip
    assert sheet.frame.iloc[:, -2:].to_numpy().tolist() == [["–", "–"], ["0.2 → 0.05", "0.21"], *[["–", "–"]] * 3]
    assert sheet.frame.iloc[:, :-2].to_numpy().tolist() == [
        ["BolT", *(f"1{m}.0 [1{m}.2, 1{m}.3]" for m in (0, 3, 4)), *(f"0.1{m}0 [0.1{m}2, 0.1{m}3]" for m in (5, 6))],
        ["LSTM", *(f"2{m}.0 [2{m}.2, 2{m}.3]" for m in (0, 3, 4)), *(f"0.2{m}0 [0.2{m}2, 0.2{m}3]" for m in (5, 6))],
        ["cut", *(f"3{m}.0 [3{m}.2, 3{m}.3]" for m in (0, 3, 4)), *(f"0.3{m}0 [0.3{m}2, 0.3{m}3]" for m in (5, 6))],
        ["Site only", *(f"4{m}.0 [4{m}.2, 4{m}.3]" for m in (0, 3, 4)),
         *(f"0.4{m}0 [0.4{m}2, 0.4{m}3]" for m in (5, 6))],
        ["none", "–", "–", "–", "–", "–"],
    ]  # fmt: skip
    best = {
        (1, "balanced accuracy [95 %]"),
        (0, "Brier score [95 %]"),
        (0, "log loss [95 %]"),
    }  # lower losses are better
    assert sheet.bold == best and sheet.notes == ["cut: 3 of 7 folds, 3000 of 9000 scans tested"]
    assert "most frequent class has an accuracy of 40.7" in sheet.caption
    kinds = sheet.caption.split("Intervals are ")[1].split("; families")[0]
    assert all(name.removesuffix(" [95 %]") in kinds for name in list(sheet.frame)[1:6])
    few = results()
    few.loc[(few["row"] == "BolT") & (few["metric"] == "auc"), ["low", "high"]] = None
    assert calibration("T", few, entries()).frame["AUC [95 %]"][0] == "13.0 [too few]"


def test_several_seeds_have_a_standard_deviation_of_their_own() -> None:
    one = results().query("row in ['BolT', 'LSTM']").assign(paper_mean=None)
    several = one.assign(sd_seeds=one["sd"] / 10).where(one["row"] == "BolT", one)
    sheet = performance("T", several, entries(), "BolT")
    assert sheet.frame["accuracy"].tolist() == ["10.0 ± 10.1 / 1.0", "20.0 ± 20.1"]
    assert "over folds (of means over seeds) / over seeds (of means over folds)." in sheet.caption
    assert "seeds" not in performance("T", one, entries(), "BolT").caption


def test_tests_that_were_not_done_are_not_named() -> None:
    few = compared().assign(wilcoxon_p=None, wilcoxon_p_holm=None)
    for table in (few, few.assign(corrected_t_p=None, corrected_t_p_holm=None)):
        for sheet in (paired("T", table), fold_tests("T", table)):
            assert "Wilcoxon" not in sheet.caption and not any("Wilcoxon" in name for name in sheet.frame)
    assert "corrected" not in fold_tests("T", table).caption and fold_tests("T", table).frame.iloc[0, 1] == "+1.0"
    assert fold_tests("T", few).frame.iloc[0, 1] == "+1.0 (0.2)"
    assert "permutation test" in paired("T", table).caption and "t-test" not in paired("T", table).caption


def test_rows_that_tie_after_rounding_are_all_bold_and_one_alone_is_not() -> None:
    table = results().query("metric == 'accuracy' and row in ['BolT', 'LSTM', 'cut']")
    assert performance("T", table[table["row"] != "LSTM"], entries(), "").bold == set()
    close = table.assign(mean=[0.70041, 0.69961, 0.9])  # 70.0 and 70.0; the third row lacks folds
    assert performance("T", close, entries(), "").bold == {(0, "accuracy"), (1, "accuracy")}
    assert performance("T", close.assign(mean=[0.7006, 0.70041, 0.9]), entries(), "").bold == {(0, "accuracy")}


def compared() -> pd.DataFrame:
    """Two rows and all metrics; p-values count up from 0.16 to 0.99."""
    p_values = [f"{name}_p{holm}" for holm in ("", "_holm") for name in ("wilcoxon", "corrected_t", "permutation")]
    rows = []
    for r, row in enumerate(("LSTM", "SVM"), start=1):
        for m, metric in enumerate(ORDER):
            sign = 1 if r == 1 else -1
            values = {name: (42 * (r - 1) + 6 * m + c) / 100 for c, name in enumerate(p_values, start=16)}
            values |= {"difference": sign * (r + m / 10) / 100, "pooled_difference": -sign * (5 + r + m / 10) / 100}
            counts = {"n_folds": 10 * r, "n_scans": 100 * r, "n_groups": 90 * r}
            rows.append({"row": row, "metric": metric, **counts, **values, "note": "too few folds" if r == 2 else None})
    return pd.DataFrame(rows)[["row", *TEST_COLUMNS]].assign(expected_folds=20, n_all_scans=400)


def test_paired_tests_of_accuracy() -> None:
    table = compared()
    for name, p in {"wilcoxon_p": 0.00049, "corrected_t_p_holm": 0.0012, "permutation_p": 1.0}.items():
        table.loc[(table["row"] == "SVM") & (table["metric"] == "accuracy"), name] = p
    sheet = paired("T", table)
    assert list(sheet.frame) == [
        "", "folds", "scans", "difference over folds", "over scans", "Wilcoxon: p (Holm)", "corrected t: p (Holm)",
        "permutation: p (Holm)",
    ]  # fmt: skip
    assert sheet.frame.to_numpy().tolist() == [
        ["LSTM", "10 of 20", "100 of 400", "+1.0", "−6.0", "0.16 (0.19)", "0.17 (0.2)", "0.18 (0.21)"],
        ["SVM", "20", "200 of 400", "−2.0", "+7.0", "< 0.001 (0.61)", "0.59 (0.0012)", "1 (0.63)"],
    ]
    assert sheet.notes == ["SVM: too few folds"] and sheet.caption.startswith("Accuracy, per cent: reference minus row")


def test_a_reason_that_holds_for_all_rows_is_stated_once() -> None:
    table = compared()
    table["note"] = np.where(table["row"] == "SVM", "too few folds; undefined in 1 of 9 folds", "too few folds")
    assert paired("T", table).notes == ["too few folds", "SVM: undefined in 1 of 9 folds"]


def test_paired_tests_of_numbers() -> None:
    table = compared()
    table["metric"] = table["metric"].replace({"accuracy": "r", "recall": "r2", "precision": "mae"})
    sheet = paired("T", table)
    assert sheet.frame["difference over folds"].tolist() == ["+0.012", "−0.022"]
    assert sheet.frame["over scans"].tolist() == ["−0.062", "+0.072"]
    assert sheet.caption.startswith("Absolute error: reference minus row")


def test_tests_over_folds_of_every_metric() -> None:
    sheet = fold_tests("T", compared())
    assert sheet.notes == ["LSTM: 10 of 20 folds, 100 of 400 scans tested"]
    assert list(sheet.frame) == [
        "", *METRICS[:3], "AUC", "balanced accuracy", "Brier score", "log loss",
    ]  # fmt: skip
    assert sheet.frame.to_numpy().tolist() == [
        ["LSTM", "+1.0 (0.19; 0.2)", "+1.1 (0.25; 0.26)", "+1.2 (0.31; 0.32)", "+1.3 (0.37; 0.38)",
         "+1.4 (0.43; 0.44)", "+0.015 (0.49; 0.5)", "+0.016 (0.55; 0.56)"],
        ["SVM", "−2.0 (0.61; 0.62)", "−2.1 (0.67; 0.68)", "−2.2 (0.73; 0.74)", "−2.3 (0.79; 0.8)",
         "−2.4 (0.85; 0.86)", "−0.025 (0.91; 0.92)", "−0.026 (0.97; 0.98)"],
    ]  # fmt: skip


def test_improvements_over_families() -> None:
    rows = [
        ("abide1", "RNN", "accuracy", 0.051, 3, 4, -0.061, None), ("abide1", "RNN", "auc", -0.052, 3, 4, 0.062, None),
        ("abide1", "GNN", "accuracy", 0.053, 5, 6, None, None), ("abide1", "GNN", "brier", -0.054, 5, 6, None, None),
        ("hcp_rest", "RNN", "accuracy", 0.055, 7, 8, 0.065, None),
    ]  # fmt: skip
    families = pd.DataFrame(rows, columns=list(FAMILY_COLUMNS))
    sheet = family_sheet(families, "BolT")
    assert sheet.frame.fillna("").to_dict("records") == [
        {"": "abide1: RNN", "rows × atlases": "3 of 4", "accuracy": "+5.1 (−6.1)", "AUC": "−5.2 (+6.2)",
         "Brier score": ""},
        {"": "abide1: GNN", "rows × atlases": "5 of 6", "accuracy": "+5.3", "AUC": "", "Brier score": "−0.054"},
        {"": "hcp_rest: RNN", "rows × atlases": "7 of 8", "accuracy": "+5.5 (+6.5)", "AUC": "", "Brier score": ""},
    ]  # fmt: skip
    assert sheet.caption.startswith("BolT minus the methods") and sheet.title == "BolT against families of methods"
    assert sheet.notes == []
    unknown = {"LSTM": "No code is published.", "GC-LSTM": "Its graph is chosen here.", "IFT-Net": "A guess."}
    found = families.assign(reconstructed=["GC-LSTM", "LSTM; GC-LSTM", None, None, None])
    sheet = family_sheet(found, "BolT", unknown)
    assert sheet.frame[""].tolist() == ["abide1: RNN †", "abide1: GNN", "hcp_rest: RNN"]
    assert sheet.notes == [
        "abide1: RNN includes reconstructed methods (LSTM, GC-LSTM), which are not the originals",
        "LSTM is reconstructed: No code is published",
        "GC-LSTM is reconstructed: Its graph is chosen here",
    ]


# ---- other experiments ---------------------------------------------------------------------------------------------
def test_cost_at_the_longest_scan(tmp_path: Path) -> None:
    """Operations grow with the power 1 and 2, time with 1.5 and 0.5, memory with 0 and 1 from 40 to 160 volumes."""
    powers = {"BolT": (1, 1.5, 0), "LSTM": (2, 0.5, 1)}
    rows = [
        {"row": row, "model": row.lower(), "atlas": "cc200", "n_rois": 200, "length": n, "parameters": 1000 * r + n,
         "operations": r * 1e9 * n**p[0], "seconds": r * 0.01 * n ** p[1], "peak_bytes": r * 1e6 * n ** p[2],
         "device": "cpu", "note": ""}
        for r, (row, p) in enumerate(powers.items(), start=1)
        for n in (160, 10, 20, 40)
    ]  # fmt: skip
    rows[5] |= {"parameters": None, "note": "the scan is too short"}
    write_table(pd.DataFrame(rows), tmp_path / "cost/cc200.tsv", dict.fromkeys(rows[0], "Test"))
    write_complexity(Experiment(name="cost", title="Cost", rows=[{"model": "bolt"}]), tmp_path)
    text = (tmp_path / "cost.md").read_text()
    header = "|  | parameters | operations (10⁹) | operations, exponent | time (s) | time, exponent | memory (MB) |"
    assert f"{header} memory, exponent |" in text
    assert "| BolT | 1160 | 160 | 1.00 | 20.2 | 1.50 | 1 | 0.00 |" in text
    assert "| LSTM | 2160 | 51200 | 2.00 | 0.253 | 0.50 | 320 | 1.00 |" in text
    assert "One scan of 160 volumes and 200 ROIs, forward and backward pass, on cpu." in text
    assert "upper half of the lengths, 40, 160 volumes" in text and "LSTM, 10 volumes: the scan is too short" in text
    assert "†" not in text
    guess = {"row": "LSTM", "model": "bolt", "fidelity": {"level": "reconstructed", "note": "Its width is a guess."}}
    absent = {"model": "ift_net"}
    write_complexity(Experiment(name="cost", title="Cost", rows=[{"model": "bolt"}, guess, absent]), tmp_path)
    text = (tmp_path / "cost.md").read_text()
    assert "| LSTM † | 2160 |" in text and "| BolT | 1160 |" in text and "not a result of the original" in text
    assert "- LSTM is reconstructed: Its width is a guess\n" in text and "IFT" not in text
    assert r"LSTM $\dagger$ &" in (tmp_path / "cost.tex").read_text()
    drawn = (tmp_path / "cost.svg").read_text()
    assert "LSTM †" in drawn and "† reconstructed" in drawn and "BolT †" not in drawn


def band_shares() -> pd.DataFrame:
    """Two atlases; three subjects, the last with two scans; shares of the slow band in all ROIs and in one network."""
    rows = []
    for atlas, shares in {"aal116": (0.50, 0.54, 0.61, 0.63), "cc200": (0.40, 0.46, 0.50, 0.56)}.items():
        for scan, (subject, share) in enumerate(zip("abcc", shares, strict=True)):
            for network, more in (("all", 0), ("visual", 0.1)):
                about = {"dataset": "d", "atlas": atlas, "scan_id": scan, "subject": subject, "network": network}
                rows += [
                    about | {"band": "slow", "low": 0.01, "high": 0.05, "share": share + more},
                    about | {"band": "fast", "low": 0.05, "high": 0.25, "share": 1 - share - more},
                ]
    return pd.DataFrame(rows)


def test_power_by_band() -> None:
    shares = band_shares()
    first, second, third = _sheets(_means(shares), atlas_differences(shares))
    assert [first.title, second.title] == ["Power by band, d, aal116", "Power by band, d, cc200"]
    # standard deviations (ddof 0) of .50 .54 .61 .63 and .40 .46 .50 .56
    assert list(first.frame) == ["network", "slow (0.01–0.05 Hz)", "fast (0.05–0.25 Hz)", "scans"]
    assert first.frame.to_numpy().tolist() == [
        ["all", "57.0 ± 5.2", "43.0 ± 5.2", "4"], ["visual", "67.0 ± 5.2", "33.0 ± 5.2", "4"],
    ]  # fmt: skip
    assert second.frame["slow (0.01–0.05 Hz)"].tolist() == ["48.0 ± 5.8", "58.0 ± 5.8"]
    # differences of subjects: 10, 8 and 62 − 53 = 9 points; mean 9, sd 1, half width 4.303 / √3 = 2.48
    assert list(third.frame) == ["", "band", "difference [95 %]", "subjects"]
    assert third.frame.to_numpy().tolist() == [
        ["aal116 − cc200, d", "slow", "+9.00 [+6.52, +11.48]", "3"],
        ["aal116 − cc200, d", "fast", "−9.00 [−11.48, −6.52]", "3"],
    ]


def test_two_subjects_have_an_interval_and_one_has_none() -> None:
    shares = band_shares()
    two, one = (atlas_differences(shares[shares["subject"].isin(list(names))]) for names in ("ab", "a"))
    slow = two.set_index("band").loc["slow"]  # differences 0.10 and 0.08: half width 12.706 · 0.01414 / √2
    assert slow[["difference", "ci_low", "ci_high", "n_subjects"]].tolist() == pytest.approx(
        [0.09, 0.09 - 0.12706, 0.09 + 0.12706, 2], rel=1e-4
    )
    assert _sheets(_means(shares), one)[2].frame.iloc[0].tolist() == ["aal116 − cc200, d", "slow", "+10.00 [–, –]", "1"]


def test_landmarks_beside_the_paper() -> None:
    """0.1mc and 0.2mc: important and random volumes, metric m, c = 1 (mean) and 2 (sd); 0.3mc and 0.4mc: the paper."""
    kinds = (("fitted", "important"), ("none", "random"))
    table = pd.DataFrame(
        {"fold": fold, "importance": importance, "tokens": tokens, "level": "scan", "n_test": 7}
        | {metric: k / 10 + m / 100 + c / 1000 for m, metric in enumerate(METRICS)}
        for k, (importance, tokens) in enumerate(kinds, start=1)
        for c, fold in enumerate(("0", "mean", "sd"))
    )
    paper = pd.DataFrame(
        {"tokens": tokens, "metric": metric, "mean": k / 10 + m / 100 + 0.001, "sd": k / 10 + m / 100 + 0.002}
        for k, tokens in ((3, "important"), (4, "random"))
        for m, metric in enumerate(METRICS)
    )
    explained = replace(entry("BolT", []), outer=5, explanations=[Path("seed-0"), Path("seed-1")])
    rows = _rows(explained, table, paper).set_index(["tokens", "metric"])
    for k, tokens in enumerate(("important", "random"), start=1):
        for m, metric in enumerate(METRICS):
            row, place = rows.loc[tokens, metric], 10 * m
            own, known = (100 * k + place) / 1000, (100 * (k + 2) + place) / 1000
            assert row[["mean", "sd"]].tolist() == pytest.approx([own + 0.001, own + 0.002])
            assert row[["paper_mean", "paper_sd"]].tolist() == pytest.approx([known + 0.001, known + 0.002])
            assert row["difference"] == pytest.approx(-0.2)
            assert row[["n_folds", "expected_folds"]].tolist() == [7, 10]
            assert row[["dataset", "atlas", "row", "level"]].tolist() == ["abide1", "schaefer400", "BolT", "scan"]
