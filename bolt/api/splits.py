"""Folds of scans that are given as arrays, and the audit of any folds for leaks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from bolt.api.scans import one_per_scan, require_plain, scan_table
from bolt.io.errors import DataError, LeakError


class Fold(NamedTuple):
    """Positions of the scans of one fold, sorted.

    Attributes
    ----------
    train, validation, test : int arrays
    """

    train: NDArray[np.integer]
    validation: NDArray[np.integer]
    test: NDArray[np.integer]


def folds(
    y: ArrayLike,
    groups: ArrayLike | None = None,
    *,
    sites: ArrayLike | None = None,
    outer: int = 10,
    validation: float = 0.1,
    seed: int = 0,
    scheme: Literal["kfold", "leave-site-out"] = "kfold",
) -> list[Fold]:
    """Split scans for nested cross-validation, as the workflow does.

    Test and validation parts are stratified by label and site, and no group is on two sides of a split. Every scan is
    tested once.

    Parameters
    ----------
    y : (scans,) array
        Classes; or floating-point numbers, which are stratified by quarters.
    groups : (scans,) array, optional
        Families, or else subjects; by default each scan is one of its own.
    sites : (scans,) array, optional
        Needed for ``leave-site-out``, which tests one site per fold (set `outer` to their number).
    outer : int
        Number of folds.
    validation : float
        Share of all groups in the validation part.
    seed : int
    scheme : {"kfold", "leave-site-out"}

    Returns
    -------
    list of Fold
        ``[(fold.train, fold.test) for fold in folds(y)]`` is what scikit-learn takes as ``cv``.

    Raises
    ------
    DataError
        A class has fewer groups than there are folds, there is only one class, or sites are missing.
    """
    from bolt.config import Folds
    from bolt.config.keys import parse
    from bolt.folds.splits import make_folds, quarters

    labels = one_per_scan(y, np.size(y), "labels")
    keys = {"scheme": scheme, "outer": outer, "validation": validation, "seed": seed}
    settings = parse(Folds, keys, "folds")
    scans = _scans(len(labels), groups, sites)
    numbers = labels.dtype.kind == "f"
    scans["label"] = quarters(pd.Series(labels)) if numbers else [str(label) for label in labels]
    for name in scans["label"].unique():
        require_plain(name, "labels")
    table = make_folds(scans, settings)
    table["position"] = table["scan_id"].astype(int)
    parts = {key: rows["position"].to_numpy() for key, rows in table.groupby(["fold", "role"])}
    return [Fold(*(np.sort(parts[fold, role]) for role in ("train", "validation", "test"))) for fold in range(outer)]


def check_leaks(
    folds: Iterable[Sequence[ArrayLike]],
    groups: ArrayLike | None = None,
    *,
    sites: ArrayLike | None = None,
    series: Sequence[ArrayLike] | None = None,
) -> None:
    """Refuse folds in which a group, or the same recording, is on two sides of a split.

    Parameters
    ----------
    folds : iterable of (train, test) or (train, validation, test)
        Positions of scans, from `folds`, from scikit-learn (``cv.split(X, y, groups)``), or your own.
    groups : (scans,) array, optional
        Families or subjects. ``sub-01``, ``01`` and ``1`` are one subject.
    sites : (scans,) array, optional
        No site may be on two sides of a split.
    series : list of (time, rois) arrays, optional
        Series that correlate above 0.999 are one recording, under whatever names.

    Raises
    ------
    LeakError
        Names the first case of each kind.
    DataError
        There is no fold; a fold has other parts, or a position beyond the scans; `groups`, `sites` and `series` differ
        in length.
    """
    from bolt.api.scans import as_series
    from bolt.folds.audit import HINT, find_leaks
    from bolt.folds.check import name_contents

    try:
        folds = [tuple(fold) for fold in folds]  # an iterator, which is read twice
    except TypeError:
        raise DataError("not folds", hint="Give a list of (train, test) or (train, validation, test)") from None
    if not folds:
        raise DataError("no folds", hint="Give a list of (train, test) or (train, validation, test)")
    lengths = [len(values) for values in (groups, sites, series) if values is not None]  # type: ignore[arg-type]
    if len(set(lengths)) > 1:
        counts = " and ".join(map(str, lengths))
        raise DataError(f"groups, sites and series of {counts} scans", hint="Give one per scan")
    used = [np.asarray(part) for fold in folds for part in fold]
    n = lengths[0] if lengths else 1 + max((int(part.max()) for part in used if part.size), default=-1)
    rows = []
    for number, fold in enumerate(folds):
        if len(fold) not in (2, 3):
            raise DataError(f"fold {number}: {len(fold)} parts", hint="Give (train, test) or (train, validation, test)")
        names = ("train", "test") if len(fold) == 2 else ("train", "validation", "test")
        for role, part in zip(names, fold, strict=True):
            positions = np.asarray(part)
            if positions.dtype.kind not in "iu" or (positions.size and not 0 <= positions.min() <= positions.max() < n):
                raise DataError(f"the {role} part of fold {number} is not positions of {n} scans", hint="Count from 0")
            rows += [(f"{i:08d}", str(number), role) for i in positions]
    table = pd.DataFrame(rows, columns=["scan_id", "fold", "role"])
    scans = _scans(n, groups, sites)
    kinds = ["scan_id"] + ["group"] * (groups is not None) + ["site"] * (sites is not None)
    contents = {}
    if series is not None:
        contents["series"] = name_contents(dict(zip(scans["scan_id"], as_series(series), strict=True)))
    leaks = find_leaks(table, scans, kinds, contents)
    if leaks:
        raise LeakError("; ".join(map(str, leaks)), hint=HINT)


def _scans(n: int, groups: Any, sites: Any) -> pd.DataFrame:
    """Return a table of scans that are named by their positions."""
    table = scan_table(n)
    for column, values in (("group", groups), ("site", sites)):
        if values is None:
            continue
        array = np.asarray(values)
        if array.shape != (n,):
            raise DataError(f"{column}s have shape {array.shape} for {n} scans", hint="Give one per scan")
        values = pd.Series([None if pd.isna(value) else str(value) for value in array], dtype=object)
        table[column] = values.where(values.notna(), table["subject"]) if column == "group" else values
    return table.assign(subject=table["group"])
