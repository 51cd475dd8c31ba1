"""Search for leaks in a table of folds.

A subject, a family, or the same recording under two names must not be on two sides of a split. Recordings are compared
by content: a scan's series, or its file.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

HINT = "Split by group, assign copies of a scan to one subject, and make the folds again"


@dataclass(frozen=True)
class Leak:
    """A scan, subject, group, site or recording that has more than one role in a fold.

    Attributes
    ----------
    kind : str
        scan_id, subject, group, site, or the source of a content.
    name : str
        The first case; for recordings, the scans that share it.
    fold : str
    roles : tuple of str
        Sorted.
    cases : int
        Number of cases of this kind, over all folds.
    """

    kind: str
    name: str
    fold: str
    roles: tuple[str, ...]
    cases: int

    def __str__(self) -> str:
        return (
            f"{self.kind} '{self.name}' is in {' and '.join(self.roles)} of fold {self.fold} ({self.cases} such cases)"
        )


def find_leaks(
    folds: pd.DataFrame,
    scans: pd.DataFrame,
    kinds: Sequence[str] = ("scan_id", "subject", "group"),
    contents: Mapping[str, pd.Series] | None = None,
) -> list[Leak]:
    """Find overlap between the parts of every fold.

    Parameters
    ----------
    folds : DataFrame
        scan_id, fold, role, whatever the roles are called. Rows without a role are ignored.
    scans : DataFrame
        scan_id and the columns `kinds`; missing values never overlap.
    kinds : sequence of str
        Columns of `scans` whose values must have one role per fold.
    contents : mapping, optional
        Source (such as ``series of cc200``) to a name of each scan's content, indexed by scan.

    Returns
    -------
    list of Leak
        At most one per kind, in the order of `kinds` and `contents`.
    """
    contents = contents or {}
    scans = scans.astype({"scan_id": str}).drop_duplicates("scan_id").set_index("scan_id", drop=False)
    used = folds.astype({"scan_id": str}).dropna(subset=["role"])
    fold, fold_names = pd.factorize(used["fold"].astype(str), sort=True)
    role, role_names = pd.factorize(used["role"].astype(str), sort=True)
    leaks = []
    for kind in (*kinds, *contents):
        by_content = kind in contents
        values = used["scan_id"].map(contents[kind] if by_content else scans[kind])
        known = values.notna().to_numpy()
        if not known.any():
            continue
        same, names = pd.factorize(values, sort=True)
        if not by_content and kind != "scan_id":
            same = pd.factorize(np.array([same_name(name) for name in names], object), sort=True)[0][same]
        if by_content:  # a scan that overlaps with itself is reported as scan_id
            pairs = pd.DataFrame({"same": same, "scan": used["scan_id"].to_numpy()})[known].drop_duplicates()
            known = known & (np.bincount(pairs["same"], minlength=len(names))[same] > 1)
        place = (fold * (len(names) + 1) + same)[known]
        cases, n_roles = np.unique(np.unique(np.stack([place, role[known]]), axis=1)[0], return_counts=True)
        cases = cases[n_roles > 1]
        if len(cases):
            first = np.flatnonzero(known)[place == cases[0]]
            called = (used["scan_id"] if by_content else values).iloc[first].astype(str)
            roles = tuple(str(role_names[i]) for i in np.unique(role[first]))
            name = "' and '".join(sorted(set(called))[:3])
            leaks.append(Leak(kind, name, str(fold_names[fold[first[0]]]), roles, len(cases)))
    return leaks


def same_name(name: object) -> str:
    """Return one spelling of the names that tables give one person: ``sub-01``, ``01``, ``1`` and ``1.0``."""
    letters = unicodedata.normalize("NFKC", str(name))
    visible = "".join(letter for letter in letters if unicodedata.category(letter) != "Cf")
    plain = re.sub(r"^sub([-_ ]|(?=\d))", "", visible.strip().casefold())
    number = re.fullmatch(r"0*(\d+)(\.0+)?", plain)
    return number[1] if number else plain
