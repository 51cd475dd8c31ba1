"""Every cell of the report's tables, from numbers of which no two are equal."""

import numpy as np
import pandas as pd

from bolt.config import Model
from bolt.evaluate.classes import METRICS
from bolt.io.files import write_json, write_table
from bolt.preprocess.quality.measures import MEASURES
from bolt.report.tables import explanation, numbers, readable
from bolt.report.tables.baselines import baseline_warning, sees_brain, sees_covariates_only, standing
from bolt.report.tables.markup import Sheet, latex, markdown

OVER_CHANCE = ("balanced_accuracy", "brier", "log_loss")


def rows(table):
    return table.to_numpy().tolist()


def lines(table):
    return [" | ".join(row) for row in (list(table), *rows(table))]


# ---- performance ---------------------------------------------------------------------------------------------------
def folds(metrics=(*METRICS, *OVER_CHANCE), run=0):
    """A ``metrics.tsv``; the digits of a number are run and fold (mean: 8, sd: 9), metric, and the run again."""
    about = {"state": ["ok", "ok", "failed", None, None], "n_test": [11.0, 12.0, 0.0, 2.0, 2.0]}
    values = {metric: [(100 * f + 10 * m + run) / 1000 for f in (1, 2, 3, 8, 9)] for m, metric in enumerate(metrics)}
    note = [None, None, "loss is NaN", "without fold 3", "without fold 3"]
    table = pd.DataFrame({"fold": ["1", "2", "3", "mean", "sd"], **about, **values, "note": note})
    table.loc[2, list(metrics)] = np.nan
    return table


def pooled(metrics=(*METRICS, *OVER_CHANCE), run=0):
    """Value 4mr, ends 5mr and 6mr; m is the metric, r the run."""
    ends = {"value": 4, "low": 5, "high": 6}
    shown = {x: {e: (100 * d + 10 * m + run) / 1000 for e, d in ends.items()} for m, x in enumerate(metrics)}
    calibration = {"ece": 0.0123, "ece_if_calibrated": 0.0456}
    across = {"auc_across": 0.399} if "auc" in metrics else {}
    guesses = {"majority_accuracy": 0.777, "mean_guess_mae": 7.77}
    return {**shown, **across, **guesses, "calibration": calibration, "n_scans": 23 + run}


def test_performance_of_a_run():
    table = readable.performance(folds(), pooled())
    assert list(table) == ["", "accuracy", "recall", "precision", "AUC", "test scans", "state", "note"]
    assert rows(table) == [
        ["fold 1", "10.0", "11.0", "12.0", "0.130", "11", "ok", ""],
        ["fold 2", "20.0", "21.0", "22.0", "0.230", "12", "ok", ""],
        ["fold 3", "–", "–", "–", "–", "0", "failed", "loss is NaN"],
        ["mean ± sd", "80.0 ± 90.0", "81.0 ± 91.0", "82.0 ± 92.0", "0.830 ± 0.930", "", "", "without fold 3"],
        ["all test scans [95 %]", "40.0 [50.0, 60.0]", "41.0 [51.0, 61.0]", "42.0 [52.0, 62.0]", "0.430 [0.530, 0.630]",
         "23", "", "AUC within folds; across folds 0.40"],
        ["always the largest class", "77.7", "", "", "", "", "", ""],
    ]  # fmt: skip
    assert rows(readable.performance(folds(), None)) == [row[:8] for row in rows(table)[:4]]
    without_notes = folds().iloc[[0, 1, 3, 4]].assign(note=None)
    assert list(readable.performance(without_notes, None)) == list(table)[:-1]
    of_people = rows(readable.performance(folds(), {**pooled(), "subjects": {**pooled(), "n_scans": 7}}))
    note = "7 subjects; predictions averaged over each subject's scans"
    assert len(of_people) == 7 and of_people[5] == ["all test subjects [95 %]", *rows(table)[4][1:5], "", "", note]
    few = pooled() | {"auc": {"value": 0.43, "low": None, "high": None}}
    assert readable.performance(folds(), few).iloc[4]["AUC"] == "0.430 [too few]"
    assert readable.sites([{"site": "york", **few}])["AUC [95 %]"].tolist() == ["0.430 [too few]"]
    none = few | {"auc": {"value": None, "low": None, "high": None}}
    assert readable.performance(folds(), none).iloc[4]["AUC"] == "–"


