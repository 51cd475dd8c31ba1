"""The cohort on which a model was trained, in numbers that describe no single participant; how far a scan is from it.

The confound floor is what motion, age and sex alone would predict, learned from that cohort: a model that does no
better in a new cohort may have learned these instead of the brain.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bolt.datasets import COLUMNS
from bolt.series.cache import SeriesCache
from bolt.series.connectivity import connectivity_of
from bolt.share.estimators import estimator
from bolt.share.scans import GIVEN
from bolt.training.ensembles import Member, predict_each

MIDDLE = (5, 25, 50, 75, 95)
"""Percentiles that are kept of age and motion; the extremes belong to single participants."""
PERCENTILES = range(1, 100)
NEAR = 1.5
"""Factor by which a repetition time may differ from all of the training cohort before a scan is refused."""
OUTSIDE = 99
"""Percentile of the training cohort beyond which a scan is flagged."""
CONFOUNDS = {"mean_fd": "motion", "age": "age", "sex": "sex"}
KNOWN = 0.8
"""Share of the scans of which a confound must be known."""


def summarise_cohort(cache: SeriesCache, rows: Sequence[int]) -> tuple[dict[str, Any], NDArray[np.float32]]:
    """Describe a training cohort.

    Parameters
    ----------
    cache : SeriesCache
    rows : sequence of int
        Scans of the cohort: a cache may have others, which are in no fold.

    Returns
    -------
    summary : dict
        Numbers of scans, subjects, and of scans by label, site and sex; percentiles of age (years), mean FD (mm) and
        of the distance to the mean connectivity of all other subjects; smallest and largest repetition time (s) and
        number of volumes.
    connectivity : (R (R - 1) / 2,) array
        Mean over scans.
    """
    index = cache.index.reindex(columns=[*COLUMNS, "length"]).iloc[list(rows)]
    connectivity = connectivity_of(cache, rows)
    mean = connectivity.mean(axis=0)
    distances = []
    for subject in index["subject"].unique():  # a scan is no nearer to a mean of which it is a part
        own = (index["subject"] == subject).to_numpy()
        others = (mean * len(own) - connectivity[own].sum(axis=0)) / max(1, (~own).sum())
        distances += [distance(scan, others) for scan in connectivity[own]]
    summary: dict[str, Any] = {"scans": len(index), "subjects": int(index["subject"].nunique())}
    for column in ("label", "site", "sex"):
        counts = index[column].dropna().astype(str).value_counts().sort_index()
        if column != "label" or len(counts) <= 20:  # a number has no classes to count
            summary[column] = {str(name): int(count) for name, count in counts.items()}
    for column in ("age", "mean_fd"):
        known = pd.to_numeric(index[column], errors="coerce").dropna()
        if len(known) >= 20:
            summary[column] = {str(p): round(float(np.percentile(known, p)), 3) for p in MIDDLE}
    tr = index["tr"].dropna().astype(float)
    summary["tr"] = [float(tr.min()), float(tr.max())] if len(tr) else None
    summary["volumes"] = [int(index["length"].min()), int(index["length"].max())]
    summary["distance"] = [round(float(d), 5) for d in np.percentile(distances, list(PERCENTILES))]
    return summary, mean.astype(np.float32)


def distance(connectivity: NDArray[np.floating], mean: NDArray[np.floating]) -> float:
    """Return 1 minus the correlation of a scan's connectivity with the training cohort's mean: 0 is the mean itself."""
    if not connectivity.size or connectivity.std() == 0 or mean.std() == 0:
        return 1.0
    return 1 - float(np.corrcoef(connectivity.astype(float), mean.astype(float))[0, 1])


def percentile(value: float, percentiles: list[float]) -> int:
    """Return below which percentile of the training cohort a value is, 0 to 100."""
    return int(np.searchsorted(percentiles, value)) + (value > percentiles[-1])


def span(ends: list[float]) -> str:
    """Return a range in words, such as ``2–2.2``."""
    low, high = ends
    return f"{low:g}" if low == high else f"{low:g}–{high:g}"


def refusal(scan: Any, cohort: dict[str, Any]) -> str:
    """Return why a model must not be applied to a scan; empty if it may.

    Parameters
    ----------
    scan : named tuple
        A row of the table of scans.
    cohort : dict
        From `summarise_cohort`.
    """
    tr = cohort.get("tr")
    if tr and scan.tr == scan.tr and scan.tr is not None and not tr[0] / NEAR <= scan.tr <= tr[1] * NEAR:
        return (
            f"repetition time {scan.tr:g} s, but the model was trained at {span(tr)} s. Windows are counted in "
            "volumes, so it would see events at another speed. Use --any-tr to predict all the same"
        )
    return ""


def flags(scan: Any, n_uncovered: int, place: int | None, cohort: dict[str, Any]) -> list[str]:
    """Return in what a scan differs from the training cohort, in words.

    Parameters
    ----------
    scan : named tuple
        A row of the table of scans, with ``length``.
    n_uncovered : int
        ROIs without a signal.
    place : int or None
        Percentile of its distance, from `percentile`.
    cohort : dict
        From `summarise_cohort`; empty if unknown.
    """
    found = []
    if n_uncovered:
        found.append(f"{n_uncovered} ROIs without signal")
    if not cohort:
        return [*found, "training cohort unknown"]
    tr, (shortest, longest) = cohort.get("tr"), cohort["volumes"]
    if scan.tr is None or scan.tr != scan.tr:
        found.append("TR unknown")
    elif tr and not tr[0] * 0.99 <= scan.tr <= tr[1] * 1.01:
        found.append(f"TR {scan.tr:g} s, trained at {span(tr)} s")
    if not shortest <= scan.length <= longest:
        found.append(f"{scan.length} volumes, trained on {span([shortest, longest])}")
    for column, unit in (("mean_fd", "mm mean FD"), ("age", "years")):
        value, known = pd.to_numeric(getattr(scan, column), errors="coerce"), cohort.get(column)
        if known and value == value:
            low, high = known["5"], known["95"]
            margin = (high - low) / 4  # not far from the middle 90 % of the training cohort
            if not low - margin <= value <= high + margin:
                found.append(f"{value:.3g} {unit}, 90 % of the training cohort: {low:g}–{high:g}")
    site = getattr(scan, "site", None)
    if isinstance(site, str) and cohort.get("site") and site not in cohort["site"]:
        found.append(f"site '{site}' is new")
    if place is not None and place >= OUTSIDE:
        found.append(f"connectivity farther from the mean than {place} % of the training cohort")
    return found


def fit_floor(cache: SeriesCache, classes: list[str] | None) -> Member | None:
    """Fit a logistic regression of the label on all known confounds to a whole training cohort.

    Returns
    -------
    Member or None
        None if the label is a number, or no confound is known of most scans and differs between them.
    """
    scans = cache.index[cache.index["label"].isin(classes or [])]
    present = [name for name in CONFOUNDS if name in scans]
    names = [name for name in present if scans[name].notna().mean() >= KNOWN and scans[name].nunique() > 1]
    if not names or scans["label"].nunique() < len(classes or ()):
        return None
    model = estimator("motion_only", covariates=tuple(names))
    nothing = np.tile([[0.0], [1.0]], (len(scans), 1, 1))  # series, which this model does not read
    told = logging.getLogger("bolt.training.features")
    before, told.disabled = told.disabled, True
    try:
        fitted = model.fit(nothing, scans["label"].to_numpy(str), scans=scans[[c for c in GIVEN if c in names]])
    finally:
        told.disabled = before
    return fitted.members_[0]  # type: ignore[no-any-return]


def floor_name(member: Member) -> str:
    """Return what the floor's model reads, in words: ``motion, age and sex alone``."""
    names = [CONFOUNDS.get(name, name) for name in member.info["model"]["covariates"]]
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
