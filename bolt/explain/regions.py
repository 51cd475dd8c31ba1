"""Which regions the landmarks point to: from regression weights to brain maps.

The coefficients of the landmark regressions are averaged over folds: ``w[c, r]``, log odds of class
``c`` per standard deviation of ROI ``r``. The importance of an ROI for a class is its odds ratio
less one, ``exp(w[c, r]) - 1``. With two classes ``w[0] = -w[1]``, so the two maps mirror each other
(the paper's published code uses ``1 - exp(w)`` for the first class, which does not). The ROIs with
the largest positive importance, the top 2 % unless configured, are drawn for each class.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path

import nibabel as nib
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bolt.errors import DataError
from bolt.files import atomic, write_json, write_table

ROI_COLUMNS = {
    "class": "class that the weight speaks for",
    "rank": "1 is the most important ROI of the class",
    "value": "label value of the ROI in the atlas's image",
    "name": "ROI",
    "network": "network of the ROI",
    "hemisphere": "hemisphere of the ROI",
    "weight": "mean over folds of the regression weight, log odds per standard deviation of the ROI",
    "weight_sd": "standard deviation over folds (ddof 0)",
    "importance": "odds ratio less one: exp(weight) - 1",
    "selected": "whether the ROI is among the top ROIs of the class (and its importance positive)",
    "selection_frequency": "share of folds in which the ROI is among that fold's top ROIs",
}
NETWORK_COLUMNS = {
    "class": "class that the weights speak for",
    "network": "network",
    "n_rois": "ROIs of the network",
    "n_selected": "of these, selected for the class",
    "mean_importance": "mean importance over the network's ROIs",
    "mean_selection_frequency": "mean over the network's ROIs of the share of folds in which they are selected",
}


def select(weights: NDArray[np.floating], fraction: float) -> NDArray[np.bool_]:
    """Mark the ``ceil(fraction * R)`` largest of the last axis (..., R), positive ones only."""
    n = math.ceil(fraction * weights.shape[-1])
    top = np.argsort(-weights, axis=-1, kind="stable")[..., :n]
    marks = np.zeros(weights.shape, dtype=bool)
    np.put_along_axis(marks, top, True, axis=-1)
    return marks & (weights > 0)


def roi_weights(
    coefficients: NDArray[np.floating], rois: pd.DataFrame, classes: Sequence[str], fraction: float = 0.02
) -> pd.DataFrame:
    """Rank the ROIs of each class.

    Parameters
    ----------
    coefficients : float array (folds, classes, rois)
        From `bolt.explain.landmarks.landmark_regression`.
    rois : DataFrame
        ``value, name, network, hemisphere``, one row a ROI, in the order of the last axis.
    classes : sequence of str
    fraction : float
        Share of ROIs to select, rounded up.

    Returns
    -------
    DataFrame
        Columns of `ROI_COLUMNS`, sorted by class (in the given order) and rank.
    """
    if coefficients.shape[1:] != (len(classes), len(rois)):
        raise DataError(
            f"coefficients are for {coefficients.shape[1]} classes and {coefficients.shape[2]} ROIs, "
            f"but there are {len(classes)} classes and {len(rois)} ROIs",
            mend="Explain the run again with the cache that it was trained on",
        )
    mean = coefficients.mean(axis=0, dtype=float)
    spread = coefficients.std(axis=0, dtype=float)
    selected, frequency = select(mean, fraction), select(coefficients, fraction).mean(axis=0)
    tables = []
    for c, name in enumerate(classes):
        order = np.argsort(-mean[c], kind="stable")
        table = rois[["value", "name", "network", "hemisphere"]].reset_index(drop=True).iloc[order]
        tables.append(
            table.assign(
                **{
                    "class": name,
                    "rank": np.arange(1, len(rois) + 1),
                    "weight": mean[c, order],
                    "weight_sd": spread[c, order],
                    "importance": np.expm1(mean[c, order]),
                    "selected": selected[c, order],
                    "selection_frequency": frequency[c, order],
                }
            )
        )
    return pd.concat(tables, ignore_index=True)[list(ROI_COLUMNS)]


def network_summary(table: pd.DataFrame) -> pd.DataFrame:
    """Add up `roi_weights` by network; columns of `NETWORK_COLUMNS`."""
    groups = table.assign(network=table["network"].fillna("n/a")).groupby(["class", "network"], sort=True)
    summary = groups.agg(
        n_rois=("value", "size"),
        n_selected=("selected", "sum"),
        mean_importance=("importance", "mean"),
        mean_selection_frequency=("selection_frequency", "mean"),
    ).reset_index()
    return summary.sort_values(
        ["class", "n_selected", "mean_importance"], ascending=[True, False, False], ignore_index=True
    )


def paint(image: nib.Nifti1Image, values: NDArray[np.integer], numbers: NDArray[np.generic]) -> nib.Nifti1Image:
    """Give each ROI of a label image a number; voxels outside get zero.

    Parameters
    ----------
    image : label image (X, Y, Z)
    values : int array (n,)
        Label values.
    numbers : array (n,)
        What to write there; the result has its data type.
    """
    labels = np.asanyarray(image.dataobj).astype(np.int64)
    absent = np.setdiff1d(values, labels)
    if len(absent):
        raise DataError(
            f"the atlas's image has no voxel with the label value {absent[0]}",
            mend="The ROIs of the cache must come from the same atlas",
        )
    order = np.argsort(values)
    place = np.clip(np.searchsorted(values, labels, sorter=order), 0, len(values) - 1)
    nearest = order[place]
    painted = np.where(values[nearest] == labels, numbers[nearest], 0).astype(numbers.dtype)
    result = nib.Nifti1Image(painted, image.affine)
    result.header.set_xyzt_units("mm")
    for code, setter in (
        (image.header["sform_code"], result.set_sform),
        (image.header["qform_code"], result.set_qform),
    ):
        setter(image.affine, int(code) or 2)
    return result


def map_names(class_name: str) -> tuple[str, str]:
    """File names of a class's maps: signed weights, and selection."""
    plain = re.sub(r"[^A-Za-z0-9]", "", class_name)
    return f"class-{plain}_desc-weights_statmap.nii.gz", f"class-{plain}_desc-top_mask.nii.gz"