def test_performance_of_a_number():
    metrics = ("mae", "r", "r2")
    table = readable.performance(folds(metrics).iloc[[0, 3, 4]].assign(note=None), pooled(metrics))
    assert list(table) == ["", "r", "mean absolute error", "r²", "test scans", "state"]
    assert rows(table) == [
        ["fold 1", "0.11", "0.1", "0.12", "11", "ok"],
        ["mean ± sd", "0.81 ± 0.91", "0.8 ± 0.9", "0.82 ± 0.92", "", ""],
        ["all test scans [95 %]", "0.41 [0.51, 0.61]", "0.4 [0.5, 0.6]", "0.42 [0.52, 0.62]", "23", ""],
        ["always the mean label", "", "7.77", "", "", ""],
    ]


def test_models_side_by_side():
    table = readable.comparison({f"run {r}": (folds(run=r), pooled(run=r)) for r in (1, 2)})
    shown = [f"{name} [95 %]" for name in ("accuracy", "recall", "precision", "AUC within folds")]
    shown += ["AUC across folds", "accuracy over folds", "AUC over folds"]
    assert list(table) == ["", "test scans", "folds", *shown]
    assert rows(table) == [
        ["run 1", "24", "2 of 3", "40.1 [50.1, 60.1]", "41.1 [51.1, 61.1]", "42.1 [52.1, 62.1]", "0.431 [0.531, 0.631]",
         "0.40", "80.1 ± 90.1", "0.831 ± 0.931"],
        ["run 2", "25", "2 of 3", "40.2 [50.2, 60.2]", "41.2 [51.2, 61.2]", "42.2 [52.2, 62.2]", "0.432 [0.532, 0.632]",
         "0.40", "80.2 ± 90.2", "0.832 ± 0.932"],
    ]  # fmt: skip
    numbers = readable.comparison({"age": (folds(("mae", "r", "r2")), pooled(("mae", "r", "r2")))})
    assert numbers.iloc[0].to_dict() == {
        "": "age", "test scans": "23", "folds": "2 of 3", "r [95 %]": "0.41 [0.51, 0.61]",
        "r² [95 %]": "0.42 [0.52, 0.62]", "mean absolute error [95 %]": "0.4 [0.5, 0.6]",
        "r over folds": "0.81 ± 0.91", "r² over folds": "0.82 ± 0.92", "mean absolute error over folds": "0.8 ± 0.9",
    }  # fmt: skip


def test_calibration():
    table = readable.calibration(folds(), pooled())
    assert list(table) == ["", "all test scans [95 %]", "over folds"]
    assert rows(table) == [
        ["balanced accuracy", "44.0 [54.0, 64.0]", "84.0 ± 94.0"],
        ["Brier score", "0.45 [0.55, 0.65]", "0.85 ± 0.95"],
        ["log loss", "0.46 [0.56, 0.66]", "0.86 ± 0.96"],
        ["expected calibration error", "0.0123 (if perfectly calibrated: 0.0456)", "–"],
    ]


def test_sites():
    table = readable.sites([{"site": "york", **pooled()}, {"site": "london", **pooled(run=1)}])
    assert list(table) == ["site", "test scans", "accuracy [95 %]", "AUC [95 %]", "always the largest class"]
    assert rows(table) == [
        ["york", "23", "40.0 [50.0, 60.0]", "0.430 [0.530, 0.630]", "77.7"],
        ["london", "24", "40.1 [50.1, 60.1]", "0.431 [0.531, 0.631]", "77.7"],
    ]
    numbers = readable.sites([{"site": "york", **pooled(("r", "mae", "r2"))}])
    assert numbers.iloc[0].to_dict() == {
        "site": "york", "test scans": "23", "r [95 %]": "0.4 [0.5, 0.6]",
        "mean absolute error [95 %]": "0.41 [0.51, 0.61]",
    }  # fmt: skip


