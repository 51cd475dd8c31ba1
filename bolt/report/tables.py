"""Tables for readers: the cohort and its images, performance, tests between models, simulated truth, explanations.

Also whether baselines that see no brain data, only head motion or site, predict the label as well as a model does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bolt.cohort.confounding import holm
from bolt.config import Model
from bolt.config.study import paper_table
from bolt.evaluate.metrics import LOWER_IS_BETTER
from bolt.evaluate.paired import FEWEST_FOLDS, TESTS
from bolt.evaluate.scores import METRICS, NUMBER_METRICS
from bolt.explain.tasks import COURSE
from bolt.explain.trust.faithfulness import CONTROLS
from bolt.explain.trust.similarity import GONE
from bolt.explain.weights import CONTROL_WEIGHTS, UNBIASED
from bolt.io.files import read_json, read_table
from bolt.preprocess.quality.measures import MEASURES
from bolt.report.html import filled, say
from bolt.report.numbers import (
    DASH,
    NAMES,
    Formatter,
    decimal,
    estimate,
    interval,
    joined,
    mean_sd,
    metric_name,
    name_of_all,
    number,
    part_text,
    percent,
    shown_as,
)

ALPHA = 0.05
Evaluated = tuple[pd.DataFrame, Mapping[str, Any]]
"""A run's ``metrics.tsv`` and the ``pooled`` part of its ``summary.json``."""
TASK_KEYS = list(COURSE)
ORDERS: dict[str, str] = NAMES["orders"]
CONTROL_NAMES: dict[str, str] = NAMES["control_names"]
REPLACED_BY: dict[str, str] = NAMES["replaced_by"]
SANITY_CHECKS: dict[str, str] = NAMES["sanity_checks"]
SUMMARIES = ("mean", "lowest", "highest")
"""Rows of ``stability.tsv`` over all pairs."""
TEXT = (*NAMES["text"], *(f"better_than_{control}" for control in CONTROLS))
"""Columns that are text in all files of results, although some of their cells may look like numbers."""


def read_result(file: Path) -> pd.DataFrame:
    """Read a table that another stage wrote; without rows and columns if it is missing."""
    return read_table(file, text=TEXT) if file.is_file() else pd.DataFrame()


@dataclass
class Sheet:
    """A table for readers.

    Attributes
    ----------
    title : str
    frame : DataFrame
        Strings; columns are one level.
    caption : str
    bold : set of (row position, column)
    notes : list of str
        Lines below the table.
    """

    title: str
    frame: pd.DataFrame
    caption: str
    bold: set[tuple[int, str]] = field(default_factory=set)
    notes: Sequence[str] = ()


def read_evaluated(folder: Path) -> Evaluated | None:
    """Read the metrics of a run; None if nothing was evaluated."""
    summary = folder / "summary.json"
    pooled = read_json(summary)["pooled"] if summary.is_file() else None
    return (read_result(folder / "metrics.tsv"), pooled) if pooled else None


def cohort(scans: pd.DataFrame, classes: Sequence[str]) -> pd.DataFrame:
    """Return a row per class: scans, subjects, and what is known of age, sex, motion and length."""
    rows = []
    for name in [*classes, "all"]:
        part = scans if name == "all" else scans[scans["label"].astype(str) == name]
        sexes = ", ".join(f"{n} {sex}" for sex, n in part["sex"].value_counts().sort_index().items())
        rows.append({"name": name, "part": part, "sexes": sexes})
    return filled("cohort", rows, extent=_lowest_to_highest)


def _lowest_to_highest(values: pd.Series) -> str:
    known = values.dropna()
    low, high = number(known.min()), number(known.max())
    return low if low == high else f"{low} to {high}"


def cohort_tests(table: pd.DataFrame) -> pd.DataFrame:
    """Return the tests of `bolt.cohort.confounding.compare` that could be computed."""
    done = table[table["p"].notna()]
    return filled("cohort_tests", done, related=(done["units"] != done["n"]).any())


def _metrics_of(table: pd.DataFrame) -> dict[str, Formatter]:
    """Return the paper's metrics of classes or of numbers, each with how it is written."""
    return {metric: shown_as(metric) for metric in (NUMBER_METRICS if NUMBER_METRICS[0] in table else METRICS)}


