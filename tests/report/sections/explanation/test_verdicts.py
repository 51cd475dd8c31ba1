"""Words and verdicts follow from the numbers, in both directions, and what has no file is not tested."""

import numpy as np
import pandas as pd
import pytest

from bolt.explain.landmarks import TEST_COLUMNS
from bolt.explain.regions import ROI_COLUMNS
from bolt.explain.tasks import ALIGNMENT_COLUMNS, TRANSITIONS
from bolt.explain.trust.faithfulness import AREA_COLUMNS, CONTROLS
from bolt.explain.trust.stability import STABILITY_COLUMNS
from bolt.io.files import write_json, write_table
from bolt.report.sections.verdicts import (
    MEASURES,
    NOT_SUPPORTED,
    NOT_TESTED,
    SUPPORTED,
    Evidence,
    Verdict,
    ask,
    counted,
    questions,
    verdicts,
)

SANITY = ["check", "step", "layer", "fold", "rho", "low", "high", "n_scans", "verdict", "note"]
TRUTH = ["measure", "value", "unit", "null", "null_meaning", "oracle", "low", "high", "passed"]


@pytest.fixture
def evidence(tmp_path):
    return Evidence(tmp_path / "run", tmp_path / "out", 5)


def write(rows, path, columns):
    table = pd.DataFrame(rows).reindex(columns=list(columns))
    write_table(table, path, dict.fromkeys(columns, "Test"))


def write_tests(evidence, *rows, importance="fitted"):
    """Write ``landmark_tests.tsv``: question, control, both AUC, and p (NaN: three folds)."""
    table = pd.DataFrame(rows, columns=["question", "second", "auc_first", "auc_second", "p"])
    few = table["p"].isna()
    table = table.assign(importance=importance, first="important", difference=table["auc_first"] - table["auc_second"])
    table = table.assign(n_folds=np.where(few, 3, 10), note=np.where(few, "3 of at least 6 folds", ""))
    write(table, evidence.explanation / "landmark_tests.tsv", TEST_COLUMNS)
    return table


def moments(auc, p=0.01, **controls):
    """Rows of all controls: 0.5, or (AUC, p) as given."""
    known = {"random": 0.5, "random_direction": 0.5, "wrong_class": 0.5, "fixed_class": 0.5} | controls
    pairs = {name: value if isinstance(value, tuple) else (value, p) for name, value in known.items()}
    return [("moments", name.replace("_", " "), auc, *pair) for name, pair in pairs.items()]


def says(verdict, state, *words):
    assert verdict.state == state, verdict
    assert [word for word in words if word not in verdict.sentence] == [], verdict.sentence


def test_what_has_no_file_is_not_tested_and_says_nothing(evidence):
    found = verdicts(evidence)
    assert list(questions()) == list(MEASURES)
    assert len(found) == len(questions()) - 3  # nothing was planted, and there are no tasks
    assert {verdict.state for verdict in found} == {NOT_TESTED} and not any(verdict.sentence for verdict in found)
    assert not any("{" in verdict.criterion for verdict in found)


@pytest.mark.parametrize(
    ("changes", "state", "words"),
    [
        ({"p": 0.01}, SUPPORTED, ("AUC 0.62 (mean over 10 folds", "p 0.01", "decision to explain")),
        ({"p": 0.04}, NOT_SUPPORTED, ("p 0.04", "nothing to explain")),
        ({"value": None, "bar": None, "n_folds": 0}, NOT_TESTED, ()),
        (None, NOT_TESTED, ()),
    ],
)
def test_a_model_that_predicts_nothing_has_nothing_to_explain(evidence, changes, state, words):
    chance = {"metric": "auc", "value": 0.62, "p": None, "bar": 0.6, "n_folds": 10}
    write_json({"chance": None if changes is None else chance | changes}, evidence.run / "summary.json")
    says(ask("prediction", evidence), state, *words)


