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
from bolt.report.pages.verdicts import (
    MEASURES,
    NOT_SUPPORTED,
    NOT_TESTED,
    SUPPORTED,
    Evidence,
    Verdict,
    ask,
    connected,
    counted,
    questions,
    verdicts,
)
from tests.report.before import as_before

SANITY = ["check", "step", "layer", "fold", "rho", "low", "high", "n_scans", "verdict", "note"]
TRUTH = ["measure", "value", "unit", "null", "null_meaning", "oracle", "low", "high", "passed"]


def write(rows, path, columns):
    write_table(pd.DataFrame(rows).reindex(columns=list(columns)), path, dict.fromkeys(columns, "Test"))


def landmark_tests(*rows, importance="fitted"):
    """Return ``landmark_tests.tsv``: question, control, both AUC, and p (NaN: three folds)."""
    table = pd.DataFrame(rows, columns=["question", "second", "auc_first", "auc_second", "p"])
    few = table["p"].isna()
    table = table.assign(importance=importance, first="important", difference=table["auc_first"] - table["auc_second"])
    return table.assign(n_folds=np.where(few, 3, 10), note=np.where(few, "3 of at least 6 folds", ""))


def moments(auc, p=0.01, **controls):
    """Rows of all controls: 0.5, or (AUC, p) as given."""
    given = {"random": 0.5, "random_direction": 0.5, "wrong_class": 0.5, "fixed_class": 0.5} | controls
    pairs = {name: value if isinstance(value, tuple) else (value, p) for name, value in given.items()}
    return [("moments", name.replace("_", " "), auc, *pair) for name, pair in pairs.items()]


def predictions():
    """What permuted labels say of a model: 0.025 is the level."""
    chance = {"metric": "auc", "value": 0.62, "p": None, "bar": 0.6, "n_folds": 10}
    unknown = {"value": None, "bar": None, "n_folds": 0}
    for changes in ({"p": 0.01}, {"p": 0.04}, {"p": 0.01, "n_folds": 4, "outer_folds": 10}, unknown):
        yield f"{changes}", "summary.json", {"chance": chance | changes}, None
    yield "no chance", "summary.json", {"chance": None}, None


def choices():
    """Important moments must be ahead of all but those of a fixed class, chosen whatever the prediction."""
    for auc, controls in (
        (0.62, {"fixed_class": 0.55}),
        (0.51, {}),  # a gain of 0.01
        (0.62, {"random": (0.5, 0.2)}),
        (0.4, {}),  # significantly worse
        (0.81, {"wrong_class": (0.8, 0.6)}),
        (0.81, {"wrong_class": (0.75, 0.06)}),
        (0.81, {"random_direction": (0.8, 0.6)}),
        (0.81, {"random_direction": (0.75, 0.06)}),
        (0.81, {"wrong_class": (0.8, 0.6), "random_direction": (0.84, 0.2)}),  # the better one
        (0.81, {"fixed_class": (0.9, 0.1)}),
    ):
        yield f"{auc} {controls}", "landmark_tests.tsv", landmark_tests(*moments(auc, **controls)), TEST_COLUMNS
    inner = landmark_tests(*moments(0.5, p=0.9), importance="inner")  # learned by heart
    both = pd.concat([landmark_tests(*moments(0.9)), inner])
    yield "models that did not see the scans decide", "landmark_tests.tsv", both, TEST_COLUMNS
    few = landmark_tests(*moments(0.9, p=np.nan), ("order", "last quarter", 0.9, 0.5, np.nan))
    yield "few folds", "landmark_tests.tsv", few, TEST_COLUMNS
    yield "no random volumes", "landmark_tests.tsv", landmark_tests(*moments(0.9)[1:]), TEST_COLUMNS


def orders():
    """Moments further down the list must tell less."""
    for wrong in (0.5, 0.8):
        for end, p in ((0.5, 0.01), (0.5, 0.2), (0.61, 0.01)):
            rows = landmark_tests(*moments(0.8, wrong_class=wrong), ("order", "last quarter", 0.62, end, p))
            yield f"wrong class {wrong}, falls to {end}, p {p}", "landmark_tests.tsv", rows, TEST_COLUMNS
    names = ("second quarter", "third quarter", "last quarter")
    for quarters in ((0.4, 0.6, 0.91), (0.9, 0.35, 0.69), (0.4, 0.5, 0.55)):
        curve = [("order", name, 1.0, auc, 0.001) for name, auc in zip(names, quarters, strict=True)]
        yield f"{quarters}", "landmark_tests.tsv", landmark_tests(*moments(1.0), *curve), TEST_COLUMNS


