"""What the sources share: joining scans with what is known about their subjects."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path
from typing import Any

import pandas as pd

from bolt.config import Dataset
from bolt.io.errors import BoltWarning, DataError
from bolt.io.files import MISSING, read_table
from bolt.io.volumes import check_bold

log = logging.getLogger("bolt")
SELECTION = "selection"
"""Stage of scans that are left out because they are not asked for: nothing is wrong with them."""
INDEX = "index"
"""Stage of scans that are left out because something is wrong with them."""


def read_participants(path: Path, key: str = "participant_id") -> pd.DataFrame:
    """Read a participants table with all columns as text, indexed by subject (``sub-`` prefix kept).

    Raises
    ------
    DataError
        If the key column is missing or a subject stands twice.
    """
    header = list(read_table(path).columns)
    if key not in header:
        raise DataError(f"column '{key}' is missing; found {', '.join(header)}", where=path, hint="Add it")
    table = read_table(path, text=tuple(header))
    table[key] = [s if str(s).startswith("sub-") else f"sub-{s}" for s in table[key]]
    twice = table[key][table[key].duplicated()].unique()
    if len(twice):
        raise DataError(f"subjects stand twice: {', '.join(twice[:5])}", where=path, hint="Keep one row for each")
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
                hint=f"Set '{key}' in the dataset's file to one of these",
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


SCAN = "scan_id"
"""May stand in `include` and `exclude` beside the columns of the table of subjects: single scans."""


def _select(scans: pd.DataFrame, subjects: pd.DataFrame, dataset: Dataset, where: Path) -> None:
    """Leave out the scans that `include` and `exclude` do, bad ones as well: those need no mending then."""
    known = subjects.reindex(scans.subject).assign(**{SCAN: scans[SCAN].to_numpy()})
    for key, column, values in _filters(dataset, subjects, where):
        if column == SCAN and (strange := sorted(set(values) - set(scans[SCAN]))):
            raise DataError(f"'{key}' names scan '{strange[0]}', which is not there", where=where, hint="Correct it")
        for row, value in zip(scans.index, _words(known[column]), strict=True):
            if column != SCAN and scans.at[row, "subject"] not in subjects.index:
                continue  # nobody can say whether it is asked for
            if (value in values) != (key == "include"):
                exclude(scans, row, f"left out by '{key}': {column} is {value}", SELECTION)


def chosen(subjects: pd.DataFrame, dataset: Dataset, where: Path) -> pd.DataFrame:
    """The subjects that `include` and `exclude` leave, known before there is a list of scans."""
    kept = pd.Series(True, subjects.index)
    for key, column, values in _filters(dataset, subjects, where):
        if column != SCAN:
            kept &= _words(subjects[column]).isin(values) == (key == "include")
    return subjects[kept]


def _filters(dataset: Dataset, subjects: pd.DataFrame, where: Path) -> list[tuple[str, str, list[str]]]:
    """Key, column and values of every filter; a column or value that the table of subjects lacks is refused."""
    found = [(key, *one) for key in ("include", "exclude") for one in getattr(dataset, key).items()]
    for key, column, values in found:
        if column == SCAN:
            continue
        if column not in subjects.columns:
            raise DataError(
                f"column '{column}' is missing; found {', '.join(subjects.columns)}",
                where=where,
                hint=f"Correct '{key}' in the dataset's file",
            )
        strange = sorted(set(values) - set(_words(subjects[column])))
        if strange:
            raise DataError(
                f"'{key}' names {column} '{strange[0]}', which nobody has", where=where, hint="Correct the value"
            )
    return found


def _words(column: pd.Series) -> pd.Series:
    return column.astype("string").fillna(MISSING)


def exclude(scans: pd.DataFrame, row: int, reason: str, stage: str = INDEX) -> None:
    """Give a scan a reason not to be used. The first one stands, but that it is not asked for goes before all."""
    if "exclude_stage" not in scans:
        scans["exclude_stage"] = pd.Series(None, scans.index, dtype=object)
    overruled = stage == SELECTION and scans.at[row, "exclude_stage"] != SELECTION
    if overruled or pd.isna(scans.at[row, "exclude_reason"]):
        scans.at[row, "exclude_reason"] = reason
        scans.at[row, "exclude_stage"] = stage


def timing(path: str | Path, sidecar: float | None, dataset: Dataset) -> dict[str, Any]:
    """`n_volumes` and `tr` (seconds) of an image, by its header and what is said beside it.

    Raises
    ------
    DataError
        As `bolt.io.volumes.check_bold`; or the two disagree on the repetition time, and `tr_conflict` says to exclude.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BoltWarning)  # said again, and listed, by whatever reads the image
        info = check_bold(path, tr=sidecar)
    if info.conflict and dataset.tr_conflict == "exclude":
        raise DataError(
            info.conflict,
            where=path,
            hint="Correct the wrong one, or say with 'tr_conflict' in the dataset's file which to believe",
        )
    tr = info.header_tr if info.conflict and dataset.tr_conflict == "header" else info.tr
    return {"tr": tr, "n_volumes": info.n_volumes}


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
        raise DataError(f"none of {len(scans)} scans can be used ({reasons})", where=dataset.where, hint="Mend these")
    absent = [c for c in dataset.classes or () if c not in set(usable.label)]
    if absent:
        raise DataError(
            f"no usable scan has the label {' or '.join(absent)} (column '{dataset.label}': "
            f"{', '.join(map(str, scans.label.dropna().unique()[:8]))})",
            where=dataset.where,
            hint="Set 'label' and 'classes' in the dataset's file, or add subjects of that class",
        )
