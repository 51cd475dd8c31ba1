"""The confound floor of new scans: what motion, age and sex alone would predict, learned from the training cohort.

A model that does no better in a new cohort may have learned these instead of the brain.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pandas as pd

from bolt.api.estimators import estimator
from bolt.api.scans import GIVEN
from bolt.series.cache import SeriesCache
from bolt.training.ensembles import Member, predict_each

CONFOUNDS = ("mean_fd", "age", "sex")
KNOWN = 0.8
"""Share of the scans that must have a value."""


def known_confounds(scans: pd.DataFrame) -> list[str]:
    """Return the confounds that are known of most scans and differ between them."""
    return [
        column
        for column in CONFOUNDS
        if column in scans and scans[column].notna().mean() >= KNOWN and scans[column].nunique() > 1
    ]


def fit_floor(cache: SeriesCache, classes: list[str] | None) -> Member | None:
    """Fit a logistic regression of the label on all known confounds to a whole training cohort.

    Returns
    -------
    Member or None
        None if the label is a number, or no confound is known.
    """
    scans = cache.index[cache.index["label"].isin(classes or [])]
    names = known_confounds(scans)
    if not names or scans["label"].nunique() < len(classes or ()):
        return None
    model = estimator("motion_only", covariates=tuple(names))
    nothing = np.tile([[0.0], [1.0]], (len(scans), 1, 1))  # series, which this model does not read
    with _quiet("bolt.training.features"):
        fitted = model.fit(nothing, scans["label"].to_numpy(str), scans=scans[[c for c in GIVEN if c in names]])
    return fitted.members_[0]  # type: ignore[no-any-return]


@contextmanager
def _quiet(name: str) -> Iterator[None]:
    """Keep a logger silent within the block."""
    logger = logging.getLogger(name)
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


def floor_name(member: Member) -> str:
    """Return what the floor's model reads, in words: ``motion, age and sex alone``."""
    words = {"mean_fd": "motion"}
    names = [words.get(name, name) for name in member.info["model"]["covariates"]]
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]])) + " alone"


def predict_floor(member: Member, cache: SeriesCache) -> pd.DataFrame | None:
    """Predict scans by their confounds.

    Returns
    -------
    DataFrame or None
        predicted and ``p_<class>``, indexed by scan; None unless all of the model's confounds are known of most scans,
        and text (sex) is written as in the training cohort.
    """
    for column in member.info["covariates"]:
        values, levels = cache.index[column["column"]], column.get("levels")
        if (values.notna() if levels is None else values.isin(levels)).mean() < KNOWN:
            return None
    probability, classes = predict_each([member], cache)[0], member.info["classes"]
    table = pd.DataFrame(probability, columns=[f"p_{name}" for name in classes], index=cache.index["scan_id"])
    return table.assign(predicted=[classes[k] for k in probability.argmax(axis=1)])
