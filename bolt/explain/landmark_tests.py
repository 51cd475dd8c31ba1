"""Do important volumes predict the class better than control volumes, and than less important ones? Tests over folds.

Folds share most of their training scans, so differences between regressions are tested with the corrected resampled
t-test (Nadeau and Bengio 2003, doi:10.1023/A:1024068626366).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from bolt.evaluate.paired import FEWEST_FOLDS, corrected_t
from bolt.explain.controls import CONTROLS

TEST_COLUMNS = {
    "question": "moments: important volumes against a control; order: first against later quarters of the subset curve",
    "importance": "as in landmarks.tsv, of the important volumes",
    "first": "important, or first quarter",
    "second": "what it is compared with: a control (as `tokens` in landmarks.tsv), or second, third or last quarter",
    "auc_first": "AUC per scan, mean over folds",
    "auc_second": "AUC per scan, mean over folds",
    "difference": "first minus second, mean over folds",
    "n_folds": "folds in which both are defined",
    "p": "corrected resampled t-test (Nadeau and Bengio), two-sided, with the ratio of test to training groups; n/a: "
    f"fewer than {FEWEST_FOLDS} folds, or the same difference in all folds",
    "note": "why there is no p",
}


def landmark_tests(table: pd.DataFrame, curve: pd.DataFrame, ratio: float) -> pd.DataFrame:
    """Test important volumes against each control, and the first quarter of the subset curve against the others.

    Parameters
    ----------
    table : DataFrame
        Columns of `bolt.explain.landmarks.LANDMARK_COLUMNS`.
    curve : DataFrame
        Columns of `bolt.explain.subsets.SUBSET_COLUMNS`; if it has fewer than four offsets, they are not tested.
    ratio : float
        n_test/n_train, mean over folds.

    Returns
    -------
    DataFrame
        Columns of `TEST_COLUMNS`.
    """
    auc = _auc_by_fold(table, ["importance", "tokens"])
    rows = []
    for importance, important in [key for key in auc if key[1] == "important"]:
        keys = [(of, control) for control in CONTROLS for of in (importance, "none")]
        for key in (key for key in keys if key in auc):
            names = {"question": "moments", "importance": importance, "first": important, "second": key[1]}
            rows.append(names | _tested(auc[importance, important], auc[key], ratio))
    by_offset = _auc_by_fold(curve, ["offset"])
    n = by_offset.shape[1]
    quarter = n // 4
    if quarter:
        names = {"question": "order", "importance": "fitted", "first": "first quarter"}
        first = by_offset.iloc[:, :quarter].mean(axis=1)
        others = {"second": slice(quarter, n // 2), "third": slice(n // 2, n - quarter), "last": slice(n - quarter, n)}
        for name, part in others.items():
            second = by_offset.iloc[:, part].mean(axis=1)
            rows.append(names | {"second": f"{name} quarter"} | _tested(first, second, ratio))
    return pd.DataFrame(rows, columns=list(TEST_COLUMNS))


def _auc_by_fold(table: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Return the AUC of scans: a row per fold, a column per value of the keys, in the order of the table."""
    rows = table[(table["level"] == "scan") & ~table["fold"].isin(["mean", "sd"])]
    return rows.pivot_table(index="fold", columns=keys, values="auc", sort=False)


def _tested(first: pd.Series, second: pd.Series, ratio: float) -> dict[str, Any]:
    """Compare two regressions in the folds in which both are defined."""
    both = pd.DataFrame({"first": first, "second": second}).dropna()
    n, difference = len(both), (both["first"] - both["second"]).to_numpy()
    p, note = np.nan, f"{n} of at least {FEWEST_FOLDS} folds"
    if n >= FEWEST_FOLDS:
        p = corrected_t(difference, ratio)
        note = "the difference is the same in all folds" if np.isnan(p) else ""
    return {
        "auc_first": both["first"].mean(),
        "auc_second": both["second"].mean(),
        "difference": difference.mean() if n else np.nan,
        "n_folds": n,
        "p": p,
        "note": note,
    }