def events():
    row = {"class": "WM", "task": "WM", "run": "LR", "trial_type": "2bk_faces", "ratio": 1.4, "p": 0.01}
    for p, by_position in ((0.001, 0.9), (0.3, 0.9), (0.001, 1.45), (0.001, 0.55)):  # more by position alone
        rows = [row | {"p": p, "ratio_untrained": by_position}]
        yield f"p {p}, by position {by_position}", "tasks_alignment.tsv", rows, ALIGNMENT_COLUMNS
    older = [column for column in ALIGNMENT_COLUMNS if column != "ratio_untrained"]
    yield "importance not relative to untrained models", "tasks_alignment.tsv", [row], older
    row |= {"ratio_untrained": 1.0}
    rows = [row, row | {"trial_type": TRANSITIONS, "p": 0.0001}]  # no event
    others = [row | {"class": name, "task": name, "p": 0.9} for name in ("MOTOR", "SOCIAL", "GAMBLING")]
    yield "four event types", "tasks_alignment.tsv", rows + others, ALIGNMENT_COLUMNS
    yield "seven event types", "tasks_alignment.tsv", rows + 2 * others, ALIGNMENT_COLUMNS  # 7 x 0.01


def regions():
    for frequencies in ([1.0, 0.9, 0.1], [0.6, 0.3, 0.3], [0.3, 0.3, 0.3]):
        known = {"selected": True, "n_folds": 2}
        rows = [{"name": f"ROI {i}", "selection_frequency": f, **known} for i, f in enumerate(frequencies)]
        yield f"{frequencies}", "roi_weights.tsv", rows, ROI_COLUMNS


def maps():
    """Maps must agree beyond what shared scans explain; those of seeds share all, so that p does not decide."""
    for r, p, p_halves in ((0.71, 0.01, 0.02), (0.41, 0.01, 0.02), (0.71, 0.2, 0.02), (0.71, 0.01, 0.3)):
        own = {"what": "regions", "class": "a", "one": "mean", "pearson": r, "pearson_null": 0.25, "p": p}
        halves = own | {"what": "halves", "pearson": 0.12, "pearson_null": 0.0, "p": p_halves}
        rows = [own, halves, {"what": "importance", "one": "mean", "spearman": 0.3}]
        rows += [{"what": "regions", "class": "a", "one": "lowest", "pearson": 0.0}]
        rows = [{"between": between, **row} for between in ("folds", "seeds") for row in rows]
        yield f"r {r}, p {p}, halves {p_halves}", "stability.tsv", rows, STABILITY_COLUMNS
    yield "one seed", "stability.tsv", rows[:4], STABILITY_COLUMNS
    for lacking in ("halves", "p"):
        tested = {"between": "folds", "class": "a", "one": "mean", "pearson": 0.7, "p": 0.01}
        rows = [{**tested, "what": what} for what in ("regions", "halves") if what != lacking]
        rows = [row | ({"p": None} if lacking == "p" else {}) for row in rows]
        yield f"without {lacking}", "stability.tsv", rows, STABILITY_COLUMNS


def checks():
    """The end of the cascade counts, if there is a control, and if the interval says so."""
    end, labels = ({"check": check, "fold": "all"} for check in ("cascade", "permuted labels"))
    end |= {"step": 6, "layer": "input"}
    again = {"check": "trained again", "fold": "all", "rho": 0.52, "low": 0.4, "high": 0.6, "verdict": "reproducible"}
    for rho, verdict in ((0.05, "passed"), (0.45, "not passed")):
        rows = [end | {"step": 1, "layer": "classifier", "rho": 0.9}, end | {"rho": rho, "verdict": verdict}]
        rows += [end | {"fold": "4", "rho": 0.7}, again]
        for change in (
            {"verdict": "not done", "note": "failed"},
            {"rho": rho, "verdict": verdict, "note": "55% of them"},
        ):
            yield f"{verdict}, labels {change['verdict']}", "sanity.tsv", [*rows, labels | change], SANITY
    for control, verdict in (
        ("not reproducible", "not reproducible"),
        ("reproducible", "not shown"),
        ("not shown", "no control"),
        ("not done", "no control"),
        (None, "no control"),
        (None, "passed"),  # a table without a control of an earlier version
    ):
        rows = [end | {"verdict": verdict, "rho": 0.05, "low": -0.2, "high": 0.3}]
        again = {"check": "trained again", "fold": "all", "rho": 0.1, "note": "the loss is not finite"}
        rows += [again | {"verdict": control}] if control else []
        yield f"{verdict}, control {control}", "sanity.tsv", rows, SANITY
    yield "undefined", "sanity.tsv", [end | {"verdict": "not passed"}], SANITY


