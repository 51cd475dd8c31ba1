"""Nested cross-validation by group, and an audit that finds leaks in any table of folds.

A group (the family where it is known, else the subject) never straddles a split. Every scan is tested in one fold.
"""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
from sklearn.model_selection import StratifiedGroupKFold

from bolt.config import Folds
from bolt.errors import DataError, LeakError

ROLES = ("train", "validation", "test")
FOLD_COLUMNS = {
    "scan_id": "Scan",
    "subject": "Person scanned",
    "group": "Unit that never straddles a split: the family where it is known, else the subject",
    "fold": "Outer fold, from 0",
    "role": "Part the scan plays in this fold: train, validation or test",
}


def make_folds(scans: pd.DataFrame, settings: Folds) -> pd.DataFrame:
    """Split scans into outer folds with an inner validation part each.

    Outer folds and validation parts are stratified by label and site as near as counts allow (by label alone
    where a stratum has fewer groups than there are parts). A subject with several scans weighs once. The result
    depends on the seed and the set of scans, not on the order of rows.

    Parameters
    ----------
    scans : DataFrame
        scan_id, subject, group, site, label; scans with an `exclude_reason` are left out.
    settings : Folds
        `outer` folds, `validation` (share of all subjects), `seed`.

    Returns
    -------
    DataFrame
        `FOLD_COLUMNS`, one row a scan and fold, sorted by fold and scan.

    Raises
    ------
    DataError
        Fewer groups of a class than folds, one class only, missing labels, or a subject in two groups.
    LeakError
        Never, unless this function is wrong: the result is audited.
    """
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
    table = pd.concat(folds, ignore_index=True)
    audit_folds(table, scans)
    return table


def audit_folds(folds: pd.DataFrame, scans: pd.DataFrame) -> None:
    """Refuse a table of folds that leaks or cannot be learned from.

    Parameters
    ----------
    folds : DataFrame
        scan_id, fold, role; own or foreign.
    scans : DataFrame
        scan_id, subject, group, label: who was scanned is taken from here, not from `folds`.

    Raises
    ------
    LeakError
        A scan, subject or group has two roles in one fold, or a scan is not tested exactly once.
    DataError
        Unknown scans or roles, a part that is empty, one class only, fewer groups of a class than folds, or a
        class that is missing in a training part.
    """
    folds = folds.astype({"scan_id": str})
    unknown = sorted(set(folds["role"]) - set(ROLES))
    if unknown:
        raise DataError(f"unknown roles: {', '.join(map(str, unknown))}", mend=f"Use {', '.join(ROLES)}")
    numbers = sorted(folds["fold"].unique())
    scans = _checked(scans, len(numbers))
    strangers = sorted(set(folds["scan_id"]) - set(scans["scan_id"]))
    if strangers:
        raise DataError(f"scans that are not in the scan table: {_some(strangers)}", mend="Make the folds again")
    who = folds[["scan_id", "fold", "role"]].merge(scans[["scan_id", "subject", "group", "label"]], on="scan_id")
    for column in ("scan_id", "subject", "group"):
        roles = who.groupby(["fold", column])["role"].nunique()
        both = roles[roles > 1]
        if len(both):
            fold, name = both.index[0]
            found = " and ".join(sorted(set(who.role[(who.fold == fold) & (who[column] == name)])))
            raise LeakError(
                f"{column} '{name}' is in {found} of fold {fold} ({len(both)} such cases)",
                mend="Split by group; make the folds again",
            )
    tested = who[who.role == "test"].groupby("scan_id").size().reindex(scans["scan_id"], fill_value=0)
    wrong = tested[tested != 1]
    if len(wrong):
        raise LeakError(
            f"scan '{wrong.index[0]}' is tested {wrong.iloc[0]} times, not once ({len(wrong)} such scans)",
            mend="Make the folds again",
        )
    _check_parts(who, numbers, scans)


def _check_parts(who: pd.DataFrame, numbers: list[int], scans: pd.DataFrame) -> None:
    classes = set(scans["label"])
    for fold in numbers:
        part = who[who.fold == fold]
        if len(part) != len(scans):
            raise DataError(
                f"fold {fold} has {len(part)} rows for {len(scans)} scans",
                mend="Give every scan one role in every fold",
            )
        for role in ROLES:
            if not (part.role == role).any():
                raise DataError(f"fold {fold} has no {role} scans", mend="Use fewer folds, or more subjects")
        absent = sorted(classes - set(part.label[part.role == "train"]))
        if absent:
            raise DataError(
                f"fold {fold} has no training scan of class {', '.join(absent)}",
                mend="Use fewer folds, or more subjects",
            )


def _checked(scans: pd.DataFrame, n_folds: int) -> pd.DataFrame:
    """The usable scans, sorted, as text and with a group each; refuse what cannot be split."""
    if "exclude_reason" in scans:
        scans = scans[scans["exclude_reason"].isna()]
    for column in ("scan_id", "subject", "label"):
        if scans[column].isna().any():
            raise DataError(f"{scans[column].isna().sum()} scans have no {column}", mend="Fill in or exclude them")
    twice = scans["scan_id"][scans["scan_id"].duplicated()]
    if len(twice):
        raise DataError(f"scans stand twice in the scan table: {_some(sorted(set(twice)))}", mend="Remove the copies")
    scans = scans.assign(
        group=scans["group"].fillna(scans["subject"]),
        site=scans["site"].fillna("") if "site" in scans else "",
    )
    text = dict.fromkeys(("scan_id", "subject", "group", "site", "label"), str)
    scans = scans.astype(text).sort_values("scan_id", ignore_index=True)
    groups = scans.groupby("subject")["group"].nunique()
    if (groups > 1).any():
        raise DataError(f"subject '{groups.idxmax()}' is in {groups.max()} groups", mend="Give each subject one group")
    counts = scans.groupby("label")["group"].nunique()
    if len(counts) < 2:
        raise DataError(f"one class only: {', '.join(counts.index) or 'none'}", mend="Check the label column")
    if counts.min() < n_folds:
        raise DataError(
            f"class '{counts.idxmin()}' has {counts.min()} subjects or families, fewer than the {n_folds} folds",
            mend=f"Set 'folds: outer' to at most {counts.min()}, or add subjects",
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
        raise DataError("too few subjects for a validation part", mend="Use fewer folds, or more subjects")
    parts = _parts(rest, n_parts, seed)
    due = rest["group"].nunique() / n_parts

    def badness(part: set[str]) -> tuple[int, int, float]:
        inside = rest["group"].isin(part)
        return (-rest.label[~inside].nunique(), -rest.label[inside].nunique(), abs(len(part) - due))

    return min((part for part in parts if part), key=badness)


def _some(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
