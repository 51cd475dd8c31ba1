"""Every cell of the report's tables, from numbers of which no two are equal."""

import re
from io import StringIO
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bolt.config import Model
from bolt.evaluate.scores import METRICS
from bolt.explain.explainable import sees_brain
from bolt.io.files import write_json, write_table
from bolt.preprocess.quality.measures import MEASURES
from bolt.report import numbers
from bolt.report import tables as readable
from bolt.report.html import filled
from bolt.report.tables import baseline_warning, sees_covariates_only, standing

OVER_CHANCE = ("balanced_accuracy", "brier", "log_loss")
OF_NUMBERS = ("mae", "r", "r2")


def parts_of(name):
    """Return the text below each heading of a file."""
    parts = re.split("^## (.*)\n\n", Path(__file__).with_name(name).read_text(), flags=re.M)
    return {title: text.rstrip("\n") for title, text in zip(parts[1::2], parts[2::2], strict=True)}


GIVEN = parts_of("given.txt")


def given(name):
    """Return a table of numbers: `GIVEN`."""
    return pd.read_csv(StringIO(GIVEN[name]), sep=r"\s*\|\s*", engine="python", dtype={"unit": str, "fold": str})


# ---- performance ---------------------------------------------------------------------------------------------------
def folds(metrics=(*METRICS, *OVER_CHANCE), run=0):
    """A ``metrics.tsv``; the digits of a number are run and fold (mean: 8, sd: 9), metric, and the run again."""
    about = {"state": ["ok", "ok", "failed", None, None], "n_test": [11.0, 12.0, 0.0, 2.0, 2.0]}
    values = {metric: [(100 * f + 10 * m + run) / 1000 for f in (1, 2, 3, 8, 9)] for m, metric in enumerate(metrics)}
    note = [None, None, "loss is NaN", "without fold 3", "without fold 3"]
    table = pd.DataFrame({"fold": ["1", "2", "3", "mean", "sd"], **about, **values, "note": note})
    table.loc[2, list(metrics)] = np.nan
    return table


def pooled(metrics=(*METRICS, *OVER_CHANCE), run=0, **more):
    """Value 4mr, ends 5mr and 6mr; m is the metric, r the run."""
    ends = {"value": 4, "low": 5, "high": 6}
    shown = {x: {e: (100 * d + 10 * m + run) / 1000 for e, d in ends.items()} for m, x in enumerate(metrics)}
    calibration = {"ece": 0.0123, "ece_if_calibrated": 0.0456}
    across = {"auc_across": 0.399} if "auc" in metrics else {}
    guesses = {"majority_accuracy": 0.777, "mean_guess_mae": 7.77}
    return {**shown, **across, **guesses, "calibration": calibration, "n_scans": 23 + run} | more


def performances():
    few, none = ({"auc": {"value": value, "low": None, "high": None}} for value in (0.43, None))
    yield readable.performance(folds(), pooled())
    yield readable.performance(folds(), None)
    yield readable.performance(folds().iloc[[0, 1, 3, 4]].assign(note=None), None)
    yield readable.performance(folds(), pooled(subjects={**pooled(), "n_scans": 7}))
    yield readable.performance(folds(), pooled(**few))
    yield readable.performance(folds(), pooled(**none))
    yield readable.performance(folds(OF_NUMBERS).iloc[[0, 3, 4]].assign(note=None), pooled(OF_NUMBERS))
    yield readable.comparison({f"run {r}": (folds(run=r), pooled(run=r)) for r in (1, 2)})
    yield readable.comparison({"age": (folds(OF_NUMBERS), pooled(OF_NUMBERS))})
    yield readable.calibration(folds(), pooled())
    yield readable.sites([{"site": "york", **pooled()}, {"site": "london", **pooled(run=1)}])
    yield readable.sites([{"site": "york", **pooled(**few)}])
    yield readable.sites([{"site": "york", **pooled(("r", "mae", "r2"))}])


def seeds():
    yield readable.seeds(given("seeds"))
    yield readable.seeds(pd.concat([given("seeds"), given("seeds").assign(atlas="cc200")]))


