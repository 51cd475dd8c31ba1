"""An experiment's tables and figure: every cell, what is missing is said, what is best is bold, LaTeX is well-formed.

The digits of a number name its place: 0.213 is row 2, metric 1 (recall), column 3 (high), and is shown as 21.3.
"""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from bolt.config import Experiment, Model
from bolt.config.models import Fidelity
from bolt.evaluate.classes import METRICS
from bolt.evaluate.paired import TEST_COLUMNS
from bolt.experiments.results import FAMILY_COLUMNS, RESULT_COLUMNS
from bolt.io.errors import DataError
from bolt.io.files import read_table, write_status, write_table
from bolt.report.experiments.complexity import write_complexity
from bolt.report.experiments.experiment import (
    calibration,
    family_sheet,
    fold_tests,
    paired,
    performance,
    write_experiment,
)
from bolt.report.experiments.landmarks import _rows
from bolt.report.experiments.spectra import _means, _sheets, atlas_differences
from bolt.report.figures import curve
from bolt.report.figures.curve import draw_curves
from bolt.report.figures.forest import _name, _panel
from bolt.report.tables.markup import Sheet, escape, latex, markdown
from tests.evaluate.test_paired import made_up
from tests.experiments.test_results import entry, write_run
from tests.report.latex import well_formed

EXPERIMENT = Experiment(name="comparison", title="Comparison", rows=[{"model": "bolt"}])


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("experiment")
    runs = {
        name: write_run(folder / name, made_up(skill, seed, n=60))
        for seed, (name, skill) in enumerate({"BolT": 2.0, "LSTM": 0.5, "SVM_100%": 1.0, "Motion only": 2.0}.items())
    }
    write_status(runs["LSTM"] / "fold-3" / "status.json", "failed", "train", DataError("loss is NaN"))
    rows = [
        entry("LSTM", [runs["LSTM"]], paper={"model": "LSTM"}),
        entry("SVM_100%", [runs["SVM_100%"]], family="traditional", paper={"model": "SVM"}),
        entry("W = 200", [], note="W = 200 is longer than the crop"),
        entry("BolT", [runs["BolT"]], paper={"model": "BolT"}),
    ]
    motion = Model(name="motion_only", model="logistic", family="baseline", covariates=["mean_fd"])
    rows.append(replace(rows[3], row="Motion only", model=motion, folders=[runs["Motion only"]], paper={}))
    write_experiment(EXPERIMENT, rows, folder / "out")
    return folder / "out"


def test_rows_stand_in_the_order_of_the_file_and_say_what_is_missing(written):
    table = read_table(written / "comparison.tsv", text=("missing_folds",))
    assert table["row"].unique().tolist() == ["LSTM", "SVM_100%", "W = 200", "BolT", "Motion only"]
    assert all(len(read_table(written / f"comparison_{name}.tsv")) for name in ("tests", "sites", "families"))
    assert all((written / f"comparison{name}.png").stat().st_size > 10_000 for name in ("", "_sites"))
    text = (written / "comparison.md").read_text()
    assert "](comparison_sites.png)" in text
    assert "| LSTM | 9 of 10 |" in text and "- LSTM: without fold 3: loss is NaN" in text
    assert "| W = 200 | not applicable | – | – |" in text and "- W = 200: W = 200 is longer than the crop" in text
    assert "Motion only, which sees no brain data, is not clearly worse than BolT" in text
    paper = re.search(r"\| SVM_100% \| 10 of 10 \| \S+ ± \S+ \| (\S+) ± (\S+) \([+−]", text)
    assert float(paper[1]) == pytest.approx(65.7, abs=0.1)
    text = (written / "comparison.tex").read_text()
    well_formed(text)
    assert r"SVM\_100\%" in text and r"\toprule" in text and r"\textbf{" in text


