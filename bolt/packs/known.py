"""Scans of the training cohort among the scans to predict: which models may predict them.

A scan is known by its series, whatever it is called, or by the name of its subject or family: another scan of a person
on whom a model was trained is not new to that model.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bolt.folds.audit import same_name
from bolt.folds.check import name_contents
from bolt.packs.facts import RunPlace, roles_in
from bolt.packs.pack import Pack
from bolt.series.cache import SeriesCache

TRAINED = "every model was trained on this "
"""Flag of predictions that say nothing about new scans, and are in no metric."""
KNOWN = "is in the training cohort"


@dataclass(frozen=True)
class Known:
    """What the training cohort has of a scan.

    Attributes
    ----------
    models : (models,) bool array
        Which models predict it: those that were not trained on its subject or family, or else all.
    twin : str or None
        The training cohort's scan with the same series.
    flag : str
        For the reader; empty if the scan is new, or predicted by models that were not trained on the same scan.
    """

    models: NDArray[np.bool_]
    twin: str | None = None
    flag: str = ""


def known_scans(pack: Pack, cache: SeriesCache) -> list[Known]:
    """Compare scans with the training cohort; a pack has no scans of it, so that all are new to a pack.

    Parameters
    ----------
    pack : Pack
    cache : SeriesCache
        Scans to predict.
    """
    members = pack.estimator.members_
    if pack.place is None:
        return [Known(np.ones(len(members), bool))] * len(cache)
    roles, twins = roles_in(pack.place), _twins(pack.place, cache)
    families = _families(pack.place.cache.index, cache.index, twins)
    found = []
    for twin, family, subject in zip(twins, families, cache.index["subject"], strict=True):
        role = roles.reindex(family)
        untrained = np.array([(role[member.info["fold"]].dropna() == "test").all() for member in members], bool)
        flag = ""
        if not untrained.any():
            flag = TRAINED + ("scan" if twin else "subject")
        elif family and not twin:
            flag = f"subject '{subject}' {KNOWN}: predicted by models that were not trained on it (if it is somebody "
            flag += "else, rename it)"
        found.append(Known(untrained if untrained.any() else ~untrained, twin, flag))
    return found


def _twins(place: RunPlace, cache: SeriesCache) -> list[str | None]:
    """Return the training cohort's scan with the same series for each scan, or None."""
    cohort = place.cache
    known = {f"0{scan}": cohort.series(i) for i, scan in enumerate(cohort.index["scan_id"])}
    new = {f"1{i}": cache.series(i) for i in range(len(cache))}
    names = name_contents(known | new)  # the first with the same content, so that of the cohort
    found = [names.get(f"1{i}", "1") for i in range(len(cache))]
    return [name[1:] if name.startswith("0") else None for name in found]


def _families(cohort: pd.DataFrame, new: pd.DataFrame, twins: list[str | None]) -> list[list[str]]:
    """Return the training cohort's scans of each new scan's family: by its own names, or those of scans with a twin."""
    group = cohort["group"].fillna(cohort["subject"])
    scans_of = cohort["scan_id"].groupby(group).agg(list)
    group_of = dict(zip(cohort["scan_id"], group, strict=True))
    named: dict[str, set[str]] = {}
    for names in (cohort["subject"], group):
        for name, family in zip(names, group, strict=True):
            named.setdefault(same_name(name), set()).add(family)
    ours = [
        {same_name(row.subject), same_name(row.group if isinstance(row.group, str) else row.subject)}
        for row in new.itertuples()
    ]
    for names, twin in zip(ours, twins, strict=True):  # a subject of whom one scan is recognised is, by any name
        for name in names if twin else ():
            named.setdefault(name, set()).add(group_of[twin])
    families = [set().union(*(named.get(name, set()) for name in names)) for names in ours]
    return [sorted(scan for family in members for scan in scans_of[family]) for members in families]
