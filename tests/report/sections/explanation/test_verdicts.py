"""Words and verdicts follow from the numbers, in both directions, and what has no file is not tested."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bolt.explain.events import TRANSITIONS
from bolt.explain.landmark_tests import TEST_COLUMNS
from bolt.explain.regions import ROI_COLUMNS
from bolt.explain.tasks import ALIGNMENT_COLUMNS
from bolt.explain.trust.faithfulness import AREA_COLUMNS
from bolt.io.files import read_table, write_json, write_table
from bolt.report.sections.explanation.measures import MEASURES, NOT_SUPPORTED, SUPPORTED
from bolt.report.sections.explanation.questions import NOT_TESTED, Evidence, Verdict, ask, counted, questions, verdicts

SANITY = ["check", "step", "layer", "fold", "rho", "low", "high", "n_scans", "verdict", "note"]
STABILITY = ["between", "what", "class", "one", "other", "pearson", "spearman"]
TRUTH = ["measure", "value", "unit", "null", "null_meaning", "oracle", "low", "high", "passed"]


@pytest.fixture
def evidence(tmp_path: Path) -> Evidence:
    return Evidence(tmp_path / "run", tmp_path / "out", 5)


def write(rows: list[dict[str, object]], path: Path, columns: list[str] | dict[str, str]) -> None:
    table = pd.DataFrame(rows).reindex(columns=list(columns))
    write_table(table, path, dict.fromkeys(columns, "Test"))


def write_tests(evidence: Evidence, *rows: tuple[str, str, float, float, float], importance: str = "fitted") -> None:
    """Write ``landmark_tests.tsv``: question, control, both AUC, and p (NaN: three folds)."""
    table = [
        {
            "question": question,
            "importance": importance,
            "first": "important",
            "second": second,
            "auc_first": first,
            "auc_second": other,
            "difference": first - other,
            "p": p,
            "n_folds": 3 if np.isnan(p) else 10,
            "note": "3 of at least 6 folds" if np.isnan(p) else "",
        }
        for question, second, first, other, p in rows
    ]
    write(table, evidence.explanation / "landmark_tests.tsv", TEST_COLUMNS)


def moments(auc: float, p: float = 0.01, **controls: float | tuple[float, float]) -> list[tuple]:
    """Rows of all controls: 0.5, or (AUC, p) as given."""
    known = {"random": 0.5, "random_direction": 0.5, "wrong_class": 0.5, "fixed_class": 0.5} | controls
    pairs = {name: value if isinstance(value, tuple) else (value, p) for name, value in known.items()}
    return [("moments", name.replace("_", " "), auc, *pair) for name, pair in pairs.items()]


def says(verdict: Verdict | None, state: str, *words: str) -> None:
    assert verdict is not None and verdict.state == state, verdict
    for word in words:
        assert word in verdict.sentence, verdict.sentence


def test_what_has_no_file_is_not_tested_and_says_nothing(evidence: Evidence) -> None:
    found = verdicts(evidence)
    assert list(questions()) == list(MEASURES)
    assert len(found) == len(questions()) - 3  # nothing was planted, and there are no tasks
    assert {verdict.state for verdict in found} == {NOT_TESTED} and not any(verdict.sentence for verdict in found)
    assert not any("{" in verdict.criterion for verdict in found)


@pytest.mark.parametrize(
    ("low", "state", "words"), [(0.55, SUPPORTED, "decision to explain"), (0.48, NOT_SUPPORTED, "nothing to explain")]
)
def test_a_model_that_predicts_nothing_has_nothing_to_explain(
    evidence: Evidence, low: float, state: str, words: str
) -> None:
    write_json({"pooled": {"auc": {"value": 0.62, "low": low, "high": 0.7}}}, evidence.run / "summary.json")
    says(ask("prediction", evidence), state, "AUC 0.62", words)


def test_important_moments_must_be_ahead_of_random_ones_by_enough_and_significantly(evidence: Evidence) -> None:
    write_tests(evidence, *moments(0.62, fixed_class=0.55))
    words = (
        "The 5 most important volumes",
        "AUC 0.62",
        "random ones with 0.50",
        "in all scans, whatever the prediction",
    )
    says(ask("moments", evidence), SUPPORTED, *words, "give 0.55")
    write_tests(evidence, *moments(0.51))  # a gain of 0.01
    says(ask("moments", evidence), NOT_SUPPORTED, "is not shown")
    write_tests(evidence, *moments(0.62, random=(0.5, 0.2)))
    says(ask("moments", evidence), NOT_SUPPORTED, "is not shown")
    write_tests(evidence, *moments(0.4))  # significantly worse
    says(ask("moments", evidence), NOT_SUPPORTED, "is not shown")


@pytest.mark.parametrize(
    ("control", "words"),
    [("wrong_class", "support the wrong class predict it"), ("random_direction", "along random directions predict it")],
)
def test_a_choice_that_carries_the_prediction_is_named(evidence: Evidence, control: str, words: str) -> None:
    write_tests(evidence, *moments(0.81, **{control: (0.8, 0.6)}))
    found = ask("moments", evidence)
    says(found, NOT_SUPPORTED, words + " as well (AUC 0.80)", "the choice of volumes itself carries the prediction")
    assert f"{control.replace('_', ' ')} 0.80 (+0.01, p 0.6)" in found.value
    write_tests(evidence, *moments(0.81, **{control: (0.75, 0.06)}))
    says(ask("moments", evidence), NOT_SUPPORTED, words + " almost as well (AUC 0.75)")
    write_tests(evidence, *moments(0.81, wrong_class=(0.8, 0.6), random_direction=(0.84, 0.2)))
    says(ask("moments", evidence), NOT_SUPPORTED, "random directions predict it as well (AUC 0.84)")  # the better one


def test_volumes_for_a_fixed_class_are_no_bar(evidence: Evidence) -> None:
    """Their choice does not depend on the prediction: if they predict the class, the moments differ."""
    write_tests(evidence, *moments(0.81, fixed_class=(0.9, 0.1)))
    says(ask("moments", evidence), SUPPORTED, "give 0.90")


def test_models_that_did_not_see_the_scans_decide(evidence: Evidence) -> None:
    write_tests(evidence, *moments(0.9))
    fitted = read_table(evidence.explanation / "landmark_tests.tsv")
    write_tests(evidence, *moments(0.5, p=0.9), importance="inner")  # learned by heart
    inner = read_table(evidence.explanation / "landmark_tests.tsv")
    write_table(pd.concat([fitted, inner]), evidence.explanation / "landmark_tests.tsv", TEST_COLUMNS)
    found = ask("moments", evidence)
    says(found, NOT_SUPPORTED, "AUC 0.50")
    assert "did not see them" in found.value


def test_few_folds_are_not_tested_and_the_reason_is_shown(evidence: Evidence) -> None:
    write_tests(evidence, *moments(0.9, p=np.nan), ("order", "last quarter", 0.9, 0.5, np.nan))
    for name in ("moments", "order"):
        found = ask(name, evidence)
        assert (
            found.state == NOT_TESTED and found.sentence == "" and found.value.startswith("3 of at least 6 folds: 0.90")
        )
    write_tests(evidence, *moments(0.9)[1:])  # no random volumes
    found = ask("moments", evidence)
    assert found.state == NOT_TESTED and found.value == "–"


@pytest.mark.parametrize(
    ("end", "p", "state"), [(0.5, 0.01, SUPPORTED), (0.5, 0.2, NOT_SUPPORTED), (0.61, 0.01, NOT_SUPPORTED)]
)
def test_moments_further_down_the_list_must_tell_less(evidence: Evidence, end: float, p: float, state: str) -> None:
    write_tests(evidence, *moments(0.8), ("order", "last quarter", 0.62, end, p))
    says(ask("order", evidence), state, "falls from 0.62 to 0.50." if state == SUPPORTED else "does not clearly fall")
    write_tests(evidence, *moments(0.8, wrong_class=0.8), ("order", "last quarter", 0.62, end, p))
    says(ask("order", evidence), NOT_SUPPORTED, "may carry" if state == SUPPORTED else "does not clearly fall")


@pytest.mark.parametrize(("p", "state"), [(0.001, SUPPORTED), (0.3, NOT_SUPPORTED)])
def test_importance_on_events_is_a_question_of_tasks(evidence: Evidence, p: float, state: str) -> None:
    row = {"class": "WM", "task": "WM", "run": "LR", "trial_type": "2bk_faces", "ratio": 1.4, "p": p, "p_holm": p}
    write([row], evidence.explanation / "tasks_alignment.tsv", ALIGNMENT_COLUMNS)
    says(ask("events", evidence), state, "1.40 times" if state == SUPPORTED else "not shown")


def test_events_are_corrected_over_all_tasks_and_transitions_are_none(evidence: Evidence) -> None:
    row = {"class": "WM", "task": "WM", "run": "LR", "trial_type": "2bk_faces", "ratio": 1.4, "p": 0.01, "p_holm": 0.01}
    changes = {**row, "trial_type": TRANSITIONS, "p": 0.0001, "p_holm": 0.0001}
    others = [{**row, "class": name, "task": name, "p": 0.9, "p_holm": 0.9} for name in ("MOTOR", "SOCIAL", "GAMBLING")]
    write([row, changes, *others], evidence.explanation / "tasks_alignment.tsv", ALIGNMENT_COLUMNS)
    says(ask("events", evidence), SUPPORTED, "1 of 4 event types", "p 0.04 corrected over all tasks")
    write([row, changes, *others, *others], evidence.explanation / "tasks_alignment.tsv", ALIGNMENT_COLUMNS)
    says(ask("events", evidence), NOT_SUPPORTED, "not shown")  # 7 x 0.01


@pytest.mark.parametrize(
    ("frequencies", "state", "words"),
    [([1.0, 0.9, 0.1], SUPPORTED, "such as ROI 0, ROI 1"), ([0.3, 0.3, 0.3], NOT_SUPPORTED, "none of them")],
)
def test_regions_must_return(evidence: Evidence, frequencies: list[float], state: str, words: str) -> None:
    known = {"selected": True, "n_folds": 2}
    rows = [{"name": f"ROI {i}", "selection_frequency": f, **known} for i, f in enumerate(frequencies)]
    write(rows, evidence.explanation / "roi_weights.tsv", ROI_COLUMNS)
    says(ask("regions", evidence), state, "of 3 regions shown", "2 folds", words)


@pytest.mark.parametrize(("r", "state"), [(0.71, SUPPORTED), (0.41, NOT_SUPPORTED)])
def test_maps_of_folds_and_seeds_must_agree(evidence: Evidence, r: float, state: str) -> None:
    rows = [
        {"between": "folds", "what": "regions", "class": "a", "one": "mean", "pearson": r},
        {"between": "folds", "what": "importance", "one": "mean", "spearman": 0.3},
        {"between": "folds", "what": "regions", "class": "a", "one": "lowest", "pearson": 0.0},
    ]
    write(rows, evidence.explanation / "stability.tsv", STABILITY)
    says(ask("folds", evidence), state, f"Maps of different folds correlate {r}", "scans 0.30")
    assert ask("seeds", evidence).state == NOT_TESTED  # one seed
    assert "other subjects" not in ask("folds", evidence).question  # folds share most of theirs


@pytest.mark.parametrize(
    ("rho", "verdict", "state"), [(0.05, "passed", SUPPORTED), (0.45, "not passed", NOT_SUPPORTED)]
)
def test_the_end_of_the_cascade_is_what_counts(evidence: Evidence, rho: float, verdict: str, state: str) -> None:
    rows = [
        {"check": "cascade", "step": 1, "layer": "classifier", "fold": "all", "rho": 0.9},
        {"check": "cascade", "step": 6, "layer": "input", "fold": "all", "rho": rho, "verdict": verdict},
        {"check": "cascade", "step": 6, "layer": "input", "fold": "4", "rho": 0.7},
        {"check": "permuted labels", "fold": "all", "n_scans": 0, "verdict": "not done", "note": "failed"},
    ]
    write(rows, evidence.explanation / "sanity.tsv", SANITY)
    words = "weights destroys the importance curve" if state == SUPPORTED else "does not destroy the importance curve"
    says(ask("random weights", evidence), state, words, f"ρ {rho:.2f}: {verdict}")
    assert ask("permuted labels", evidence).state == NOT_TESTED
    rows[-1] |= {"rho": rho, "verdict": verdict, "note": "it has learned 55% of them"}
    write(rows, evidence.explanation / "sanity.tsv", SANITY)
    assert ask("permuted labels", evidence).value == f"{rho:.2f}; it has learned 55% of them"


@pytest.mark.parametrize(
    ("mean", "surrogate", "state", "words"),
    [
        ("yes", "yes", SUPPORTED, "faster than random ones do."),
        ("yes", "no", NOT_SUPPORTED, "one replacement (mean volume), but not with the other: importance is"),
        ("no", "no", NOT_SUPPORTED, "no faster than random"),
        ("worse", "worse", NOT_SUPPORTED, "more slowly than random"),
    ],
)
def test_faithful_is_what_every_replacement_says(
    evidence: Evidence, mean: str, surrogate: str, state: str, words: str
) -> None:
    numbers = {"difference": -0.04, "difference_low": -0.06, "difference_high": -0.02}
    rows = [
        {"replacement": name, "direction": "deletion", "order": order, "better_than_random": word, **numbers}
        for name, word in (("mean", mean), ("surrogate", surrogate))
        for order in ("importance", "rollout")
    ]
    write(rows, evidence.explanation / "faithfulness_areas.tsv", AREA_COLUMNS)
    found = ask("deletion", evidence)
    says(found, state, words)
    assert "mean volume −0.04 [−0.06, −0.02]; scrambled time −0.04" in found.value
    assert ask("insertion", evidence).state == NOT_TESTED


@pytest.mark.parametrize(("auc", "passed", "state"), [(0.84, "true", SUPPORTED), (0.6, "false", NOT_SUPPORTED)])
def test_planted_moments_and_position_alone_must_lie_in_their_ranges(
    tmp_path: Path, auc: float, passed: str, state: str
) -> None:
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


def test_questions_are_counted_by_their_answers() -> None:
    found = [Verdict("q", "c", state=state) for state in (NOT_TESTED, SUPPORTED, NOT_SUPPORTED, NOT_SUPPORTED)]
    assert counted(found) == "Of 4 questions about this explanation: 1 supported, 2 not supported, 1 not tested."
