"""Reading of CIFTI-2 files: parcellated series (``.ptseries.nii``), greyordinates and their labels.

nibabel is imported by each function: most jobs read no CIFTI file.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bolt.io.errors import DataError, readable, require_file

if TYPE_CHECKING:
    from nibabel.cifti2 import BrainModelAxis, Cifti2Image, SeriesAxis

PTSERIES = ".ptseries.nii"
DTSERIES = ".dtseries.nii"
DLABEL = ".dlabel.nii"
COPY_AGAIN = "Copy or download the file again"


def load_cifti(path: str | Path) -> Cifti2Image:
    """Open a CIFTI-2 file.

    Raises
    ------
    DataError
        It is missing, damaged, or not CIFTI-2.
    """
    import nibabel as nib

    require_file(path, "Correct the path")
    # nibabel raises many kinds, of its own and of the XML parser
    with readable(path, Exception, what="not a readable CIFTI file", hint=COPY_AGAIN, text=False):
        image = nib.load(path)
    if not isinstance(image, nib.Cifti2Image):
        raise DataError("not a CIFTI-2 file", where=path, hint="Convert it with wb_command -file-convert")
    return image


def axes(image: Cifti2Image, *kinds: type) -> list[tuple[int, Any]]:
    """Return number and axis of each kind, in this order.

    Raises
    ------
    DataError
        One is missing, so the file holds something else.
    """
    found = [(number, image.header.get_axis(number)) for number in range(image.ndim)]
    described = tuple(len(axis) for _, axis in found)
    if described != image.shape:
        what = f"its header describes {described} numbers, but it has {image.shape}"
        raise DataError(what, where=image.get_filename(), hint=COPY_AGAIN)
    wanted = []
    for kind in kinds:
        matching = [item for item in found if isinstance(item[1], kind)]
        if len(matching) != 1:
            present = " × ".join(type(axis).__name__.removesuffix("Axis") for _, axis in found)
            what = f"its axes are {present}, not {' × '.join(k.__name__.removesuffix('Axis') for k in kinds)}"
            raise DataError(what, where=image.get_filename(), hint="Give the file that its name states")
        wanted.append(matching[0])
    return wanted


def repetition_time(axis: SeriesAxis, path: str | Path) -> float:
    """Return the seconds between volumes.

    Raises
    ------
    DataError
        The axis is not one of time.
    """
    if axis.unit != "SECOND":
        what = f"its series axis is in {axis.unit.lower()}, not seconds"
        raise DataError(what, where=path, hint="Give a series over time")
    return float(axis.step)


def array_of(image: Cifti2Image) -> np.ndarray:
    """Return the numbers of a CIFTI file; a damaged one is a `DataError`."""
    with readable(
        str(image.get_filename()), OSError, ValueError, EOFError, what="damaged", hint=COPY_AGAIN, text=False
    ):
        return np.asanyarray(image.dataobj)


def read_ptseries(path: str | Path) -> tuple[np.ndarray, list[str]]:
    """Read parcellated series.

    Returns
    -------
    series : (T, R) array
    names : list of str
        Of the parcels.

    Raises
    ------
    DataError
        The file is damaged, or its axes are not time and parcels.
    """
    from nibabel.cifti2 import ParcelsAxis, SeriesAxis

    image = load_cifti(path)
    (time, series_axis), (_, parcels) = axes(image, SeriesAxis, ParcelsAxis)
    repetition_time(series_axis, path)
    return np.moveaxis(array_of(image), time, 0), [str(name) for name in parcels.name]


def read_ptseries_tr(path: str | Path) -> float:
    """Return the seconds between volumes of a parcellated series."""
    from nibabel.cifti2 import SeriesAxis

    ((_, axis),) = axes(load_cifti(path), SeriesAxis)
    return repetition_time(axis, path)


def read_dlabel(path: str | Path) -> tuple[np.ndarray, dict[int, str], BrainModelAxis]:
    """Read the label of each greyordinate.

    Returns
    -------
    values : (N,) int array
        0 where there is no label.
    names : dict
        Name of each value that a greyordinate has, sorted by value.
    brain : BrainModelAxis
        Which vertex or voxel each greyordinate is.

    Raises
    ------
    DataError
        The file is damaged, has no labels, several maps of them, or a value that its table does not name.
    """
    from nibabel.cifti2 import BrainModelAxis, LabelAxis

    image = load_cifti(path)
    (maps, label_axis), (_, brain) = axes(image, LabelAxis, BrainModelAxis)
    if len(label_axis) != 1:
        what = f"{len(label_axis)} maps of labels: {', '.join(map(str, label_axis.name[:5]))}"
        raise DataError(what, where=path, hint="Keep one: wb_command -cifti-merge OUT -cifti IN -column NUMBER")
    values = np.moveaxis(array_of(image), maps, 0)[0].astype(int)
    table = {int(value): str(name) for value, (name, _) in label_axis.label[0].items()}
    used = [value for value in np.unique(values).tolist() if value != 0]
    unnamed = [value for value in used if value not in table]
    if not used or unnamed:
        what = f"label {unnamed[0]} has no name" if unnamed else "no greyordinate has a label"
        raise DataError(what, where=path, hint="Correct the table of labels")
    return values, {value: table[value] for value in used}, brain
