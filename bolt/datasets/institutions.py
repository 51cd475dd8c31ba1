"""Institutions whose samples are listed under several site names, such as ABIDE-I's UM_1 and UM_2.

Samples of one institution share scanners, staff and often participants, so a test on one of them is not a test at a
new site if another was used for training. Everything after the index knows only the institution.
"""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from bolt.io.errors import DataError

log = logging.getLogger("bolt")
SAMPLE = re.compile(r"[_-]\d+$")
"""Ending of a site name that numbers an institution's samples."""


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
            raise DataError(
                f"'institutions' joins {', '.join(names)} as '{institution}', which is also the name of a site",
                where=where,
                hint=f"Add '{institution}' to the list, or give the institution another name",
            )
        missing = [name for name in names if name not in occurring]
        alike: dict[str, str] = {}
        for name in missing:
            for close in difflib.get_close_matches(name.casefold(), by_folded, n=1, cutoff=0.7):
                alike[name] = by_folded[close]
        if alike or 0 < len(missing) < len(names):
            name = next(iter(alike), missing[0])
            meant = f"; did you mean '{alike[name]}'?" if alike else ""
            raise DataError(
                f"'institutions' lists site '{name}' ({institution}), which no subject has{meant}",
                where=where,
                hint="Correct the name, or remove it from 'institutions' in the dataset's file",
            )
        if missing:
            log.warning("%s: no subject is from institution '%s' (%s)", where, institution, ", ".join(missing))


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
    undecided = names[~names.isin(settled)]
    return [group.tolist() for _, group in undecided.groupby(stems) if len(group) > 1]


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
