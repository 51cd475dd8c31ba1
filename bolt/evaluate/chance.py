"""Does a model predict at all? Its AUC (for numbers its correlation), mean over folds, against permuted labels.

Labels of the test scans are permuted within folds, between people (`bolt.cohort.units`), while the predictions stay
as they are. This is exact for one fold, but not for the mean over several: their training sets
overlap, so that what chance gives to one fold it gives to others, too. The spread of the permutations is therefore
widened by Nadeau and Bengio's factor, sqrt(1 + k n_test / n_train) for k folds (2003, doi:10.1023/A:1024068626366). On
labels without any relation to the data, the share of models that pass is then at most the nominal one
(``benchmarks/verdicts.tsv``). A pooled bootstrap interval passes 5 to 12 %, where 2.5 % are promised.

Permuting labels and training again (`bolt.training.features`) needs no such factor, but a hundred
cross-validations: an option for models that are fitted at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import rankdata

from bolt.cohort.units import exchange_labels, label_units
from bolt.evaluate.scores import Floats, class_arrays, mean_of_finite, number_arrays
from bolt.io.errors import DataError

LEVEL = 0.025
"""One-sided level of the verdict, as of a two-sided 95 % interval."""
DRAWS = 1999


def compare_with_chance(
    tests: pd.DataFrame, classes: Sequence[str] | None, repeated: Floats | None = None, *, draws: int = DRAWS
) -> dict[str, Any]:
    """Compare the mean over folds with that of permuted labels.

    Parameters
    ----------
    tests : DataFrame
        Test rows of the ``predictions.tsv`` of all folds and seeds, and ``n_train``, the training scans of the fold.
    classes : sequence of str or None
    repeated : float array (permutations,), optional
        The mean over folds of the same model trained on permuted labels (`bolt.training.features`); then nothing is
        permuted within folds.
    draws : int
        Permutations.

    Returns
    -------
    dict
        ``metric`` (auc or r), ``value`` (its mean over folds, each the mean over seeds), ``p`` (one-sided), ``bar``
        (the value that p = `LEVEL` needs), ``n_folds``, ``n_units``, ``n_permutations``, ``widened`` (factor; None if
        the cross-validation was repeated). Value, p and bar are None if the metric is undefined in every fold.
    """
    random = np.random.default_rng(0)
    observed, null, counted, n_units = [], [], [], 0
    for number, fold in tests.groupby("fold"):
        seeds = [part.sort_values("scan_id", ignore_index=True) for _, part in fold.groupby("seed")]
        if any(not part["scan_id"].is_unique or not part["scan_id"].equals(seeds[0]["scan_id"]) for part in seeds):
            what = f"the seeds of fold {number} do not predict the same scans, each once"
            raise DataError(what, hint="Give the test rows of all seeds of each fold")
        arrays = [number_arrays(part) if classes is None else class_arrays(part, classes) for part in seeds]
        code = arrays[0][0]
        labels = np.concatenate([code[None], code[exchange_labels(seeds[0], draws, random)]])
        mean = np.mean([_values(given[-1], labels) for given in arrays], axis=0)
        if np.isfinite(mean[0]):
            observed.append(mean[0])
            null.append(mean[1:])
            counted.append(number)
            n_units += label_units(seeds[0]).nunique()
    k = len(observed)
    about: dict[str, Any] = {"metric": "r" if classes is None else "auc", "n_folds": k, "n_units": n_units}
    if not k:
        return about | {"value": None, "p": None, "bar": None, "widened": None, "n_permutations": 0}
    value, widened = float(np.mean(observed)), None
    if repeated is not None and np.isfinite(repeated).any():
        means = repeated[np.isfinite(repeated)]
    else:
        ratio = tests.groupby("fold")["scan_id"].nunique() / tests.groupby("fold")["n_train"].mean()
        widened = float(np.sqrt(1 + k * ratio[counted].mean())) if k > 1 else 1.0
        means = mean_of_finite(np.stack(null, axis=1))
        means = means.mean() + widened * (means - means.mean())
    return about | {
        "value": value,
        "p": float((1 + (means >= value - 1e-12).sum()) / (1 + len(means))),
        "bar": float(np.quantile(means, 1 - LEVEL, method="higher")),
        "n_permutations": len(means),
        "widened": widened,
    }


def _values(predicted: Floats, labels: NDArray[Any]) -> Floats:
    """Return the metric of one model under each row of `labels` (draws, scans); NaN where it is undefined.

    `predicted` are numbers (scans,) or probabilities (scans, classes).
    """
    if predicted.ndim == 1:
        x = labels - labels.mean(axis=1, keepdims=True)
        y = predicted - predicted.mean()
        norm = np.sqrt((x**2).sum(axis=1) * (y @ y))
        return np.divide(x @ y, norm, out=np.full(len(labels), np.nan), where=norm > 1e-12)
    n_classes = predicted.shape[1]
    averaged = [1] if n_classes == 2 else range(n_classes)
    return np.mean([_auc(labels == c, predicted[:, c]) for c in averaged], axis=0)


def _auc(positive: NDArray[np.bool_], score: Floats) -> Floats:
    """Return the AUC for each row of `positive`, from rank sums; NaN without both classes."""
    n = positive.sum(axis=1)
    pairs = n * (len(score) - n)
    wins = positive @ rankdata(score) - n * (n + 1) / 2
    return np.divide(wins, pairs, out=np.full(len(n), np.nan), where=pairs > 0)