# ---- participants and images ---------------------------------------------------------------------------------------
def cohorts():
    """All: ages 21 23 30 36, mean 27.5, sd √35.25 = 5.94; FD .11 .13 .20 .26, mean .175, sd .0594."""
    yield readable.cohort(given("cohort"), ["b", "a"])
    unknown = dict.fromkeys(["site", "age", "sex", "mean_fd"], np.nan)
    few = pd.DataFrame({"label": ["a", "b", "b"], "subject": ["1", "2", "2"], "n_volumes": [100, 90, 90], "tr": 2.0})
    yield readable.cohort(few.assign(**unknown), ["a", "b"])


def cohort_tests():
    found = given("cohort_tests")
    yield readable.cohort_tests(found)
    yield readable.cohort_tests(found.assign(units=found["n"]))


def quality():
    """What is beyond a cut-off counts, but not the cut-off itself."""
    values = {
        "mean_fd": [0.1, 0.2, 0.3, 0.9],  # the median is 0.25, the mean 0.375
        "median_tsnr": [20.0, 30.0, 40.0, 70.0],
        "max_fd": [1.0, np.nan, 2.0, 4.0],
    }
    known = pd.DataFrame({name: [np.nan] * 4 for name in MEASURES}).assign(**values)
    yield readable.quality(known, {"mean_fd": ("max", 0.2), "median_tsnr": ("min", 40.0), "max_fd": ("max", 0.5)})
    yield readable.quality(known, {})


def truth():
    yield readable.truth(given("truth"))


# ---- explanations --------------------------------------------------------------------------------------------------
def regions():
    found = given("regions")
    yield readable.selected_rois(found)
    yield pd.DataFrame({"signs": [readable.sign_counts(found)]})
    networks = given("networks")
    yield filled("selected_networks", networks[networks["n_selected"] > 0])


def alignment():
    yield readable.alignment_table(given("alignment"))


def stability():
    """Two pairs of folds and one pair of seeds: mean, lowest and highest of each."""
    found = given("stability")
    yield readable.stability_table(found)
    yield readable.stability_table(found[:5])
    yield readable.stability_table(found[10:].assign(same_class=0.0))


def sanity():
    found = given("sanity")
    yield readable.sanity_table(found)
    yield readable.sanity_table(found.assign(verdict=found["verdict"].replace("not passed", "not done")))
    yield readable.sanity_table(found.assign(n_undefined=0.0, note=None, contrast=np.nan))


def areas():
    yield readable.area_table(given("areas"))


def landmarks():
    """Digits: level, metric, and the kind of volumes; the sd is three more in the first."""
    yield readable.landmark_table(given("landmarks"), given("paper"), expected=9)


TABLES = (
    *(performances, seeds, cohorts, cohort_tests, quality, truth, regions, alignment, stability, sanity, areas),
    landmarks,
)
"""Their every cell is in `cells.txt`, checked by hand; `python -m tests.report.tables.test_every_cell` prints it."""


def written_out(tables):
    lines = ((" | ".join(map(str, row)) for row in (list(table), *table.to_numpy().tolist())) for table in tables())
    return "\n\n".join("\n".join(table) for table in lines)


@pytest.mark.parametrize("tables", TABLES)
def test_every_cell(tables):
    assert written_out(tables) == parts_of("cells.txt")[tables.__name__]


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
    assert list(map(sees_brain, models)) == [False, True, False, False]


def test_numbers():
    shown = {
        3.0: "3",
        0.12345: "0.123",
        1234.5: "1234",
        999.4: "999",
        -999.6: "-1000",
        np.nan: "–",
        None: "–",
        104: "104",
    }
    assert {value: numbers.number(value) for value in shown} == shown
    assert numbers.percent(0.8333) == "83.3" and numbers.percent(None) == "–"


def test_a_run_that_was_not_evaluated_has_no_numbers(tmp_path):
    assert readable.read_evaluated(tmp_path) is None
    table = pd.DataFrame({"fold": ["0", "mean", "sd"], "state": ["ok", None, None], "accuracy": [0.5, 0.5, 0.0]})
    write_table(table, tmp_path / "metrics.tsv", dict.fromkeys(table, "Test"))
    write_json({"pooled": None}, tmp_path / "summary.json")
    assert readable.read_evaluated(tmp_path) is None
    write_json({"pooled": {"n_scans": 3}}, tmp_path / "summary.json")
    found, pooled = readable.read_evaluated(tmp_path)
    assert pooled == {"n_scans": 3} and found["fold"].tolist() == ["0", "mean", "sd"]


if __name__ == "__main__":
    for tables in TABLES:
        print(f"## {tables.__name__}\n\n{written_out(tables)}\n")
