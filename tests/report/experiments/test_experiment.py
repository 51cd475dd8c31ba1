"""An experiment's tables and figure: what is missing is said, what is best is bold, LaTeX is well-formed."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bolt.config import Experiment, Model
from bolt.config.models import Fidelity
from bolt.experiments.results import RESULT_COLUMNS
from bolt.io.errors import DataError
from bolt.io.files import read_table, write_status
from bolt.report.experiments.experiment import performance, write_experiment
from bolt.report.figures import curve
from bolt.report.figures.curve import draw_curves
from bolt.report.figures.forest import _name, _panel, draw
from bolt.report.tables.baselines import sees_covariates_only
from bolt.report.tables.markup import Sheet, escape, latex, markdown
from tests.evaluate.test_paired import made_up
from tests.experiments.test_results import entry, write_run
from tests.report.latex import well_formed
from tests.report.results import words_only

EXPERIMENT = Experiment(name="comparison", title="Comparison", rows=[{"model": "bolt"}])


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
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


def test_every_table_and_picture_is_there(written: Path) -> None:
    for name in ("comparison", "comparison_tests", "comparison_sites", "comparison_families"):
        table = read_table(written / f"{name}.tsv")
        assert len(table) and (written / f"{name}.json").is_file()
    assert (written / "comparison.png").stat().st_size > 10_000 and (written / "comparison.svg").is_file()
    assert (written / "comparison_sites.png").stat().st_size > 10_000
    assert "](comparison_sites.png)" in (written / "comparison.md").read_text()


def test_rows_stand_in_the_order_of_the_file_and_say_what_is_missing(written: Path) -> None:
    table = read_table(written / "comparison.tsv", text=("missing_folds",))
    assert table["row"].unique().tolist() == ["LSTM", "SVM_100%", "W = 200", "BolT", "Motion only"]
    text = (written / "comparison.md").read_text()
    assert "| LSTM | 9 of 10 |" in text and "- LSTM: without fold 3: loss is NaN" in text
    assert "| W = 200 | not applicable | – | – |" in text and "- W = 200: W = 200 is longer than the crop" in text
    paper = re.search(r"\| SVM_100% \| 10 of 10 \| \S+ ± \S+ \| (\S+) ± (\S+) \([+−]", text)
    assert paper is not None and float(paper[1]) == pytest.approx(65.7, abs=0.1)


def test_the_best_whole_row_alone_is_bold(written: Path) -> None:
    text = (written / "comparison.md").read_text()
    first = text.split("### ")[1]
    bold = [line.split("|")[1].strip() for line in first.splitlines() if "**" in line]
    table = read_table(written / "comparison.tsv")
    table = table[table.row != "Motion only"]
    whole = table[
        (table.n_folds == table.expected_folds) & table.metric.isin(["accuracy", "recall", "precision", "auc"])
    ]
    best = whole.loc[whole.dropna(subset="mean").groupby("metric")["mean"].idxmax(), "row"]
    assert set(best) <= set(bold) and "LSTM" not in bold and "SVM_100%" not in bold


def test_a_reconstructed_method_is_marked_in_every_table_and_in_the_figure(tmp_path: Path) -> None:
    folder, other = (write_run(tmp_path / f"run-{seed}", made_up(1.0, seed, n=60)) for seed in (0, 1))
    levels = {"BolT": ("exact", "As published."), "IFT-Net": ("reconstructed", "Widths are chosen here.")}
    rows = [
        replace(row, model=row.model.model_copy(update={"fidelity": Fidelity(level=level, note=note)}))
        for name, (level, note) in levels.items()
        for row in [entry(name, [folder])]
    ]
    rows += [entry("LSTM", [other]), entry("SVM", [other], family="traditional")]
    write_experiment(EXPERIMENT, rows, tmp_path)
    table = read_table(tmp_path / "comparison.tsv").drop_duplicates("row").set_index("row")
    assert table.loc["IFT-Net", ["fidelity", "fidelity_note"]].tolist() == list(levels["IFT-Net"])
    assert table["fidelity"].isna().tolist() == [False, False, True, True]
    families = read_table(tmp_path / "comparison_families.tsv").set_index("family")["reconstructed"]
    assert set(families["RNN"]) == {"IFT-Net"} and families["traditional"].isna().all()
    for text in ((tmp_path / f"comparison.{end}").read_text() for end in ("md", "tex")):
        assert "IFT-Net is reconstructed: Widths are chosen here" in text and "BolT is" not in text
    text = (tmp_path / "comparison.md").read_text()
    assert "result of the original. –: not stated. Bold" in text
    assert "| IFT-Net | reconstructed |" in text and "| BolT | exact |" in text and "| LSTM | – |" in text
    text = (tmp_path / "comparison.tex").read_text()
    assert "IFT-Net & reconstructed &" in text and "BolT & exact &" in text
    assert "IFT-Net †" in (tmp_path / "comparison.svg").read_text()
    tables = (tmp_path / "comparison.md").read_text().split("### ")[1:]
    for text in tables[1:-1]:
        assert "| IFT-Net † |" in text and "| IFT-Net |" not in text and "- † reconstructed, not the original" in text
    assert "| abide1: RNN † |" in tables[-1] and "includes reconstructed methods (IFT-Net)" in tables[-1]
    assert "IFT-Net is reconstructed: Widths are chosen here" in tables[-1]


def test_what_sees_nothing_of_the_brain_is_never_bold() -> None:
    rows = [entry(name, []) for name in ("BolT", "LSTM")]
    floors = {
        "Motion only": {"model": "logistic", "family": "baseline", "covariates": ["mean_fd"]},
        "Majority": {"model": "majority"},
    }
    rows += [replace(rows[0], row=name, model=Model(name="floor", **keys)) for name, keys in floors.items()]
    table = pd.DataFrame({"row": [row.row for row in rows], "metric": "accuracy", "mean": [0.6, 0.5, 0.9, 0.8]})
    table = table.assign(n_folds=10, expected_folds=10, n_scans=50, n_all_scans=50).reindex(
        columns=list(RESULT_COLUMNS)
    )
    sheet = performance("T", table, rows, "none")
    assert sheet.bold == {(0, "accuracy")} and "no brain data" in sheet.caption


def test_a_difference_stands_beside_its_p(written: Path) -> None:
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


def test_latex_is_well_formed_and_escaped(written: Path) -> None:
    text = (written / "comparison.tex").read_text()
    well_formed(text)
    assert r"SVM\_100\%" in text and r"$\pm$" in text and r"\toprule" in text and r"\textbf{" in text


def test_a_baseline_that_does_as_well_is_named(written: Path) -> None:
    text = (written / "comparison.md").read_text()
    assert "Motion only, which sees no brain data, is not clearly worse than BolT" in text


@words_only()
def test_a_baseline_that_is_clearly_worse_is_not_named(tmp_path: Path) -> None:
    bolt = entry("BolT", [write_run(tmp_path / "a", made_up(2.5, 0))])
    motion = Model(name="motion_only", model="logistic", family="baseline", covariates=["mean_fd"])
    worse = replace(bolt, row="Motion only", model=motion, folders=[write_run(tmp_path / "b", made_up(0.2, 1))])
    write_experiment(EXPERIMENT, [bolt, worse], tmp_path / "out")
    text = (tmp_path / "out/comparison.md").read_text()
    assert "| Motion only |" in text and "not clearly worse" not in text
    others = (Model(name="m", model="majority"), Model(name="b", model="bolt"))
    assert not any(map(sees_covariates_only, others))


def test_markup_by_hand() -> None:
    frame = pd.DataFrame({"": ["a_b", "c|d", "λ = 0.1"], "x % & y": ["1 ± 2", "−3", "< 0.001"]})
    sheet = Sheet("T", frame, "50 %", {(1, "x % & y")}, ["why"])
    assert "| a_b | 1 ± 2 |\n| c\\|d | **−3** |\n| λ = 0.1 | < 0.001 |\n\n- why" in markdown(sheet)
    text = latex(sheet, "tab:x")
    well_formed(text)
    assert r"a\_b & 1 $\pm$ 2 \\" in text and r"\textbf{$-$3}" in text and r"x \% \& y" in text


def test_signs_that_latex_prints_as_others_or_not_at_all() -> None:
    text = escape("λ = 0.1, p < 0.05 | > 10⁹ m², Ω: Bézier’s µ[ν] ☃ x* Ж")
    well_formed(rf"\begin{{tabular}}{{l}}{text} \\ \end{{tabular}}")
    assert text.startswith(
        r"$\lambda$ = 0.1, p $<$ 0.05 $|$ $>$ 10\textsuperscript{9} m\textsuperscript{2}, $\Omega$: "
    )
    assert text.endswith(r"B\'{e}zier's $\mu${[}$\nu$] (snowman) x{*} (cyrillic capital letter zhe)")


def test_nothing_to_show_is_no_crash(tmp_path: Path) -> None:
    write_experiment(EXPERIMENT, [], tmp_path)
    assert read_table(tmp_path / "comparison.tsv").empty and (tmp_path / "comparison.png").is_file()


def test_a_sweep_is_drawn_as_curves(tmp_path: Path) -> None:
    rows = [
        replace(entry(f"{line}, {value}", []), line=line, value=value)
        for line in ("BolT", "windows only")
        for value in (10.0, 20.0, 80.0, 200.0)
    ]
    table = pd.DataFrame(
        [{"row": row.row, "metric": m} for row in rows for m in ("accuracy", "recall", "precision", "auc")]
    )
    means = [0.6 + row.value / 1000 for row in rows for _ in range(4)]
    table = table.assign(dataset="abide1", atlas="aal116", mean=means, paper_mean=0.7, n_folds=10, expected_folds=10)
    table["low"], table["high"], table["no_skill"] = table["mean"] - 0.05, table["mean"] + 0.05, 0.5
    table.loc[table["row"] == "BolT, 80.0", "n_folds"] = 3
    table.loc[table["row"].str.startswith("windows only"), "fidelity"] = "reconstructed"
    draw_curves(table.reindex(columns=list(RESULT_COLUMNS)), rows, tmp_path / "a.png", key="hyper.window")
    drawing = (tmp_path / "a.svg").read_text()
    for words in ("window", "200", "BolT", "windows only †", "folds are missing", "the paper's mean over folds"):
        assert f">{words}<" in drawing


@pytest.mark.parametrize("values", [[10.0, 200.0], [10.0, 12.0], [10.0]])
def test_all_values_of_a_sweep_are_on_every_axis(values: list[float]) -> None:
    """Also where nothing is trained, and whether or not the metric has a level without skill."""
    figure = Figure()
    for axis, level, mean in zip(figure.subplots(1, 3), (0.5, np.nan, np.nan), (0.6, 0.6, np.nan), strict=True):
        part = pd.DataFrame({"line": "BolT", "value": values, "mean": [mean] + [np.nan] * (len(values) - 1)})
        part = part.reindex(columns=[*part, "low", "high", "paper_mean"]).assign(n_folds=1, expected_folds=1)
        curve._panel(axis, part.assign(no_skill=level), {"BolT": "black"}, 100)
    assert {axis.get_xscale() for axis in figure.axes} == {"log" if values[-1] / values[0] > 5 else "linear"}
    (low, high), *others = [axis.get_xlim() for axis in figure.axes]
    assert low < values[0] and high > values[-1] and all(other == (low, high) for other in others)


def test_shares_of_subjects_keep_their_distances() -> None:
    """On a logarithmic axis the labels of 80 % and 100 % run into one number."""
    part = pd.DataFrame({"line": "BolT", "value": [10.0, 80.0, 100.0], "n_folds": 1, "expected_folds": 1})
    axis = Figure().subplots()
    empty = part.reindex(columns=[*part, "mean", "low", "high", "paper_mean", "no_skill"])
    curve._panel(axis, empty, {"BolT": "black"}, 100, linear=True)
    assert axis.get_xscale() == "linear"


def test_a_sweep_of_which_nothing_is_trained_yet_has_its_axes(tmp_path: Path) -> None:
    rows = [replace(entry(f"W = {v}", [], note="too long"), line="BolT", value=float(v)) for v in (10, 200)]
    write_experiment(EXPERIMENT, rows, tmp_path)
    assert ">200<" in (tmp_path / "comparison.svg").read_text()
    sweep = {"row": "W = {value}", "models": ["bolt"], "key": "hyper.window", "values": [10, 200]}
    write_experiment(Experiment(name="sweep", title="Sweep", sweeps=[sweep]), rows, tmp_path)
    assert ">window<" in (tmp_path / "sweep.svg").read_text()


def test_a_value_far_from_the_others_is_named_at_the_edge(tmp_path: Path) -> None:
    rows = [*((name, 0.94 + i / 200) for i, name in enumerate("abcdef")), ("floor", 0.15)]
    table = pd.DataFrame(
        [
            {"dataset": "d", "atlas": "x", "row": row, "metric": m, "mean": v, "low": v - 0.01, "high": v + 0.01}
            for row, v in rows
            for m in ("accuracy", "recall", "precision", "auc")
        ]
    ).assign(n_folds=10, expected_folds=10, paper_mean=float("nan"), no_skill=0.14)
    draw(table, tmp_path / "a.png")
    drawing = (tmp_path / "a.svg").read_text()
    assert all(f">{words}<" in drawing for words in ("◂ 15", "← no skill: 14"))


def panel(*rows: dict[str, float]) -> Axes:
    """The accuracy of sixteen rows that are alike, and of some others, as drawn."""
    alike = [{"mean": 0.66 + 0.002 * i, "low": 0.64, "high": 0.71, "paper_mean": 0.67} for i in range(16)]
    table = pd.DataFrame([*alike, *rows]).reindex(columns=list(RESULT_COLUMNS)).assign(metric="accuracy", atlas="a")
    table = table.assign(row=table.index.map(str), n_folds=10, expected_folds=10, no_skill=0.5)
    axis = Figure().subplots()
    _panel(axis, table, {"a": "black"})
    return axis


def test_every_interval_and_mark_of_the_paper_is_visible() -> None:
    one_fold = {"mean": 0.48, "low": 0.38, "high": 0.75, "paper_mean": 0.91}
    low, high = panel(one_fold).get_xlim()
    assert low < 38 and high > 91
    assert not panel(one_fold).texts


def test_a_mean_without_an_interval_says_why() -> None:
    axis = panel({"mean": 0.67, "paper_mean": 0.66})
    assert [text.get_text() for text in axis.texts] == ["too few"]


def test_what_lies_too_far_off_is_named_at_the_edge() -> None:
    beyond, part = {"mean": 0.02, "low": 0.0, "high": 0.04, "paper_mean": 0.01}, {"mean": 0.6, "low": 0.2, "high": 0.71}
    axis = panel(beyond, part)
    assert axis.get_xlim()[0] > 40
    assert [text.get_text() for text in axis.texts] == ["◂ 2, paper 1"]
    assert [line.get_marker() for line in axis.lines if line.get_marker() in "<>"] == ["<"]  # the interval goes on


def test_a_metric_that_is_undefined_is_no_missing_fold() -> None:
    rows = pd.DataFrame({"atlas": "a", "n_folds": [10, 0], "expected_folds": 10})
    assert _name("Majority", rows) == "Majority"
    assert _name("LSTM", rows.assign(n_folds=[9, 8])) == "LSTM (9 of 10 folds)"
