"""Results of experiments: tables of numbers, computed from ``predictions.tsv`` alone.

A fold counts if all its seeds are finished. Folds of the cross-validation that were not trained are missing; a fold in
which a metric is undefined is missing for that metric. Seeds of a fold are averaged before the mean over folds, and
pooled together. All numbers are shares, not per cent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from bolt.config import Experiment
from bolt.evaluate.intervals import intervals
from bolt.evaluate.metrics import (
    LOWER_IS_BETTER,
    by_fold,
    by_site,
    by_training,
    deviation,
    fold_predictions,
    metrics_of,
    pooled,
    tests_with_temperature,
)
from bolt.evaluate.paired import TEST_COLUMNS, compare_all
from bolt.experiments.entries import Entry, paper_table
from bolt.io.files import read_table

KEYS = {"dataset": "Dataset", "atlas": "Atlas", "row": "Row of the experiment"}
RESULT_COLUMNS = {
    **KEYS,
    "metric": "Metric; shares, not per cent",
    "mean": "Mean over the finished folds",
    "sd": "Standard deviation over the finished folds (ddof 0), of the means over seeds",
    "sd_seeds": "Standard deviation over seeds (ddof 1) of the mean over folds; n/a: one seed",
    "sd_seeds_within": "Root mean variance over seeds (ddof 1) within a fold; n/a: one seed",
    "n_seeds": "Seeds",
    "n_folds": "Finished folds in which the metric is defined",
    "expected_folds": "Folds of the cross-validation; 0: the row cannot be run on this dataset, see note",
    "missing_folds": "The other folds",
    "n_scans": "Number of test scans of the finished folds",
    "n_all_scans": "Number of scans that all folds of the cross-validation test",
    "low": "Lower end of the mean's 95 % interval; families (else subjects) are independent; n/a: too few of them",
    "high": "Upper end of that interval",
    "pooled": "Value over all test scans of the finished folds together (AUC: pairs of scans of one fold)",
    "pooled_low": "Lower end of its 95 % interval",
    "pooled_high": "Upper end of that interval",
    "scaled": "Pooled value after probabilities were scaled by the temperature of each fold's validation scans (Brier "
    "score and log loss); n/a: no such scans",
    "calibration_error": "In the row of the Brier score: expected calibration error of all test scans",
    "calibration_error_scaled": "The same after scaling",
    "no_skill": "Value without skill: the most frequent class (accuracy), a coin (AUC, balanced accuracy)",
    "paper_mean": "The paper's mean over folds",
    "paper_sd": "The paper's standard deviation over folds",
    "difference": "mean - paper_mean",
    "paper_inside": "Whether paper_mean is between low and high",
    "note": "Why a row or a fold is missing",
    "fidelity": "How close the method is to the one it is named after: exact, core or reconstructed; n/a: not stated",
    "fidelity_note": "What differs from the original, or what was reconstructed",
}
SITE_COLUMNS = {
    **KEYS,
    "site": "Site",
    "n_scans": "Number of its test scans",
    "n_groups": "Number of their families (else subjects)",
    "majority_accuracy": "Accuracy of always guessing the site's most frequent class",
    "metric": "Metric",
    "pooled": "Value over the site's test scans",
    "low": "Lower end of its 95 % interval; n/a: too few families (else subjects)",
    "high": "Upper end",
}
SCOPE_COLUMNS = {
    "expected_folds": "Folds of the cross-validation",
    "n_all_scans": RESULT_COLUMNS["n_all_scans"],
}
"""What paired tests are a part of."""
FAMILY_COLUMNS = {
    "dataset": "Dataset",
    "family": "Family of methods, as named in the models' files",
    "metric": "Metric",
    "improvement": "Reference minus method: mean over the methods of the family and the atlases",
    "n_pairs": "Pairs of method and atlas in the mean: both rows finished all their folds, and the paper has both",
    "expected_pairs": "Number of pairs if all had finished",
    "paper_improvement": "The same pairs in the paper's own table",
    "reconstructed": "Rows in the mean that are reconstructed, not the original methods, separated by semicolons",
}


NOT_ASKED = "not asked for (folds.run)"


class Gathered(NamedTuple):
    """Predictions of an entry, and its missing folds."""

    predictions: pd.DataFrame
    """Training, validation and test rows of the finished folds, all seeds."""
    missing: dict[int, str]
    """Fold to reason."""


def due(entry: Entry) -> list[int]:
    """Return the folds of a complete row: all of the cross-validation; none if the row cannot be run."""
    return [] if entry.note else sorted({*entry.folds, *range(entry.outer)})


def gather(entry: Entry) -> Gathered:
    """Read the predictions of an entry's finished folds."""
    finished, missing = [], {}
    for fold in due(entry):
        if fold not in entry.folds:
            missing[fold] = NOT_ASKED
            continue
        parts = [fold_predictions(folder / f"fold-{fold}") for folder in entry.folders]
        reasons = [reason or state for state, reason, _ in parts if state != "ok"]
        if reasons:
            missing[fold] = reasons[0]
        else:
            finished += [predictions for _, _, predictions in parts]
    return Gathered(pd.concat(finished, ignore_index=True) if finished else pd.DataFrame({"role": []}), missing)


