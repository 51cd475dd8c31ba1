"""Nested cross-validation by group, and an audit that finds leaks in any table of folds.

A group (the family where it is known, else the subject) never straddles a split. Every scan is tested in one fold.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping

import numpy as np
import pandas as pd
from sklearn.model_selection import StratifiedGroupKFold

from bolt.config import Folds
from bolt.folds.audit import HINT, find_leaks
from bolt.io.errors import DataError, LeakError

ROLES = ("train", "validation", "test")
FOLD_COLUMNS = {
    "scan_id": "Scan",
    "subject": "Person scanned",
    "group": "Unit that never straddles a split: the family where it is known, else the subject",
    "fold": "Outer fold, from 0",
    "role": "Part the scan plays in this fold: train, validation or test",
}


def make_folds(scans: pd.DataFrame, settings: Folds, contents: Mapping[str, pd.Series] | None = None) -> pd.DataFrame:
    """Split scans into outer folds with an inner validation part each.

    Outer folds and validation parts are stratified by label and site as near as counts allow (by label alone
    where a stratum has fewer groups than there are parts). A subject with several scans weighs once. The result
    depends on the seed and the set of scans, not on the order of rows. With `scheme: leave-site-out` each fold tests
    one site, in the order of their names, and another whole site validates.

    Parameters
    ----------
    scans : DataFrame
        scan_id, subject, group, site, label (of numbers their `quarters`); scans with an `exclude_reason` are left out.
    settings : Folds
        `scheme`, `group`, `outer` folds, `validation` (share of all subjects), `seed`.
    contents : mapping, optional
        Hashes of what the scans hold, see `bolt.folds.audit.find_leaks`.

    Returns
    -------
    DataFrame
        `FOLD_COLUMNS`, one row a scan and fold, sorted by fold and scan.

    Raises
    ------
    DataError
        Fewer groups of a class than folds, one class only, missing labels or sites, or a subject in two groups.
    LeakError
        One recording under the names of two subjects; nothing else unless this function is wrong.
    """
    if settings.group == "subject":
        scans = scans.assign(group=scans["subject"])
    if settings.scheme == "leave-site-out":
        table, scans = _by_site(scans, settings)
    else:
        table, scans = _by_group(scans, settings)
    audit_folds(table, scans, contents, by_site=settings.scheme == "leave-site-out")
    return table


def _by_group(scans: pd.DataFrame, settings: Folds) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Folds of groups, and the scans as they were understood."""
    scans = _checked(scans, settings.outer)
    people = scans.drop_duplicates(["group", "subject", "label", "site"], ignore_index=True)
    n_inner = max(2, round((1 - 1 / settings.outer) / settings.validation))
    folds = []
    for fold, test in enumerate(_parts(people, settings.outer, settings.seed)):
        rest = people[~people["group"].isin(test)]
        validation = _validation(rest, n_inner, settings.seed + 1 + fold)
        role = np.select(
            [scans["group"].isin(test), scans["group"].isin(validation)], ["test", "validation"], default="train"
        )
        folds.append(scans[["scan_id", "subject", "group"]].assign(fold=fold, role=role))
    return pd.concat(folds, ignore_index=True), scans


