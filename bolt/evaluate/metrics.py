"""Accuracy, recall, precision, area under the ROC curve and what goes beside them, from `predictions.tsv` alone; for
labels that are numbers (`classes` is None everywhere here) the metrics of `bolt.evaluate.numbers`.

Means and standard deviations are taken over the folds that finished, with ``ddof=0`` as in the paper's published
code; a fold that did not finish is listed, never averaged away.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bolt.evaluate.classes import CLASS_COLUMNS, CLASS_METRICS, class_arrays, class_summary, mean_of_finite, scores
from bolt.evaluate.numbers import NUMBER_COLUMNS, NUMBER_METRICS, number_arrays, number_scores, number_summary
from bolt.io.files import read_json, read_table, write_json, write_table

TEXT = ("scan_id", "subject", "group", "site", "role", "label", "predicted")
LOWER_IS_BETTER = ("brier", "ece", "mae")
COLUMNS = {
    "fold": "outer fold; the last two rows hold the mean and standard deviation (ddof 0) over finished folds",
    "state": "ok, failed, excluded or missing; only folds that are ok enter the mean",
    "n_test": "test scans of the fold; number of folds averaged in the last two rows",
    **CLASS_COLUMNS,
    **NUMBER_COLUMNS,
    "note": "why a value is missing",
}


def metrics_of(classes: Sequence[str] | None) -> tuple[str, ...]:
    """Names of the metrics by which predictions are judged; of numbers where there are no classes."""
    return NUMBER_METRICS if classes is None else CLASS_METRICS


def fold_metrics(predictions: pd.DataFrame, classes: Sequence[str] | None) -> dict[str, float]:
    """Metrics of the given rows of a `predictions.tsv` (usually those of role ``test``)."""
    return {name: float(value[0]) for name, value in _scores(predictions, classes).items()}


def _scores(
    predictions: pd.DataFrame, classes: Sequence[str] | None, weight: NDArray[np.floating] | None = None
) -> dict[str, NDArray[np.floating]]:
    if classes is None:
        return number_scores(*number_arrays(predictions), weight)
    return scores(*class_arrays(predictions, classes), weight)


def by_fold(tests: pd.DataFrame, classes: Sequence[str] | None) -> pd.DataFrame:
    """A row a fold, a column a metric; several seeds are averaged, and NaN where the metric is undefined for one."""
    single = {key: fold_metrics(part, classes) for key, part in tests.groupby(["fold", "seed"])}
    return pd.DataFrame.from_dict(single, orient="index").groupby(level=0).agg(lambda seeds: seeds.mean(skipna=False))


def read_predictions(path: Path) -> pd.DataFrame:
    """Read one fold's `predictions.tsv`; identifiers stay text."""
    return read_table(path, text=TEXT)


def fold_predictions(folder: Path) -> tuple[str, str, pd.DataFrame]:
    """State of a fold, the reason where it is not ``ok``, and what it predicted of all its parts (else no rows)."""
    nothing = pd.DataFrame(columns=[*TEXT, "fold"])
    if not (folder / "status.json").is_file():
        return "missing", "not trained (no status.json)", nothing
    status = read_json(folder / "status.json")
    if status["state"] != "ok":
        return status["state"], status["reason"], nothing
    if not (folder / "predictions.tsv").is_file():
        return "missing", "predictions.tsv is not there", nothing
    predictions = read_predictions(folder / "predictions.tsv")
    if not (predictions["role"] == "test").any():
        return "missing", "no test scans", nothing
    return "ok", "", predictions