def summaries(entry: Entry, gathered: Gathered) -> pd.DataFrame:
    """Return `RESULT_COLUMNS` without the paper's, one row per metric."""
    classes = entry.classes or None
    tests = gathered.predictions
    tests = tests_with_temperature(tests, classes) if len(tests) else tests
    counts: dict[str, Any] = {
        "dataset": entry.dataset,
        "atlas": entry.atlas,
        "row": entry.row,
        "n_folds": 0,
        "expected_folds": len(due(entry)),
        "missing_folds": ", ".join(map(str, gathered.missing)) or None,
        "n_scans": tests["scan_id"].nunique() if len(tests) else 0,
        "n_all_scans": gathered.predictions["scan_id"].nunique() if len(tests) else 0,
        "note": entry.note or "; ".join(dict.fromkeys(gathered.missing.values())) or None,
        "fidelity": fidelity.level if (fidelity := entry.model.fidelity) else None,
        "fidelity_note": fidelity.note if fidelity else None,
    }
    if tests.empty:
        return pd.DataFrame([counts | {"metric": metric} for metric in metrics_of(classes)])
    trainings = by_training(tests, classes)
    folds, seeds = by_fold(tests, classes), trainings.groupby("seed").mean()
    sd = deviation(folds)
    within = trainings.groupby("fold").var().mean() ** 0.5
    together, ends = pooled(tests, classes), intervals(tests, classes, over_folds=True)
    counts["n_seeds"] = len(seeds)
    no_skill = {"auc": 0.5}
    if classes:
        no_skill |= {"accuracy": together["majority_accuracy"], "balanced_accuracy": 1 / len(classes)}
    rows = []
    for metric in metrics_of(classes):
        interval = together[metric]
        values = {"pooled": interval["value"], "pooled_low": interval["low"], "pooled_high": interval["high"]}
        spread = {"mean": folds[metric].mean(), "sd": sd[metric], "sd_seeds": seeds[metric].std()}
        spread["sd_seeds_within"] = within[metric]
        spread |= dict(zip(("low", "high"), ends[metric], strict=True))
        values |= _calibration(metric, together)
        undefined = [int(fold) for fold in folds.index[folds[metric].isna()]]
        remark = f"{metric} is undefined in fold {', '.join(map(str, undefined))}" if undefined else ""
        defined: dict[str, Any] = {"metric": metric, "n_folds": int(folds[metric].notna().sum())}
        defined["missing_folds"] = ", ".join(map(str, sorted([*gathered.missing, *undefined]))) or None
        defined["note"] = "; ".join(filter(None, [counts["note"], remark])) or None
        rows.append(counts | defined | spread | values | {"no_skill": no_skill.get(metric)})
    return pd.DataFrame(rows)


def _calibration(metric: str, together: Mapping[str, Any]) -> dict[str, float]:
    """Return the columns of results that say how good probabilities are, and would be after scaling."""
    scaled = together.get("calibrated", {})
    values = {"scaled": scaled[metric]} if metric in scaled else {}
    if metric == "brier":
        values["calibration_error"] = together["calibration"]["ece"]
        values |= {"calibration_error_scaled": scaled["ece"]} if scaled else {}
    return values


