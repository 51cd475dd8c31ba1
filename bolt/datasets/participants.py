"""What the sources share: tables of subjects, their join with scans, the selection of scans, and institutions.

An institution may have its samples listed under several site names, such as ABIDE-I's UM_1 and UM_2. They share
scanners, staff and often participants, so a test on one of them is not a test at a new site if another was used for
training. Everything after the index knows only the institution.
"""

from __future__ import annotations

import difflib
import logging
import math
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from bolt.config import Dataset
from bolt.io.errors import BoltWarning, DataError, shorten_list
from bolt.io.files import MISSING, read_text
from bolt.io.people import is_missing, known_values, people, plain_number, same_people
from bolt.io.volumes import check_bold

log = logging.getLogger("bolt")
SELECTION = "selection"
"""Stage of scans that are excluded on purpose, although nothing is wrong with them."""
INDEX = "index"
"""Stage of scans that are excluded because something is wrong with them."""
SCAN = "scan_id"
"""Selects single scans in `include` and `exclude`, besides the columns of the table of subjects."""
CONFLICT = (
    "Correct the wrong one, or set 'tr_conflict' in the dataset's file to the one to use "
    "(bolt run: --set tr_conflict=sidecar, or header)"
)
CHOOSE_RECONSTRUCTION = (
    "Choose one in the dataset's file, by 'bids_filter: {bold: {reconstruction: …}}' (raw BIDS) "
    "or 'exclude: {scan_id: […]}'"
)
SAMPLE = re.compile(r"[_-]\d+$")
"""Ending of a site name that numbers an institution's samples."""
OLDEST = 122
"""Years; a larger number is a code for a missing age."""


def read_series_table(path: Path, columns: Sequence[str] = ()) -> pd.DataFrame:
    """Read a table of ready series with all cells as text; subjects may be called ``participant_id``, as in BIDS.

    If `columns` are given, of which the first is ``subject``, a table that lacks one of them is refused (DataError).
    """
    table = read_text(path)
    table = table if "subject" in table else table.rename(columns={"participant_id": "subject"})
    if columns:
        require_subjects(table, columns, path, "Add them, or set 'label' in the dataset's file", unique=False)
    return table


def read_subjects(dataset: Dataset, subjects: Iterable[str]) -> pd.DataFrame:
    """Read the participants table of a BIDS dataset or its derivatives; where none is needed, list the given subjects.

    The given subjects, with the names of their folders, are found in the table whatever the padding of their numbers.

    Raises
    ------
    DataError
        The table or its column of subjects is missing, or a subject has several rows.
    """
    if dataset.without_table:
        return pd.DataFrame(index=pd.Index(sorted(set(subjects)), dtype=object))
    path, key = dataset.participants, "participant_id"
    if not path.is_file():
        hint = "Set 'subjects_table' in the dataset's file to participants.tsv of the raw data, or 'label: null'"
        raise DataError("file not found", where=path, hint=hint)
    table = read_text(path)
    require_subjects(table, [key], path, "Add it", unique=False)
    table[key] = [s if str(s).startswith("sub-") else f"sub-{s}" for s in table[key]]
    refuse_duplicates(table[key], path)
    table = table.set_index(key, drop=False)
    return table.set_index(same_people(table.index, set(subjects), str(path)))


def read_csv(path: Path) -> pd.DataFrame:
    """Read a table with commas between cells, all columns as text without surrounding spaces.

    Raises
    ------
    DataError
        The file is missing or not a table.
    """
    try:
        return pd.read_csv(path, dtype=str).apply(lambda column: column.str.strip())
    except FileNotFoundError:
        raise DataError("file not found", where=path, hint="Download it, or correct its path") from None
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise DataError(f"not a readable table ({error})", where=path, hint="Download it again") from None


def require_subjects(
    table: pd.DataFrame, columns: Sequence[str], path: Path, hint: str, *, unique: bool = True
) -> None:
    """Refuse a table that lacks one of the columns, of which the first names the subject, or a row without a subject.

    Parameters
    ----------
    table : DataFrame
    columns : sequence of str
    path : Path
        Of the table, for error messages.
    hint : str
        Where the columns come from.
    unique : bool
        Whether a subject has one row.
    """
    missing = [name for name in columns if name not in table]
    if missing:
        what = f"columns missing: {', '.join(missing)}; found {shorten_list(table)}"
        raise DataError(what, where=path, hint=hint)
    unnamed = table[columns[0]].isna().to_numpy()
    if unnamed.any():
        where = f"{path}, row {unnamed.argmax() + 2}"
        raise DataError(f"no {columns[0]}", where=where, hint="Name the subject, or remove the row")
    if unique:
        refuse_duplicates(table[columns[0]], path)


