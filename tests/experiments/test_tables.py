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
from bolt.evaluate.paired import TEST_COLUMNS
from bolt.evaluate.scores import METRICS
from bolt.experiments.complexity import exponents
from bolt.experiments.explained import landmark_rows
from bolt.experiments.figures import _curve_panel, _forest_panel, _row_name, draw_curves
from bolt.experiments.markup import escape, latex, markdown
from bolt.experiments.measured import atlas_differences, band_means, band_sheets, cost_sheet
from bolt.experiments.results import FAMILY_COLUMNS, RESULT_COLUMNS
from bolt.experiments.tables import calibration, family_sheet, fold_tests, performance, spread, write_experiment
from bolt.io.errors import DataError
from bolt.io.files import read_table, write_status
from bolt.report.tables import Sheet, paired
from tests.evaluate.test_paired import made_up
from tests.experiments.test_results import entry, write_run


def well_formed(text):
    """What LaTeX would refuse or misprint: open braces and environments, rows with more or fewer cells than columns."""
    bare = re.sub(r"\\[\\&%$#_{}]", "", text)
    assert bare.count("{") == bare.count("}")
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") > 0
    for columns, body in re.findall(r"\\begin{tabular}{(\w+)}(.*?)\\end{tabular}", text, re.S):
        rows = [line for line in body.splitlines() if line.rstrip().endswith(r"\\")]
        assert rows and {len(re.split(r"(?<!\\)&", row)) for row in rows} == {len(columns)}
    body = re.sub(r"^%.*$", "", bare, flags=re.M)
    words = re.sub(r"\$[^$]*\$|\\label{.*?}|\\ifdim\\width>", "", body)  # in text, pdfLaTeX prints < > | as other signs
    assert not re.search(r"[#_$<>|]", words) and text.isascii()


EXPERIMENT = Experiment(name="comparison", title="Comparison", rows=[{"model": "bolt"}])


def stated(row, level, note):
    return replace(row, model=row.model.model_copy(update={"fidelity": Fidelity(level=level, note=note)}))


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """One row lacks a fold, one cannot be run, one is reconstructed, and one sees no brain data."""
    folder = tmp_path_factory.mktemp("experiment")
    skills = {"BolT": 2.0, "LSTM": 0.5, "SVM_100%": 1.0, "Motion only": 2.0}
    made = {name: made_up(skill, seed, n=60) for seed, (name, skill) in enumerate(skills.items())}
    runs = {name: write_run(folder / name, predictions) for name, predictions in made.items()}
    write_status(runs["LSTM"] / "fold-3" / "status.json", "failed", "train", DataError("loss is NaN"))
    bolt = entry("BolT", [runs["BolT"]], paper={"model": "BolT"})
    motion = Model(name="motion_only", model="logistic", family="baseline", covariates=["mean_fd"])
    rows = [
        entry("LSTM", [runs["LSTM"]], paper={"model": "LSTM"}),
        entry("SVM_100%", [runs["SVM_100%"]], family="traditional", paper={"model": "SVM"}),
        entry("W = 200", [], note="W = 200 is longer than the crop"),
        stated(entry("IFT-Net", [runs["SVM_100%"]]), "reconstructed", "Widths are chosen here."),
        stated(bolt, "exact", "As published."),
        replace(bolt, row="Motion only", model=motion, folders=[runs["Motion only"]], paper={}),
    ]
    write_experiment(EXPERIMENT, rows, folder / "out")
    return folder / "out"


