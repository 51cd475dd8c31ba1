"""Labels and groups that are given as arrays: checked, and turned into what tables can hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bolt.api.scans import one_per_scan, require_plain
from bolt.io.errors import DataError


def classes_of(labels: NDArray[Any]) -> NDArray[Any]:
    """Return the classes, sorted; refuse those that cannot be learned or saved (DataError)."""
    try:
        classes = np.unique(labels)
    except TypeError:
        raise DataError("labels of several types", hint="Give labels of one type") from None
    names = [str(name) for name in classes]
    if len(names) < 2:
        raise DataError(f"only one class: {names[0]}", hint="Give labels of at least two classes")
    if not all(isinstance(name, str | int | float) for name in classes.tolist()):
        raise DataError(f"labels of type {type(classes[0]).__name__}", hint="Give text or whole numbers")
    if classes.dtype.kind == "f" and (classes != np.floor(classes)).any():
        raise DataError(f"Unknown label type: numbers such as {names[0]}", hint="Use a regressor, or give text")
    for name in names:
        require_plain(name, "labels")
    return classes


def with_groups(scans: pd.DataFrame, groups: Any) -> pd.DataFrame:
    """Add groups to a table of scans; without any, each scan is one of its own."""
    if groups is None:
        return scans
    names = [str(group) for group in one_per_scan(groups, len(scans), "groups")]
    for name in set(names):
        require_plain(name, "groups")
    return scans.assign(subject=names, group=names)


def numbers_of(y: Any, n: int) -> NDArray[np.float64]:
    """Return the labels of `n` scans as numbers; refuse others (DataError)."""
    labels = one_per_scan(y, n, "labels")
    try:
        if labels.dtype.kind in "cmM":  # numpy would convert them, and lose what they mean
            raise TypeError(f"{labels.dtype} is not real")
        numbers = labels.astype(float)
    except (TypeError, ValueError) as error:
        raise DataError(f"labels are no numbers ({error})", hint="Use a classifier for classes") from None
    if not np.isfinite(numbers).all():
        raise DataError(f"label {int((~np.isfinite(numbers)).argmax())} is NaN or infinite", hint="Leave it out")
    return numbers