def summarise(run: Path, folds: Sequence[int], classes: Sequence[str] | None) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Gather the folds of one run.

    Parameters
    ----------
    run : Path
        Folder ``seed-<s>`` with one ``fold-<k>`` a fold.
    folds : sequence of int
        The folds that should be there.
    classes : sequence of str
        In the dataset's order; the last is the positive one. None: the labels are numbers.

    Returns
    -------
    table : DataFrame
        One row a fold (columns of `COLUMNS`, those of its metrics), then ``mean`` and ``sd``.
    predictions : DataFrame
        Test predictions of all finished folds.
    """
    rows, tests = [], []
    for fold in folds:
        state, note, predictions = fold_predictions(run / f"fold-{fold}")
        row: dict[str, Any] = {"fold": str(fold), "state": state, "n_test": 0, "note": note}
        if state == "ok":
            test = predictions[predictions["role"] == "test"]
            absent = [c for c in classes or () if c not in set(test["label"])]
            note = f"AUC undefined: no test scan of {', '.join(absent)}" if absent else ""
            row |= {"n_test": len(test), "note": note, **fold_metrics(test, classes)}
            tests.append(test)
        rows.append(row)
    columns = ["fold", "state", "n_test", *metrics_of(classes), "note"]
    table = pd.DataFrame(rows).reindex(columns=columns)
    values = table[list(metrics_of(classes))].astype(float)
    missing = [row["fold"] for row in rows if row["state"] != "ok"]
    note = f"without fold {', '.join(missing)}" if missing else ""
    done = len(rows) - len(missing)
    summary = [
        {"fold": name, "state": "", "n_test": done, "note": note, **value.to_dict()}
        for name, value in (("mean", values.mean()), ("sd", values.std(ddof=0)))
    ]
    table = pd.concat([table, pd.DataFrame(summary)], ignore_index=True)[columns]
    return table, pd.concat(tests, ignore_index=True) if tests else pd.DataFrame(columns=[*TEXT, "fold"])


def pooled(
    predictions: pd.DataFrame, classes: Sequence[str] | None, *, draws: int = 1000, seed: int = 0
) -> dict[str, Any]:
    """Metrics over the test scans of all folds together.

    Parameters
    ----------
    predictions : DataFrame
        Test rows of all folds; each scan is tested once.
    classes : sequence of str
    draws : int
        Bootstrap samples. Groups (families, else subjects) are drawn with replacement, so that
        several scans of a person stay together.
    seed : int

    Returns
    -------
    dict
        Per metric ``{value, low, high}`` (95 % percentile interval), ``n_scans``, ``n_groups``, and what
        `bolt.evaluate.classes.class_summary` or `bolt.evaluate.numbers.number_summary` says.
    """
    values = fold_metrics(predictions, classes)
    samples = _scores(predictions, classes, _drawn(predictions, draws, seed))
    summary: dict[str, Any] = {}
    for metric in metrics_of(classes):
        low, high = _interval(samples[metric])
        summary[metric] = {"value": values[metric], "low": low, "high": high}
    n_groups = {"n_groups": predictions["group"].nunique()}
    if classes is None:
        return summary | number_summary(*number_arrays(predictions)) | n_groups
    return summary | class_summary(predictions, classes) | n_groups


def mean_intervals(
    tests: pd.DataFrame, classes: Sequence[str] | None, *, draws: int = 1000, seed: int = 0
) -> dict[str, tuple[float, float]]:
    """95 % percentile interval (low, high) of each metric's mean over folds; parameters as in `pooled`.

    Groups are drawn once for all folds, every fold is scored with what was drawn of it, and the folds are averaged. A
    fold in which a draw leaves a metric undefined (one class alone) is left out of that draw.
    """
    weight = _drawn(tests, draws, seed)
    samples: dict[str, list[NDArray[np.floating]]] = {metric: [] for metric in metrics_of(classes)}
    for _, fold in tests.assign(_place=np.arange(len(tests))).groupby("fold"):
        with np.errstate(invalid="ignore", divide="ignore"):  # of some folds nobody may be drawn
            seeds = [_scores(part, classes, weight[:, part["_place"]]) for _, part in fold.groupby("seed")]
        for metric, found in samples.items():
            found.append(np.mean([scored[metric] for scored in seeds], axis=0))
    return {metric: _interval(mean_of_finite(np.stack(found, axis=1))) for metric, found in samples.items()}


def _drawn(predictions: pd.DataFrame, draws: int, seed: int) -> NDArray[np.floating]:
    """How often each prediction is drawn, (draws, n): groups are drawn with replacement."""
    groups, member = np.unique(predictions["group"].astype(str), return_inverse=True)
    shares = np.full(len(groups), 1 / len(groups))
    return np.random.default_rng(seed).multinomial(len(groups), shares, size=draws)[:, member].astype(float)


def _interval(sample: NDArray[np.floating]) -> tuple[float, float]:
    sample = sample[np.isfinite(sample)]
    low, high = np.percentile(sample, [2.5, 97.5]) if len(sample) else (np.nan, np.nan)
    return float(low), float(high)


def by_site(predictions: pd.DataFrame, classes: Sequence[str] | None) -> list[dict[str, Any]]:
    """`pooled` metrics of each site's test scans, sorted by site; nothing where there are not two known sites.

    Each is ``{site, n_scans, n_groups, majority_accuracy (of classes), <metric>: {value, low, high}}``.
    """
    parts = sorted(predictions.dropna(subset=["site"]).groupby("site"))
    kept = ("n_scans", "n_groups", "majority_accuracy", *metrics_of(classes))
    found = [(site, pooled(part, classes)) for site, part in parts] if len(parts) > 1 else []
    return [{"site": site, **{key: summary[key] for key in kept if key in summary}} for site, summary in found]


def write_metrics(seed_folder: Path, classes: Sequence[str] | None, folds: Sequence[int], out: Path) -> None:
    """Write ``metrics.tsv`` (a row a fold, mean, sd) and ``summary.json`` (pooled, and by site) into `out`."""
    table, predictions = summarise(seed_folder, folds, classes)
    summary: dict[str, Any] = {
        "expected_folds": list(folds),
        "missing_folds": [int(f) for f in table.loc[~table["state"].isin(["ok", ""]), "fold"]],
        "positive_class": classes[-1] if classes and len(classes) == 2 else None,
        "pooled": pooled(predictions, classes) if len(predictions) else None,
        "sites": by_site(predictions, classes),
    }
    write_table(table, out / "metrics.tsv", COLUMNS)
    write_json(_without_nan(summary), out / "summary.json")


def _without_nan(value: Any) -> Any:
    """NaN is not JSON: write null."""
    if isinstance(value, dict):
        return {k: _without_nan(v) for k, v in value.items()}
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list):
        return [_without_nan(v) for v in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value
