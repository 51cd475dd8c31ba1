"""Leaks in a table of folds: who or what stands on two sides of one fold.

Three things give a test away: the same person, the same family, and the same recording under two names. The last is
found by content: the hash of a scan's series, or of its file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

HINT = "Split by group, give copies of a scan one subject, and make the folds again"


@dataclass(frozen=True)
class Leak:
    """Something that has more than one role in a fold.

    Attributes
    ----------
    kind : str
        What it is: scan_id, subject, group, site, or where a content came from.
    name : str
        The first such thing; for a content, the scans that share it.
    fold : str
    roles : tuple of str
        Sorted.
    cases : int
        How many such things and folds there are of this kind.
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
    """Look for overlap between the parts of every fold.

    Parameters
    ----------
    folds : DataFrame
        scan_id, fold, role; any words for the roles. A row without a role is not used.
    scans : DataFrame
        scan_id and the columns `kinds`; a missing value is nobody's.
    kinds : sequence of str
        Columns of `scans` of which no value may have two roles in a fold.
    contents : mapping, optional
        Where from (such as ``series of cc200``) to the hash of each scan's content, indexed by scan.

    Returns
    -------
    list of Leak
        One a kind, in the order of `kinds` and `contents`.
    """
    scans = scans.astype({"scan_id": str}).drop_duplicates("scan_id").set_index("scan_id", drop=False)
    used = folds.astype({"scan_id": str}).dropna(subset=["role"])
    used = used.assign(fold=used["fold"].astype(str), role=used["role"].astype(str))
    found = []
    for kind in kinds:
        leak = _overlap(used, kind, used["scan_id"].map(scans[kind]))
        found += [leak] if leak else []
    for source, hashes in (contents or {}).items():
        leak = _overlap(used, source, used["scan_id"].map(hashes), by_content=True)
        found += [leak] if leak else []
    return found


def _overlap(used: pd.DataFrame, kind: str, values: pd.Series, by_content: bool = False) -> Leak | None:
    known = used.assign(value=values).dropna(subset=["value"])
    if by_content:  # a scan with itself is the business of scan_id
        shared = known.drop_duplicates(["value", "scan_id"]).groupby("value").size()
        known = known[known["value"].map(shared) > 1]
    roles = known.groupby(["fold", "value"])["role"].nunique()
    both = roles[roles > 1]
    if both.empty:
        return None
    fold, value = both.index[0]
    case = known[(known["fold"] == fold) & (known["value"] == value)]
    name = "' and '".join(sorted(set(case["scan_id"]))[:3]) if by_content else str(value)
    return Leak(kind, name, str(fold), tuple(sorted(set(case["role"]))), len(both))