@pytest.mark.parametrize(
    ("auc", "controls", "state", "words"),
    [
        (0.62, {"fixed_class": 0.55}, SUPPORTED, ("The 5 most important volumes", "AUC 0.62", "random ones with 0.50",
                                                  "in all scans, whatever the prediction", "give 0.55")),
        (0.51, {}, NOT_SUPPORTED, ("is not shown",)),  # a gain of 0.01
        (0.62, {"random": (0.5, 0.2)}, NOT_SUPPORTED, ("is not shown",)),
        (0.4, {}, NOT_SUPPORTED, ("is not shown",)),  # significantly worse
        (0.81, {"wrong_class": (0.8, 0.6)}, NOT_SUPPORTED,
         ("support the wrong class predict it as well (AUC 0.80)", "choice of volumes itself carries the prediction")),
        (0.81, {"wrong_class": (0.75, 0.06)}, NOT_SUPPORTED, ("wrong class predict it almost as well (AUC 0.75)",)),
        (0.81, {"random_direction": (0.8, 0.6)}, NOT_SUPPORTED,
         ("along random directions predict it as well (AUC 0.80)", "choice of volumes itself carries the prediction")),
        (0.81, {"random_direction": (0.75, 0.06)}, NOT_SUPPORTED, ("directions predict it almost as well (AUC 0.75)",)),
        (0.81, {"wrong_class": (0.8, 0.6), "random_direction": (0.84, 0.2)}, NOT_SUPPORTED,
         ("random directions predict it as well (AUC 0.84)",)),  # the better one
        # chosen whatever the prediction: if these predict the class, the moments differ
        (0.81, {"fixed_class": (0.9, 0.1)}, SUPPORTED, ("give 0.90",)),
    ],
)  # fmt: skip
def test_important_moments_must_be_ahead_of_all_but_those_of_a_fixed_class(evidence, auc, controls, state, words):
    write_tests(evidence, *moments(auc, **controls))
    found = ask("moments", evidence)
    says(found, state, *words)
    for name, value in controls.items():
        if value == (0.8, 0.6):
            assert f"{name.replace('_', ' ')} 0.80 (+0.01, p 0.6)" in found.value


def test_models_that_did_not_see_the_scans_decide(evidence):
    fitted = write_tests(evidence, *moments(0.9))
    inner = write_tests(evidence, *moments(0.5, p=0.9), importance="inner")  # learned by heart
    write(pd.concat([fitted, inner]), evidence.explanation / "landmark_tests.tsv", TEST_COLUMNS)
    found = ask("moments", evidence)
    says(found, NOT_SUPPORTED, "AUC 0.50")
    assert "did not see them" in found.value


def test_few_folds_are_not_tested_and_the_reason_is_shown(evidence):
    write_tests(evidence, *moments(0.9, p=np.nan), ("order", "last quarter", 0.9, 0.5, np.nan))
    for name in ("moments", "order"):
        found = ask(name, evidence)
        assert found.state == NOT_TESTED and found.sentence == ""
        assert found.value.startswith("3 of at least 6 folds: 0.90")
    write_tests(evidence, *moments(0.9)[1:])  # no random volumes
    found = ask("moments", evidence)
    assert found.state == NOT_TESTED and found.value == "–"


@pytest.mark.parametrize(
    ("end", "p", "state"), [(0.5, 0.01, SUPPORTED), (0.5, 0.2, NOT_SUPPORTED), (0.61, 0.01, NOT_SUPPORTED)]
)
def test_moments_further_down_the_list_must_tell_less(evidence, end, p, state):
    write_tests(evidence, *moments(0.8), ("order", "last quarter", 0.62, end, p))
    says(ask("order", evidence), state, "falls from 0.62 to 0.50 (" if state == SUPPORTED else "does not clearly fall")
    write_tests(evidence, *moments(0.8, wrong_class=0.8), ("order", "last quarter", 0.62, end, p))
    says(ask("order", evidence), NOT_SUPPORTED, "may carry" if state == SUPPORTED else "does not clearly fall")


@pytest.mark.parametrize(
    ("quarters", "state", "words"),
    [
        ((0.4, 0.6, 0.91), NOT_SUPPORTED, "falls from 1.00 to 0.40 and rises again to 0.91"),
        ((0.9, 0.35, 0.69), NOT_SUPPORTED, "rises again to 0.69"),
        ((0.4, 0.5, 0.55), SUPPORTED, "falls from 1.00 to 0.55 (quarters of the list: 1.00 → 0.40 → 0.50 → 0.55)"),
    ],
)
def test_a_curve_that_rises_again_does_not_fall(evidence, quarters, state, words):
    names = ("second quarter", "third quarter", "last quarter")
    curve = [("order", name, 1.0, auc, 0.001) for name, auc in zip(names, quarters, strict=True)]
    write_tests(evidence, *moments(1.0), *curve)
    says(ask("order", evidence), state, words)