def sites(entry: Entry, gathered: Gathered) -> pd.DataFrame:
    """Return `SITE_COLUMNS`; no rows if there are fewer than two sites."""
    classes = entry.classes or None
    tests = gathered.predictions[gathered.predictions["role"] == "test"]
    key = {"dataset": entry.dataset, "atlas": entry.atlas, "row": entry.row}
    rows = []
    for site in by_site(tests, classes) if len(tests) else []:
        counts = {name: site.get(name) for name in ("site", "n_scans", "n_groups", "majority_accuracy")}
        for metric in metrics_of(classes):
            interval = site[metric]
            values = {"pooled": interval["value"], "low": interval["low"], "high": interval["high"]}
            rows.append(key | counts | {"metric": metric} | values)
    return pd.DataFrame(rows, columns=list(SITE_COLUMNS))


def paper_values(experiment: Experiment) -> pd.DataFrame | None:
    """Read the paper's own table of an experiment; adds ``dataset``, ``paper_mean`` and ``paper_sd``, in shares."""
    file = paper_table(experiment.name)
    if not file.is_file():
        return None
    table = read_table(file).rename(columns={"mean_percent": "paper_mean", "sd_percent": "paper_sd"})
    if "dataset" not in table:
        table["dataset"] = experiment.paper.dataset if experiment.paper else None
    shares = ["paper_mean", "paper_sd"]
    return table.assign(**{name: table[name] / 100 for name in shares}).astype(
        {name: str for name in table if name not in shares}
    )


def with_paper(table: pd.DataFrame, entries: Sequence[Entry], paper: pd.DataFrame | None) -> pd.DataFrame:
    """Add the paper's values of the same dataset and atlas, and whether they are inside our intervals."""
    known: dict[tuple[str, str, str, str], tuple[float, float]] = {}
    for entry in entries if paper is not None else []:
        key = {"dataset": entry.paper_dataset, "atlas": entry.atlas, **entry.paper}
        if paper is None or not entry.paper or not set(key) <= set(paper):
            continue
        rows = paper[np.logical_and.reduce([paper[column] == value for column, value in key.items()])]
        for row in rows.itertuples():
            known[entry.dataset, entry.atlas, entry.row, str(row.metric)] = (row.paper_mean, row.paper_sd)
    keys = list(zip(table["dataset"], table["atlas"], table["row"], table["metric"], strict=True))
    table = table.reindex(columns=list(RESULT_COLUMNS))
    table[["paper_mean", "paper_sd"]] = np.array([known.get(key, (np.nan, np.nan)) for key in keys]).reshape(-1, 2)
    numbers = [
        "mean",
        "sd",
        "sd_seeds",
        "sd_seeds_within",
        "low",
        "high",
        "pooled",
        "pooled_low",
        "pooled_high",
        "scaled",
        "calibration_error",
        "calibration_error_scaled",
        "no_skill",
    ]
    table[numbers] = table[numbers].astype(float)
    table["difference"] = table["mean"] - table["paper_mean"]
    inside = table["paper_mean"].between(table["low"], table["high"]).map({True: "true", False: "false"})
    table["paper_inside"] = inside.where(table["difference"].notna(), None)
    return table


def families(
    table: pd.DataFrame,
    family_of: Mapping[str, str],
    reference: str,
    column: str = "mean",
    reconstructed: Sequence[str] = (),
) -> pd.DataFrame:
    """Return how much better the reference is than the methods of each family, averaged over methods and atlases.

    Parameters
    ----------
    table : DataFrame
        ``dataset``, ``atlas``, ``row``, ``metric``, and the `column` of values; NaN if a row is incomplete.
    family_of : mapping
        Row to family; other rows are excluded.
    reference : str
        The row that others are compared with.
    column : str
    reconstructed : sequence of str
        Rows that are not the original methods; those in a mean are named beside it.

    Returns
    -------
    DataFrame
        `FAMILY_COLUMNS` without the paper's, in the order of `table` and of `family_of`.
    """
    keys = ["dataset", "atlas", "metric"]
    of_reference = table[table["row"] == reference].set_index(keys)[column]
    others = table[(table["row"] != reference) & table["row"].isin(family_of)]
    others = others.assign(family=others["row"].map(family_of))
    others["gain"] = of_reference.reindex(pd.MultiIndex.from_frame(others[keys])).to_numpy() - others[column].to_numpy()
    others["unknown"] = others["row"].where(others["row"].isin(reconstructed) & others["gain"].notna())
    grouped = others.groupby(["dataset", "family", "metric"], sort=False)
    gains = grouped["gain"].agg(improvement="mean", n_pairs="count", expected_pairs="size")
    names = grouped["unknown"].agg(lambda rows: "; ".join(dict.fromkeys(rows.dropna())) or None)
    gains = gains.assign(reconstructed=names).reset_index()
    family_order = {family: i for i, family in enumerate(dict.fromkeys(family_of.values()))}
    dataset_order = {name: i for i, name in enumerate(gains["dataset"].unique())}
    order = np.lexsort([gains["family"].map(family_order), gains["dataset"].map(dataset_order)])
    return gains.iloc[order].reset_index(drop=True)