def write_regions(
    coefficients: Path,
    rois: pd.DataFrame,
    classes: Sequence[str],
    image: nib.Nifti1Image | None,
    out: Path,
    *,
    fraction: float,
    space: str = "",
) -> None:
    """Write ``roi_weights.tsv``, ``networks.tsv`` and, a class, two maps in the atlas's space.

    Parameters
    ----------
    coefficients : Path
        ``coefficients.npy`` of `bolt.explain.landmarks.write_landmarks`.
    rois, classes, fraction
        As in `roi_weights`.
    image : label image, optional
        ``load_atlas(...).image``; without it (ready series whose atlas has no image) no maps are written.
    out : Path
        Folder.
    space : str
        The atlas's space, for the maps' sidecars.
    """
    table = roi_weights(np.load(coefficients, allow_pickle=False), rois, classes, fraction)
    if image is not None:
        for name in classes:
            rows = table[table["class"] == name]
            values = rows["value"].to_numpy(int)
            signed, mask = map_names(name)
            _write_map(
                paint(image, values, rows["weight"].to_numpy(np.float32)), out / signed, space, "log odds per SD"
            )
            _write_map(paint(image, values, rows["selected"].to_numpy(np.uint8)), out / mask, space, "1: selected ROI")
    write_table(network_summary(table), out / "networks.tsv", NETWORK_COLUMNS)
    write_table(table, out / "roi_weights.tsv", ROI_COLUMNS)


def _write_map(image: nib.Nifti1Image, path: Path, space: str, units: str) -> None:
    with atomic(path) as temporary:
        nib.save(image, temporary)
    write_json({"Space": space, "Units": units}, path.with_name(path.name.replace(".nii.gz", ".json")))
