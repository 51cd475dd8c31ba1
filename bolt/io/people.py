"""Tables of people, as their tools write them: one gate for what counts as missing and for numbers."""

from __future__ import annotations

import logging
import re

import pandas as pd

log = logging.getLogger("bolt")
NO_VALUE = {"", "n/a", "na", "nan", "null", "<na>", "-", "--", ".", "?", "unknown", "missing", "not available"}
NO_VALUE |= {"#n/a", "#null!", "#value!", "#ref!", "#num!", "#name?", "#div/0!"}
"""What tools write where there is no value, in any case."""
CODES = {"-99", "-999", "-9999", "-99999"}
"""Numbers that studies write instead."""


def plain_number(text: str) -> str:
    """Return a whole number without decimals (``1.0`` → ``1``), so that one class has one name; other text as it is."""
    return re.sub(r"^([+-]?\d+)\.0*$", r"\1", text)


def is_missing(text: str) -> bool:
    """Return whether a cell stands for a missing value."""
    return text.casefold() in NO_VALUE or plain_number(text) in CODES


def known_values(values: pd.Series, where: str = "", *, label: bool = False) -> pd.Series:
    """Return a column of text with missing values as NA and whole numbers without decimals.

    Parameters
    ----------
    values : Series of str
    where : str
        Table and column: a warning says which codes count as missing. Empty: no warning.
    label : bool
        Whether "none" is a value, as a diagnosis may be. Of families, sites and the like it is what Python writes
        where there is none.
    """
    missing = values.isna() | values.map(lambda text: isinstance(text, str) and is_missing(text)).astype(bool)
    missing |= values.isin([] if label else ["None", "none", "NONE"])
    codes = values[missing & values.notna()].value_counts()
    if where and len(codes):
        log.warning("%s: %s count as missing", where, ", ".join(f"{n} × '{code}'" for code, n in codes.items()))
    return values.mask(missing).map(lambda text: plain_number(text) if isinstance(text, str) else text)


def same_people(names: pd.Index, known: set[str], where: str) -> pd.Index:
    """Return names of people as their folders spell them: ``sub-1`` is ``sub-01`` where only one of each is meant.

    Parameters
    ----------
    names : Index of str
        People of a table, with ``sub-``.
    known : set of str
        Folders of people.
    where : str
        The table, for the log.
    """
    spelt = _by_number(known - set(names))
    others = _by_number(set(names) - known)
    pairs = [(theirs, spelt.get(number, [])) for number, theirs in others.items()]
    meant = {theirs[0]: ours[0] for theirs, ours in pairs if len(theirs) == len(ours) == 1}
    if meant:
        first = next(name for name in names if name in meant)
        log.warning(
            "%s: %d people are spelt differently from their folders (%s for %s) and are matched by number",
            where,
            len(meant),
            first,
            meant[first],
        )
    return names.map(lambda name: meant.get(name, name))


def _by_number(names: set[str]) -> dict[int, list[str]]:
    """Return by number the names that are numbers but for ``sub-``; spreadsheets write ``1.0``."""
    numbers: dict[int, list[str]] = {}
    for name in sorted(names):
        digits = plain_number(name.removeprefix("sub-"))
        if digits.isdecimal():
            numbers.setdefault(int(digits), []).append(name)
    return numbers


def people(scans: pd.DataFrame) -> pd.Series:
    """Return the family of each scan if known, else its subject.

    Families and people may be numbered alike: a family with the name of somebody who has none is "family 21".
    """
    family = scans["group"].astype(str)
    lone = scans.loc[scans["group"].isna(), "subject"].astype(str)
    return scans["group"].mask(family.isin(lone), "family " + family).fillna(scans["subject"])
