"""What the sources share: joining scans with what is known about their subjects."""

from __future__ import annotations

import logging
from pathlib import Path

import pandas as pd

from bolt.config import Dataset
from bolt.errors import DataError
from bolt.files import MISSING, read_table

log = logging.getLogger("bolt")


def read_participants(path: Path, key: str = "participant_id") -> pd.DataFrame:
    """Read a participants table with all columns as text, indexed by subject (``sub-`` prefix kept).

    Raises
    ------
    DataError
        If the key column is missing or a subject stands twice.
    """
    header = list(read_table(path).columns)
    if key not in header:
        raise DataError(f"column '{key}' is missing; found {', '.join(header)}", where=path, mend="Add it")
    table = read_table(path, text=tuple(header))
    table[key] = [s if str(s).startswith("sub-") else f"sub-{s}" for s in table[key]]
    twice = table[key][table[key].duplicated()].unique()
    if len(twice):
        raise DataError(f"subjects stand twice: {', '.join(twice[:5])}", where=path, mend="Keep one row for each")
    return table.set_index(key, drop=False)


def describe(scans: pd.DataFrame, subjects: pd.DataFrame, dataset: Dataset, where: Path) -> pd.DataFrame:
    """Fill label, group, site, age and sex of each scan from its subject's row.

    Parameters
    ----------
    scans : DataFrame
        Needs `subject` and `exclude_reason`.
    subjects : DataFrame
        Indexed by subject.
    dataset : Dataset
        Names the columns.
    where : Path
        The participants table, for error messages.
    """
    wanted = {"label": dataset.label, "group": dataset.group, "site": dataset.site}
    wanted |= {"age": dataset.age, "sex": dataset.sex}
    for key, column in wanted.items():
        if column is not None and column not in subjects.columns:
            raise DataError(
                f"column '{column}' is missing; found {', '.join(subjects.columns)}",
                where=where,
                mend=f"Set '{key}' in the dataset's file to one of these",
            )
    known = subjects.reindex(scans.subject)
    for key, column in wanted.items():
        scans[key] = known[column].to_numpy() if column is not None else pd.NA
    scans["age"] = pd.to_numeric(scans.age, errors="coerce")
    if dataset.group is not None and scans.group.isna().any():
        without = scans.subject[scans.group.isna()].nunique()
        log.warning("%s: %d subjects without a value in '%s' count as families of one", where, without, dataset.group)
    scans["group"] = scans.group.where(scans.group.notna(), scans.subject)
    for row in scans.index[~scans.subject.isin(subjects.index)]:
        exclude(scans, row, f"the subject has no row in {where}")
    _select(scans, subjects, dataset, where)
    return scans


def _select(scans: pd.DataFrame, subjects: pd.DataFrame, dataset: Dataset, where: Path) -> None:
    """Exclude the scans of subjects that `include` and `exclude` leave out."""
    known = subjects.reindex(scans.subject)
    for key, keep in (("include", True), ("exclude", False)):
        for column, values in getattr(dataset, key).items():
            if column not in known.columns:
                raise DataError(
                    f"column '{column}' is missing; found {', '.join(known.columns)}",
                    where=where,
                    mend=f"Correct '{key}' in the dataset's file",
                )
            strange = sorted(set(values) - set(subjects[column].astype("string").fillna(MISSING)))
            if strange:
                raise DataError(
                    f"'{key}' names {column} '{strange[0]}', which nobody has", where=where, mend="Correct the value"
                )
            for row, value in zip(scans.index, known[column].astype("string").fillna(MISSING), strict=True):
                if (value in values) != keep:
                    exclude(scans, row, f"left out by '{key}': {column} is {value}")


def exclude(scans: pd.DataFrame, row: int, reason: str) -> None:
    """Give a scan a reason not to be used; the first reason stands."""
    if pd.isna(scans.at[row, "exclude_reason"]):
        scans.at[row, "exclude_reason"] = reason


def check_labels(scans: pd.DataFrame, dataset: Dataset) -> None:
    """Exclude scans without a usable label; refuse a dataset that is left without one of its classes."""
    number = pd.to_numeric(scans.label, errors="coerce").abs() < float("inf")
    for row, label in scans.label.items():
        if pd.isna(label):
            exclude(scans, row, f"no value in label column '{dataset.label}'")
        elif dataset.classes is None:
            if not number[row]:
                exclude(scans, row, f"label '{label}' is no number (a dataset of classes needs 'classes')")
        elif label not in dataset.classes:
            exclude(scans, row, f"label '{label}' is not one of {', '.join(dataset.classes)}")
    usable = scans[scans.exclude_reason.isna()]
    if usable.empty:
        reasons = "; ".join(f"{n} × {r}" for r, n in scans.exclude_reason.value_counts().head(3).items())
        raise DataError(f"none of {len(scans)} scans can be used ({reasons})", where=dataset.where, mend="Mend these")
    absent = [c for c in dataset.classes or () if c not in set(usable.label)]
    if absent:
        raise DataError(
            f"no usable scan has the label {' or '.join(absent)} (column '{dataset.label}': "
            f"{', '.join(map(str, scans.label.dropna().unique()[:8]))})",
            where=dataset.where,
            mend="Set 'label' and 'classes' in the dataset's file, or add subjects of that class",
        )