def test_a_reconstructed_method_is_marked_in_every_table_and_in_the_figure(tmp_path):
    folder, other = (write_run(tmp_path / f"run-{seed}", made_up(1.0, seed, n=60)) for seed in (0, 1))
    levels = {"BolT": ("exact", "As published."), "IFT-Net": ("reconstructed", "Widths are chosen here.")}
    rows = [entry("LSTM", [other]), entry("SVM", [other], family="traditional")]
    for name, (level, note) in reversed(levels.items()):
        row = entry(name, [folder])
        stated = row.model.model_copy(update={"fidelity": Fidelity(level=level, note=note)})
        rows.insert(0, replace(row, model=stated))
    write_experiment(EXPERIMENT, rows, tmp_path)
    table = read_table(tmp_path / "comparison.tsv").drop_duplicates("row").set_index("row")
    assert table.loc["IFT-Net", ["fidelity", "fidelity_note"]].tolist() == list(levels["IFT-Net"])
    assert table["fidelity"].isna().tolist() == [False, False, True, True]
    families = read_table(tmp_path / "comparison_families.tsv").set_index("family")["reconstructed"]
    assert set(families["RNN"]) == {"IFT-Net"} and families["traditional"].isna().all()
    for end, mark in (("md", "|"), ("tex", "&")):
        text = (tmp_path / f"comparison.{end}").read_text()
        assert "IFT-Net is reconstructed: Widths are chosen here" in text and "BolT is" not in text
        assert f"IFT-Net {mark} reconstructed {mark}" in text and f"BolT {mark} exact {mark}" in text
    assert "IFT-Net †" in (tmp_path / "comparison.svg").read_text()
    first, *middle, last = (tmp_path / "comparison.md").read_text().split("### ")[1:]
    assert "| LSTM | – |" in first
    for text in middle:
        assert "| IFT-Net † |" in text and "| IFT-Net |" not in text and "- † reconstructed, not the original" in text
    assert "| abide1: RNN † |" in last and "includes reconstructed methods (IFT-Net)" in last


def test_a_difference_stands_beside_its_p(written):
    text = (written / "comparison.md").read_text()
    titles = re.findall("### (.*)", text)
    assert titles == [
        "abide1, schaefer400",
        "abide1, schaefer400: intervals, balance and probabilities",
        "abide1, schaefer400: tests against BolT",
        "abide1, schaefer400: tests of all metrics over folds",
        "BolT against families of methods",
    ]
    text = text.split("tests of all metrics over folds")[1]
    tests = read_table(written / "comparison_tests.tsv").set_index(["row", "metric"])
    difference = tests.loc[("SVM_100%", "accuracy"), "difference"]
    line = next(line for line in text.splitlines() if line.startswith("| SVM_100% |"))
    assert line.startswith(f"| SVM_100% | {'−' if difference < 0 else '+'}{abs(100 * difference):.1f} (")


def test_markup_by_hand():
    frame = pd.DataFrame({"": ["a_b", "c|d", "λ = 0.1"], "x % & y": ["1 ± 2", "−3", "< 0.001"]})
    sheet = Sheet("T", frame, "50 %", {(1, "x % & y")}, ["why"])
    assert "| a_b | 1 ± 2 |\n| c\\|d | **−3** |\n| λ = 0.1 | < 0.001 |\n\n- why" in markdown(sheet)
    text = latex(sheet, "tab:x")
    well_formed(text)
    assert r"a\_b & 1 $\pm$ 2 \\" in text and r"\textbf{$-$3}" in text and r"x \% \& y" in text


def test_signs_that_latex_prints_as_others_or_not_at_all():
    text = escape("λ = 0.1, p < 0.05 | > 10⁹ m², Ω: Bézier’s µ[ν] ☃ x* Ж")
    well_formed(rf"\begin{{tabular}}{{l}}{text} \\ \end{{tabular}}")
    assert text.startswith(
        r"$\lambda$ = 0.1, p $<$ 0.05 $|$ $>$ 10\textsuperscript{9} m\textsuperscript{2}, $\Omega$: "
    )
    assert text.endswith(r"B\'{e}zier's $\mu${[}$\nu$] (snowman) x{*} (cyrillic capital letter zhe)")


