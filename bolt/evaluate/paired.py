"""Paired tests of two models on the same scans: three tests, none of which is conclusive alone.

Differences are reference minus other, p-values are two-sided, and only scans are used that both models predicted in
folds that both finished. Predictions by several seeds are no further observations: metrics of a fold, and scores of a
scan, are averaged over seeds before they are tested. The tests differ in what they assume to be independent:

- `wilcoxon`, the test of the paper: differences of folds. The training sets of two folds overlap (by 8 of 9 parts with
  ten folds), so the differences are not independent, and p is too small.
- `corrected_t`: the same differences, with a variance that is increased for that overlap.
- `sign_flip`: subjects (or families). It tests whether these trained models differ on such subjects, not whether models
  trained again would. It needs a score of each scan, which accuracy, Brier score, log loss and absolute error average.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from bolt.cohort.confounding import holm
from bolt.evaluate.metrics import by_fold
from bolt.evaluate.scores import Floats, metrics_of, scan_scores
from bolt.io.files import columns

FEWEST_FOLDS = 6  # with five, the smallest two-sided p of the signed-rank test is 0.06
DRAWS = 9999
EXACT = 13  # up to this number of differences all sign patterns are enumerated, which is exact with ties too
NO_SPREAD = "no t-test: the difference is the same in all folds"
TESTS = ("wilcoxon_p", "corrected_t_p", "permutation_p")
TEST_COLUMNS = columns("evaluate", "tests")


def wilcoxon(difference: Floats) -> float:
    """Compute the two-sided p of the Wilcoxon signed-rank test, exact for up to `EXACT` differences.

    NaN for fewer than `FEWEST_FOLDS` folds. Folds without a difference are dropped (Wilcoxon 1945,
    doi:10.2307/3001968); if none is left, p is 1.
    """
    if len(difference) < FEWEST_FOLDS:
        return float("nan")
    rounded = np.round(difference, 12)  # so that equal differences tie
    nonzero = rounded[rounded != 0]
    if not len(nonzero):
        return 1.0
    if len(nonzero) > EXACT:
        return float(stats.wilcoxon(nonzero).pvalue)
    ranks = stats.rankdata(np.abs(nonzero))
    signs = np.array(np.meshgrid(*[(-1, 1)] * len(nonzero))).reshape(len(nonzero), -1)
    return float(np.mean(np.abs(ranks @ signs) >= abs(ranks @ np.sign(nonzero)) - 1e-9))


def corrected_t(difference: Floats, ratio: float) -> float:
    """Compute the two-sided p of the corrected resampled t-test.

    For the differences d of k folds, t = mean(d) / sqrt((1/k + n_test/n_train) var(d)), with k - 1 in the variance and
    k - 1 degrees of freedom; n_test/n_train accounts for the overlap of the training sets, which 1/k alone ignores
    (Nadeau and Bengio 2003, doi:10.1023/A:1024068626366).

    Parameters
    ----------
    difference : float array (folds,)
    ratio : float
        Mean n_test/n_train over these folds.

    Returns
    -------
    float
        1 if no fold differs; NaN for one fold, and if all folds differ by the same amount.
    """
    if not np.round(difference, 12).any():
        return 1.0 if len(difference) else float("nan")
    if len(difference) < 2 or np.ptp(np.round(difference, 12)) == 0:
        return float("nan")
    k = len(difference)
    t = difference.mean() / np.sqrt((1 / k + ratio) * difference.var(ddof=1))
    return float(2 * stats.t.sf(abs(t), k - 1))


def sign_flip(difference: Floats, *, draws: int = DRAWS, seed: int = 0) -> float:
    """Compute the two-sided p of the paired sign-flip test: how often random signs give as large a sum.

    Parameters
    ----------
    difference : float array (groups,)
        Difference between the models, summed over the scans of each group.
    draws : int
    seed : int

    Returns
    -------
    float
        (1 + draws at least as extreme) / (1 + draws), never 0 (Phipson and Smyth 2010, doi:10.2202/1544-6115.1585);
        1 if no group differs.
    """
    nonzero = difference[np.abs(difference) > 1e-12]
    random, extreme, observed = np.random.default_rng(seed), 0, abs(nonzero.sum()) - 1e-9
    for first in range(0, draws, 1000):
        signs = random.integers(0, 2, (min(1000, draws - first), len(nonzero))) * 2.0 - 1
        extreme += int((np.abs(signs @ nonzero) >= observed).sum())
    return (1 + extreme) / (1 + draws)


def compare(reference: pd.DataFrame, other: pd.DataFrame, classes: Sequence[str] | None) -> list[dict[str, Any]]:
    """Test one row against the reference.

    Parameters
    ----------
    reference, other : DataFrame
        ``predictions.tsv`` with all roles, of every fold and seed that finished.
    classes : sequence of str or None

    Returns
    -------
    list of dict
        One entry per metric: `TEST_COLUMNS` without the Holm correction.
    """
    tests, n_train = [], []
    for table in (reference, other):
        tests.append(table[table["role"] == "test"].set_index(["fold", "seed", "scan_id"]).sort_index())
        n_train.append(table[table["role"] == "train"].groupby(["fold", "seed"]).size())
    shared = tests[0].index.intersection(tests[1].index)
    a, b = (part.loc[shared].reset_index() for part in tests)
    folds = sorted(a["fold"].unique())
    counts = {"n_folds": len(folds), "n_scans": a["scan_id"].nunique(), "n_groups": a["group"].nunique()}
    if not folds:
        return [counts | {"metric": metric, "note": "no fold that both finished"} for metric in metrics_of(classes)]
    differences = by_fold(a, classes) - by_fold(b, classes)
    train = (n_train[0].groupby("fold").mean() + n_train[1].groupby("fold").mean()) / 2
    ratio = a.groupby("fold")["scan_id"].nunique() / train.reindex(folds)
    of_scans = pd.DataFrame(scan_scores(a, classes)) - pd.DataFrame(scan_scores(b, classes))
    of_scans = of_scans.groupby([a["group"], a["scan_id"]]).mean()  # over seeds
    rows = []
    for metric in metrics_of(classes):
        defined = differences[metric].dropna()
        d = defined.to_numpy()
        row = {"metric": metric, **counts, "n_folds": len(d), "difference": d.mean() if len(d) else np.nan}
        row |= {"wilcoxon_p": wilcoxon(d), "corrected_t_p": corrected_t(d, ratio[defined.index].mean())}
        few = f"no signed-rank test: {len(d)} of at least {FEWEST_FOLDS} folds" if len(d) < FEWEST_FOLDS else ""
        undefined = f"undefined in {len(folds) - len(d)} of {len(folds)} folds" if len(d) < len(folds) else ""
        same = NO_SPREAD if len(d) > 1 and np.isnan(row["corrected_t_p"]) else ""
        row["note"] = "; ".join(filter(None, [undefined, few, same]))
        if metric in of_scans:
            row["pooled_difference"] = of_scans[metric].mean()
            row["permutation_p"] = sign_flip(of_scans[metric].groupby("group").sum().to_numpy())
        rows.append(row)
    return rows


def compare_all(rows: dict[str, pd.DataFrame], reference: str, classes: Sequence[str] | None) -> pd.DataFrame:
    """Test every row against the reference, Holm-corrected over rows for each metric and test.

    Parameters
    ----------
    rows : dict
        Predictions by row, as for `compare`; all of one dataset and atlas.
    reference : str
        One of the rows.
    classes : sequence of str or None

    Returns
    -------
    DataFrame
        ``row`` and `TEST_COLUMNS`.
    """
    tests = [
        {"row": row, **test}
        for row, predictions in rows.items()
        if row != reference
        for test in compare(rows[reference], predictions, classes)
    ]
    table = pd.DataFrame(tests).reindex(columns=["row", *TEST_COLUMNS])
    for name in TESTS:
        table[name] = table[name].astype(float)
        table[f"{name}_holm"] = table.groupby("metric", sort=False)[name].transform(holm)
    return table