def test_seeds_and_folds_are_apart():
    numbers = pd.DataFrame(
        [
            ("BolT", "aal116", "accuracy", 0.71, 0.62, 0.83, 0.054, 0.0151, 3, 44),
            ("BolT", "aal116", "log_loss", 0.612, 0.523, 0.734, 0.0545, 0.0156, 4, 88),
            ("LSTM", "aal116", "accuracy", np.nan, np.nan, np.nan, np.nan, np.nan, 0, 0),
        ],
        columns=["row", "atlas", "metric", "mean", "low", "high", "sd", "sd_seeds", "n_folds", "n_scans"],
    ).assign(expected_folds=4, n_all_scans=88)
    table = readable.seeds(numbers)
    assert list(table) == ["", "metric", "test scans", "folds", "mean [95 %]", "sd over folds", "sd over seeds"]
    assert rows(table) == [
        ["BolT", "accuracy", "44 of 88", "3 of 4", "71.0 [62.0, 83.0]", "5.4", "1.5"],
        ["BolT", "log loss", "88", "4 of 4", "0.612 [0.523, 0.734]", "0.0545", "0.0156"],
    ]
    both = readable.seeds(pd.concat([numbers, numbers.assign(atlas="cc200")]))
    assert both[""].tolist() == ["BolT on aal116"] * 2 + ["BolT on cc200"] * 2


def compared(**changes):
    """Tests of a model against a baseline: clearly better in nothing."""
    tests = {
        "accuracy": {"pooled_difference": 0.031, "permutation_p": 0.32, "difference": 0.9, "corrected_t_p": 0.001},
        "auc": {"difference": 0.042, "corrected_t_p": 0.21, "n_folds": 10},
        "brier": {"pooled_difference": -0.0123, "permutation_p": 0.4, "difference": 0.9, "corrected_t_p": 0.001},
    }
    for name, value in changes.items():
        metric, column = name.split("__")
        tests[metric][column] = value
    return pd.DataFrame([{"metric": metric, **values} for metric, values in tests.items()])


def test_a_baseline_is_compared_by_paired_tests():
    assert baseline_warning("Site only", "BolT", compared()) == (
        "Site only, which sees no brain data, is not clearly worse than BolT: BolT is better by 0.042 in AUC "
        "(corrected t-test over 10 folds, p = 0.42, Holm-corrected for two metrics). BolT may rely on the same "
        "information."
    )
    # Holm: of two p-values, the smaller counts twice
    assert baseline_warning("Site only", "BolT", compared(accuracy__permutation_p=0.024)) == ""
    assert "p = 0.052" in baseline_warning("Site only", "BolT", compared(accuracy__permutation_p=0.026))
    assert baseline_warning("Site only", "BolT", compared(auc__corrected_t_p=0.024)) == ""
    worse = compared(auc__corrected_t_p=0.0001, auc__difference=-0.2)
    said = "BolT is worse by 0.200 in AUC (corrected t-test over 10 folds, p < 0.001, Holm"
    assert said in baseline_warning("Site only", "BolT", worse)
    assert [standing(tests) for tests in (compared(), worse, compared(auc__corrected_t_p=0.01), worse[:0])] == [
        "not clearly better", "clearly worse in AUC", "clearly better in AUC", "not tested for being better"
    ]  # fmt: skip