def performance(table: pd.DataFrame, pooled: Mapping[str, Any] | None) -> pd.DataFrame:
    """Return metrics per fold, their mean ± sd, and metrics of all test scans with their intervals."""
    metrics = _metrics_of(table)
    rows: list[dict[str, str]] = []
    for fold in table[~table["fold"].isin(["mean", "sd"])].to_dict("records"):
        values = {metric_name(m): shown(fold[m]) for m, shown in metrics.items()}
        about = {"test scans": number(fold["n_test"]), "state": fold["state"], "note": fold["note"]}
        rows.append({"": f"fold {fold['fold']}", **values, **about})
    mean, sd = (table.set_index("fold").loc[name] for name in ("mean", "sd"))
    rows.append({"": "mean ± sd", **{metric_name(m): mean_sd(mean[m], sd[m], shown) for m, shown in metrics.items()}})
    rows[-1]["note"] = mean["note"]
    if pooled:
        values = {metric_name(m): estimate(pooled[m], shown) for m, shown in metrics.items()}
        note = f"AUC within folds; across folds {decimal(pooled['auc_across'])}" if "auc_across" in pooled else ""
        rows.append({"": "all test scans [95 %]", **values, "test scans": _tested(pooled), "note": note})
        if subjects := pooled.get("subjects"):
            values = {metric_name(m): estimate(subjects[m], shown) for m, shown in metrics.items()}
            note = f"{number(subjects['n_scans'])} subjects; predictions averaged over each subject's scans"
            rows.append({"": "all test subjects [95 %]", **values, "note": note})
        if "mae" in metrics:
            rows.append({"": "always the mean label", metric_name("mae"): number(pooled["mean_guess_mae"])})
        else:
            rows.append({"": "always the largest class", "accuracy": percent(pooled["majority_accuracy"])})
    frame = pd.DataFrame(rows).fillna("")
    return frame[[column for column in frame if column == "" or (frame[column] != "").any()]]


def _tested(pooled: Mapping[str, Any]) -> str:
    """Return the number of test scans, and of how many if not all of them were tested."""
    return part_text(pooled["n_scans"], pooled.get("n_all_scans", pooled["n_scans"]))


def comparison(runs: Mapping[str, Evaluated]) -> pd.DataFrame:
    """Return a row per run (by title): metrics of all test scans with intervals, and mean ± sd over folds."""
    rows = []
    for title, (table, pooled) in runs.items():
        metrics = _metrics_of(table)
        folds = table.set_index("fold")
        finished = int((table["state"] == "ok").sum())
        outer = pooled.get("outer_folds", len(table) - 2)
        row = {"": title, "test scans": _tested(pooled), "folds": f"{finished} of {outer}"}
        row |= {f"{name_of_all(m)} [95 %]": estimate(pooled[m], shown) for m, shown in metrics.items()}
        row |= {"AUC across folds": decimal(pooled["auc_across"])} if "auc_across" in pooled else {}
        for m, shown in metrics.items():
            if m in NUMBER_METRICS or m in ("accuracy", "auc"):
                row[f"{metric_name(m)} over folds"] = mean_sd(folds.loc["mean", m], folds.loc["sd", m], shown)
        rows.append(row)
    return pd.DataFrame(rows)


def seeds(numbers: pd.DataFrame) -> pd.DataFrame:
    """Return a row per model and metric of several seeds: mean with its interval, and both standard deviations.

    `numbers` are `bolt.evaluate.results.summaries`.
    """
    several = numbers["atlas"].nunique() > 1
    return filled("seeds", numbers[numbers["mean"].notna()], several=several)


def paired(title: str, tests: pd.DataFrame) -> Sheet:
    """Return all three tests of accuracy side by side (of the absolute error, if the label is a number)."""
    of_classes = "accuracy" in set(tests["metric"])
    shown: Formatter = percent if of_classes else number
    tests = tests[tests["metric"] == ("accuracy" if of_classes else "mae")]
    frame = filled("paired", tests, shown=shown)
    done = [test for test in TESTS if tests[test].notna().any()]
    caption = say("tests.paired", of_classes=of_classes, done=done)
    reasons = {row: note.split("; ") for row, note in zip(tests["row"], tests["note"].fillna(""), strict=True)}
    different = dict.fromkeys(filter(None, chain.from_iterable(reasons.values())))
    whose = [{row: why if why in its else "" for row, its in reasons.items()} for why in different]
    return Sheet(title, frame, caption, notes=list(chain.from_iterable(map(joined, whose))))


def sees_covariates_only(model: Model) -> bool:
    """Return whether a model's only inputs are covariates, such as head motion or site."""
    return bool(model.covariates) and model.family == "baseline"


