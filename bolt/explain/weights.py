"""Importance weights as files: one array with all scans of a fold, and its index. Needs no torch.

Numbers of ROIs as images: painted into the atlas, named and described as BIDS derivatives.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import nibabel as nib
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bolt.atlases.labels import weighted_sum
from bolt.io.errors import DataError
from bolt.io.files import atomic, columns, holds_something, read_json, read_table, write_json, write_table
from bolt.io.integrity import require_outputs

Array = NDArray[np.floating]
TRAINED, UNTRAINED = "importance", "importance_untrained"
"""Names of the two files of each kind of weights."""
IMPORTANCE_COLUMNS = columns("explain", "importance")
OTHER_CLASSES = ("wrong class", "fixed class")
"""Other classes that are explained, in the order of the rows of ``importance_controls.npy``: for each scan its wrong
class (the most probable one other than the predicted one), and for all scans the same class (the last one)."""
SIGN_CONTROLS = ("random", *OTHER_CLASSES)
"""Control volumes whose regressions have a direction of their own (along random directions, it is random)."""
UNBIASED = ("random", "fixed class")
"""Those that are not chosen by the predicted class. Choosing for the wrong class reverses signs, whether or not volumes
hold information."""
CONTROL_WEIGHTS = {name: f"weight_{name.replace(' ', '_')}" for name in SIGN_CONTROLS}
"""Control to its column of ``roi_weights.tsv``."""
CONTROLS_FILE = "importance_controls.npy"
IMPORTANCE_FILES = ("importance.npy", CONTROLS_FILE, "importance.tsv")


def save_array(array: Array, path: Path) -> None:
    """Write an array, float32."""
    with atomic(path) as temporary:
        np.save(temporary, array.astype(np.float32))


def write_importance(table: pd.DataFrame, weights: list[Array], run_fold: Path, name: str = TRAINED) -> None:
    """Write ``importance.npy`` (float32, the weights of all scans, concatenated) and ``importance.tsv``.

    Parameters
    ----------
    table : DataFrame
        scan_id, role, predicted and, if known, wrong; one row per scan.
    weights : list of (T,) arrays
        In the order of the table.
    run_fold : Path
        Folder of the fold.
    name : str
        Of both files.
    """
    lengths = np.array([len(w) for w in weights], dtype=int)
    table = table.assign(length=lengths, offset=lengths.cumsum() - lengths)
    save_array(np.concatenate([np.empty(0, np.float32), *weights]), run_fold / f"{name}.npy")
    write_table(table.reindex(columns=list(IMPORTANCE_COLUMNS)), run_fold / f"{name}.tsv", IMPORTANCE_COLUMNS)


def read_importance(run_fold: Path, name: str = TRAINED) -> tuple[pd.DataFrame, list[Array]]:
    """Read the table and, in its order, each scan's weights (T,)."""
    table = read_table(run_fold / f"{name}.tsv", text=("scan_id", "role", "predicted"))
    weights = np.load(run_fold / f"{name}.npy", allow_pickle=False)
    return table, [weights[o : o + n] for o, n in zip(table["offset"], table["length"], strict=True)]


def write_controls(controls: list[Array], run_fold: Path) -> None:
    """Write ``importance_controls.npy`` (float32), whose columns are the weights of ``importance.npy``.

    Parameters
    ----------
    controls : list of (2, T) arrays
        Weights of each scan for the classes of `OTHER_CLASSES`, in the order of ``importance.tsv``.
    run_fold : Path
        Folder of the fold.
    """
    save_array(np.concatenate(controls, axis=1), run_fold / CONTROLS_FILE)


def read_controls(run_fold: Path) -> dict[str, list[Array]]:
    """Read the weights of each scan (T,) for the classes of `OTHER_CLASSES`, in the order of ``importance.tsv``.

    Raises
    ------
    DataError
        The fold was explained by an earlier version, which did not explain these classes.
    """
    file = run_fold / CONTROLS_FILE
    if not holds_something(file):
        what = "file not found: the importance of the wrong and of a fixed class, with which landmarks are compared"
        raise DataError(what, where=file, hint="Delete the importance.tsv beside it and run again")
    table, rows = read_table(run_fold / "importance.tsv"), np.load(file, allow_pickle=False)
    places = list(zip(table["offset"], table["length"], strict=True))
    return {name: [row[o : o + n] for o, n in places] for name, row in zip(OTHER_CLASSES, rows, strict=True)}


