"""Results of models that stand in one table, computed from ``predictions.tsv`` alone.

A fold counts if all its seeds are finished. Folds of the cross-validation that were not trained are missing; a fold in
which a metric is undefined is missing for that metric. Seeds of a fold are averaged before the mean over folds, and
pooled together. All numbers are shares, not per cent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pandas as pd

from bolt.config.study import Entry
from bolt.evaluate.intervals import intervals
from bolt.evaluate.metrics import by_fold, by_site, by_training, fold_predictions, pooled, tests_with_temperature
from bolt.evaluate.paired import TEST_COLUMNS, compare_all
from bolt.evaluate.scores import deviation, metrics_of
from bolt.io.files import columns

KEYS = columns("evaluate", "row")
SITE_COLUMNS = KEYS | columns("evaluate", "sites")
TESTS_COLUMNS = KEYS | {"reference": "Row that is tested against"} | TEST_COLUMNS | columns("evaluate", "scope")
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
    """Return a row per metric: how it varies over folds and seeds, its intervals, and what is missing.

    These are the columns of an experiment's table without the paper's (``<experiment>.tsv``).
    """
    classes = entry.classes or None
    about: dict[str, Any] = {
        **_keys(entry),
        "n_folds": 0,
        "expected_folds": len(due(entry)),
        "missing_folds": ", ".join(map(str, gathered.missing)) or None,
        "n_scans": 0,
        "n_all_scans": 0,
        "note": entry.note or "; ".join(dict.fromkeys(gathered.missing.values())) or None,
        "fidelity": fidelity.level if (fidelity := entry.model.fidelity) else None,
        "fidelity_note": fidelity.note if fidelity else None,
    }
    if gathered.predictions.empty:
        return pd.DataFrame([about | {"metric": metric} for metric in metrics_of(classes)])
    tests = tests_with_temperature(gathered.predictions, classes)
    about |= {"n_scans": tests["scan_id"].nunique(), "n_all_scans": gathered.predictions["scan_id"].nunique()}
    trainings = by_training(tests, classes)
    folds, seeds = by_fold(tests, classes), trainings.groupby("seed").mean()
    sd, within = deviation(folds), trainings.groupby("fold").var().mean() ** 0.5
    together, ends = pooled(tests, classes), intervals(tests, classes, over_folds=True)
    scaled = together.get("calibrated", {})
    no_skill = {"auc": 0.5}
    if classes:
        no_skill |= {"accuracy": together["majority_accuracy"], "balanced_accuracy": 1 / len(classes)}
    rows = []
    for metric in metrics_of(classes):
        undefined = [int(fold) for fold in folds.index[folds[metric].isna()]]
        remark = f"{metric} is undefined in fold {', '.join(map(str, undefined))}" if undefined else ""
        row = about | {
            "metric": metric,
            "n_folds": int(folds[metric].notna().sum()),
            "missing_folds": ", ".join(map(str, sorted([*gathered.missing, *undefined]))) or None,
            "note": "; ".join(filter(None, [about["note"], remark])) or None,
            "n_seeds": len(seeds),
            "mean": folds[metric].mean(),
            "sd": sd[metric],
            "sd_seeds": seeds[metric].std(),
            "sd_seeds_within": within[metric],
            **dict(zip(("low", "high"), ends[metric], strict=True)),
            **dict(zip(("pooled", "pooled_low", "pooled_high"), together[metric].values(), strict=True)),
            "no_skill": no_skill.get(metric),
        }
        if metric in scaled:
            row["scaled"] = scaled[metric]
        if metric == "brier":
            row["calibration_error"] = together["calibration"]["ece"]
            row["calibration_error_scaled"] = scaled.get("ece")
        rows.append(row)
    return pd.DataFrame(rows)


def sites(entry: Entry, gathered: Gathered) -> pd.DataFrame:
    """Return `SITE_COLUMNS`; no rows if there are fewer than two sites."""
    classes = entry.classes or None
    tests = gathered.predictions[gathered.predictions["role"] == "test"]
    rows = []
    for site in by_site(tests, classes) if len(tests) else []:
        about = _keys(entry) | {name: site.get(name) for name in ("site", "n_scans", "n_groups", "majority_accuracy")}
        for metric in metrics_of(classes):
            rows.append(about | {"metric": metric, **site[metric], "pooled": site[metric]["value"]})
    return pd.DataFrame(rows, columns=list(SITE_COLUMNS))


def _keys(entry: Entry) -> dict[str, Any]:
    """Return what names a row: `KEYS`."""
    return {"dataset": entry.dataset, "atlas": entry.atlas, "row": entry.row}


def paired_tests(entries: Sequence[Entry], gathered: Sequence[Gathered], reference: str) -> pd.DataFrame:
    """Test each row against the reference on the same dataset and atlas; returns `TESTS_COLUMNS`."""
    places: dict[tuple[str, str], list[tuple[Entry, pd.DataFrame]]] = {}
    for entry, (predictions, _) in zip(entries, gathered, strict=True):
        if len(predictions):
            places.setdefault((entry.dataset, entry.atlas), []).append((entry, predictions))
    tables = []
    for (dataset, atlas), found in places.items():
        rows = {entry.row: predictions for entry, predictions in found}
        if reference in rows and len(rows) > 1:
            about: dict[str, Any] = {"dataset": dataset, "atlas": atlas, "reference": reference}
            about["expected_folds"] = max(len(due(entry)) for entry, _ in found)
            about["n_all_scans"] = pd.concat([predictions["scan_id"] for predictions in rows.values()]).nunique()
            tables.append(compare_all(rows, reference, found[0][0].classes or None).assign(**about))
    names = list(TESTS_COLUMNS)
    return pd.concat(tables, ignore_index=True)[names] if tables else pd.DataFrame(columns=names)
