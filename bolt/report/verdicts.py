"""Whether an explanation may be believed: questions, what was measured, what follows, in words made from the numbers.

A question is answered from the files of one run's explanation alone. What has no file is `not tested`; no threshold is
chosen after seeing a result: all stand here.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bolt.files import read_json, read_table

SUPPORTED, NOT_SUPPORTED, NOT_TESTED = "supported", "not supported", "not tested"
MARKS = {SUPPORTED: "✓", NOT_SUPPORTED: "✗", NOT_TESTED: "○"}
"""Seen beside the colour."""
GAIN = 0.02
"""AUC by which important volumes must beat random ones in the mean over folds."""
MOST = 0.75
"""Share of the folds in which they must be ahead."""
OFTEN = 0.5
"""A region is stable where more than this share of the folds selects it; so must be half of the regions shown."""
AGREEMENT = 0.5
"""Smallest mean correlation between the maps of different folds, or seeds."""
NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


@dataclass(frozen=True)
class Verdict:
    """One question to an explanation.

    Attributes
    ----------
    question, measure, value : str
    state : {"supported", "not supported", "not tested"}
    sentence : str
        What the summary says; empty where nothing was tested.
    """

    question: str
    measure: str
    value: str = "–"
    state: str = NOT_TESTED
    sentence: str = ""


def verdict(question: str, measure: str, value: str, supported: bool, sentence: str) -> Verdict:
    return Verdict(question, measure, value, SUPPORTED if supported else NOT_SUPPORTED, sentence)


def predicts(run: Path) -> Verdict:
    """Is there anything to explain? From ``summary.json`` of the run."""
    question, measure = "Does the model predict at all?", "AUC of all test scans, 95 % interval above 0.5"
    pooled = read_json(run / "summary.json")["pooled"] if (run / "summary.json").is_file() else None
    auc = pooled["auc"] if pooled else {"value": None}
    if auc["value"] is None:
        return Verdict(question, measure)
    value, low, high = (f"{auc[key]:.2f}" for key in ("value", "low", "high"))
    above = auc["low"] > 0.5
    rest = "there is a decision to explain" if above else "no better than chance can be shown, so there may be nothing"
    return verdict(
        question,
        measure,
        f"{value} [{low}, {high}]",
        above,
        f"The model tells test scans apart with AUC {value} (95 % interval {low} to {high}): {rest}"
        f"{'' if above else ' to explain'}.",
    )


def moments_matter(out: Path, tokens: int) -> Verdict:
    """Important against random volumes, from ``landmarks.tsv``; at the level of scans."""
    question = "Do the important volumes carry more than others?"
    measure = f"AUC of important − random volumes ≥ {GAIN} in the mean, and ahead in {MOST:.0%} of the folds"
    if not (out / "landmarks.tsv").is_file():
        return Verdict(question, measure)
    table = read_table(out / "landmarks.tsv", text=("fold",))
    table = table[table["importance"] != "inner"]
    auc = table[table["level"] == "scan"].pivot_table(index="fold", columns="tokens", values="auc")
    folds = auc[~auc.index.isin(["mean", "sd"])].dropna()
    if folds.empty:
        return Verdict(question, measure)
    important, random = folds["important"].mean(), folds["random"].mean()
    ahead = int((folds["important"] > folds["random"]).sum())
    enough = important - random >= GAIN and ahead >= MOST * len(folds)
    many = spelled(tokens)
    sentence = (
        f"{many.capitalize()} important volumes of a scan tell the class with AUC {important:.2f}, {many} random ones "
        f"with {random:.2f}; the important ones are ahead in {ahead} of {len(folds)} folds."
    )
    if not enough:
        sentence += " That the important volumes carry more is not shown."
    value = f"{important:.2f} − {random:.2f} = {minus(important - random)}, ahead in {ahead} of {len(folds)}"
    return verdict(question, measure, value, bool(enough), sentence)


def regions_return(out: Path) -> Verdict:
    """Selection frequency of the regions shown, from ``roi_weights.tsv``."""
    question = "Do the same regions return in every fold?"
    measure = f"at least half of the regions shown are selected in more than {OFTEN:.0%} of the folds"
    if not (out / "roi_weights.tsv").is_file():
        return Verdict(question, measure)
    table = read_table(out / "roi_weights.tsv", text=("class", "name", "network", "hemisphere"))
    shown = table[table["selected"].astype(bool)]
    if shown.empty or n_folds(out) < 2:
        return Verdict(question, measure)
    often = shown[shown["selection_frequency"] > OFTEN]
    sentence = f"{len(often)} of {len(shown)} shown regions are selected in most of the {n_folds(out)} folds"
    names = ", ".join(dict.fromkeys(often.sort_values("selection_frequency", ascending=False)["name"].head(4)))
    sentence += f", first {names}." if names else "; none of them should be called important."
    value = f"{len(often)} of {len(shown)}"
    return verdict(question, measure, value, 2 * len(often) >= len(shown), sentence)


def n_folds(out: Path) -> int:
    """Folds behind an explanation."""
    folds = set(read_table(out / "landmarks.tsv", text=("fold",))["fold"])
    return len(folds - {"mean", "sd"})


def spelled(n: int) -> str:
    return NUMBERS[n] if n < len(NUMBERS) else str(n)


def minus(value: float) -> str:
    """With a sign, and a true minus."""
    return f"{value:+.2f}".replace("-", "−")