def test_with_few_folds_the_brier_score_is_compared_instead_of_the_auc():
    few = {"auc__n_folds": 5, "auc__corrected_t_p": 0.001}
    worse = compared(**few, brier__permutation_p=0.2, brier__pooled_difference=0.0123)
    said = "BolT is worse by 0.012 in Brier score (sign flips per subject or family, p = 0.4, Holm"
    assert said in baseline_warning("Site only", "BolT", worse)
    assert baseline_warning("Site only", "BolT", compared(**few, brier__permutation_p=0.01)) == ""  # lower is better
    assert baseline_warning("Site only", "BolT", compared(**few, brier__permutation_p=0.01, brier__pooled_difference=1))
    untested = pd.DataFrame([{"metric": name, "note": "no fold that both finished"} for name in ("accuracy", "auc")])
    assert baseline_warning("Site only", "BolT", untested) == "" == baseline_warning("Site only", "BolT", untested[:0])


def test_what_sees_the_brain():
    kinds = [("logistic", ["site"]), ("bolt", ["sex"]), ("logistic", []), ("majority", [])]
    families = {"bolt": "transformer"}
    models = [Model(name="m", model=m, family=families.get(m, "baseline"), covariates=sees) for m, sees in kinds]
    assert list(map(sees_covariates_only, models)) == [True, False, False, False]
    assert list(map(sees_brain, models)) == [False, True, True, False]


# ---- participants and images ---------------------------------------------------------------------------------------
def test_cohort():
    columns = ["label", "subject", "site", "age", "sex", "mean_fd", "n_volumes", "tr"]
    scans = pd.DataFrame(
        [
            ("a", "1", "x", 21.0, "F", 0.11, 101, 2.0),
            ("a", "1", "x", 23.0, "F", 0.13, 103, 2.5),
            ("b", "2", "y", 30.0, "M", 0.20, 120, 1.5),
            ("b", "3", "z", 36.0, "F", 0.26, 120, 1.5),
            ("b", "4", "y", np.nan, None, np.nan, 130, np.nan),
        ],
        columns=columns,
    )
    table = readable.cohort(scans, ["b", "a"])
    assert list(table) == [
        "class", "scans", "subjects", "sites", "age (years)", "sex", "mean FD (mm)", "volumes", "TR (s)",
    ]  # fmt: skip
    # all: ages 21 23 30 36, mean 27.5, sd √35.25 = 5.94; FD .11 .13 .20 .26, mean .175, sd .0594
    assert rows(table) == [
        ["b", 3, 3, 2, "33 ± 3", "1 F, 1 M", "0.23 ± 0.03", "120 to 130", "1.5"],
        ["a", 2, 1, 1, "22 ± 1", "2 F", "0.12 ± 0.01", "101 to 103", "2 to 2.5"],
        ["all", 5, 4, 3, "27.5 ± 5.94", "3 F, 1 M", "0.175 ± 0.0594", "101 to 130", "1.5 to 2.5"],
    ]


def test_cohort_tests():
    columns = ["measure", "n", "units", "test", "effect_name", "effect", "low", "high", "p", "p_holm", "verdict"]
    nothing = (np.nan,) * 5
    found = pd.DataFrame(
        [("Site", 41.0, 30.0, "χ²", "Cramér's V", 0.071, 0.0, 0.123, 0.012, 0.036, "differs"),
         ("Age", 42.0, 42.0, "U", "r", *nothing, None),
         ("Sex", 43.0, 43.0, "χ²", "φ", -0.224, np.nan, np.nan, 0.00012, 0.45, "may differ")],
        columns=columns,
    )  # fmt: skip
    table = readable.cohort_tests(found)
    names = ["", "participants", "families", "test", "effect [95 %]", "p", "p (Holm-corrected)", "verdict"]
    assert list(table) == names
    assert rows(table) == [
        ["Site", "41", "30", "χ²", "Cramér's V 0.07 [0.00, 0.12]", "0.012", "0.036", "differs"],
        ["Sex", "43", "43", "χ²", "φ −0.22", "< 0.001", "0.45", "may differ"],
    ]
    unrelated = readable.cohort_tests(found.assign(units=found["n"]))
    assert list(unrelated) == [name for name in names if name != "families"]