def refuse_duplicates(subjects: pd.Series, path: Path) -> None:
    """Refuse a table in which a subject has several rows."""
    duplicates = subjects[subjects.duplicated()].unique()
    if len(duplicates):
        what = f"duplicate subjects: {', '.join(duplicates[:5])}"
        raise DataError(what, where=path, hint="Keep one row for each")


def join_subjects(scans: pd.DataFrame, subjects: pd.DataFrame, dataset: Dataset, where: Path) -> pd.DataFrame:
    """Fill label, group, site, age and sex of each scan from its subject's row, and apply the dataset's selection.

    The site is the institution, if the dataset lists institutions; the selection goes by the table's own names.

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
    columns = {"label": dataset.label, "group": dataset.group, "site": dataset.site}
    columns |= {"age": dataset.age, "sex": dataset.sex}
    for key, column in columns.items():
        if column is not None:
            hint = f"Set '{key}' in the dataset's file to one of these"
            _require_column(subjects.columns, column, where, hint)
        elif key != "label" and key in subjects.columns:
            log.warning("%s: column '%s' is not used; set '%s: %s' in the dataset's file to use it", where, *[key] * 3)
    for key, column in columns.items():
        if column is None:
            scans[key] = pd.NA
            continue
        values = known_values(subjects[column], f"{where}: {column}", label=key == "label")
        if key == "site":
            check_institutions(values, dataset.institutions, where)
            values = to_institutions(values, dataset.institutions)
        scans[key] = values.reindex(scans.subject).to_numpy()
    scans["age"] = as_numbers(scans.age, f"{where}: age", least=0, most=OLDEST)
    if dataset.group is not None and scans.group.isna().any():
        n = scans.subject[scans.group.isna()].nunique()
        log.warning("%s: %d subjects have no value in '%s'; each is a group of its own", where, n, dataset.group)
    scans["group"] = people(scans)
    for row in scans.index[~scans.subject.isin(subjects.index)]:
        exclude(scans, row, f"the subject has no row in {where}")
    known = subjects.reindex(scans.subject).assign(**{SCAN: scans[SCAN].to_numpy()})
    for key, column, values in _filters(dataset, subjects, where):  # even of bad scans, which then need no fixing
        if column == SCAN and (unknown := sorted(set(values) - set(_as_text(scans[SCAN])))):
            raise DataError(f"'{key}' names scan '{unknown[0]}', which does not exist", where=where, hint="Correct it")
        for row, value in zip(scans.index, _as_text(known[column]), strict=True):
            if column != SCAN and scans.at[row, "subject"] not in subjects.index:
                continue  # the value is not known
            if (value in values) != (key == "include"):
                exclude(scans, row, f"excluded by '{key}': {column} is {value}", SELECTION)
    return scans


def as_numbers(values: pd.Series, name: str, least: float = -math.inf, most: float = math.inf) -> pd.Series:
    """Return a column as numbers; warn of values that are none or beyond `least` and `most`, which count as missing."""
    numbers = pd.to_numeric(values, errors="coerce")
    wrong = values.notna() & ~(numbers.abs().lt(math.inf) & numbers.between(least, most))
    if wrong.any():
        log.warning("%s: %d values count as missing, such as '%s'", name, wrong.sum(), values[wrong].iloc[0])
    return numbers.mask(wrong)


def without_image(
    subjects: pd.DataFrame, rows: Sequence[Mapping[str, Any]], dataset: Dataset, **facts: Any
) -> list[dict[str, Any]]:
    """Return a row for each subject of the table of whom there is no image, unless filters explain it."""
    if dataset.tasks or dataset.sessions or dataset.runs:
        return []
    seen = {row["subject"] for row in rows}
    return [{"scan_id": subject, "subject": subject, **facts} for subject in subjects.index if subject not in seen]


def exclude_unselected(scans: pd.DataFrame, dataset: Dataset) -> None:
    """Exclude scans of other tasks, sessions and runs than the dataset selects; runs are numbers, ``01`` is ``1``."""
    runs = scans["run"].map(unpadded), [unpadded(run) for run in dataset.runs or ()]
    of_scans = {"task": (scans["task"], dataset.tasks), "session": (scans["session"], dataset.sessions), "run": runs}
    for key, (values, selected) in of_scans.items():
        for row in scans.index[~values.isin(selected)] if selected else []:
            exclude(scans, row, f"{key} '{scans.at[row, key]}' is not selected", SELECTION)


def unpadded(run: Any) -> Any:
    """Return the number of a run without leading zeros; anything else as it is."""
    return str(int(run)) if isinstance(run, str) and run.isdecimal() else run


def select_subjects(subjects: pd.DataFrame, dataset: Dataset, where: Path) -> pd.DataFrame:
    """Return the subjects that `include` and `exclude` select, known before there is a list of scans."""
    kept = pd.Series(True, subjects.index)
    for key, column, values in _filters(dataset, subjects, where):
        if column != SCAN:
            kept &= _as_text(subjects[column]).isin(values) == (key == "include")
    return subjects[kept]


def _filters(dataset: Dataset, subjects: pd.DataFrame, where: Path) -> list[tuple[str, str, list[str]]]:
    """Return key, column and values of every filter; refuse columns and values that the subjects do not have."""
    pairs = [(key, *item) for key in ("include", "exclude") for item in getattr(dataset, key).items()]
    filters = [(key, column, [plain_number(value) for value in values]) for key, column, values in pairs]
    for key, column, values in filters:
        if column == SCAN:
            continue
        _require_column(subjects.columns, column, where, f"Correct '{key}' in the dataset's file")
        present = set(_as_text(subjects[column]))
        if MISSING in values and (missing := set(filter(is_missing, present))):  # n/a stands for its other spellings
            values += missing
            present.add(MISSING)
        if unknown := sorted(set(values) - present):
            what = f"'{key}' names {column} '{unknown[0]}', which no subject has"
            raise DataError(what, where=where, hint="Correct the value")
    return filters


def _require_column(columns: Any, column: str, where: Path, hint: str) -> None:
    if column not in columns:
        raise DataError(f"column '{column}' is missing; found {', '.join(columns)}", where=where, hint=hint)


def _as_text(column: pd.Series) -> pd.Series:
    return column.astype("string").fillna(MISSING).map(plain_number)


def exclude(scans: pd.DataFrame, row: int, reason: str, stage: str = INDEX) -> None:
    """Exclude a scan; the first reason is kept, but exclusion on purpose takes precedence."""
    if "exclude_stage" not in scans:
        scans["exclude_stage"] = pd.Series(None, scans.index, dtype=object)
    overruled = stage == SELECTION and scans.at[row, "exclude_stage"] != SELECTION
    if overruled or pd.isna(scans.at[row, "exclude_reason"]):
        scans.at[row, "exclude_reason"] = reason
        scans.at[row, "exclude_stage"] = stage


def acquisition_of(scan_id: str) -> str:
    """Return a scan's name without its reconstruction (``rec-``), so that of what was acquired."""
    return re.sub("_rec-[^_]+", "", scan_id)