def test_a_sweep_is_drawn_as_curves(tmp_path):
    lines, values = ("BolT", "windows only"), (10.0, 20.0, 80.0, 200.0)
    rows = [replace(entry(f"{line}, {v}", []), line=line, value=v) for line in lines for v in values]
    table = pd.DataFrame([{"row": r.row, "metric": m, "mean": 0.6 + r.value / 1000} for r in rows for m in METRICS])
    table = table.assign(dataset="abide1", atlas="aal116", paper_mean=0.7, n_folds=10, expected_folds=10, no_skill=0.5)
    table["low"], table["high"] = table["mean"] - 0.05, table["mean"] + 0.05
    table.loc[table["row"] == "BolT, 80.0", "n_folds"] = 3
    table.loc[table["row"].str.startswith("windows only"), "fidelity"] = "reconstructed"
    draw_curves(table.reindex(columns=list(RESULT_COLUMNS)), rows, tmp_path / "a.png", key="hyper.window")
    drawing = (tmp_path / "a.svg").read_text()
    for words in ("window", "200", "BolT", "windows only †", "folds are missing", "the paper's mean over folds"):
        assert f">{words}<" in drawing


@pytest.mark.parametrize(
    ("values", "linear"), [([10.0, 200.0], False), ([10.0, 12.0], False), ([10.0], False), ([10.0, 80.0, 100.0], True)]
)
def test_all_values_of_a_sweep_are_on_every_axis(values, linear):
    """Also where nothing is trained, and whether or not the metric has a level without skill; shares stay linear."""
    figure = Figure()
    for axis, level, mean in zip(figure.subplots(1, 3), (0.5, np.nan, np.nan), (0.6, 0.6, np.nan), strict=True):
        part = pd.DataFrame({"line": "BolT", "value": values, "mean": [mean] + [np.nan] * (len(values) - 1)})
        part = part.reindex(columns=[*part, "low", "high", "paper_mean"]).assign(n_folds=1, expected_folds=1)
        curve._panel(axis, part.assign(no_skill=level), {"BolT": "black"}, 100, linear=linear)
    logarithmic = values[-1] / values[0] > 5 and not linear
    assert {axis.get_xscale() for axis in figure.axes} == {"log" if logarithmic else "linear"}
    (low, high), *others = [axis.get_xlim() for axis in figure.axes]
    assert low < values[0] and high > values[-1] and all(other == (low, high) for other in others)


def test_nothing_to_show_is_no_crash_and_a_sweep_of_which_nothing_is_trained_yet_has_its_axes(tmp_path):
    write_experiment(EXPERIMENT, [], tmp_path)
    assert read_table(tmp_path / "comparison.tsv").empty and (tmp_path / "comparison.png").is_file()
    rows = [replace(entry(f"W = {v}", [], note="too long"), line="BolT", value=float(v)) for v in (10, 200)]
    write_experiment(EXPERIMENT, rows, tmp_path)
    assert ">200<" in (tmp_path / "comparison.svg").read_text()
    sweep = {"row": "W = {value}", "models": ["bolt"], "key": "hyper.window", "values": [10, 200]}
    write_experiment(Experiment(name="sweep", title="Sweep", sweeps=[sweep]), rows, tmp_path)
    assert ">window<" in (tmp_path / "sweep.svg").read_text()


def panel(*rows, no_skill=0.5):
    """The accuracy of sixteen rows that are alike, and of some others, as drawn."""
    alike = [{"mean": 0.66 + 0.002 * i, "low": 0.64, "high": 0.71, "paper_mean": 0.67} for i in range(16)]
    table = pd.DataFrame([*alike, *rows]).reindex(columns=list(RESULT_COLUMNS)).assign(metric="accuracy", atlas="a")
    table = table.assign(row=table.index.map(str), n_folds=10, expected_folds=10, no_skill=no_skill)
    axis = Figure().subplots()
    _panel(axis, table, {"a": "black"})
    return axis, [text.get_text() for text in axis.texts]