def test_quality_counts_what_is_beyond_a_cutoff_but_not_the_cutoff_itself():
    values = {
        "mean_fd": [0.1, 0.2, 0.3, 0.9],  # the median is 0.25, the mean 0.375
        "median_tsnr": [20.0, 30.0, 40.0, 70.0],
        "max_fd": [1.0, np.nan, 2.0, 4.0],
    }
    known = pd.DataFrame({name: [np.nan] * 4 for name in MEASURES}).assign(**values)
    table = readable.quality(known, {"mean_fd": ("max", 0.2), "median_tsnr": ("min", 40.0), "max_fd": ("max", 0.5)})
    assert list(table) == ["", "median", "lowest", "highest", "cut-off", "scans beyond"]
    assert rows(table) == [
        ["mean FD (mm)", "0.25", "0.1", "0.9", "≤ 0.2", "2"],
        ["largest FD (mm)", "2", "1", "4", "≤ 0.5", "3"],
        ["median tSNR", "35", "20", "70", "≥ 40", "2"],
    ]
    without = readable.quality(known, {})
    assert without[["cut-off", "scans beyond"]].to_numpy().tolist() == [["–", "–"]] * 3


def test_truth():
    columns = ["measure", "value", "unit", "null", "null_meaning", "oracle", "low", "high", "passed"]
    found = pd.DataFrame(
        [("error", 1.3, "mm", 4.9, "unaligned", 0.2, np.nan, 2.1, True),
         ("r", 0.91, "1", 0.02, None, 0.99, 0.81, np.nan, "False"),
         ("AUC", 0.52, None, np.nan, "chance", np.nan, 0.41, 0.62, 1.0),
         ("later", np.nan, "1", np.nan, None, np.nan, np.nan, np.nan, None)],
        columns=columns,
    )  # fmt: skip
    table = readable.truth(found)
    assert list(table) == ["measure", "value", "null", "null_meaning", "oracle", "expected", "passed"]
    assert rows(table) == [
        ["error", "1.3 mm", "4.9", "unaligned", "0.2", "≤ 2.1", True],
        ["r", "0.91", "0.02", "", "0.99", "≥ 0.81", False],
        ["AUC", "0.52", "–", "chance", "–", "0.41 to 0.62", True],
        ["later", "–", "–", "", "–", "–", None],
    ]


# ---- explanations --------------------------------------------------------------------------------------------------
def test_selected_rois():
    columns = [
        "class", "rank", "name", "network", "hemisphere", "weight", "weight_sd", "importance", "selected",
        "selection_frequency", "weight_random", "weight_wrong_class", "weight_fixed_class", "sign_agrees",
    ]  # fmt: skip
    found = pd.DataFrame(
        [("F", 1, "V1", "visual", "L", 0.412, 0.131, 0.512, True, 0.8, 0.1, -0.2, 0.3, True),
         ("F", 2, "A1", None, None, 0.3, 0.1, 0.35, False, 0.4, 0.1, 0.2, 0.3, True),
         ("M", 3, "M1", None, None, 0.213, 0.092, 1.0, True, 0.61, 0.1, 0.2, -0.3, False),
         ("M", 4, "M2", None, None, 0.2, 0.1, 1.0, True, 0.5, -0.1, -0.2, -0.3, False)],
        columns=columns,
    )  # fmt: skip
    table = explanation.selected_rois(found)
    assert lines(table) == [
        "class | rank | ROI | network | hemisphere | weight (log odds per SD) | odds ratio − 1 | "
        "selected in folds (%) | same sign on control volumes",
        "F | 1 | V1 | visual | L | 0.41 ± 0.13 | 0.51 | 80 | both",
        "M | 3 | M1 | – | – | 0.21 ± 0.09 | 1 | 61 | random",
        "M | 4 | M2 | – | – | 0.20 ± 0.10 | 1 | 50 | none",
    ]
    assert explanation.sign_counts(found) == (
        "1 of 3 (2 with random volumes, 1 with volumes chosen for one class in all scans; 1 with volumes chosen for "
        "the wrong class, which are expected to reverse it)"
    )