def read_timing(path: str | Path, sidecar: float | None, dataset: Dataset) -> dict[str, Any]:
    """Return `n_volumes` and `tr` (seconds) of an image, by its header and sidecar.

    Raises
    ------
    DataError
        As `bolt.io.volumes.check_bold`; or header and sidecar give different repetition times, and `tr_conflict` is
        ``exclude``.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BoltWarning)  # repeated, and listed, by the stage that reads the image
        info = check_bold(path, tr=sidecar)
    if info.conflict and dataset.tr_conflict == "exclude":
        raise DataError(info.conflict, where=path, hint=CONFLICT)
    tr = info.header_tr if info.conflict and dataset.tr_conflict == "header" else info.tr
    return {"tr": tr, "n_volumes": info.n_volumes}


def check_labels(scans: pd.DataFrame, dataset: Dataset) -> None:
    """Exclude scans without a usable label, if the dataset has one; refuse a dataset without any usable scan."""
    is_number = pd.to_numeric(scans.label, errors="coerce").abs() < float("inf")
    for row, label in scans.label.items() if dataset.label is not None else ():
        if pd.isna(label):
            exclude(scans, row, f"no value in label column '{dataset.label}'")
        elif dataset.classes is None:
            if not is_number[row]:
                exclude(scans, row, f"label '{label}' is not a number (for classes, set 'classes')")
        elif label not in dataset.classes:
            exclude(scans, row, f"label '{label}' is not one of {', '.join(dataset.classes)}")
    if scans.exclude_reason.notna().all():
        reasons = "; ".join(f"{n} × {r}" for r, n in scans.exclude_reason.value_counts().head(3).items())
        raise DataError(f"none of {len(scans)} scans can be used ({reasons})", where=dataset.where, hint="Fix these")


def require_classes(usable: pd.DataFrame, dataset: Dataset, where: str | Path) -> None:
    """Refuse scans to learn from that have no label, or none of some class.

    Raises
    ------
    DataError
    """
    if dataset.label is None:
        what = "the dataset has no label, so there is nothing to predict"
        hint = "Set 'label' in the dataset's file; the target 'series' (bolt run: participant) needs none"
        raise DataError(what, where=where, hint=hint)
    if dataset.classes is None and usable.label.nunique() < 2:
        raise DataError(f"all usable scans have the same {dataset.label}: nothing to predict", where=where)
    absent = [c for c in dataset.classes or () if c not in set(usable.label)]
    if absent:
        raise DataError(
            f"no usable scan has the label {' or '.join(absent)} (column '{dataset.label}': "
            f"{', '.join(map(str, usable.label.dropna().unique()[:8]))})",
            where=where,
            hint="Set 'label' and 'classes' in the dataset's file, or add subjects of that class",
        )


# ---- institutions ----------------------------------------------------------------------------------------------------
def check_institutions(sites: pd.Series, institutions: Mapping[str, Sequence[str]], where: Path) -> None:
    """Refuse institutions that do not fit the site names of a table.

    An institution without any row, as in a table of fewer subjects, is only a warning, unless its names resemble others
    in the table.

    Raises
    ------
    DataError
        A listed site does not occur although others of its institution do, or resembles an unlisted site; or an
        institution has the name of a site that it does not list.
    """
    occurring = set(sites.dropna().astype(str))
    unlisted = occurring.difference(*institutions.values())
    by_folded = {site.casefold(): site for site in sorted(unlisted)}
    for institution, names in institutions.items():
        if institution in unlisted:
            what = f"'institutions' joins {', '.join(names)} as '{institution}', which is also the name of a site"
            hint = f"Add '{institution}' to the list, or give the institution another name"
            raise DataError(what, where=where, hint=hint)
        missing = [name for name in names if name not in occurring]
        alike: dict[str, str] = {}
        for name in missing:
            for close in difflib.get_close_matches(name.casefold(), by_folded, n=1, cutoff=0.7):
                alike[name] = by_folded[close]
        if alike or 0 < len(missing) < len(names):
            name = next(iter(alike), missing[0])
            meant = f"; did you mean '{alike[name]}'?" if alike else ""
            what = f"'institutions' lists site '{name}' ({institution}), which no subject has{meant}"
            hint = "Correct the name, or remove it from 'institutions' in the dataset's file"
            raise DataError(what, where=where, hint=hint)
        if missing:
            log.warning("%s: no subject is from institution '%s' (%s)", where, institution, ", ".join(missing))


def to_institutions(sites: pd.Series, institutions: Mapping[str, Sequence[str]]) -> pd.Series:
    """Return the institution of each site that is a sample of one; other sites as they are."""
    return sites.replace({name: place for place, names in institutions.items() for name in names})


def similar_sites(sites: pd.Series, institutions: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """Return groups of site names that differ only by a sample's number (``_1``, ``-2``) or by case.

    Names that `institutions` mentions are settled, even one listed alone. If all sites have the same name with
    different numbers (``site_1``, ``site_2``), they are numbered, and nothing is similar.
    """
    settled = {*institutions, *(name for names in institutions.values() for name in names)}
    names = pd.Series(sorted(set(sites.dropna().astype(str))), dtype=object)
    stems = names.map(lambda name: SAMPLE.sub("", name).casefold())
    numbered = names.map(lambda name: bool(SAMPLE.search(name))).all() and stems.nunique() == 1
    if numbered and names.str.casefold().is_unique:
        return []
    return [group.tolist() for _, group in names[~names.isin(settled)].groupby(stems) if len(group) > 1]


def similar_sites_note(sites: pd.Series, institutions: Mapping[str, Sequence[str]]) -> str:
    """Return a warning of sites that look like samples of one institution, or ""."""
    found = similar_sites(sites, institutions)
    if not found:
        return ""
    groups = "; ".join(" and ".join(names) for names in found)
    return (
        f"{groups} look like samples of one institution, so that leave-site-out would train on the institution that it "
        "tests; list them under 'institutions' in the dataset's file if so (each alone if not)"
    )