def test_every_interval_and_mark_is_visible_and_what_lies_too_far_off_is_named_at_the_edge():
    axis, texts = panel({"mean": 0.48, "low": 0.38, "high": 0.75, "paper_mean": 0.91})
    assert axis.get_xlim()[0] < 38 and axis.get_xlim()[1] > 91 and not texts
    assert panel({"mean": 0.67, "paper_mean": 0.66})[1] == ["too few"]
    beyond, part = {"mean": 0.02, "low": 0.0, "high": 0.04, "paper_mean": 0.01}, {"mean": 0.6, "low": 0.2, "high": 0.71}
    axis, texts = panel(beyond, part)
    assert axis.get_xlim()[0] > 40 and texts == ["◂ 2, paper 1"]
    assert [line.get_marker() for line in axis.lines if line.get_marker() in "<>"] == ["<"]  # the interval goes on
    assert panel(beyond, no_skill=0.02)[0].get_xlabel() == "← no skill: 2"


def test_a_metric_that_is_undefined_is_no_missing_fold():
    rows = pd.DataFrame({"atlas": "a", "n_folds": [10, 0], "expected_folds": 10})
    assert _name("Majority", rows) == "Majority"
    assert _name("LSTM", rows.assign(n_folds=[9, 8])) == "LSTM (9 of 10 folds)"


ORDER = [*METRICS, "balanced_accuracy", "brier", "log_loss"]
NUMBERS = ["mean", "sd", "low", "high", "pooled", "pooled_low", "pooled_high", "no_skill", "paper_mean", "paper_sd"]
FOLDS = {"BolT": (5, 5), "LSTM": (6, 6), "cut": (3, 7), "Site only": (8, 8), "none": (0, 0)}
"""Finished and expected folds per row, numbered from 1."""
MISSING = {"cut": ("2, 4", "loss is NaN.")}


def results():
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


def entries():
    rows = [entry(name, []) for name in FOLDS]
    site_only = Model(name="site_only", model="logistic", family="baseline", covariates=["site"])
    return [replace(row, model=site_only) if row.row == "Site only" else row for row in rows]


def test_performance_beside_the_paper():
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


def test_notes_stand_in_the_order_of_the_rows():
    table = results()
    table.loc[table["row"] == "none", "note"] = "W = 200 is longer than the crop"
    table.loc[table["row"] == "BolT", ["note", "missing_folds"]] = ["stopped", "1"]
    assert performance("T", table.iloc[::-1], entries(), "").notes == [
        "cut: 3 of 7 folds, 3000 of 9000 scans tested", "none: W = 200 is longer than the crop",
        "cut: without fold 2, 4: loss is NaN", "BolT: without fold 1: stopped",
    ]  # fmt: skip


def test_numbers_are_no_percentages_and_without_values_of_the_paper_there_are_no_columns_for_them():
    table = results().iloc[:3].assign(metric=["r", "r2", "mae"], paper_mean=None)
    sheet = performance("T", table, entries(), "BolT")
    assert sheet.frame.to_numpy().tolist() == [["BolT", "5 of 5", "0.1 ± 0.101", "0.11 ± 0.111", "0.12 ± 0.121"]]
    assert list(sheet.frame) == ["", "folds", "r", "r²", "mean absolute error"] and "paper" not in sheet.caption


def test_calibration_and_intervals():
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
        *([name, *(f"{r}{m}.0 [{r}{m}.2, {r}{m}.3]" for m in (0, 3, 4)),
           *(f"0.{r}{m}0 [0.{r}{m}2, 0.{r}{m}3]" for m in (5, 6))]
          for r, name in enumerate(("BolT", "LSTM", "cut", "Site only"), start=1)),
        ["none", "–", "–", "–", "–", "–"],
    ]  # fmt: skip
    lower_is_better = {(0, "Brier score [95 %]"), (0, "log loss [95 %]")}
    assert sheet.bold == {(1, "balanced accuracy [95 %]")} | lower_is_better
    assert sheet.notes == ["cut: 3 of 7 folds, 3000 of 9000 scans tested"]
    assert "most frequent class has an accuracy of 40.7" in sheet.caption
    kinds = sheet.caption.split("Intervals are ")[1].split("; families")[0]
    assert all(name.removesuffix(" [95 %]") in kinds for name in list(sheet.frame)[1:6])
    few = results()
    few.loc[(few["row"] == "BolT") & (few["metric"] == "auc"), ["low", "high"]] = None
    assert calibration("T", few, entries()).frame["AUC [95 %]"][0] == "13.0 [too few]"


