"""Reading of CIFTI series: parcellated (``.ptseries.nii``), and the axes that other CIFTI files share with them.

nibabel is imported by each function: most jobs read no CIFTI file.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bolt.io.errors import DataError

if TYPE_CHECKING:
    from nibabel.cifti2 import Cifti2Image, SeriesAxis

PTSERIES = ".ptseries.nii"
COPY_AGAIN = "Copy or download the file again"


def load_cifti(path: str | Path) -> Cifti2Image:
    """Open a CIFTI-2 file.

    Raises
    ------
    DataError
        It is missing, damaged, or not CIFTI-2.
    """
    import nibabel as nib

    if not Path(path).is_file():
        raise DataError("file not found", where=path, hint="Correct the path")
    try:
        image = nib.load(path)
    except Exception as error:  # nibabel raises many kinds, of its own and of the XML parser
        raise DataError(f"not a readable CIFTI file ({error})", where=path, hint=COPY_AGAIN) from None
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
    wanted = []
    for kind in kinds:
        matching = [item for item in found if isinstance(item[1], kind)]
        if len(matching) != 1:
            present = " × ".join(type(axis).__name__.removesuffix("Axis") for _, axis in found)
            raise DataError(
                f"its axes are {present}, not {' × '.join(k.__name__.removesuffix('Axis') for k in kinds)}",
                where=image.get_filename(),
                hint="Give the file that its name states",
            )
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
        raise DataError(
            f"its series axis is in {axis.unit.lower()}, not seconds", where=path, hint="Give a series over time"
        )
    return float(axis.step)


def array_of(image: Cifti2Image) -> np.ndarray:
    """Return the numbers of a CIFTI file; a damaged one is a `DataError`."""
    try:
        return np.asanyarray(image.dataobj)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"damaged ({error})", where=image.get_filename(), hint=COPY_AGAIN) from None


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
