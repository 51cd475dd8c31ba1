"""Search for leaks in a table of folds, and what happens to copies: scans that are the same recording.

A subject, a family, or the same recording under two names must not be on two sides of a split. Recordings are compared
by content: a scan's series, or its file.
"""

from __future__ import annotations

import logging
import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from bolt.cohort.exclusions import DUPLICATES, EXCLUSION_COLUMNS, WARNING_COLUMNS
from bolt.io.errors import LeakError, shorten_list
from bolt.io.people import people

log = logging.getLogger("bolt")
HINT = "Split by group, assign copies of a scan to one subject, and make the folds again"
RENAME_HINT = "Rename subjects whose names differ only by a prefix or leading zeros, and make the folds again"
DUPLICATES_HINT = (
    "Set 'folds: duplicates' to exclude (keep one copy) or group (never split them), "
    "or assign the copies of a scan to one subject"
)


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
        where = f"{' and '.join(self.roles)} of fold {self.fold}"
        return f"{self.kind} '{self.name}' is in {where} ({self.cases} such cases)"


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
        if not by_content and kind != "scan_id":  # a family's name is its own: family 42 is not that of sub-042
            families = set(scans["group"][scans["group"] != scans["subject"]]) if kind == "group" else ()
            spelled = [f"family {same_name(name)}" if name in families else same_name(name) for name in names]
            same = pd.factorize(np.array(spelled, object), sort=True)[0][same]
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


# ---- copies -----------------------------------------------------------------------------------------------------
def find_copies(contents: Mapping[str, pd.Series], scans: Collection[str]) -> list[list[str]]:
    """Find the sets of scans that hold the same recording.

    Parameters
    ----------
    contents : mapping
        Source (such as ``series of cc200``) to a name of each scan's content, indexed by scan. Scans that share a name
        in any source are copies.
    scans : collection of str
        Scans to consider.

    Returns
    -------
    list of list of str
        Sets of two or more copies; each, and the list, is sorted.
    """
    wanted = set(scans)
    same = []
    for names in contents.values():
        names = names[names.index.isin(wanted)]
        same += [group.index.tolist() for _, group in names.groupby(names)]
    return [copies for copies in _connected(same) if len(copies) > 1]


def refuse_copies(scans: pd.DataFrame, contents: Mapping[str, pd.Series]) -> None:
    """Refuse a recording that two people have, or that has two labels, on whatever side of a split its copies are.

    Parameters
    ----------
    scans : DataFrame
        scan_id, subject, label; and ``number`` if labels are quarters of numbers.
    contents : mapping
        See `find_copies`.

    Raises
    ------
    LeakError
    """
    scans = scans.set_index("scan_id")
    kinds = {"people": "subject", "labels": "number" if "number" in scans else "label"}
    several: dict[str, list[str]] = {}
    for copies in find_copies(contents, scans.index):
        found = {kind: sorted(map(str, scans.loc[copies, column].unique())) for kind, column in kinds.items()}
        if any(len(names) > 1 for names in found.values()):
            differing = [f"{kind} {' and '.join(names[:3])}" for kind, names in found.items() if len(names) > 1]
            several[f"{shorten_list(copies)} hold one recording, with the {' and the '.join(differing)}"] = copies
    if several:
        first, more = next(iter(several)), len(several) - 1
        raise LeakError(f"{first}{f' ({more} more such recordings)' * bool(more)}", hint=DUPLICATES_HINT)


def handle_copies(
    scans: pd.DataFrame, contents: Mapping[str, pd.Series], rule: str, numbers: bool = False
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """List the copies that are excluded, or grouped.

    Parameters
    ----------
    scans : DataFrame
        scan_id, subject, label of the included scans.
    contents : mapping
        See `find_copies`.
    rule : {"exclude", "group"}
        ``exclude`` keeps the first copy by scan_id, or none if their labels differ. ``group`` keeps all; `join_copies`
        puts them on the same side of every split.
    numbers : bool
        Whether labels are numbers.

    Returns
    -------
    excluded : DataFrame
        `EXCLUSION_COLUMNS`.
    warnings : DataFrame
        `WARNING_COLUMNS`.
    """
    scans = scans.set_index("scan_id")
    labels = scans["label"].astype(float) if numbers else scans["label"]
    excluded: list[tuple[str, str, str]] = []
    warnings: list[tuple[str, str, str]] = []
    found = find_copies(contents, scans.index)
    for copies in found:
        agree = labels[copies].nunique(dropna=False) == 1
        differ = "" if agree else ", but their labels differ"
        for scan in copies:
            of, rows, end = shorten_list(other for other in copies if other != scan), excluded, differ
            if rule == "group":
                rows, end = warnings, f": on the same side of every split{differ}"
            elif agree and scan == copies[0]:
                rows, end = warnings, ": only this copy is included"
            elif agree:
                of, end = copies[0], ", which is included"
            same = f"the series is the same as that of {of} ('folds: duplicates: {rule}')"
            rows.append((scan, DUPLICATES, same + end))
    if found:
        n_scans = sum(map(len, found))
        done = f"{len(excluded)} excluded" if rule == "exclude" else "grouped"
        log.warning("%d scans hold %d recordings ('duplicates: %s': %s)", n_scans, len(found), rule, done)
    left_out = pd.DataFrame(excluded, columns=list(EXCLUSION_COLUMNS))
    return left_out, pd.DataFrame(warnings, columns=list(WARNING_COLUMNS))


def join_copies(scans: pd.DataFrame, contents: Mapping[str, pd.Series]) -> pd.DataFrame:
    """Return the scans with one group for all groups that share a recording; it is named after them."""
    groups = people(scans).astype(str)
    group_of = dict(zip(scans["scan_id"].astype(str), groups, strict=True))
    shared = [[group_of[scan] for scan in copies] for copies in find_copies(contents, group_of)]
    names: dict[str, str] = {}
    for joined in _connected(shared):
        if len(joined) > 1:
            more = [f"{len(joined) - 3} more"] if len(joined) > 3 else []
            names |= dict.fromkeys(joined, " + ".join(joined[:3] + more))  # which no group or subject has by chance
    return scans.assign(group=groups.replace(names)) if names else scans


def _connected(sets: Iterable[Collection[str]]) -> list[list[str]]:
    """Join sets that overlap; each is sorted, and so is their list."""
    part_of: dict[str, set[str]] = {}
    for members in sets:
        joined = set(members).union(*(part_of.get(member, set()) for member in members))
        part_of |= dict.fromkeys(joined, joined)
    return sorted({id(part): sorted(part) for part in part_of.values()}.values())
