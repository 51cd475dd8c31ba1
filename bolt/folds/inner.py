"""The training side of an outer fold, split once more: what models are made of that explain scans they did not see.

A model's importance weights for the scans it was fitted to need not be like those for new scans. Inner models of the
same settings are fitted to all of the training side but one part, and explain that part. The outer test scans are in
none of their tables.
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
        scan_id, subject, group, site, label; as `bolt.folds.splits.make_folds` takes them.
    fold : int
        Outer fold.
    settings : Folds
        Of the outer folds. Inner ones are always stratified by label and site, also where outer folds are sites.
    n_inner : int
        Parts, at least 2.
    contents : mapping, optional
        Hashes of what the scans hold, see `bolt.folds.audit.find_leaks`.

    Returns
    -------
    DataFrame
        `bolt.folds.splits.FOLD_COLUMNS`; ``fold`` is the inner one. Every scan of the training side is tested once.

    Raises
    ------
    DataError
        No such outer fold, or fewer groups of a class than parts.
    LeakError
        A group of the outer test part, or one on two sides of an inner fold; not unless `folds` is wrong.
    """
    own = folds[folds["fold"] == fold]
    if own.empty:
        raise DataError(f"no fold {fold}", where="folds.tsv", hint="Make the folds again")
    tested = own.loc[own["role"] == "test", "scan_id"]
    side = own.loc[own["role"] != "test", "scan_id"]
    inside = scans[scans["scan_id"].isin(side)]
    unit = "subject" if settings.group == "subject" else "group"
    both = set(inside[unit]) & set(scans.loc[scans["scan_id"].isin(tested), unit])
    if both:
        raise LeakError(
            f"{unit} '{min(both)}' is in the training side and the test part of fold {fold} ({len(both)} such cases)",
            hint=HINT,
        )
    update = {"scheme": "kfold", "outer": n_inner, "seed": settings.seed + 1 + fold, "run": None}
    return make_folds(inside, settings.model_copy(update=update), contents)