def test_selected_networks():
    columns = ["class", "network", "n_rois", "n_selected"]
    found = pd.DataFrame([("F", "visual", 9, 4), ("F", "motor", 8, 0), ("M", None, 7, 1)], columns=columns)
    table = explanation.selected_networks(found)
    assert list(table) == ["class", "network", "selected ROIs"]
    assert rows(table) == [["F", "visual", "4 of 9"], ["M", "–", "1 of 7"]]


def test_alignment():
    columns = ["class", "task", "run", "trial_type", "share_of_time", "share_of_importance", "ratio", "p", "p_holm"]
    found = pd.DataFrame(
        [("WM", "WM", "LR", "0bk", 0.251, 0.523, 2.084, 0.012, 0.024),
         ("WM", "WM", "RL", "2bk", 0.1, 0.2, 2.0, 0.3, 0.6)],
        columns=columns,
    ).assign(n_scans=[7, 8], ratio_untrained=[1.04, 0.96])  # fmt: skip
    table = explanation.alignment_table(found)
    assert lines(table) == [
        "task | events | time (%) | importance (%) | ratio | by position alone | p (Holm-corrected) | scans",
        "WM · run LR | 0bk | 25 | 52 | 2.08 | 1.04 | 0.024 | 7",
        "WM · run RL | 2bk | 10 | 20 | 2.00 | 0.96 | 0.6 | 8",
    ]


def test_stability():
    """Two pairs of folds and one pair of seeds: mean, lowest and highest of each."""
    agreement = {"pearson": 0.10, "spearman": 0.20, "spearman_raw": 0.30}
    empty = dict.fromkeys(("dice", "pearson_null", "pearson_null_high", "dice_null", "dice_null_high", "p"), np.nan)
    null = {"dice": 0.41, "pearson_null": 0.05, "pearson_null_high": 0.09, "dice_null": 0.12, "dice_null_high": 0.31}
    regions = [
        {"between": "folds", "what": "regions", "class": "F", "one": one, **{k: v + d for k, v in agreement.items()}}
        | null
        | {"p": 0.024, "same_class": np.nan}
        for one, d in {"0": 0.01, "1": 0.03, "mean": 0.02, "lowest": 0.01, "highest": 0.03}.items()
    ]
    halves = [row | {"what": "halves", "between": "seeds", "pearson": -0.04} for row in regions]
    importance = [
        {"between": "seeds", "what": "importance", "class": np.nan, "one": one, "pearson": np.nan, "spearman": 0.7,
         "spearman_raw": -0.84, "same_class": 0.93} | empty
        for one in ("0", "mean", "lowest", "highest")
    ]  # fmt: skip
    table = explanation.stability_table(pd.DataFrame(regions + halves + importance))
    assert lines(table) == [
        " | between | correlation | permuted labels [95 % below] | p | rank correlation | "
        "mean curve not removed | Dice | Dice, permuted [95 % below] | same class (%)",
        "regions, F | 2 pairs of folds | 0.12 [0.11, 0.13] | 0.05 [0.09] | 0.024 | 0.22 [0.21, 0.23] | "
        "0.32 [0.31, 0.33] | 0.41 | 0.12 [0.31] | –",
        "regions, halves of people, F | 2 splits (two seeds) | −0.04 | 0.05 [0.09] | 0.024 | 0.22 [0.21, 0.23] | "
        "0.32 [0.31, 0.33] | 0.41 | 0.12 [0.31] | –",
        "importance over time | 1 pair of seeds | – | – | – | 0.70 | −0.84 | – | – | 93",
    ]
    assert "same class (%)" not in explanation.stability_table(pd.DataFrame(regions))