def test_rows_stand_in_the_order_of_the_file_and_say_what_is_missing(written):
    table = read_table(written / "comparison.tsv", text=("missing_folds",))
    assert table["row"].unique().tolist() == ["LSTM", "SVM_100%", "W = 200", "IFT-Net", "BolT", "Motion only"]
    assert all(len(read_table(written / f"comparison_{name}.tsv")) for name in ("tests", "sites", "families"))
    assert all((written / f"comparison{name}.png").stat().st_size > 10_000 for name in ("", "_sites"))
    text = (written / "comparison.md").read_text()
    assert "](comparison_sites.png)" in text
    assert "| LSTM | – | 9 of 10 |" in text and "- LSTM: without fold 3: loss is NaN" in text
    assert "| W = 200 | – | not applicable | – | – |" in text and "- W = 200: W = 200 is longer than the crop" in text
    assert "Motion only, which sees no brain data, is not clearly worse than BolT" in text
    paper = re.search(r"\| SVM_100% \| – \| 10 of 10 \| \S+ ± \S+ \| (\S+) ± (\S+) \([+−]", text)
    assert float(paper[1]) == pytest.approx(65.7, abs=0.1)
    text = (written / "comparison.tex").read_text()
    well_formed(text)
    assert r"SVM\_100\%" in text and r"\toprule" in text and r"\textbf{" in text


def test_a_reconstructed_method_is_marked_in_every_table_and_in_the_figure(written):
    table = read_table(written / "comparison.tsv").drop_duplicates("row").set_index("row")
    assert table.loc["IFT-Net", ["fidelity", "fidelity_note"]].tolist() == ["reconstructed", "Widths are chosen here."]
    assert table.loc["BolT", "fidelity"] == "exact" and table["fidelity"].isna().sum() == 4
    families = read_table(written / "comparison_families.tsv").set_index("family")["reconstructed"]
    assert set(families["RNN, not in the paper"]) == {"IFT-Net"} and families["traditional"].isna().all()
    for end, mark in (("md", "|"), ("tex", "&")):
        text = (written / f"comparison.{end}").read_text()
        assert "IFT-Net is reconstructed: Widths are chosen here" in text and "BolT is reconstructed" not in text
        assert f"IFT-Net {mark} reconstructed {mark}" in text and f"BolT {mark} exact {mark}" in text
    assert "IFT-Net †" in (written / "comparison.svg").read_text()
    first, *middle, last = (written / "comparison.md").read_text().split("### ")[1:]
    assert "| LSTM | – |" in first
    for text in middle:
        assert "| IFT-Net † |" in text and "| IFT-Net |" not in text and "- † reconstructed, not the original" in text
    assert "| abide1: RNN, not in the paper † |" in last and "includes reconstructed methods (IFT-Net)" in last

    ends = ("", ": intervals, balance and probabilities", ": tests against BolT", ": tests of all metrics over folds")
    titles = [*(f"abide1, schaefer400{end}" for end in ends), "BolT against families of methods"]
    assert re.findall("### (.*)", (written / "comparison.md").read_text()) == titles


def test_markup_by_hand():
    """Numbers are aligned to the right, words to the left."""
    frame = pd.DataFrame({"": ["a_b", "c|d", "λ = 0.1"], "word": ["", "x", ""], "x % & y": ["1 ± 2", "−3", "–"]})
    sheet = Sheet("T", frame, "50 %", {(1, "x % & y")}, ["why"])
    rows = "| --- | --- | ---: |\n| a_b |  | 1 ± 2 |\n| c\\|d | x | **−3** |\n| λ = 0.1 |  | – |\n\n- why"
    assert rows in markdown(sheet)
    text = latex(sheet, "tab:x")
    well_formed(text)
    assert r"\begin{tabular}{llr}" in text and r"x \% \& y" in text
    assert r"a\_b &  & 1 $\pm$ 2 \\" in text and r"\textbf{$-$3}" in text


def test_signs_that_latex_prints_as_others_or_not_at_all():
    text = escape("λ = 0.1, p < 0.05 | > 10⁹ m², Ω: Bézier’s µ[ν] ☃ x* Ж")
    well_formed(rf"\begin{{tabular}}{{l}}{text} \\ \end{{tabular}}")
    start = r"$\lambda$ = 0.1, p $<$ 0.05 $|$ $>$ 10\textsuperscript{9} m\textsuperscript{2}, $\Omega$: "
    assert text.startswith(start)
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
        _curve_panel(axis, part.assign(no_skill=level), {"BolT": "black"}, 100, linear=linear)
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
    _forest_panel(axis, table, {"a": "black"})
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
    assert _row_name("Majority", rows) == "Majority"
    assert _row_name("LSTM", rows.assign(n_folds=[9, 8])) == "LSTM (9 of 10 folds)"


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