def test_several_seeds_have_a_standard_deviation_of_their_own():
    one = results().query("row in ['BolT', 'LSTM']").assign(paper_mean=None)
    several = one.assign(sd_seeds=one["sd"] / 10).where(one["row"] == "BolT", one)
    sheet = performance("T", several, entries(), "BolT")
    assert sheet.frame["accuracy"].tolist() == ["10.0 ± 10.1 / 1.0", "20.0 ± 20.1"]
    assert "over folds (of means over seeds) / over seeds (of means over folds)." in sheet.caption
    assert "seeds" not in performance("T", one, entries(), "BolT").caption


def test_tests_that_were_not_done_are_not_named():
    few = compared().assign(wilcoxon_p=None, wilcoxon_p_holm=None)
    for table in (few, few.assign(corrected_t_p=None, corrected_t_p_holm=None)):
        for sheet in (paired("T", table), fold_tests("T", table)):
            assert "Wilcoxon" not in sheet.caption and not any("Wilcoxon" in name for name in sheet.frame)
    assert "corrected" not in fold_tests("T", table).caption and fold_tests("T", table).frame.iloc[0, 1] == "+1.0"
    assert fold_tests("T", few).frame.iloc[0, 1] == "+1.0 (0.2)"
    assert "permutation test" in paired("T", table).caption and "t-test" not in paired("T", table).caption


def test_rows_that_tie_after_rounding_are_all_bold_and_one_alone_is_not():
    table = results().query("metric == 'accuracy' and row in ['BolT', 'LSTM', 'cut']")
    assert performance("T", table[table["row"] != "LSTM"], entries(), "").bold == set()
    close = table.assign(mean=[0.70041, 0.69961, 0.9])  # 70.0 and 70.0; the third row lacks folds
    assert performance("T", close, entries(), "").bold == {(0, "accuracy"), (1, "accuracy")}
    assert performance("T", close.assign(mean=[0.7006, 0.70041, 0.9]), entries(), "").bold == {(0, "accuracy")}


def compared():
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


def test_paired_tests():
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
    table["note"] = np.where(table["row"] == "SVM", "too few folds; undefined in 1 of 9 folds", "too few folds")
    assert paired("T", table).notes == ["too few folds", "SVM: undefined in 1 of 9 folds"]
    table["metric"] = table["metric"].replace({"accuracy": "r", "recall": "r2", "precision": "mae"})
    sheet = paired("T", table)
    assert sheet.frame["difference over folds"].tolist() == ["+0.012", "−0.022"]
    assert sheet.frame["over scans"].tolist() == ["−0.062", "+0.072"]
    assert sheet.caption.startswith("Absolute error: reference minus row")


def test_tests_over_folds_of_every_metric():
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


def test_improvements_over_families():
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
def test_cost_at_the_longest_scan(tmp_path):
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


def band_shares():
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


def test_power_by_band():
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


def test_two_subjects_have_an_interval_and_one_has_none():
    shares = band_shares()
    two, one = (atlas_differences(shares[shares["subject"].isin(list(names))]) for names in ("ab", "a"))
    slow = two.set_index("band").loc["slow"]  # differences 0.10 and 0.08: half width 12.706 · 0.01414 / √2
    assert slow[["difference", "ci_low", "ci_high", "n_subjects"]].tolist() == pytest.approx(
        [0.09, 0.09 - 0.12706, 0.09 + 0.12706, 2], rel=1e-4
    )
    assert _sheets(_means(shares), one)[2].frame.iloc[0].tolist() == ["aal116 − cc200, d", "slow", "+10.00 [–, –]", "1"]


def test_landmarks_beside_the_paper():
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
            row, own, known = rows.loc[tokens, metric], k / 10 + m / 100, (k + 2) / 10 + m / 100
            shown = row[["mean", "sd", "paper_mean", "paper_sd", "difference"]].tolist()
            assert shown == pytest.approx([own + 0.001, own + 0.002, known + 0.001, known + 0.002, -0.2])
            about = row[["n_folds", "expected_folds", "dataset", "atlas", "row", "level"]].tolist()
            assert about == [7, 10, "abide1", "schaefer400", "BolT", "scan"]
