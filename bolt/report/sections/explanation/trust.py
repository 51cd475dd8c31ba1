"""Whether to trust an explanation: planted truth, sanity checks, faithfulness. As in `questions` beside this module."""

from __future__ import annotations

from collections.abc import Collection

import pandas as pd

from bolt.explain.trust.similarity import GONE
from bolt.io.files import holds_something, read_table
from bolt.report.sections.explanation.faithfulness import BY
from bolt.report.sections.explanation.questions import (
    events_matter,
    folds_agree,
    moments_matter,
    order_matters,
    predicts,
    regions_return,
    seeds_agree,
)
from bolt.report.sections.explanation.verdicts import Evidence, Verdict, plain, signed
from bolt.report.tables.readable import number


def finds_planted_moments(found: Evidence) -> Verdict | None:
    """The events that the simulator planted, and what position alone would find."""
    return _planted(
        found,
        "Does it find the moments that were planted?",
        ("landmark AUC", "landmark AUC of position alone"),
        "Volumes of planted events are ranked first with AUC {0} (position alone: {1})",
    )


def finds_planted_regions(found: Evidence) -> Verdict | None:
    """The regions that the simulator planted."""
    return _planted(
        found,
        "Does it find the regions that were planted?",
        ("planted ROIs, p",),
        "the chance that random regions hold as many planted ones as those shown is {0}",
    )


def _planted(found: Evidence, question: str, measures: tuple[str, ...], words: str) -> Verdict | None:
    """None where nothing was planted, or where another run is judged."""
    if found.truth is None or not found.truth.is_file():
        return None
    table = read_table(found.truth, text=("measure", "unit", "passed")).set_index("measure")
    rows = table.loc[[name for name in measures if name in table.index]]
    if len(rows) < len(measures):
        return None
    bars = "; ".join(f"{name} {_bar(row)}" for name, row in rows.iterrows())
    values = [number(value) for value in rows["value"]]
    passed = bool((rows["passed"].astype(str).str.lower() == "true").all())
    sentence = words.format(*values)
    sentence = sentence[0].upper() + sentence[1:] + (": as expected." if passed else ": not as expected.")
    return Verdict(question, bars).found("; ".join(values), passed, sentence)


def _bar(row: pd.Series) -> str:
    low, high = row["low"], row["high"]
    if pd.isna(low):
        return f"≤ {number(high)}"
    return f"≥ {number(low)}" if pd.isna(high) else f"{number(low)} to {number(high)}"


def random_weights_destroy_it(found: Evidence) -> Verdict:
    """The end of the cascade of random layers."""
    return _sanity(
        found,
        "cascade",
        "Does it depend on what the model has learned?",
        "with random weights in all layers",
        "Randomised weights",
    )


def permuted_labels_destroy_it(found: Evidence) -> Verdict:
    """A model that was trained on permuted labels."""
    return _sanity(
        found,
        "permuted labels",
        "Does it depend on what the labels are?",
        "of a model trained on permuted labels",
        "Permuted labels",
    )


def _sanity(found: Evidence, check: str, question: str, which: str, what: str) -> Verdict:
    asked = Verdict(question, f"rank correlation with the importance {which}: nearer to 0 than {GONE}")
    file = found.out / "sanity.tsv"
    table = read_table(file, text=("check", "layer", "fold", "verdict", "note")) if file.is_file() else pd.DataFrame()
    if table.empty:
        return asked
    rows = table[(table["check"] == check) & (table["fold"] == "all") & table["verdict"].isin(["passed", "not passed"])]
    if rows.empty:
        return asked
    row = rows.iloc[-1]
    if pd.isna(row["rho"]):
        return asked.found("undefined", False, f"{what} leave importance that cannot be compared: not passed.")
    passed, rho = row["verdict"] == "passed", plain(row["rho"])
    interval = "" if pd.isna(row["low"]) else f" [{plain(row['low'])}, {plain(row['high'])}]"
    words = "destroy the importance curve" if passed else "do not destroy the importance curve"
    note = f"; {row['note']}" if isinstance(row["note"], str) else ""  # how much there was to destroy
    return asked.found(rho + interval + note, passed, f"{what} {words} (ρ {rho}: {row['verdict']}).")


def deletion_hurts(found: Evidence) -> Verdict:
    """Removing important volumes first."""
    return _faithful(
        found,
        "deletion",
        "Does the decision fall when important moments are removed?",
        "Deleting important volumes first lowers the prediction",
    )


def insertion_helps(found: Evidence) -> Verdict:
    """Putting important volumes back first."""
    return _faithful(
        found,
        "insertion",
        "Does it return when they are put back?",
        "Putting important volumes back first restores the prediction",
    )


def _faithful(found: Evidence, direction: str, question: str, words: str) -> Verdict:
    asked = Verdict(
        question,
        "area under the curve of the probability, less that of random volumes: 95 % interval on the good side of 0, "
        "however volumes are replaced",
    )
    file = found.out / "faithfulness_areas.tsv"
    if not holds_something(file):
        return asked
    table = read_table(file, text=("replacement", "direction", "order", "better_than_random"))
    rows = table[(table["direction"] == direction) & (table["order"] == "importance")]
    rows = rows[rows["better_than_random"].notna()]
    if rows.empty:
        return asked
    value = "; ".join(
        f"{BY[row['replacement']]} {signed(row['difference'])} "
        f"[{signed(row['difference_low'])}, {signed(row['difference_high'])}]"
        for _, row in rows.iterrows()
    )
    judged = rows.set_index("replacement")["better_than_random"]
    good, bad = ([BY[name] for name in judged.index[judged == word]] for word in ("yes", "worse"))
    if len(good) == len(rows):
        return asked.found(value, True, f"{words} faster than random ones do.")
    if good:
        some = f"{words} faster than random ones do with one replacement ({', '.join(good)}), not with the other"
        return asked.found(value, False, f"{some}: importance is faithful in part at best.")
    slower = "slower than" if len(bad) == len(rows) else "no faster than"
    return asked.found(value, False, f"{words} {slower} random ones do: importance is not shown to be faithful.")


QUESTIONS = (
    predicts,
    events_matter,
    moments_matter,
    order_matters,
    regions_return,
    folds_agree,
    seeds_agree,
    finds_planted_moments,
    finds_planted_regions,
    random_weights_destroy_it,
    permuted_labels_destroy_it,
    deletion_hurts,
    insertion_helps,
)
"""In the order in which they are read."""


def answers(found: Evidence, passed_over: Collection[object] = ()) -> list[Verdict]:
    """Every question that can be asked of a run; those `passed_over` are not tested, whatever files lie there."""
    asked = [(ask in passed_over, verdict) for ask in QUESTIONS if (verdict := ask(found)) is not None]
    return [Verdict(verdict.question, verdict.measure) if passed else verdict for passed, verdict in asked]