def beside_paper():
    """Without one value of the paper, and without one difference; and what paired tests of baselines gave."""
    table = results()
    table.loc[(table["row"] == "LSTM") & (table["metric"] == "auc"), ["paper_mean", "paper_sd", "difference"]] = None
    table.loc[(table["row"] == "cut") & (table["metric"] == "auc"), "difference"] = None
    tests = pd.DataFrame({"row": ["Site only", "LSTM"], "metric": "accuracy"})
    return table, tests.assign(pooled_difference=0.011, permutation_p=[0.3, 0.9])


def performances():
    table, tests = beside_paper()
    yield performance("Beside the paper", table, entries(), "BolT", tests)
    table = results()
    table.loc[table["row"] == "none", "note"] = "W = 200 is longer than the crop"
    table.loc[table["row"] == "BolT", ["note", "missing_folds"]] = ["stopped", "1"]
    yield performance("Notes in the order of the rows", table.iloc[::-1], entries(), "")
    table = pd.concat([results()[:3], results()[7:10]]).assign(metric=["r", "r2", "mae"] * 2, paper_mean=None)
    table.loc[table["metric"] == "mae", "mean"] = [12.04, 12.01]  # a tie after rounding
    yield performance("Numbers, without values of the paper", table, entries(), "BolT")
    one = results().query("row in ['BolT', 'LSTM']").assign(paper_mean=None)
    several = one.assign(sd_seeds=one["sd"] / 10).where(one["row"] == "BolT", one)
    yield performance("Several seeds of one row", several, entries(), "BolT")
    yield spread("Seeds apart", several.assign(sd_seeds_within=0.05, n_seeds=3))
    table = results().query("metric == 'accuracy' and row in ['BolT', 'LSTM', 'cut']").assign(paper_mean=None)
    yield performance("One alone is not bold", table[table["row"] != "LSTM"], entries(), "")
    yield performance("A tie after rounding", table.assign(mean=[0.70041, 0.69961, 0.9]), entries(), "")
    yield performance("No tie after rounding", table.assign(mean=[0.7006, 0.70041, 0.9]), entries(), "")


def calibrations():
    table = results()
    of_brier = (table["row"] == "LSTM") & (table["metric"] == "brier")
    table.loc[of_brier, ["calibration_error", "calibration_error_scaled", "scaled"]] = [0.2, 0.05, 0.21]
    yield calibration("Calibration", table, entries())
    table.loc[(table["row"] == "BolT") & (table["metric"] == "auc"), ["low", "high"]] = None
    yield calibration("Too few of a class", table, entries())


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


def comparisons():
    table = compared()
    for name, p in {"wilcoxon_p": 0.00049, "corrected_t_p_holm": 0.0012, "permutation_p": 1.0}.items():
        table.loc[(table["row"] == "SVM") & (table["metric"] == "accuracy"), name] = p
    yield paired("Accuracy", table)
    table["note"] = np.where(table["row"] == "SVM", "too few folds; undefined in 1 of 9 folds", "too few folds")
    yield paired("One note of all rows, one of one", table)
    table["metric"] = table["metric"].replace({"accuracy": "r", "recall": "r2", "precision": "mae"})
    yield paired("Numbers", table)
    yield fold_tests("All metrics", compared())
    few = compared().assign(wilcoxon_p=None, wilcoxon_p_holm=None)
    for table in (few, few.assign(corrected_t_p=None, corrected_t_p_holm=None)):
        yield paired("Some tests were not done", table)
        yield fold_tests("Some tests were not done", table)


def improvements():
    rows = [
        ("abide1", "RNN", "accuracy", 0.051, 3, 4, -0.061, None), ("abide1", "RNN", "brier", -0.052, 3, 4, None, None),
        ("abide1", "GNN", "accuracy", 0.053, 5, 6, None, None), ("abide1", "GNN", "brier", -0.054, 5, 6, None, None),
        ("hcp_rest", "RNN", "accuracy", None, 0, 8, 0.065, None), ("hcp_rest", "RNN", "brier", 0.056, 7, 8, None, None),
    ]  # fmt: skip
    families = pd.DataFrame(rows, columns=list(FAMILY_COLUMNS))
    yield family_sheet(families, "BolT")
    unknown = {"LSTM": "No code is published.", "GC-LSTM": "Its graph is chosen here.", "IFT-Net": "A guess."}
    named = families.assign(reconstructed=["GC-LSTM", "LSTM; GC-LSTM", None, None, None, None])
    yield family_sheet(named, "BolT", unknown)