def _by_site(scans: pd.DataFrame, settings: Folds) -> tuple[pd.DataFrame, pd.DataFrame]:
    """One fold a site. The sites stand in a ring, drawn by the seed; the next one on it that has every class, and
    leaves every class to training, validates."""
    scans = _checked(scans, 2)
    sites = sorted(scans["site"].unique())
    if "" in sites:
        raise DataError(f"{(scans['site'] == '').sum()} scans have no site", hint="Name the dataset's column 'site'")
    if len(sites) < 3:
        raise DataError(f"leave-site-out needs three sites, there are {len(sites)}", hint="Set 'folds: scheme: kfold'")
    if len(sites) != settings.outer:
        raise DataError(
            f"leave-site-out makes one fold a site: there are {len(sites)} sites, but {settings.outer} folds",
            hint=f"Set 'folds: outer' to {len(sites)}",
        )
    homes = scans.groupby("group")["site"].nunique()
    if homes.max() > 1:
        raise DataError(
            f"group '{homes.idxmax()}' was scanned at {homes.max()} sites: no site can be left out without it",
            hint="Exclude its scans at all sites but one, or set 'folds: scheme: kfold'",
        )
    classes = scans.groupby("site")["label"].agg(frozenset)
    ring = np.random.default_rng(settings.seed).permutation(sites).tolist()
    folds = []
    for fold, test in enumerate(sites):
        place = ring.index(test)

        def badness(site: str, test: str = test) -> tuple[int, int]:
            trained = frozenset().union(*classes[~classes.index.isin([site, test])])
            return (-len(trained), -len(classes[site]))

        validation = min(ring[place + 1 :] + ring[:place], key=badness)
        role = np.select([scans["site"] == test, scans["site"] == validation], ["test", "validation"], default="train")
        folds.append(scans[["scan_id", "subject", "group"]].assign(fold=fold, role=role))
    return pd.concat(folds, ignore_index=True), scans


def quarters(labels: pd.Series) -> pd.Series:
    """Name the quarter of the scans that each label, a number, falls into, such as ``20 to 31.5``: what takes the place
    of classes where folds are stratified."""
    values = labels.astype(float)
    quarter = np.searchsorted(np.quantile(values, [0.25, 0.5, 0.75]), values)
    low, high = (values.groupby(quarter).transform(end) for end in ("min", "max"))
    return low.map("{:g}".format) + " to " + high.map("{:g}".format)


def audit_folds(
    folds: pd.DataFrame,
    scans: pd.DataFrame,
    contents: Mapping[str, pd.Series] | None = None,
    *,
    by_site: bool = False,
) -> None:
    """Refuse a table of folds that leaks or cannot be learned from.

    Parameters
    ----------
    folds : DataFrame
        scan_id, fold, role; own or foreign.
    scans : DataFrame
        scan_id, subject, group, label: who was scanned is taken from here, not from `folds`.
    contents : mapping, optional
        Hashes of what the scans hold, see `bolt.folds.audit.find_leaks`.
    by_site : bool
        No site may straddle either.

    Raises
    ------
    LeakError
        A scan, subject, group or recording has two roles in one fold, or a scan is not tested exactly once.
    DataError
        Unknown scans or roles, a part that is empty, one class only, fewer groups of a class than folds, or a
        class that is missing in a training part.
    """
    folds = folds.astype({"scan_id": str})
    unknown = sorted(set(folds["role"]) - set(ROLES))
    if unknown:
        raise DataError(f"unknown roles: {', '.join(map(str, unknown))}", hint=f"Use {', '.join(ROLES)}")
    numbers = sorted(folds["fold"].unique())
    scans = _checked(scans, 2 if by_site else len(numbers))
    strangers = sorted(set(folds["scan_id"]) - set(scans["scan_id"]))
    if strangers:
        raise DataError(f"scans that are not in the scan table: {_some(strangers)}", hint="Make the folds again")
    who = folds[["scan_id", "fold", "role"]].merge(scans[["scan_id", "subject", "group", "label"]], on="scan_id")
    kinds = ("scan_id", "subject", "group", "site") if by_site else ("scan_id", "subject", "group")
    leaks = find_leaks(folds, scans, kinds, contents)
    if leaks:
        raise LeakError(str(leaks[0]), hint=HINT)
    tested = who[who.role == "test"].groupby("scan_id").size().reindex(scans["scan_id"], fill_value=0)
    wrong = tested[tested != 1]
    if len(wrong):
        raise LeakError(
            f"scan '{wrong.index[0]}' is tested {wrong.iloc[0]} times, not once ({len(wrong)} such scans)",
            hint="Make the folds again",
        )
    _check_parts(who, numbers, scans)