def faithful():
    """What every control and replacement says."""
    numbers = {"difference": -0.04, "difference_low": -0.06, "difference_high": -0.02}
    others = {"difference": -0.03, "low": -0.05, "high": -0.01}
    numbers |= {f"{c}_{end}": value for c in CONTROLS[1:] for end, value in others.items()}
    for mean, surrogate in (
        ({}, {}),
        ({}, {"random": "no"}),
        ({"position": "no"}, {"position": "worse"}),
        ({"position": "no"}, {"shifted": "no"}),
        ({"random": "no"}, {"random": "no"}),
        ({"random": "worse"}, {"random": "worse"}),
    ):
        rows = [
            {"replacement": name, "direction": "deletion", "order": order, **numbers}
            | {f"better_than_{control}": changes.get(control, "yes") for control in CONTROLS}
            for name, changes in (("mean", mean), ("surrogate", surrogate))
            for order in ("importance", "rollout")
        ]
        yield f"mean {mean}, surrogate {surrogate}", "faithfulness_areas.tsv", rows, AREA_COLUMNS


def planted():
    """Planted regions may be found although none is called important: mean weights can find them where no fold does."""
    for auc, passed in ((0.84, "true"), (0.6, "false")):
        rows = [
            {"measure": "landmark AUC", "value": auc, "low": 0.8, "passed": passed},
            {"measure": "landmark AUC of position alone", "value": 0.52, "low": 0.4, "high": 0.6, "passed": "true"},
            {"measure": "planted ROIs, p", "value": 0.0001, "high": 0.01, "passed": "true"},
        ]
        yield f"AUC {auc}", "truth.tsv", rows, TRUTH
    yield "regions alone", "truth.tsv", rows[2:], TRUTH


def test_verdicts_follow_from_the_numbers(tmp_path):
    """State, value and sentence of each question that a file answers, and what was expected of the planted truth."""
    parts = []
    for cases in (predictions, choices, orders, events, regions, maps, checks, faithful, planted):
        for i, (title, name, rows, columns) in enumerate(cases()):
            folder = tmp_path / f"{cases.__name__}-{i}"
            evidence = Evidence(folder, folder, 5, truth=folder / "truth.tsv")
            if columns is None:
                write_json(rows, folder / name)
            else:
                write(rows, folder / name, columns)
            parts.append(f"# {cases.__name__}: {title}")
            for question in [question for question, about in questions().items() if about["file"] == name]:
                verdict = ask(question, evidence)
                said = [] if verdict is None else [verdict.state, verdict.value, verdict.sentence]
                said += [verdict.criterion] if verdict and cases is planted else []
                parts.append(f"{question}: {' | '.join(filter(None, said)) or 'not asked'}")
    as_before("verdicts.txt", "\n".join(parts) + "\n")


def test_what_has_no_file_is_not_tested_and_says_nothing(tmp_path):
    found = verdicts(Evidence(tmp_path / "run", tmp_path / "out", 5))
    assert list(questions()) == list(MEASURES)
    assert len(found) == len(questions()) - 4  # nothing was planted, there are no tasks and no connections
    assert {verdict.state for verdict in found} == {NOT_TESTED} and not any(verdict.sentence for verdict in found)
    assert not any("{" in verdict.criterion for verdict in found)


def test_questions_are_counted_by_their_answers():
    found = [Verdict("s", "q", "c", state=state) for state in (NOT_TESTED, SUPPORTED, NOT_SUPPORTED, NOT_SUPPORTED)]
    assert counted(found) == "Of 4 questions about this explanation: 1 supported, 2 not supported, 1 not tested."


def test_a_fold_without_a_map_is_no_part_of_the_mean_map():
    rows = [(0, 1, 0.2), (0, 2, np.nan), (1, 2, np.nan), ("mean", np.nan, 0.2)]
    table = pd.DataFrame(rows, columns=["one", "other", "pearson"]).assign(p=0.01, pearson_null=0.0)
    assert connected(table, 0.5, 0.05).facts["maps"]["all_folds"] == pytest.approx(2 * 0.2 / 1.2)