EVENT = {"class": "WM", "task": "WM", "run": "LR", "trial_type": "2bk_faces", "ratio": 1.4, "ratio_untrained": 1.0}


@pytest.mark.parametrize(
    ("p", "by_position", "state"),
    [
        (0.001, 0.9, SUPPORTED),
        (0.3, 0.9, NOT_SUPPORTED),
        (0.001, 1.45, NOT_SUPPORTED),  # position alone changes it by more
        (0.001, 0.55, NOT_SUPPORTED),
    ],
)
def test_importance_on_events_is_a_question_of_tasks(evidence, p, by_position, state):
    row = EVENT | {"p": p, "p_holm": p, "ratio_untrained": by_position}
    write([row], evidence.explanation / "tasks_alignment.tsv", ALIGNMENT_COLUMNS)
    says(ask("events", evidence), state, "1.40 times" if state == SUPPORTED else "not shown")
    older = [column for column in ALIGNMENT_COLUMNS if column != "ratio_untrained"]
    write([row], evidence.explanation / "tasks_alignment.tsv", older)  # importance not relative to untrained models
    assert ask("events", evidence) is None


def test_events_are_corrected_over_all_tasks_and_transitions_are_none(evidence):
    row = EVENT | {"p": 0.01, "p_holm": 0.01}
    changes = {**row, "trial_type": TRANSITIONS, "p": 0.0001, "p_holm": 0.0001}
    others = [{**row, "class": name, "task": name, "p": 0.9, "p_holm": 0.9} for name in ("MOTOR", "SOCIAL", "GAMBLING")]
    write([row, changes, *others], evidence.explanation / "tasks_alignment.tsv", ALIGNMENT_COLUMNS)
    says(ask("events", evidence), SUPPORTED, "1 of 4 event types", "p 0.04 corrected over all tasks")
    write([row, changes, *others, *others], evidence.explanation / "tasks_alignment.tsv", ALIGNMENT_COLUMNS)
    says(ask("events", evidence), NOT_SUPPORTED, "not shown")  # 7 x 0.01


@pytest.mark.parametrize(
    ("frequencies", "state", "words"),
    [([1.0, 0.9, 0.1], SUPPORTED, "such as ROI 0, ROI 1"), ([0.3, 0.3, 0.3], NOT_SUPPORTED, "no single region")],
)
def test_regions_must_return(evidence, frequencies, state, words):
    known = {"selected": True, "n_folds": 2}
    rows = [{"name": f"ROI {i}", "selection_frequency": f, **known} for i, f in enumerate(frequencies)]
    write(rows, evidence.explanation / "roi_weights.tsv", ROI_COLUMNS)
    says(ask("regions", evidence), state, "of the 3 regions", "2 folds", words)


@pytest.mark.parametrize(
    ("r", "p", "p_halves", "folds", "seeds", "words"),
    [
        (0.71, 0.01, 0.02, SUPPORTED, SUPPORTED, "scans 0.30."),
        (0.41, 0.01, 0.02, NOT_SUPPORTED, NOT_SUPPORTED, ": not stable."),
        (0.71, 0.20, 0.02, NOT_SUPPORTED, SUPPORTED, ": no more than shared scans explain."),
        (0.71, 0.01, 0.30, NOT_SUPPORTED, NOT_SUPPORTED, "is not shown to be found in other people."),
    ],
)
def test_maps_must_agree_beyond_what_shared_scans_explain(evidence, r, p, p_halves, folds, seeds, words):
    regions = {"what": "regions", "class": "a", "one": "mean", "pearson": r, "pearson_null": 0.25, "p": p}
    halves = regions | {"what": "halves", "pearson": 0.12, "pearson_null": 0.0, "p": p_halves}
    rows = [regions, halves, {"what": "importance", "one": "mean", "spearman": 0.3}]
    rows += [{"what": "regions", "class": "a", "one": "lowest", "pearson": 0.0}]
    rows = [{"between": between, **row} for between in ("folds", "seeds") for row in rows]
    write(rows[:4], evidence.explanation / "stability.tsv", STABILITY_COLUMNS)
    found = ask("folds", evidence)
    says(found, folds, f"Maps of different folds correlate {r} (with permuted labels 0.25, p {p:g})", words)
    value = (
        f"{r} (permuted labels 0.25, p {p:g}); halves of people 0.12 (p {p_halves:g}); importance curves of the same "
    )
    assert found.value == value + "scans 0.30"
    assert ask("seeds", evidence).state == NOT_TESTED  # one seed
    write(rows, evidence.explanation / "stability.tsv", STABILITY_COLUMNS)
    says(ask("seeds", evidence), seeds, f"Maps of different seeds correlate {r}")  # equal scans: p does not decide