def family_table(results: pd.DataFrame, entries: Sequence[Entry], reference: str) -> pd.DataFrame:
    """Return `FAMILY_COLUMNS` of an experiment; no rows if all methods are of one family.

    Only complete rows count, so that our average and the paper's are over the same rows, atlases and metrics. Rows that
    are not in the paper, on a dataset that is, form families of their own.
    """
    family_of = {entry.row: entry.model.family for entry in entries if entry.model.family and entry.row != reference}
    if len(set(family_of.values())) < 2 or reference not in set(results["row"]):
        return pd.DataFrame(columns=list(FAMILY_COLUMNS))
    results = results[~results["metric"].isin(LOWER_IS_BETTER)]
    keys, in_paper = ["dataset", "family", "metric"], results["paper_mean"].notna()
    metric_in_paper = in_paper.groupby([results["dataset"], results["metric"]]).transform("any")
    complete = results["n_folds"] == results["expected_folds"]
    counts = complete & (in_paper | ~metric_in_paper)
    shared = results.assign(mean=results["mean"].where(counts), paper_mean=results["paper_mean"].where(counts))
    new = ~in_paper.groupby([results[key] for key in ("dataset", "atlas", "row")]).transform("any")
    new &= in_paper.groupby(results["dataset"]).transform("any") & (results["row"] != reference)
    unknown = [e.row for e in entries if e.model.fidelity and e.model.fidelity.level == "reconstructed"]
    ours, theirs = (families(shared[~new], family_of, reference, column, unknown) for column in ("mean", "paper_mean"))
    theirs = theirs.rename(columns={"improvement": "paper_improvement"})[[*keys, "paper_improvement"]]
    others = results.assign(mean=results["mean"].where(complete))[new | (results["row"] == reference)]
    others = families(others, family_of, reference, reconstructed=unknown)
    others["family"] += ", not in the paper"
    parts = [part for part in (ours.merge(theirs, on=keys, how="left"), others) if len(part)]
    table = pd.concat(parts, ignore_index=True).reindex(columns=list(FAMILY_COLUMNS))
    order = {name: i for i, name in enumerate(dict.fromkeys(results["dataset"]))}
    return table.sort_values("dataset", key=lambda names: names.map(order), kind="stable", ignore_index=True)


def paired_tests(entries: Sequence[Entry], gathered: Sequence[Gathered], reference: str) -> pd.DataFrame:
    """Test each row against the reference on the same dataset and atlas.

    Returns
    -------
    DataFrame
        `KEYS`, ``reference``, `TEST_COLUMNS` and `SCOPE_COLUMNS`.
    """
    parts: dict[tuple[str, str], dict[str, pd.DataFrame]] = {}
    classes: dict[str, Sequence[str] | None] = {}
    scopes: dict[tuple[str, str], tuple[int, set[str]]] = {}
    for entry, (predictions, _) in zip(entries, gathered, strict=True):
        if len(predictions):
            place = entry.dataset, entry.atlas
            n_folds, scans = scopes.get(place, (0, set()))
            scopes[place] = max(n_folds, len(due(entry))), scans | set(predictions["scan_id"])
            parts.setdefault((entry.dataset, entry.atlas), {})[entry.row] = predictions
            classes[entry.dataset] = entry.classes or None
    tables = [
        compare_all(rows, reference, classes[dataset]).assign(
            dataset=dataset,
            atlas=atlas,
            reference=reference,
            expected_folds=scopes[dataset, atlas][0],
            n_all_scans=len(scopes[dataset, atlas][1]),
        )
        for (dataset, atlas), rows in parts.items()
        if reference in rows and len(rows) > 1
    ]
    columns = [*KEYS, "reference", *TEST_COLUMNS, *SCOPE_COLUMNS]
    return pd.concat(tables, ignore_index=True)[columns] if tables else pd.DataFrame(columns=columns)
