"""The questions that the explanation page asks of a run, each answered from one file: which moments, which regions, how
stable. `bolt.report.sections.explanation.trust` asks whether to believe the answers.

A question whose file is not there is `not tested`; one that cannot be asked of the data is None.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from bolt.cohort.confounding import holm
from bolt.explain.events import TRANSITIONS
from bolt.io.files import read_json, read_table
from bolt.report.sections.explanation.landmarks import read_landmarks
from bolt.report.sections.explanation.verdicts import (
    AGREEMENT,
    ALPHA,
    GAIN,
    MOST,
    OFTEN,
    Evidence,
    Verdict,
    plain,
    signed,
    spelled,
)
from bolt.report.tables.readable import p_value


def predicts(found: Evidence) -> Verdict:
    """Is there anything to explain?"""
    asked = Verdict("Does the model predict at all?", "AUC of all test scans; its 95 % interval lies above 0.5")
    file = found.run / "summary.json"
    pooled = read_json(file)["pooled"] if file.is_file() else None
    if not pooled or pooled["auc"]["value"] is None:
        return asked
    value, low, high = (plain(pooled["auc"][key]) for key in ("value", "low", "high"))
    above = pooled["auc"]["low"] > 0.5
    rest = "there is a decision to explain" if above else "not shown to be better than chance, so there may be nothing"
    sentence = f"The model tells test scans apart with AUC {value} (95 % interval {low} to {high}): {rest}"
    return asked.found(f"{value} [{low}, {high}]", above, sentence + ("." if above else " to explain."))


def moments_matter(found: Evidence) -> Verdict:
    """Important against random volumes: five moments of a scan each."""
    asked = Verdict(
        "Do the important moments tell the class better than others?",
        f"AUC of a regression on them, less that of random ones ≥ {GAIN} in the mean, ahead in {MOST:.0%} of the folds",
    )
    file = found.out / "landmarks.tsv"
    if not file.is_file():
        return asked
    table = read_landmarks(file)
    table = table[(table["level"] == "scan") & ~table["fold"].isin(["mean", "sd"])]
    auc = table.pivot_table(index="fold", columns="importance", values="auc").dropna(axis=1, how="all")
    kind = "inner" if "inner" in auc else "fitted"  # the fair one, where it was asked for
    if not {kind, "none"} <= set(auc):
        return asked
    auc = auc[[kind, "none"]].dropna()  # folds that have both
    if auc.empty:
        return asked
    enough, gain, ahead = _ahead(auc[kind], auc["none"])
    important, random, many = plain(auc[kind].mean()), plain(auc["none"].mean()), spelled(found.tokens)
    sentence = (
        f"{many.capitalize()} important volumes of a scan tell the class with AUC {important}, {many} random ones with "
        f"{random}; the important ones are ahead in {ahead}."
    )
    sentence += "" if enough else " That the important moments carry more is not shown."
    value = f"{important} against {random} ({signed(gain)}), ahead in {ahead}"
    return asked.found(
        value + (", training scans by models that did not see them" * (kind == "inner")), enough, sentence
    )


def order_matters(found: Evidence) -> Verdict:
    """Does the regression get worse down the ordered list?"""
    asked = Verdict(
        "Do moments tell less, the less important they are?",
        f"AUC in the first quarter of the ordered volumes, less that in the last: ≥ {GAIN} in the mean, ahead in "
        f"{MOST:.0%} of the folds",
    )
    file = found.out / "subsets.tsv"
    table = read_landmarks(file) if file.is_file() else pd.DataFrame()
    if table.empty:
        return asked
    table = table[(table["level"] == "scan") & ~table["fold"].isin(["mean", "sd"])]
    curves = table.pivot_table(index="fold", columns="offset", values="auc")
    if curves.shape[1] < 4:
        return asked
    quarter = curves.shape[1] // 4
    ends = [curves.iloc[:, :quarter].mean(axis=1), curves.iloc[:, -quarter:].mean(axis=1)]
    both = pd.concat(ends, axis=1).dropna()
    if both.empty:
        return asked
    first, last = both[0], both[1]
    enough, gain, ahead = _ahead(first, last)
    words = "falls from" if enough else "does not clearly fall: it is"
    sentence = f"Down the list of volumes ordered by importance, the AUC {words} {plain(first.mean())}"
    sentence += f" to {plain(last.mean())}." if enough else f" first and {plain(last.mean())} last."
    value = f"{plain(first.mean())} against {plain(last.mean())} ({signed(gain)}), ahead in {ahead}"
    return asked.found(value, enough, sentence)


def _ahead(one: pd.Series, other: pd.Series) -> tuple[bool, float, str]:
    """Whether one wins over the other by the bars, its mean gain, and in how many folds it is ahead."""
    gains = one - other
    n = int((gains > 0).sum())
    enough = gains.mean() >= GAIN and n >= MOST * len(gains)
    return bool(enough), float(gains.mean()), f"{n} of {len(gains)} folds"


def events_matter(found: Evidence) -> Verdict | None:
    """Does importance lie where a task's events are? None where scans have no events."""
    file = found.out / "tasks_alignment.tsv"
    table = read_table(file, text=("class", "task", "run", "trial_type")) if file.is_file() else pd.DataFrame()
    table = table[table["trial_type"] != TRANSITIONS] if len(table) else table  # when things change is no kind of event
    if table.empty:
        return None
    asked = Verdict(
        "Does importance lie on the task's events?",
        f"importance during events over the scan's mean: above 1 for some kind of event, p < {ALPHA} corrected over "
        "all tasks",
    )
    table = table.assign(p=holm(table["p"]))  # one question to all tasks, so corrected over all of them
    hits = table[(table["p"] < ALPHA) & (table["ratio"] > 1)].sort_values("ratio", ascending=False)
    value = f"{len(hits)} of {len(table)} kinds of events"
    if hits.empty:
        return asked.found(value, False, "Importance is not shown to lie on the task's events.")
    best = hits.iloc[0]
    sentence = (
        f"Importance lies on events for {value}, most on {best['trial_type']} of {best['class']} "
        f"({plain(best['ratio'])} times the scan's mean, p {p_value(best['p'])} corrected over all tasks)."
    )
    return asked.found(value, True, sentence)