def test_sanity():
    columns = [
        "check", "step", "fold", "rho", "low", "high", "rho_raw", "raw_low", "raw_high", "n_scans", "n_undefined",
        "verdict", "note", "contrast", "contrast_low", "contrast_high",
    ]  # fmt: skip
    nothing = (np.nan,) * 3
    found = pd.DataFrame(
        [("cascade", 1.0, "all", 0.9, 0.8, 1.0, 0.91, 0.81, 0.99, 20.0, 0.0, None, None, *nothing),
         ("cascade", 2.0, "all", 0.11, -0.12, 0.13, 0.24, 0.15, 0.36, 21.0, 3.0, "passed", "few scans", 0.4, 0.3, 0.5),
         ("cascade", 2.0, "1", 0.17, 0.08, 0.19, 0.28, 0.19, 0.37, 22.0, 2.0, None, "unseen", *nothing),
         ("permuted labels", np.nan, "all", 0.5, 0.4, 0.6, 0.71, 0.62, 0.83, 23.0, 1.0, "not passed", None, *nothing),
         ("permuted labels", np.nan, "2", *nothing, 0.75, 0.66, 0.87, 24.0, 0.0, None, None, *nothing)],
        columns=columns,
    )  # fmt: skip
    table = explanation.sanity_table(found)
    assert lines(table) == [
        " | ρ [95 %] | mean curve not removed | test scans | without ρ | beyond what remains | importance | note",
        "all layers random | 0.11 [−0.12, 0.13] | 0.24 [0.15, 0.36] | 21 | 3 | +0.40 [+0.30, +0.50] | "
        "vanishes (|ρ| < 0.2): passed | few scans",
        "fold 1 | 0.17 [0.08, 0.19] | 0.28 [0.19, 0.37] | 22 | 2 |  |  | ",
        "model trained on permuted labels | 0.50 [0.40, 0.60] | 0.71 [0.62, 0.83] | 23 | 1 |  | "
        "does not vanish: not passed | ",
        "fold 2 | – | 0.75 [0.66, 0.87] | 24 | 0 |  |  | ",
    ]
    failed = found.assign(verdict=found["verdict"].replace("not passed", "not done"))
    assert explanation.sanity_table(failed)["importance"].tolist()[2] == "not done"
    plain = explanation.sanity_table(found.assign(n_undefined=0.0, note=None, contrast=np.nan))
    assert list(plain) == ["", "ρ [95 %]", "mean curve not removed", "test scans", "importance"]


def test_areas():
    columns = ["direction", "replacement", "order", "area", "low", "high"]
    columns += ["difference", "difference_low", "difference_high", "better_than_random"]
    columns += [f"{c}_{end}" for c in ("position", "shifted") for end in ("difference", "low", "high")]
    columns += ["better_than_position", "better_than_shifted"]
    none = [np.nan] * 8
    found = pd.DataFrame(
        [("deletion", "mean", "importance", 0.511, 0.422, 0.633, -0.144, -0.255, 0.016, "yes",
          -0.171, -0.282, -0.063, 0.014, -0.025, 0.036, "yes", "no"),
         ("deletion", "mean", "shifted", 0.611, 0.522, 0.733, -0.044, -0.155, 0.116, "no", *none),
         ("insertion", "surrogate", "random", 0.717, 0.628, 0.839, np.nan, np.nan, np.nan, np.nan, *none)],
        columns=columns,
    )  # fmt: skip
    table = explanation.area_table(found)
    assert lines(table) == [
        " | order | area [95 %] | minus random [95 %] | minus position [95 %] | minus shifted [95 %] | better than",
        "deletion, mean volume | importance (Algorithm 1) | 0.511 [0.422, 0.633] | −0.144 [−0.255, +0.016] | "
        "−0.171 [−0.282, −0.063] | +0.014 [−0.025, +0.036] | random, position",
        "deletion, mean volume | shifted importance | 0.611 [0.522, 0.733] | −0.044 [−0.155, +0.116] | – | – | none",
        "insertion, scrambled time | random order | 0.717 [0.628, 0.839] | – | – | – | –",
    ]


