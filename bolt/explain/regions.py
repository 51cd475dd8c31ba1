"""Regions that drive predictions: from weights of the landmark regressions to brain maps.

Coefficients of the landmark regressions are averaged over folds: ``w[c, r]``, log odds of class ``c`` per standard
deviation of ROI ``r``. The importance of an ROI for a class is its odds ratio minus one, ``exp(w[c, r]) - 1``. With two
classes ``w[0] = -w[1]``, so exchanging the classes exchanges their maps. The paper's published code uses
``1 - exp(w[1, r])`` for the first class, which never exceeds one, and averages these numbers, not the weights, over
folds: ``odds_ratio="published"``. Folds with large weights count more then, so the two may rank ROIs differently. The
ROIs with the largest importance (by default the top 2 %) are drawn for each class.

Landmarks are chosen by the predicted class, so the sign of a weight may only repeat the prediction. It is therefore
compared with the sign in the regressions on other volumes (`bolt.explain.weights.SIGN_CONTROLS`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import nibabel as nib
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bolt.atlases.labels import strongest
from bolt.explain.weights import CONTROL_WEIGHTS, MAPS, SIGN_CONTROLS, UNBIASED, map_names, paint, write_map
from bolt.io.errors import DataError
from bolt.io.files import columns, holds_something, write_table

Array = NDArray[np.floating]
OddsRatio = Literal["symmetric", "published"]
ROI_COLUMNS = columns("explain", "roi_weights")
NETWORK_COLUMNS = columns("explain", "networks")


def select(weights: Array, fraction: float) -> NDArray[np.bool_]:
    """Mark the ``ceil(fraction * R)`` largest of the last axis (..., R), positive ones only."""
    n = math.ceil(round(fraction * weights.shape[-1], 9))  # 0.07 * 100 is 7.000000000000001
    top = np.argsort(-weights, axis=-1, kind="stable")[..., :n]
    marks = np.zeros(weights.shape, dtype=bool)
    np.put_along_axis(marks, top, True, axis=-1)
    return marks & (weights > 0)


def importance(weights: Array, odds_ratio: OddsRatio = "symmetric") -> Array:
    """Return odds ratios minus one.

    Parameters
    ----------
    weights : float array (..., classes, rois)
        Log odds per standard deviation; of two classes, the first row is the negated second one.
    odds_ratio : {"symmetric", "published"}
        ``exp(w) - 1`` for every class; or, for the first of two, ``1 - exp(w)`` with the weights of the second, as in
        the code published with the paper (doi:10.1016/j.media.2023.102841).

    Returns
    -------
    float array (..., classes, rois)
    """
    values = np.expm1(weights)
    if odds_ratio == "published" and weights.shape[-2] == 2:
        values[..., 0, :] = -values[..., 1, :]
    return values


def region_tables(
    coefficients: Array,
    rois: pd.DataFrame,
    classes: Sequence[str],
    fraction: float = 0.02,
    odds_ratio: OddsRatio = "symmetric",
    controls: Array | None = None,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rank the ROIs of each class over folds, and summarise those of each network.

    ``symmetric`` takes the odds ratio of the mean weight, and selects by `select`. ``published`` takes the mean of the
    folds' odds ratios, and selects what exceeds their percentile, as the published code does.

    Parameters
    ----------
    coefficients : float array (folds, classes, rois)
        From `bolt.explain.landmarks.landmark_regression`.
    rois : DataFrame
        ``value, name, network, hemisphere``, one row per ROI, in the order of the last axis.
    classes : sequence of str
    fraction : float
        Share of ROIs to select, rounded up.
    odds_ratio : {"symmetric", "published"}
        See `importance`.
    controls : float array (controls, folds, classes, rois), optional
        Coefficients of the regressions on other volumes, in the order of `bolt.explain.weights.SIGN_CONTROLS`.

    Returns
    -------
    rois : DataFrame
        Columns of `ROI_COLUMNS`, sorted by class (in the given order) and rank.
    networks : DataFrame
        Columns of `NETWORK_COLUMNS`.
    """
    if coefficients.shape[1:] != (len(classes), len(rois)):
        what = "coefficients are for {1} classes and {2} ROIs, ".format(*coefficients.shape)
        what += f"but there are {len(classes)} classes and {len(rois)} ROIs"
        raise DataError(what, hint="Explain the run again with the cache it was trained on")
    mean, spread = coefficients.mean(axis=0, dtype=float), coefficients.std(axis=0, dtype=float)
    others = np.full((len(SIGN_CONTROLS), *mean.shape), np.nan)
    if controls is not None:
        if controls.shape != (len(SIGN_CONTROLS), *coefficients.shape):
            shapes = f"shape {controls.shape}, those of important volumes {coefficients.shape}"
            raise DataError(f"coefficients of controls have {shapes}", hint="Delete the file and run again")
        others = controls.mean(axis=1, dtype=float)
    unbiased = [SIGN_CONTROLS.index(name) for name in UNBIASED]
    agrees = (np.sign(others[unbiased]) == np.sign(mean)).all(axis=0)
    of_folds = importance(coefficients.astype(float), odds_ratio)
    if odds_ratio == "published":
        ranked_by = whole = of_folds.mean(axis=0)
        selected, fold_selected = (
            values > np.percentile(values, 100 * (1 - fraction), axis=-1, keepdims=True) for values in (whole, of_folds)
        )
    else:
        ranked_by, whole = mean, importance(mean)
        selected, fold_selected = select(mean, fraction), select(coefficients, fraction)
    networks = rois["network"].fillna("n/a").to_numpy()
    tables, rows = [], []
    for c, name in enumerate(classes):
        order = np.argsort(-ranked_by[c], kind="stable")
        numbers = {
            "class": name,
            "rank": np.arange(1, len(rois) + 1),
            "weight": mean[c, order],
            "weight_sd": spread[c, order],
            **dict(zip(CONTROL_WEIGHTS.values(), others[:, c, order], strict=True)),
            "sign_agrees": agrees[c, order],
            "importance": whole[c, order],
            "selected": selected[c, order],
            "selection_frequency": fold_selected[:, c, order].mean(axis=0),
            "n_folds": len(coefficients),
        }
        tables.append(rois[["value", "name", "network", "hemisphere"]].iloc[order].assign(**numbers))
        for network in sorted(set(networks)):
            members = np.flatnonzero(networks == network)
            row = {"class": name, "network": network, "n_rois": len(members), "n_folds": len(coefficients)}
            row |= {"n_selected": selected[c, members].sum(), "mean_importance": whole[c, members].mean()}
            row["importance_sd"] = of_folds[:, c, members].mean(axis=-1).std()
            row["mean_selection_frequency"] = fold_selected[:, c, members].mean()
            row["selection_sd"] = fold_selected[:, c, members].mean(axis=-1).std()
            rows.append(row)
    by, ascending = ["class", "n_selected", "mean_importance", "network"], [True, False, False, True]
    summary = pd.DataFrame(rows, columns=list(NETWORK_COLUMNS)).sort_values(by, ascending=ascending, ignore_index=True)
    return pd.concat(tables, ignore_index=True)[list(ROI_COLUMNS)], summary