def regions_return(found: Evidence) -> Verdict:
    """Selection frequency of the regions shown."""
    asked = Verdict(
        "Do the same regions return in most folds?",
        f"at least half of the regions shown are selected in more than {OFTEN:.0%} of the folds",
    )
    file = found.out / "roi_weights.tsv"
    if not file.is_file() or n_folds(found.out) < 2:
        return asked
    table = read_table(file, text=("class", "name", "network", "hemisphere"))
    shown = table[table["selected"].astype(bool)]
    if shown.empty:
        return asked
    often = shown[shown["selection_frequency"] > OFTEN].sort_values(
        "selection_frequency", ascending=False, kind="stable"
    )
    names = ", ".join(dict.fromkeys(often["name"].astype(str).head(4)))
    sentence = (
        f"{len(often)} of {len(shown)} shown regions are selected in more than half of {n_folds(found.out)} folds"
    )
    sentence += f", such as {names}." if names else ": none of them should be called important."
    return asked.found(f"{len(often)} of {len(shown)}", 2 * len(often) >= len(shown), sentence)


def folds_agree(found: Evidence) -> Verdict:
    """Correlation of the maps of different folds."""
    return _agree(found, "folds", "Do the models of different folds give the same map?")


def seeds_agree(found: Evidence) -> Verdict:
    """Correlation of the maps of different seeds."""
    return _agree(found, "seeds", "Do the models of different seeds give the same map?")


def _agree(found: Evidence, between: str, question: str) -> Verdict:
    asked = Verdict(question, f"correlation of the maps of two {between}, mean over pairs and classes: ≥ {AGREEMENT}")
    file = found.out / "stability.tsv"
    if not file.is_file():
        return asked
    table = read_table(file, text=("between", "what", "class", "one", "other"))
    means = table[(table["between"] == between) & (table["one"] == "mean")].set_index("what")
    maps = means.loc[means.index == "regions", "pearson"].mean()
    curves = means.loc[means.index == "importance", "spearman"].mean()
    if np.isnan(maps):
        return asked
    value, sentence = plain(maps), f"Maps of different {between} correlate {plain(maps)}"
    if not np.isnan(curves):
        value += f"; curves of the same scans {plain(curves)}"
        sentence += f", importance curves of the same scans {plain(curves)}"
    return asked.found(value, bool(maps >= AGREEMENT), sentence + ("." if maps >= AGREEMENT else ": not stable."))


def n_folds(out: Path) -> int:
    """Folds behind an explanation."""
    return len(set(read_landmarks(out / "landmarks.tsv")["fold"]) - {"mean", "sd"})