def _check_parts(who: pd.DataFrame, numbers: list[int], scans: pd.DataFrame) -> None:
    classes = set(scans["label"])
    for fold in numbers:
        part = who[who.fold == fold]
        if len(part) != len(scans):
            raise DataError(
                f"fold {fold} has {len(part)} rows for {len(scans)} scans",
                hint="Give every scan one role in every fold",
            )
        for role in ROLES:
            if not (part.role == role).any():
                raise DataError(f"fold {fold} has no {role} scans", hint="Use fewer folds, or more subjects")
        absent = sorted(classes - set(part.label[part.role == "train"]))
        if absent:
            raise DataError(
                f"fold {fold} has no training scan of class {', '.join(absent)}",
                hint="Use fewer folds, or more subjects",
            )


def _checked(scans: pd.DataFrame, n_folds: int) -> pd.DataFrame:
    """The usable scans, sorted, as text and with a group each; refuse what cannot be split."""
    if "exclude_reason" in scans:
        scans = scans[scans["exclude_reason"].isna()]
    for column in ("scan_id", "subject", "label"):
        if scans[column].isna().any():
            raise DataError(f"{scans[column].isna().sum()} scans have no {column}", hint="Fill in or exclude them")
    twice = scans["scan_id"][scans["scan_id"].duplicated()]
    if len(twice):
        raise DataError(f"scans stand twice in the scan table: {_some(sorted(set(twice)))}", hint="Remove the copies")
    scans = scans.assign(
        group=scans["group"].fillna(scans["subject"]),
        site=scans["site"].fillna("") if "site" in scans else "",
    )
    text = dict.fromkeys(("scan_id", "subject", "group", "site", "label"), str)
    scans = scans.astype(text).sort_values("scan_id", ignore_index=True)
    groups = scans.groupby("subject")["group"].nunique()
    if (groups > 1).any():
        raise DataError(f"subject '{groups.idxmax()}' is in {groups.max()} groups", hint="Give each subject one group")
    counts = scans.groupby("label")["group"].nunique()
    if len(counts) < 2:
        raise DataError(f"one class only: {', '.join(counts.index) or 'none'}", hint="Check the label column")
    if counts.min() < n_folds:
        raise DataError(
            f"class '{counts.idxmin()}' has {counts.min()} subjects or families, fewer than the {n_folds} folds",
            hint=f"Set 'folds: outer' to at most {counts.min()}, or add subjects",
        )
    return scans


def _parts(people: pd.DataFrame, n_parts: int, seed: int) -> list[set[str]]:
    """Groups of each of `n_parts` disjoint parts that are alike in label and site."""
    splitter = StratifiedGroupKFold(n_parts, shuffle=True, random_state=seed)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The least populated class")  # such a class spreads as far as it goes
        parts = splitter.split(people, _strata(people, n_parts), people["group"])
        return [set(people["group"].iloc[held_out]) for _, held_out in parts]


def _strata(people: pd.DataFrame, n_parts: int) -> pd.Series:
    both = people["label"] + "\t" + people["site"]
    groups = people["group"].groupby(both).nunique()
    return both.where(both.map(groups) >= n_parts, people["label"])


def _validation(rest: pd.DataFrame, n_parts: int, seed: int) -> set[str]:
    """The part that holds most classes and leaves most to training; of these the one nearest to the mean size."""
    n_parts = min(n_parts, rest.groupby("label")["group"].nunique().max())
    if n_parts < 2:
        raise DataError("too few subjects for a validation part", hint="Use fewer folds, or more subjects")
    parts = _parts(rest, n_parts, seed)
    due = rest["group"].nunique() / n_parts

    def badness(part: set[str]) -> tuple[int, int, float]:
        inside = rest["group"].isin(part)
        return (-rest.label[~inside].nunique(), -rest.label[inside].nunique(), abs(len(part) - due))

    return min((part for part in parts if part), key=badness)


def _some(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
