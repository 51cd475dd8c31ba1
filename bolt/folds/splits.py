"""Cross-validation folds by group or by site, audited; and inner folds.

A group (the family if known, otherwise the subject) never straddles a split. Every scan is tested in exactly one fold.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bolt.config import Dataset, Folds
from bolt.folds.audit import DUPLICATES_HINT, HINT, RENAME_HINT, find_leaks, join_copies, refuse_copies
from bolt.io.errors import DataError, LeakError, shorten_list
from bolt.io.files import columns
from bolt.io.people import people

ROLES = ("train", "validation", "test")
FOLD_COLUMNS = columns("folds", "folds")


def make_folds(scans: pd.DataFrame, settings: Folds, contents: Mapping[str, pd.Series] | None = None) -> pd.DataFrame:
    """Split scans into outer folds, each with a training, a validation and a test part.

    Test and validation parts are stratified by label and site as far as counts allow (by label alone if a stratum has
    fewer groups than there are parts). A subject with several scans counts once. The result depends on the seed and the
    set of scans, not on the order of rows. With `scheme: leave-site-out` each fold tests one site, in the order of
    their names, and uses another whole site for validation.

    Parameters
    ----------
    scans : DataFrame
        scan_id, subject, group, site, label; scans with an `exclude_reason` are ignored. `strata` of numbers are
        categorical: unlike a class, a quarter may be rare, or missing in training.
    settings : Folds
        `scheme`, `group`, `duplicates`, `outer` folds, `validation` (share of all subjects), `seed`.
    contents : mapping, optional
        Names of the contents of the scans, see `bolt.folds.audit.find_leaks`.

    Returns
    -------
    DataFrame
        `FOLD_COLUMNS`, one row per scan and fold, sorted by fold and scan.

    Raises
    ------
    DataError
        A class has fewer groups than folds, there is only one class, labels or sites are missing, or a subject is in
        two groups.
    LeakError
        The same recording belongs to two subjects or has two labels; any other leak would be an error of this function.
    """
    if settings.group == "subject":
        scans = scans.assign(group=scans["subject"])
    if settings.duplicates == "refuse":
        refuse_copies(scans, contents or {})
    if settings.duplicates == "group":
        scans = join_copies(scans, contents or {})
    by_site, numbers = settings.scheme == "leave-site-out", scans["label"].dtype == "category"
    scans = _checked(scans, 1 if numbers else 2 if by_site else settings.outer)
    unit, parts = ("site", _site_parts(scans, settings)) if by_site else ("group", _group_parts(scans, settings))
    folds = []
    for fold, (test, validation) in enumerate(parts):
        chosen = [scans[unit].isin(test), scans[unit].isin(validation)]
        role = np.select(chosen, ["test", "validation"], default="train")
        folds.append(scans[["scan_id", "subject", "group"]].assign(fold=fold, role=role))
    table = pd.concat(folds, ignore_index=True)
    audit_folds(table, scans.assign(label="") if numbers else scans, contents, by_site=by_site)
    return table


def make_inner_folds(
    folds: pd.DataFrame,
    scans: pd.DataFrame,
    fold: int,
    settings: Folds,
    n_inner: int,
    contents: Mapping[str, pd.Series] | None = None,
) -> pd.DataFrame:
    """Split the training and validation scans of an outer fold as `make_folds` splits all scans.

    A model's importance weights for the scans it was fitted to may differ from those for new scans. Inner models with
    the same settings are fitted to all but one part of the training side, and explain that part. Outer test scans are
    in none of the inner folds.

    Parameters
    ----------
    folds : DataFrame
        ``folds.tsv``.
    scans : DataFrame
        scan_id, subject, group, site, label, as for `make_folds`.
    fold : int
        Outer fold.
    settings : Folds
        Settings of the outer folds. Inner folds are always stratified by label and site, even if outer folds are sites.
    n_inner : int
        Number of inner folds, at least 2.
    contents : mapping, optional
        Names of the contents of the scans, see `bolt.folds.audit.find_leaks`.

    Returns
    -------
    DataFrame
        `FOLD_COLUMNS`; ``fold`` is the inner fold. Every scan of the training side is tested once.

    Raises
    ------
    DataError
        There is no such outer fold, or a class has fewer groups than inner folds.
    LeakError
        A group is also in the outer test part, or on two sides of an inner fold; only if `folds` is wrong.
    """
    outer = folds[folds["fold"] == fold]
    if outer.empty:
        raise DataError(f"no fold {fold}", where="folds.tsv", hint="Make the folds again")
    in_test = scans["scan_id"].isin(outer.loc[outer["role"] == "test", "scan_id"])
    in_training = scans["scan_id"].isin(outer.loc[outer["role"] != "test", "scan_id"])
    unit = scans["subject"] if settings.group == "subject" else people(scans)
    shared = set(unit[in_training]) & set(unit[in_test])
    if shared:
        what = f"{unit.name} '{min(shared)}' is in the training side and the test part of fold {fold} "
        raise LeakError(f"{what}({len(shared)} such cases)", hint=HINT)
    # copies of a recording may join groups, but these are then all on one side of the outer fold
    update = {"scheme": "kfold", "outer": n_inner, "seed": settings.seed + 1 + fold, "run": None}
    return make_folds(scans[in_training], settings.model_copy(update=update), contents)


def hold_out(scans: pd.DataFrame, share: float, seed: int) -> set[str]:
    """Choose groups for a validation part, stratified by label and site as in `make_folds`.

    Parameters
    ----------
    scans : DataFrame
        subject, group, site, label (for numbers, their `quarters`), all text.
    share : float
        Of the groups, between 0 and 1; at most half of them are taken.
    seed : int

    Returns
    -------
    set of str
        Groups.

    Raises
    ------
    DataError
        No class has two groups.
    """
    units = scans.drop_duplicates(["group", "subject", "label", "site"], ignore_index=True)
    return _validation(units, max(2, round(1 / share)), seed)


def _group_parts(scans: pd.DataFrame, settings: Folds) -> Iterator[tuple[set[str], set[str]]]:
    """Yield the groups of the test and of the validation part of each fold."""
    units = scans.drop_duplicates(["group", "subject", "label", "site"], ignore_index=True)
    n_inner = max(2, round((1 - 1 / settings.outer) / settings.validation))
    groups, part = stratified_groups(_strata(units, settings.outer), units["group"], settings.outer, settings.seed)
    for fold in range(settings.outer):
        test = set(groups[part == fold])
        yield test, _validation(units[~units["group"].isin(test)], n_inner, settings.seed + 1 + fold)


def _site_parts(scans: pd.DataFrame, settings: Folds) -> Iterator[tuple[set[str], set[str]]]:
    """Yield the test and the validation site of each fold, one per site.

    Sites are arranged in a ring by the seed. The next site on the ring that has every class, and leaves every class in
    the training part, is used for validation.
    """
    sites = sorted(scans["site"].unique())
    if "" in sites:
        raise DataError(f"{(scans['site'] == '').sum()} scans have no site", hint="Set 'site' in the dataset's file")
    if len(sites) < 3:
        what = f"leave-site-out needs at least three sites, but there are {len(sites)}"
        raise DataError(what, hint="Set 'folds: scheme: kfold'")
    if len(sites) != settings.outer:
        what = f"leave-site-out makes one fold per site: there are {len(sites)} sites, but {settings.outer} folds"
        raise DataError(what, hint=f"Set 'folds: outer' to {len(sites)}")
    n_sites = scans.groupby("group")["site"].nunique()
    if n_sites.max() > 1:
        what = f"group '{n_sites.idxmax()}' was scanned at {n_sites.max()} sites, so these cannot be separated"
        raise DataError(what, hint="Exclude its scans at all sites but one, or set 'folds: scheme: kfold'")
    classes = scans.groupby("site")["label"].agg(frozenset)
    ring = np.random.default_rng(settings.seed).permutation(sites).tolist()
    for test in sites:
        position = ring.index(test)

        def badness(site: str, test: str = test) -> tuple[int, int]:
            training_classes = frozenset().union(*classes[~classes.index.isin([site, test])])
            return (-len(training_classes), -len(classes[site]))

        yield {test}, {min(ring[position + 1 :] + ring[:position], key=badness)}


def strata(scans: pd.DataFrame, dataset: Dataset) -> pd.DataFrame:
    """Return scans as their folds are stratified: by class, or by quarter of a label that is a number.

    The number stays as ``number``, by which copies of a recording are compared.
    """
    if dataset.classes:
        return scans
    return scans.assign(number=scans["label"].astype(float), label=quarters(scans["label"]).astype("category"))


def quarters(labels: pd.Series) -> pd.Series:
    """Name the quarter into which each numeric label falls, such as ``20 to 31.5``.

    Quarters take the place of classes when folds are stratified.
    """
    values = labels.astype(float)
    quarter = np.searchsorted(np.quantile(values, [0.25, 0.5, 0.75]), values)
    low, high = (values.groupby(quarter).transform(end) for end in ("min", "max"))
    return low.map("{:g}".format) + " to " + high.map("{:g}".format)


def audit_folds(
    folds: pd.DataFrame, scans: pd.DataFrame, contents: Mapping[str, pd.Series] | None = None, *, by_site: bool = False
) -> None:
    """Refuse folds that have leaks or are unusable for training.

    Parameters
    ----------
    folds : DataFrame
        scan_id, fold, role.
    scans : DataFrame
        scan_id, subject, group, label of the same scans: these are trusted rather than the columns of `folds`.
    contents : mapping, optional
        Names of the contents of the scans, see `bolt.folds.audit.find_leaks`.
    by_site : bool
        Sites must not straddle a split either.

    Raises
    ------
    LeakError
        A scan, subject, group or recording has two roles in one fold, or a scan is not tested exactly once.
    DataError
        A fold has an empty part, or a training part without one of the classes.
    """
    kinds = ("scan_id", "subject", "group", "site") if by_site else ("scan_id", "subject", "group")
    leaks = find_leaks(folds, scans, kinds, contents)
    if leaks:
        respelled = "' and '" in leaks[0].name
        hint = DUPLICATES_HINT if leaks[0].kind in (contents or {}) else RENAME_HINT if respelled else HINT
        raise LeakError(str(leaks[0]), hint=hint)
    place = pd.Index(scans["scan_id"]).get_indexer(folds["scan_id"])
    role, (label, classes) = folds["role"].to_numpy(), pd.factorize(scans["label"])
    tested = np.bincount(place[role == "test"], minlength=len(scans))
    wrong = np.flatnonzero(tested != 1)
    if len(wrong):
        scan, times = scans["scan_id"].iloc[wrong[0]], tested[wrong[0]]
        problem = f"scan '{scan}' is tested {times} times, not once ({len(wrong)} such scans)"
        raise LeakError(problem, hint="Make the folds again")
    for fold in sorted(folds["fold"].unique()):
        rows = (folds["fold"] == fold).to_numpy()
        for name in ROLES:
            if not (role[rows] == name).any():
                raise DataError(f"fold {fold} has no {name} scans", hint="Use fewer folds, or more subjects")
        absent = sorted(set(classes) - set(classes[label[place[rows & (role == "train")]]]))
        if absent:
            what = f"fold {fold} has no training scan of class {', '.join(absent)}"
            raise DataError(what, hint="Use fewer folds, or more subjects")


def _checked(scans: pd.DataFrame, n_folds: int) -> pd.DataFrame:
    """Return the included scans, sorted, as text, each with a group; refuse scans that cannot be split."""
    if "exclude_reason" in scans:
        scans = scans[scans["exclude_reason"].isna()]
    for column in ("scan_id", "subject", "label"):
        if scans[column].isna().any():
            raise DataError(f"{scans[column].isna().sum()} scans have no {column}", hint="Fill in or exclude them")
    duplicates = sorted(set(scans["scan_id"][scans["scan_id"].duplicated()]))
    if duplicates:
        what = f"duplicate scan_id in the scan table: {shorten_list(duplicates)}"
        raise DataError(what, hint="Remove the duplicates")
    scans = scans.assign(group=people(scans), site=scans["site"].fillna("") if "site" in scans else "")
    text = dict.fromkeys(("scan_id", "subject", "group", "site", "label"), str)
    scans = scans.astype(text).sort_values("scan_id", ignore_index=True)
    groups = scans.groupby("subject")["group"].nunique()
    if (groups > 1).any():
        what = f"subject '{groups.idxmax()}' is in {groups.max()} groups"
        raise DataError(what, hint="Assign each subject to one group")
    counts = scans.groupby("label")["group"].nunique()
    if len(counts) < 2:
        raise DataError(f"only one class: {', '.join(counts.index) or 'none'}", hint="Check the label column")
    if counts.min() < n_folds:
        what = f"class '{counts.idxmin()}' has {counts.min()} subjects or families, fewer than the {n_folds} folds"
        fewer = f"Set 'folds: outer' to at most {counts.min()}, or a" if counts.min() > 1 else "A"
        raise DataError(what, hint=f"{fewer}dd subjects")
    return scans


def stratified_groups(
    strata: Sequence[str] | NDArray[np.object_], groups: Sequence[str] | pd.Series, n_parts: int, seed: int
) -> tuple[NDArray[np.object_], NDArray[np.intp]]:
    """Divide groups into disjoint parts of equal shares of each stratum, as far as that goes.

    Groups come in random order, those of uneven strata first; each joins the part with which the parts differ least,
    among equals the one with fewer members. This is scikit-learn's ``StratifiedGroupKFold(n_parts, shuffle=True,
    random_state=seed)`` without its loop in Python over parts. The order of operations is the same, because a rounding
    error may decide between two parts.

    Parameters
    ----------
    strata, groups : (n,) sequence of str
        Of each member.
    n_parts : int
    seed : int

    Returns
    -------
    groups : (G,) array of str
    part : (G,) int array
        Part of each group.
    """
    _, stratum, sizes = np.unique(np.asarray(strata, object), return_inverse=True, return_counts=True)
    names, group = np.unique(np.asarray(groups, object), return_inverse=True)
    counts = np.zeros((len(names), len(sizes)))
    np.add.at(counts, (group, stratum), 1)
    order = np.arange(len(names))
    np.random.RandomState(seed).shuffle(order)
    order = order[np.argsort(-counts[order].std(axis=1), kind="stable")]
    filled, part = np.zeros((n_parts, len(sizes))), np.empty(len(names), np.intp)
    diagonal, tried = np.arange(n_parts), np.empty((n_parts, *filled.shape))  # (part that is joined, part, stratum)
    for one in order:
        tried[:] = filled / sizes
        tried[diagonal, diagonal] = (filled + counts[one]) / sizes
        tried -= np.add.reduce(tried, axis=1, keepdims=True) / n_parts
        tried *= tried
        spread = np.sqrt(np.add.reduce(tried, axis=1) / n_parts)
        unevenness = (np.add.reduce(spread, axis=1) / len(sizes)).tolist()
        members = np.add.reduce(filled, axis=1).tolist()
        best = 0
        for i in range(1, n_parts):
            equal = abs(unevenness[i] - unevenness[best]) <= 1e-8 + 1e-5 * unevenness[best]
            if unevenness[i] < unevenness[best] or (equal and members[i] < members[best]):
                best = i
        part[one] = best
        filled[best] += counts[one]
    return names, part


def _strata(units: pd.DataFrame, n_parts: int) -> NDArray[np.object_]:
    """Return the stratum of each unit: label and site, or the label alone if there are too few groups of both."""
    stratum, names = pd.factorize(units["label"] + "\t" + units["site"])
    pairs = np.unique(np.stack([stratum, pd.factorize(units["group"])[0]]), axis=1)
    n_groups = np.bincount(pairs[0], minlength=len(names))
    return np.where(n_groups[stratum] >= n_parts, np.asarray(names, object)[stratum], units["label"].to_numpy(object))


def _validation(rest: pd.DataFrame, n_parts: int, seed: int) -> set[str]:
    """Choose the part that leaves most classes to training and has most itself; among equals, of most average size."""
    label, group = pd.factorize(rest["label"])[0], pd.factorize(rest["group"])[0]
    n_groups = np.bincount(np.unique(np.stack([label, group]), axis=1)[0])
    n_parts = min(n_parts, int(n_groups.max(initial=0)))
    if n_parts < 2:
        raise DataError("too few subjects for a validation part", hint="Use fewer folds, or more subjects")
    groups, part = stratified_groups(_strata(rest, n_parts), rest["group"], n_parts, seed)
    sizes, rows = np.bincount(part, minlength=n_parts), np.zeros((n_parts, len(n_groups)), int)
    np.add.at(rows, (part[np.searchsorted(groups, rest["group"].to_numpy(object))], label), 1)

    def badness(i: int) -> tuple[int, int, float]:
        outside = rows.sum(axis=0) - rows[i]
        return (-int((outside > 0).sum()), -int((rows[i] > 0).sum()), float(abs(sizes[i] - len(groups) / n_parts)))

    return set(groups[part == min(np.flatnonzero(sizes), key=badness)])