@pytest.mark.parametrize("lacking", ["halves", "p"])
def test_agreement_without_permuted_labels_is_not_tested(evidence, lacking):
    tested = {"between": "folds", "class": "a", "one": "mean", "pearson": 0.7} | ({} if lacking == "p" else {"p": 0.01})
    rows = [{**tested, "what": what} for what in ("regions", "halves") if what != lacking]
    write(rows, evidence.explanation / "stability.tsv", STABILITY_COLUMNS)
    assert ask("folds", evidence).state == NOT_TESTED


@pytest.mark.parametrize(
    ("rho", "verdict", "state"), [(0.05, "passed", SUPPORTED), (0.45, "not passed", NOT_SUPPORTED)]
)
def test_the_end_of_the_cascade_is_what_counts(evidence, rho, verdict, state):
    rows = [
        {"check": "cascade", "step": 1, "layer": "classifier", "fold": "all", "rho": 0.9},
        {"check": "cascade", "step": 6, "layer": "input", "fold": "all", "rho": rho, "verdict": verdict},
        {"check": "cascade", "step": 6, "layer": "input", "fold": "4", "rho": 0.7},
        {"check": "trained again", "fold": "all", "rho": 0.52, "low": 0.4, "high": 0.6, "verdict": "reproducible"},
        {"check": "permuted labels", "fold": "all", "n_scans": 0, "verdict": "not done", "note": "failed"},
    ]
    write(rows, evidence.explanation / "sanity.tsv", SANITY)
    words = "weights destroys the importance curve" if state == SUPPORTED else "does not destroy the importance curve"
    says(ask("random weights", evidence), state, words, f"(ρ {rho:.2f})", f": {verdict}.")
    if state == SUPPORTED:
        says(ask("random weights", evidence), state, "another seed reproduces (ρ 0.52 [0.40, 0.60])")
    assert ask("permuted labels", evidence).state == NOT_TESTED
    rows[-1] |= {"rho": rho, "verdict": verdict, "note": "it has learned 55% of them"}
    write(rows, evidence.explanation / "sanity.tsv", SANITY)
    value = f"{rho:.2f}; trained again 0.52 [0.40, 0.60]; it has learned 55% of them"
    assert ask("permuted labels", evidence).value == value


@pytest.mark.parametrize(
    ("control", "verdict", "state", "words"),
    [
        ("not reproducible", "not reproducible", NOT_SUPPORTED, "that it vanishes is no evidence"),
        ("reproducible", "not shown", NOT_SUPPORTED, "(ρ 0.05 [−0.20, 0.30]): the scans are too few to tell"),
        ("not shown", "no control", NOT_TESTED, "too few scans have been compared with the model trained again"),
        ("not done", "no control", NOT_TESTED, "the model trained again cannot be used: the loss is not finite"),
        (None, "no control", NOT_TESTED, "no model was trained again (explain: sanity: retrained)"),
        (None, "passed", NOT_TESTED, "no model was trained again"),  # a table without a control of an earlier version
    ],
)
def test_vanishing_is_supported_only_with_a_control_and_an_interval(evidence, control, verdict, state, words):
    end = {"check": "cascade", "step": 6, "layer": "input", "fold": "all", "verdict": verdict}
    rows = [{**end, "rho": 0.05, "low": -0.2, "high": 0.3}]
    again = {"check": "trained again", "fold": "all", "rho": 0.1, "note": "the loss is not finite"}
    write([*rows, *([{**again, "verdict": control}] if control else [])], evidence.explanation / "sanity.tsv", SANITY)
    found = ask("random weights", evidence)
    says(found, state, words)
    assert found.value.startswith("0.05 [−0.20, 0.30]")