def write_regions(
    coefficients: Path,
    rois: pd.DataFrame,
    classes: Sequence[str],
    image: nib.Nifti1Image | None,
    out: Path,
    *,
    fraction: float,
    odds_ratio: OddsRatio = "symmetric",
    atlas: str = "",
    space: str = "",
) -> None:
    """Write ``roi_weights.tsv``, ``networks.tsv`` and, for each class, three maps in the atlas's space.

    Parameters
    ----------
    coefficients : Path
        ``coefficients.npy`` of `bolt.explain.landmarks.write_landmarks`, with ``coefficients_controls.npy`` beside it.
    rois, classes, fraction, odds_ratio
        As in `region_tables`.
    image : label image or maps, optional
        ``load_atlas(...).image``; of maps, numbers become weighted sums, and the selected ROIs the voxels in which
        their maps are the strongest. Without it (ready series of an atlas without an image) no maps are written.
    out : Path
        Folder. Maps of an earlier call are removed.
    atlas, space : str
        The atlas's name and space, for the file names of the maps and their sidecars.

    Raises
    ------
    DataError
        The controls are missing; or as `region_tables`.
    """
    weights, controls = np.load(coefficients, allow_pickle=False), coefficients.with_name("coefficients_controls.npy")
    if not holds_something(controls):
        what = "file not found: regressions on control volumes, with which the sign of weights is compared"
        raise DataError(what, where=controls, hint="Delete the coefficients.npy beside it and run again")
    of_controls = np.load(controls, allow_pickle=False)
    table, networks = region_tables(weights, rois, classes, fraction, odds_ratio, of_controls)
    for column, (ending, units) in MAPS.items():
        for path in sorted([*out.glob(f"*_{ending}.nii.gz"), *out.glob(f"*_{ending}.json")]):
            path.unlink()
        if image is None:
            continue
        as_mask = column == "selected"  # which cannot be a sum of maps
        canvas = strongest(image) if as_mask and len(image.shape) == 4 else image
        for name, files in zip(classes, map_names(classes, atlas, space), strict=True):
            rows = table[table["class"] == name]
            numbers = rows[column].to_numpy(np.uint8 if as_mask else np.float32)
            about = {"Description": ROI_COLUMNS[column], "Units": units, "Space": space, "Atlas": atlas}
            painted = paint(canvas, rows["value"].to_numpy(int), numbers)
            write_map(painted, out / files[column], about | {"Class": name, "Folds": len(weights)})
    write_table(networks, out / "networks.tsv", NETWORK_COLUMNS)
    write_table(table, out / "roi_weights.tsv", ROI_COLUMNS)