def costs():
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
    table = pd.DataFrame(rows)
    slopes = exponents(table, ["operations", "seconds", "peak_bytes"])
    yield cost_sheet("Not in the paper", table, slopes.assign(formula=None, paper_exponent=np.nan), {})
    slopes = slopes.assign(formula=["O(NTW)", None], paper_exponent=[1.0, 2.0])
    yield cost_sheet("In the paper", table, slopes, {"LSTM": "Its width is a guess."})


def band_shares():
    """Two atlases; three subjects, the last with two scans; shares of the slow band in all ROIs and in one network."""
    rows = []
    for atlas, shares in {"aal116": (0.50, 0.54, 0.61, 0.63), "cc200": (0.40, 0.46, 0.50, 0.56)}.items():
        for scan, (subject, share) in enumerate(zip("abcc", shares, strict=True)):
            for network, more in (("all", 0), ("visual", 0.1)):
                about = ("d", atlas, scan, subject, network)
                rows += [(*about, "slow", 0.01, 0.05, share + more), (*about, "fast", 0.05, 0.25, 1 - share - more)]
    names = ["dataset", "atlas", "scan_id", "subject", "network", "band", "low", "high", "share"]
    return pd.DataFrame(rows, columns=names)


def bands():
    """Standard deviations (ddof 0) of .50 .54 .61 .63 and .40 .46 .50 .56; differences of subjects of 10, 8 and 9
    points: mean 9, sd 1, half width 4.303 / √3 = 2.48."""
    shares = band_shares()
    yield from band_sheets(band_means(shares), atlas_differences(shares))
    yield band_sheets(band_means(shares), atlas_differences(shares[shares["subject"] == "a"]))[2]


SHEETS = (performances, calibrations, comparisons, improvements, costs, bands)
"""Tables whose every cell is in `tables.md`, checked by hand; `python -m tests.experiments.test_tables` prints them."""


def written_out(sheets):
    return "\n".join(markdown(sheet) for sheet in sheets())


@pytest.mark.parametrize("sheets", SHEETS)
def test_every_cell_note_and_bold_number(sheets):
    parts = re.split("^## (.*)\n", Path(__file__).with_name("tables.md").read_text(), flags=re.M)
    assert written_out(sheets).strip() == dict(zip(parts[1::2], parts[2::2], strict=True))[sheets.__name__].strip()


def test_two_subjects_have_an_interval():
    shares = band_shares()
    two = atlas_differences(shares[shares["subject"].isin(["a", "b"])])
    found = two.set_index("band").loc["slow", ["difference", "ci_low", "ci_high", "n_subjects"]].tolist()
    half = 0.12706  # of the differences 0.10 and 0.08: 12.706 · 0.01414 / √2
    assert found == pytest.approx([0.09, 0.09 - half, 0.09 + half, 2], rel=1e-4)


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
    rows = landmark_rows(explained, table, paper).set_index(["tokens", "metric"])
    for k, tokens in enumerate(("important", "random"), start=1):
        for m, metric in enumerate(METRICS):
            row, own, known = rows.loc[tokens, metric], k / 10 + m / 100, (k + 2) / 10 + m / 100
            shown = row[["mean", "sd", "paper_mean", "paper_sd", "difference"]].tolist()
            assert shown == pytest.approx([own + 0.001, own + 0.002, known + 0.001, known + 0.002, -0.2])
            about = row[["n_folds", "expected_folds", "dataset", "atlas", "row", "level"]].tolist()
            assert about == [7, 10, "abide1", "schaefer400", "BolT", "scan"]


if __name__ == "__main__":
    for sheets in SHEETS:
        print(f"## {sheets.__name__}\n\n{written_out(sheets)}")