def baseline_warning(baseline_name: str, model_name: str, tests: pd.DataFrame) -> str:
    """Warn if paired tests do not show that a model is better than a baseline.

    Accuracy is tested by sign flips over groups. The AUC is tested by the corrected t-test over folds; with fewer than
    `FEWEST_FOLDS` folds, the Brier score is tested instead, by sign flips. The model is better if one of the two is, at
    `ALPHA` after Holm's correction.

    Parameters
    ----------
    baseline_name, model_name : str
    tests : DataFrame
        Rows of `bolt.evaluate.paired.compare`; differences are model minus baseline.

    Returns
    -------
    str
        Empty if the model is better, or if nothing can be tested.
    """
    rows = _tested_rows(tests)
    if not rows or standing(tests).startswith("clearly better"):
        return ""
    return say("tests.baseline", baseline=baseline_name, model=model_name, **rows[0], corrected=len(rows) > 1)


def standing(tests: pd.DataFrame) -> str:
    """Return whether a model is shown to be better, or worse, than another and in what, as `baseline_warning` judges.

    `tests` are rows of `bolt.evaluate.paired.compare`; differences are the model's value minus the other's.
    """
    rows = _tested_rows(tests)
    clear = [row for row in rows if row["p"] < ALPHA and row["gain"] != 0]
    for row in sorted(clear, key=lambda row: row["gain"] < 0)[:1]:
        return f"clearly {'better' if row['gain'] > 0 else 'worse'} in {metric_name(row['metric'])}"
    return "not clearly better" if rows else "not tested for being better"


def _tested_rows(tests: pd.DataFrame) -> list[dict[str, Any]]:
    """Return gain, p and description of the tests of accuracy and AUC, p corrected for both, the smallest first."""
    by_metric = tests.set_index("metric").to_dict("index")
    enough_folds = by_metric.get("auc", {}).get("n_folds", 0) >= FEWEST_FOLDS
    rows = []
    for metric in ("accuracy", "auc" if enough_folds else "brier"):
        row, over_folds = by_metric.get(metric, {}), metric == "auc"
        p = row.get("corrected_t_p" if over_folds else "permutation_p", np.nan)
        difference = row.get("difference" if over_folds else "pooled_difference", np.nan)
        if pd.isna(p) or pd.isna(difference):
            continue
        gain = -difference if metric in LOWER_IS_BETTER else difference
        size = f"{percent(abs(gain))} points" if metric == "accuracy" else decimal(abs(gain), 3)
        folds = part_text(row["n_folds"], row.get("expected_folds", row["n_folds"])) if over_folds else ""
        rows.append({"metric": metric, "gain": gain, "p": p, "size": size, "folds": folds})
    rows.sort(key=lambda row: row["p"])
    for row, p in zip(rows, holm(pd.Series([row["p"] for row in rows], dtype=float)), strict=True):
        row["p"] = p
    return rows


def calibration(table: pd.DataFrame, pooled: Mapping[str, Any]) -> pd.DataFrame:
    """Return a row each for balanced accuracy, Brier score and log loss, and the expected calibration error.

    What probabilities are worth after temperature scaling has a column of its own, if folds have validation scans.
    """
    folds, rows = table.set_index("fold"), []
    for metric in ("balanced_accuracy", "brier", "log_loss"):
        shown = shown_as(metric)
        over_folds = mean_sd(folds.loc["mean", metric], folds.loc["sd", metric], shown)
        rows.append((metric_name(metric), estimate(pooled[metric], shown), over_folds))
    rows.append(("expected calibration error", _error(pooled["calibration"]), DASH))
    shown_rows = pd.DataFrame(rows, columns=["", "all test scans [95 %]", "over folds"])
    if scaled := pooled.get("calibrated"):
        values = [number(scaled.get(metric)) for metric in ("balanced_accuracy", "brier", "log_loss")]
        shown_rows[f"scaled, temperature {number(scaled['temperature'])}"] = [*values, _error(scaled)]
    return shown_rows


def _error(calibration: Mapping[str, Any]) -> str:
    """Format the expected calibration error, and what it would be without miscalibration."""
    return f"{number(calibration['ece'])} (if perfectly calibrated: {number(calibration['ece_if_calibrated'])})"