def explained_folds(run: Path, folds: Sequence[int]) -> list[int]:
    """Return the folds of `run` that are finished and have importance weights; refuse altered ones."""
    done = []
    for fold in folds:
        folder = run / f"fold-{fold}"
        require_outputs(folder / "explain_provenance.json")
        if holds_something(folder / "importance.tsv") and read_json(folder / "status.json")["state"] == "ok":
            done.append(fold)
    return done


def paint(image: nib.Nifti1Image, values: NDArray[np.integer], numbers: NDArray[np.generic]) -> nib.Nifti1Image:
    """Write a number into each ROI of a label image, and zero elsewhere.

    Parameters
    ----------
    image : label image (X, Y, Z)
        Or maps (X, Y, Z, R), of which the result is the sum, each map times its number, float32.
    values : int array (n,)
        Label values.
    numbers : array (n,)
        One per ROI; the result has their data type.
    """
    if len(image.shape) == 4:
        result = weighted_sum(image, values.tolist(), numbers.tolist())
    else:
        labels = np.asanyarray(image.dataobj).astype(np.int64)
        absent = np.setdiff1d(values, labels)
        if len(absent):
            what = f"the atlas's image has no voxel with the label value {absent[0]}"
            raise DataError(what, hint="Use the atlas that the cache was made with")
        order = np.argsort(values)
        nearest = order[np.clip(np.searchsorted(values, labels, sorter=order), 0, len(values) - 1)]
        painted = np.where(values[nearest] == labels, numbers[nearest], 0).astype(numbers.dtype)
        result = nib.Nifti1Image(painted, image.affine)
    result.header.set_xyzt_units("mm")
    result.set_sform(image.affine, int(image.header["sform_code"]) or 2)
    result.set_qform(image.affine, int(image.header["qform_code"]) or 2)
    return result


MAPS = {
    "weight": ("stat-logodds_statmap", "log odds per standard deviation of the ROI, mean over folds; all ROIs"),
    "importance": ("stat-oddsratio_statmap", "odds ratio minus one; all ROIs"),
    "selected": ("desc-top_mask", "1: the ROI is among the top ROIs of the class"),
}
"""Column of `bolt.explain.regions.ROI_COLUMNS` to the end of its map's file name, and what the voxels hold."""


def map_names(classes: Sequence[str], atlas: str = "", space: str = "") -> list[dict[str, str]]:
    """Return the file names of each class's maps, in the style of BIDS derivatives, by the keys of `MAPS`.

    Only letters and digits are kept of a class's name. If nothing is left, or two names become equal ("-1" and "1"),
    the position of the class, from 1, is appended.
    """
    plain = [re.sub(r"[^A-Za-z0-9]", "", name) for name in (atlas, *classes)]
    entities, plain = (("space", re.sub(r"[^A-Za-z0-9_-]", "", space)), ("atlas", plain[0])), plain[1:]
    folded = [name.casefold() for name in plain]  # some file systems ignore case
    taken = {name for name in folded if folded.count(name) == 1}
    names = []
    for position, (name, key) in enumerate(zip(plain, folded, strict=True), start=1):
        if not name or folded.count(key) > 1:
            name = f"{name}x{position}" if name else f"{position}"
            while name.casefold() in taken:
                name += "x"
            taken.add(name.casefold())
        start = "_".join(f"{entity}-{value}" for entity, value in (*entities, ("class", name)) if value)
        names.append({column: f"{start}_{ending}.nii.gz" for column, (ending, _) in MAPS.items()})
    return names


def write_map(image: nib.Nifti1Image, path: Path, about: Mapping[str, object]) -> None:
    """Write a map (``.nii.gz``) and its sidecar."""
    with atomic(path) as temporary:
        nib.save(image, temporary)
    write_json(about, path.with_name(path.name.replace(".nii.gz", ".json")))
