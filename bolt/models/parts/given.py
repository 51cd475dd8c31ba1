"""Files that others bring to be judged, of one vector a scan or of predictions of test scans, and their checks."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Sequence
from math import lgamma, log
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bolt.io.errors import DataError, shorten_list
from bolt.io.files import read_text, readable

NO_ARCHIVE = (KeyError, ValueError, TypeError, EOFError, zipfile.BadZipFile, zlib.error)
FORMS = "a table with a column scan_id (.tsv, .csv), or arrays scan_id (text: .astype(str)) and features (.npz)"
ROUNDED = 0.01
"""By how much the probabilities of a scan may miss a sum of 1: they may be written with two digits."""
BY_CHANCE = 0.01
"""Probability that some column of noise separates the classes, above which a column that does is no sign of a leak."""


# ---- one vector a scan


def read_vectors(path: Path) -> pd.DataFrame:
    """Read one vector per scan.

    Parameters
    ----------
    path : Path
        ``.tsv`` or ``.csv`` with the column scan_id and numbers; ``.npz`` with the arrays scan_id, (n,), and features,
        (n, F).

    Returns
    -------
    (n, F) float32 DataFrame
        Indexed by scan.

    Raises
    ------
    DataError
        The file is no such file, lists a scan twice, or has a value that is not finite.
    """
    if path.suffix == ".npz":
        with readable(path, *NO_ARCHIVE, what=f"not {FORMS}"), np.load(path, allow_pickle=False) as arrays:
            scans, values = arrays["scan_id"].astype(str), np.asarray(arrays["features"])
        if values.dtype.kind not in "iuf":
            raise DataError(f"features are {values.dtype}, not real numbers", where=path, hint="Save floats")
        if values.ndim != 2 or scans.shape != values.shape[:1]:
            shapes = f"scan_id {scans.shape} and features {values.shape}"
            raise DataError(f"arrays of shapes {shapes}", where=path, hint="Give (n,) and (n, F)")
        table = pd.DataFrame(values, index=scans).rename(columns=str)
    else:
        table = _read(path, "scan_id").set_index("scan_id")
    if table.empty:
        raise DataError("no vectors", where=path, hint=f"Give {FORMS}")
    _refuse_repeated(table.index, path)
    with np.errstate(over="ignore"):  # what float32 cannot hold is refused below
        table = table.apply(pd.to_numeric, errors="coerce").astype(np.float32)
    known = np.isfinite(table.to_numpy())
    if not known.all():
        row, column = np.argwhere(~known)[0]
        what = f"{(~known).sum()} values are not finite numbers, the first of scan '{table.index[row]}'"
        raise DataError(what, where=f"{path}, column '{table.columns[column]}'", hint="Correct or remove it")
    return table


def vectors_of(path: Path, scans: pd.DataFrame) -> pd.DataFrame:
    """Return the vectors of some scans (scan_id, subject), in their order; other scans of the file are not used.

    Raises
    ------
    DataError
        As `read_vectors`; a scan has no vector, a column is constant, or scans of two people have the same vector.
    """
    table = read_vectors(path)
    missing = scans.loc[~scans["scan_id"].isin(table.index), "scan_id"]
    if len(missing):
        what = f"no vector of {len(missing)} of {len(scans)} scans: {shorten_list(missing)}"
        raise DataError(what, where=path, hint=f"Add them; its scans are called {shorten_list(table.index, 2)}")
    table = table.loc[scans["scan_id"]]
    values = table.to_numpy()
    constant = table.columns[(values == values[0]).all(axis=0)]
    if len(constant):
        what = f"{len(constant)} columns are constant over the scans: {shorten_list(constant)}"
        raise DataError(what, where=path, hint="Remove them: a model may have failed on every scan")
    rows = pd.DataFrame({"vector": [row.tobytes() for row in values], "subject": scans["subject"].to_numpy()})
    copies = table.index[(rows.groupby("vector")["subject"].transform("nunique") > 1).to_numpy()]
    if len(copies):
        what = f"{len(copies)} scans of different people have a vector that another has: {shorten_list(copies)}"
        raise DataError(what, where=path, hint="Check how scans and vectors were joined")
    return table


def separating(vectors: pd.DataFrame, labels: Sequence[str] | NDArray[np.generic]) -> list[str]:
    """Return the columns that alone tell all classes apart: each class has a range of values of its own.

    All are returned only if it is improbable (`BY_CHANCE`, Bonferroni over columns) that noise does so: of n scans, C!
    of n! / (n_1! … n_C!) orders of the labels.
    """
    values, labels = vectors.to_numpy(), np.asarray(labels)
    counts = np.unique(labels, return_counts=True)[1]
    improbable = lgamma(len(counts) + 1) + sum(lgamma(n + 1) for n in counts) - lgamma(len(labels) + 1)
    if improbable + log(values.shape[1]) > log(BY_CHANCE):
        return []
    classes = [values[labels == name] for name in np.unique(labels)]
    lowest, highest = np.stack([part.min(0) for part in classes]), np.stack([part.max(0) for part in classes])
    order = lowest.argsort(axis=0)
    lowest, highest = (np.take_along_axis(ends, order, axis=0) for ends in (lowest, highest))
    return list(vectors.columns[(highest[:-1] < lowest[1:]).all(axis=0)])


# ---- predictions of test scans


def read_probabilities(path: Path, classes: Sequence[str]) -> pd.DataFrame:
    """Read predicted probabilities, (n, classes), indexed by fold and scan.

    Parameters
    ----------
    path : Path
        ``.tsv`` or ``.csv``: scan_id, fold, and ``p_<class>`` for each class or, of two, for one (``p``: the last).
    classes : sequence of str

    Raises
    ------
    DataError
        A column is missing; a scan is listed twice in a fold; values are no probabilities or do not sum to 1.
    """
    table, names = _read(path, "scan_id", "fold"), [f"p_{name}" for name in classes]
    numbers = table.drop(columns="scan_id").apply(pd.to_numeric, errors="coerce")
    if len(classes) == 2:
        numbers = numbers if set(names) & set(numbers) else numbers.rename(columns={"p": names[1]})
        for one, other in (names, names[::-1]):
            if one in numbers and other not in numbers:
                numbers[other] = 1 - numbers[one]
    if lacking := [name for name in names if name not in numbers]:
        what = f"no column {', '.join(lacking)}; found {shorten_list(table.columns, 10)}"
        one = ", or one of them" if len(classes) == 2 else ""
        raise DataError(what, where=path, hint=f"Give {', '.join(names)}{one}")
    values = numbers[names].to_numpy(float)

    def refuse(wrong: NDArray[np.bool_], problem: str, hint: str) -> None:
        if wrong.any():
            scan, fold = table[wrong].iloc[0][["scan_id", "fold"]]
            raise DataError(f"{problem} (scan '{scan}', fold {fold}; {wrong.sum()} rows)", where=path, hint=hint)

    refuse(~(numbers["fold"] % 1 == 0).to_numpy(), "a fold is not a whole number", "Number folds as folds.tsv does")
    refuse(np.isnan(values).any(axis=1), "a probability is missing or not a number", "Fill it in")
    outside = ((values < 0) | (values > 1)).any(axis=1)
    refuse(outside, "a probability is outside [0, 1]", "Give probabilities, not scores or per cent")
    sums = np.abs(values.sum(axis=1) - 1) > ROUNDED
    refuse(sums, "probabilities do not sum to 1", f"Give the probability of each of {', '.join(classes)}")
    found = pd.DataFrame(values, pd.MultiIndex.from_arrays([numbers["fold"].astype(int), table["scan_id"]]), names)
    _refuse_repeated(found.index, path)
    return found


def probabilities_of(path: Path, classes: Sequence[str], folds: pd.DataFrame) -> pd.DataFrame:
    """Return the probabilities of `read_probabilities`, which must be those of all test scans of all folds.

    Parameters
    ----------
    path : Path
    classes : sequence of str
    folds : DataFrame
        ``folds.tsv``.

    Raises
    ------
    DataError
        As `read_probabilities`; the folds are others, a scan is no test scan of its fold, or a test scan is missing.
    """
    found = read_probabilities(path, classes)
    hint = "Predict the test scans of each fold of this study's folds.tsv, by a model trained without them"
    theirs, ours = (sorted(set(numbers)) for numbers in (found.index.get_level_values(0), folds["fold"]))
    if theirs != ours:
        raise DataError(f"folds {shorten_list(theirs, 12)}, not {shorten_list(ours, 12)}", where=path, hint=hint)
    tests = pd.MultiIndex.from_frame(folds.loc[folds["role"] == "test", ["fold", "scan_id"]])
    problems = {"rows are not of a test scan of their fold": found.index.difference(tests)}
    problems["test scans have no prediction"] = tests.difference(found.index)
    for what, rows in problems.items():
        if len(rows):
            named = shorten_list(f"'{scan}' in fold {fold}" for fold, scan in rows)
            raise DataError(f"{len(rows)} {what}: {named}", where=path, hint=hint)
    return found


def _read(path: Path, *needed: str) -> pd.DataFrame:
    """Read a table as text; refuse one without these columns, or with empty cells in them."""
    table = read_text(path)
    if lacking := [name for name in needed if name not in table or table[name].isna().any()]:
        raise DataError(f"no column '{lacking[0]}', or empty cells in it", where=path, hint=f"Give {', '.join(needed)}")
    return table


def _refuse_repeated(index: pd.Index, path: Path) -> None:
    """Refuse scans that are listed twice."""
    twice = index[index.duplicated()].unique()
    if len(twice):
        raise DataError(f"listed twice: {shorten_list(twice)}", where=path, hint="Keep one row a scan (and fold)")
