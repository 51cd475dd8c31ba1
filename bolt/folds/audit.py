"""Search for leaks in a table of folds.

A subject, a family, or the same recording under two names must not be on two sides of a split. Recordings are compared
by content: a scan's series, or its file.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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
    scans = scans.astype({"scan_id": str}).drop_duplicates("scan_id").set_index("scan_id", drop=False)
    used = folds.astype({"scan_id": str}).dropna(subset=["role"])
    used = used.assign(fold=used["fold"].astype(str), role=used["role"].astype(str))
    leaks = [_overlap(used, kind, used["scan_id"].map(scans[kind])) for kind in kinds]
    for source, hashes in (contents or {}).items():
        leaks.append(_overlap(used, source, used["scan_id"].map(hashes), by_content=True))
    return [leak for leak in leaks if leak]


def same_name(name: object) -> str:
    """Return one spelling of the names that tables give one person: ``sub-01``, ``01``, ``1`` and ``1.0``."""
    letters = unicodedata.normalize("NFKC", str(name))
    visible = "".join(letter for letter in letters if unicodedata.category(letter) != "Cf")
    plain = re.sub(r"^sub([-_ ]|(?=\d))", "", visible.strip().casefold())
    number = re.fullmatch(r"0*(\d+)(\.0+)?", plain)
    return number[1] if number else plain


def _overlap(used: pd.DataFrame, kind: str, values: pd.Series, by_content: bool = False) -> Leak | None:
    """Return the first of the values that has several roles in a fold, if any."""
    known = used.assign(value=values).dropna(subset=["value"])
    is_name = not by_content and kind != "scan_id"
    known = known.assign(same=known["value"])
    if is_name:
        known["same"] = known["value"].map({value: same_name(value) for value in known["value"].unique()})
    if by_content:  # a scan that overlaps with itself is reported as scan_id
        shared = known.drop_duplicates(["same", "scan_id"]).groupby("same").size()
        known = known[known["same"].map(shared) > 1]
    roles = known.groupby(["fold", "same"])["role"].nunique()
    leaking = roles[roles > 1]
    if leaking.empty:
        return None
    fold, same = leaking.index[0]
    case = known[(known["fold"] == fold) & (known["same"] == same)]
    names = case["scan_id" if by_content else "value"].astype(str)
    return Leak(kind, "' and '".join(sorted(set(names))[:3]), str(fold), tuple(sorted(set(case["role"]))), len(leaking))