@pytest.mark.parametrize(
    ("mean", "surrogate", "words"),
    [
        ({}, {}, "faster than random volumes, position alone and shifted importance do."),
        ({}, {"random": "no"}, "(mean volume), but not with the other (no faster than random volumes"),
        ({"position": "no"}, {"position": "worse"}, "no faster than position alone: importance"),
        ({"position": "no"}, {"shifted": "no"},
         "no faster than position alone (mean volume) and shifted importance (scrambled time): importance is"),
        ({"random": "no"}, {"random": "no"}, "no faster than random volumes: importance"),
        ({"random": "worse"}, {"random": "worse"}, "more slowly than random"),
    ],
)  # fmt: skip
def test_faithful_is_what_every_control_and_replacement_says(evidence, mean, surrogate, words):
    numbers = {"difference": -0.04, "difference_low": -0.06, "difference_high": -0.02}
    others = {"difference": -0.03, "low": -0.05, "high": -0.01}
    numbers |= {f"{c}_{end}": value for c in CONTROLS[1:] for end, value in others.items()}
    rows = [
        {"replacement": name, "direction": "deletion", "order": order, **numbers}
        | {f"better_than_{control}": changes.get(control, "yes") for control in CONTROLS}
        for name, changes in (("mean", mean), ("surrogate", surrogate))
        for order in ("importance", "rollout")
    ]
    write(rows, evidence.explanation / "faithfulness_areas.tsv", AREA_COLUMNS)
    found = ask("deletion", evidence)
    says(found, NOT_SUPPORTED if mean or surrogate else SUPPORTED, words)
    assert found.value.startswith(
        "mean volume: random −0.04 [−0.06, −0.02], position −0.03 [−0.05, −0.01], shifted −0.03 [−0.05, −0.01]; scr"
    )
    assert ask("insertion", evidence).state == NOT_TESTED


@pytest.mark.parametrize(("auc", "passed", "state"), [(0.84, "true", SUPPORTED), (0.6, "false", NOT_SUPPORTED)])
def test_planted_moments_and_position_alone_must_lie_in_their_ranges(tmp_path, auc, passed, state):
    evidence = Evidence(tmp_path, tmp_path, 5, truth=tmp_path / "truth.tsv")
    rows = [
        {"measure": "landmark AUC", "value": auc, "low": 0.8, "passed": passed},
        {"measure": "landmark AUC of position alone", "value": 0.52, "low": 0.4, "high": 0.6, "passed": "true"},
        {"measure": "planted ROIs, p", "value": 0.0001, "high": 0.01, "passed": "true"},
    ]
    write(rows, tmp_path / "truth.tsv", TRUTH)
    words = "as expected" if state == SUPPORTED else "not as expected"
    found = ask("planted moments", evidence)
    says(found, state, f"AUC {auc}", "(position alone: 0.52)", words)
    assert "≥ 0.8" in found.criterion and "0.4 to 0.6" in found.criterion
    says(ask("planted regions", evidence), SUPPORTED, "0.0001")


def test_planted_regions_may_be_found_although_none_is_called_important(tmp_path):
    """Mean weights can find them where no fold alone does: the green verdict does not contradict the red one."""
    evidence = Evidence(tmp_path, tmp_path, 5, truth=tmp_path / "truth.tsv")
    known = {"selected": True, "n_folds": 2, "selection_frequency": 0.5}
    write([{"name": f"ROI {i}", **known} for i in range(3)], tmp_path / "roi_weights.tsv", ROI_COLUMNS)
    write([{"measure": "planted ROIs, p", "value": 0.0001, "high": 0.01, "passed": "true"}], evidence.truth, TRUTH)
    says(ask("regions", evidence), NOT_SUPPORTED, "no single region should be called important")
    words = "among those that rank highest over all folds (whether or not single folds agree on them) is 0.0001"
    says(ask("planted regions", evidence), SUPPORTED, words)


def test_questions_are_counted_by_their_answers():
    found = [Verdict("s", "q", "c", state=state) for state in (NOT_TESTED, SUPPORTED, NOT_SUPPORTED, NOT_SUPPORTED)]
    assert counted(found) == "Of 4 questions about this explanation: 1 supported, 2 not supported, 1 not tested."