def sites(found: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Return a row per site of ``summary.json``: metrics of its test scans with their intervals."""
    rows = []
    for site in found:
        numeric = NUMBER_METRICS[0] in site
        metrics = {metric: shown_as(metric) for metric in (("r", "mae") if numeric else ("accuracy", "auc"))}
        row = {"site": site["site"], "test scans": number(site["n_scans"])}
        row |= {f"{metric_name(metric)} [95 %]": estimate(site[metric], shown) for metric, shown in metrics.items()}
        if not numeric:
            row["always the largest class"] = percent(site["majority_accuracy"])
        rows.append(row)
    return pd.DataFrame(rows)


def balanced(table: pd.DataFrame) -> pd.DataFrame:
    """Return a row per population of ``balanced.tsv`` that has values: metrics with their intervals."""
    rows = []
    for population, part in table[table["value"].notna()].groupby("population", sort=False):
        about = part[["n_scans", "effective_n", "covariates"]].iloc[0].to_dict()
        rows.append({"population": population, "found": part.set_index("metric").to_dict("index")} | about)
    return filled("balanced", rows)


def quality(table: pd.DataFrame, cutoffs: Mapping[str, tuple[str, float]]) -> pd.DataFrame:
    """Return a row per measure: median, range, cut-off (by measure: bound and value), and scans beyond it."""
    rows = []
    for name, measure in MEASURES.items():
        values = table[name].dropna().astype(float)
        if values.empty:
            continue
        bound, cutoff = cutoffs.get(name, ("", None))
        beyond = 0 if cutoff is None else int((values < cutoff if bound == "min" else values > cutoff).sum())
        rows.append({"measure": measure, "values": values, "bound": bound, "cutoff": cutoff, "beyond": beyond})
    return filled("quality", rows)


def truth(table: pd.DataFrame) -> pd.DataFrame:
    """Return the truth table with its ranges in words; `passed` stays, for the colour of the row."""
    passed = [None if pd.isna(p) else str(p).lower() in ("true", "1", "1.0") for p in table["passed"]]
    return filled("truth", table).assign(passed=pd.Series(passed, dtype=object))


# ---- explanations
def landmark_table(table: pd.DataFrame, paper: pd.DataFrame, *, expected: int) -> pd.DataFrame:
    """Return mean ± sd over folds of the landmark regressions (``landmarks.tsv``), the paper's values below.

    `expected` are all folds of the cross-validation, of each seed in the table.
    """
    keys = ["fold", "importance", "tokens", "level"]
    indexed = table[table["fold"].isin(["mean", "sd"])].set_index(keys).sort_index()
    of_level = {level: indexed.xs(level, level="level")[list(METRICS)] for level in NAMES["levels"]}
    same = {"token": "scan", "scan": "subject"}  # one sample per scan, one scan per subject
    rows: list[dict[str, str]] = []

    def add(level: str, volumes: str, mean: pd.Series, sd: pd.Series, folds: str) -> None:
        values = {metric_name(m): mean_sd(mean[m], sd[m], shown_as(m)) for m in METRICS}
        rows.append({"prediction per": level, "volumes": volumes, **values, "folds": folds})

    for level, level_name in NAMES["levels"].items():
        if level in same and of_level[level].equals(of_level[same[level]]):
            continue
        for (tokens, volumes), importance in product(NAMES["volumes"].items(), ("fitted", "none", "inner")):
            if ("mean", importance, tokens, level) not in indexed.index:
                continue
            mean, sd = (indexed.loc[(fold, importance, tokens, level)] for fold in ("mean", "sd"))
            name = NAMES["unseen"].format(volumes=volumes) if importance == "inner" else volumes
            add(level_name, name, mean, sd, f"{mean['n_test']:.0f} of {expected}")
    for tokens, part in paper.groupby("tokens", sort=False):
        known = part.set_index("metric")
        add("the paper", str(tokens), known["mean"], known["sd"], DASH)
    return pd.DataFrame(rows)


def selected_rois(table: pd.DataFrame) -> pd.DataFrame:
    """Return the selected ROIs of every class (``roi_weights.tsv``), and in which controls a weight keeps its sign."""
    selected = table[table["selected"].astype(bool)].to_dict("records")
    for row in selected:
        row["agreeing"] = [name for name in UNBIASED if row[CONTROL_WEIGHTS[name]] * row["weight"] > 0]
    return filled("selected_rois", selected, controls=UNBIASED)


def sign_counts(table: pd.DataFrame) -> str:
    """State for how many selected ROIs the weight keeps its sign in both unbiased controls, and in each control."""
    selected = table[table["selected"].astype(bool)]
    kept = {name: (selected[column] * selected["weight"] > 0).sum() for name, column in CONTROL_WEIGHTS.items()}
    counts = ", ".join(f"{kept[name]} with {NAMES['control_volumes'][name]}" for name in UNBIASED)
    turned = f"{kept['wrong class']} with volumes chosen for the wrong class, which are expected to reverse it"
    return f"{selected['sign_agrees'].astype(bool).sum()} of {len(selected)} ({counts}; {turned})"


def alignment_table(aligned: pd.DataFrame) -> pd.DataFrame:
    """Return how importance is distributed over event types (``tasks_alignment.tsv``)."""
    keys = list(aligned[TASK_KEYS].itertuples(index=False, name=None))
    names = task_titles(list(dict.fromkeys(keys)))
    return filled("alignment", aligned.assign(title=[names[key] for key in keys]))


def task_titles(keys: Sequence[tuple[str, str, str]]) -> dict[tuple[str, str, str], str]:
    """Name each class, task and run by what tells it apart from the others of its class."""
    named = {}
    for name, task, run in keys:
        same_class = [key for key in keys if key[0] == name]
        parts = [name]
        parts += [task] if task and task != name and len({key[1] for key in same_class}) > 1 else []
        parts += [f"run {run}"] if run and len({key[2] for key in same_class if key[1] == task}) > 1 else []
        named[name, task, run] = " · ".join(parts)
    return named


def stability_table(table: pd.DataFrame) -> pd.DataFrame:
    """Return agreement between folds and between seeds: a row per class, and one for importance."""
    groups = table.groupby(["between", "what", "class"], sort=False, dropna=False)
    rows = []
    for (between, what, name), part in groups:
        summary = part[part["one"].isin(SUMMARIES)].set_index("one")
        n_pairs = len(part) - len(summary)
        pairs = f"{n_pairs} pair{'s' * (n_pairs != 1)} of {between}"
        if what == "halves":
            pairs = f"{n_pairs} split{'s' * (n_pairs != 1)}{' (two seeds)' if between == 'seeds' else ''}"
        kind = NAMES["agreement"][what] + ("" if pd.isna(name) else f", {name}")
        rows.append({"kind": kind, "pairs": pairs, "summary": summary, "mean": summary.loc["mean"]})
    return filled("stability", rows, bound=_null, spread=_mean_and_range)


def _null(mean: Any, high: Any) -> str:
    return DASH if pd.isna(mean) else f"{decimal(mean)} [{decimal(high)}]"


def _mean_and_range(values: pd.Series) -> str:
    if values["lowest"] == values["highest"]:
        return decimal(values["mean"])
    return interval(values["mean"], values["lowest"], values["highest"], decimal)


def sanity_table(table: pd.DataFrame) -> pd.DataFrame:
    """Return the outcome of the sanity checks, over all folds and per fold (``sanity.tsv``)."""
    ends = table.loc[table["verdict"].notna(), ["check", "step"]]
    rows = ends.merge(table, on=["check", "step"])
    return filled("sanity", rows, checks=SANITY_CHECKS, verdicts=NAMES["sanity_verdicts"], gone=GONE)


def area_table(areas: pd.DataFrame) -> pd.DataFrame:
    """Return the area under each curve and its differences from the controls (``faithfulness_areas.tsv``)."""
    rows = areas.to_dict("records")
    for row in rows:
        better = {control: row[f"better_than_{control}"] for control in CONTROLS}
        beaten = ", ".join(control for control, answer in better.items() if answer == "yes") or "none"
        row["beaten"] = DASH if all(map(pd.isna, better.values())) else beaten
    shown = {"three": lambda value: decimal(value, 3), "gain": lambda value: decimal(value, 3, "+")}
    return filled("areas", rows, orders=ORDERS, replaced_by=REPLACED_BY, **shown)


def paper_of(dataset: str | None, atlas: str) -> pd.DataFrame:
    """Return the paper's own values as shares: tokens, metric, mean, sd; empty for what the paper does not have.

    Parameters
    ----------
    dataset : str or None
        Which of the paper's datasets, the key `paper` of a dataset's file.
    atlas : str
    """
    table = read_table(paper_table("landmarks"))
    values = table[(table["dataset"] == dataset) & (table["atlas"] == atlas)]
    values = values.assign(mean=values["mean_percent"] / 100, sd=values["sd_percent"] / 100)
    return values[["tokens", "metric", "mean", "sd"]]
