"""Inner folds: the training side of an outer fold split again, to explain scans that a model was not fitted to.

A model's importance weights for the scans it was fitted to may differ from those for new scans. Inner models with the
same settings are fitted to all but one part of the training side, and explain that part. Outer test scans are in none
of the inner folds.
"""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from bolt.config import Folds
from bolt.folds.audit import HINT
from bolt.folds.splits import make_folds
from bolt.io.errors import DataError, LeakError


def make_inner_folds(
    folds: pd.DataFrame,
    scans: pd.DataFrame,
    fold: int,
    settings: Folds,
    n_inner: int,
    contents: Mapping[str, pd.Series] | None = None,
) -> pd.DataFrame:
    """Split the training and validation scans of an outer fold as `bolt.folds.splits.make_folds` splits all scans.

    Parameters
    ----------
    folds : DataFrame
        ``folds.tsv``.
    scans : DataFrame
        scan_id, subject, group, site, label, as for `bolt.folds.splits.make_folds`.
    fold : int
        Outer fold.
    settings : Folds
        Settings of the outer folds. Inner folds are always stratified by label and site, even if outer folds are sites.
    n_inner : int
        Number of inner folds, at least 2.
    contents : mapping, optional
        Names of the contents of the scans, see `bolt.folds.audit.find_leaks`.

    Returns
    -------
    DataFrame
        `bolt.folds.splits.FOLD_COLUMNS`; ``fold`` is the inner fold. Every scan of the training side is tested once.

    Raises
    ------
    DataError
        There is no such outer fold, or a class has fewer groups than inner folds.
    LeakError
        A group is also in the outer test part, or on two sides of an inner fold; only if `folds` is wrong.
    """
    outer = folds[folds["fold"] == fold]
    if outer.empty:
        raise DataError(f"no fold {fold}", where="folds.tsv", hint="Make the folds again")
    in_test = scans["scan_id"].isin(outer.loc[outer["role"] == "test", "scan_id"])
    training_side = scans[scans["scan_id"].isin(outer.loc[outer["role"] != "test", "scan_id"])]
    unit = "subject" if settings.group == "subject" else "group"
    shared = set(training_side[unit]) & set(scans.loc[in_test, unit])
    if shared:
        raise LeakError(
            f"{unit} '{min(shared)}' is in the training side and the test part of fold {fold} "
            f"({len(shared)} such cases)",
            hint=HINT,
        )
    # copies of a recording may join groups, but these are then all on one side of the outer fold
    update = {"scheme": "kfold", "outer": n_inner, "seed": settings.seed + 1 + fold, "run": None}
    return make_folds(training_side, settings.model_copy(update=update), contents)