def test_landmark_regressions():
    """Digits: level, metric, and the kind of volumes; the sd is a tenth of the mean's mirror."""
    kinds = {("fitted", "important"): 1, ("fitted", "wrong class"): 3, ("none", "random"): 2}
    levels = {"subject": 1, "scan": 2, "token": 3}
    found = pd.DataFrame(
        {"fold": fold, "importance": importance, "tokens": tokens, "level": level, "n_test": n}
        | {metric: (100 * (start + place) + 10 * m + k) / 1000 for m, metric in enumerate(METRICS)}
        for (importance, tokens), k in kinds.items()
        for level, place in levels.items()
        for fold, start, n in (("0", 6, 9), ("mean", 0, 5), ("sd", 3, 5))
    )
    paper = pd.DataFrame(
        {"tokens": tokens, "metric": metric, "mean": start + m / 100, "sd": start + 0.1 + m / 100}
        for tokens, start in (("random", 0.9), ("important", 0.7))
        for m, metric in enumerate(METRICS)
    )
    table = explanation.landmark_table(found, paper, expected=9)
    assert list(table) == ["prediction per", "volumes", "accuracy", "recall", "precision", "AUC", "folds"]
    judged = {"subject (majority vote)": 1, "scan (majority vote)": 2, "single volume": 3}
    shown = {"important": 1, "random": 2, "important for the wrong class": 3}
    assert rows(table) == [
        *([level, name, *(f"{i}{m}.{k} ± {i + 3}{m}.{k}" for m in range(3)), f"0.{i}3{k} ± 0.{i + 3}3{k}", "5 of 9"]
          for level, i in judged.items() for name, k in shown.items()),
        ["the paper", "random", "90.0 ± 100.0", "91.0 ± 101.0", "92.0 ± 102.0", "0.930 ± 1.030", "–"],
        ["the paper", "important", "70.0 ± 80.0", "71.0 ± 81.0", "72.0 ± 82.0", "0.730 ± 0.830", "–"],
    ]  # fmt: skip


def test_numbers():
    shown = {3.0: "3", 0.12345: "0.123", 1234.5: "1234", np.nan: "–", None: "–", 104: "104"}
    assert {value: numbers.number(value) for value in shown} == shown
    assert numbers.percent(0.8333) == "83.3" and numbers.percent(None) == "–"


def test_cohort_leaves_out_what_is_not_known():
    unknown = dict.fromkeys(["site", "age", "sex", "mean_fd"], np.nan)
    scans = pd.DataFrame({"label": ["a", "b", "b"], "subject": ["1", "2", "2"], "n_volumes": [100, 90, 90], "tr": 2.0})
    table = readable.cohort(scans.assign(**unknown), ["a", "b"])
    assert list(table.columns) == ["class", "scans", "subjects", "volumes", "TR (s)"]
    assert table["volumes"].tolist() == ["100", "90", "90 to 100"] and table["subjects"].tolist() == [1, 1, 2]


def test_a_run_that_was_not_evaluated_has_no_numbers(tmp_path):
    assert readable.read_evaluated(tmp_path) is None
    table = pd.DataFrame({"fold": ["0", "mean", "sd"], "state": ["ok", None, None], "accuracy": [0.5, 0.5, 0.0]})
    write_table(table, tmp_path / "metrics.tsv", dict.fromkeys(table, "Test"))
    write_json({"pooled": None}, tmp_path / "summary.json")
    assert readable.read_evaluated(tmp_path) is None
    write_json({"pooled": {"n_scans": 3}}, tmp_path / "summary.json")
    found, pooled = readable.read_evaluated(tmp_path)
    assert pooled == {"n_scans": 3} and found["fold"].tolist() == ["0", "mean", "sd"]


def test_numbers_are_aligned_to_the_right_and_words_to_the_left():
    rows = {"": ["BolT", "SVM"], "fidelity": ["exact", "core"], "AUC": ["75.0 ± 1.5", "–"], "note": ["", ""]}
    sheet = Sheet("Models", pd.DataFrame(rows), "Per cent.")
    assert "| --- | --- | ---: | --- |" in markdown(sheet)
    assert r"\begin{tabular}{llrl}" in latex(sheet, "tab:models")
