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
from typing import Literal, NamedTuple

import nibabel as nib
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bolt.atlases.maps import strongest
from bolt.explain.weights import CONTROL_WEIGHTS, MAPS, SIGN_CONTROLS, UNBIASED, map_names, paint, write_map
from bolt.io.errors import DataError
from bolt.io.files import holds_something, write_table

OddsRatio = Literal["symmetric", "published"]
ROI_COLUMNS = {
    "class": "class for which a positive weight is evidence",
    "rank": "1 is the most important ROI of the class",
    "value": "label value of the ROI in the atlas's image",
    "name": "ROI",
    "network": "network of the ROI",
    "hemisphere": "hemisphere of the ROI",
    "weight": "mean over folds of the regression weight, log odds per standard deviation of the ROI",
    "weight_sd": "standard deviation over folds (ddof 0)",
    **{column: f"mean weight in the regressions on other volumes: {name}" for name, column in CONTROL_WEIGHTS.items()},
    "sign_agrees": "whether those of random volumes and of the fixed class have the sign of weight; for the wrong "
    "class the opposite sign is expected",
    "importance": "odds ratio minus one: exp(weight) - 1; with `odds_ratio: published`, the mean over folds of "
    "exp(w) - 1, or for the first of two classes of 1 - exp(-w), where w is the fold's weight",
    "selected": "whether the ROI is among the top ROIs of the class (and its importance positive; with `odds_ratio: "
    "published`, whether its importance exceeds the percentile)",
    "selection_frequency": "share of folds in which the ROI is among that fold's top ROIs",
    "n_folds": "number of folds",
}
NETWORK_COLUMNS = {
    "class": "class for which positive weights are evidence",
    "network": "network",
    "n_rois": "ROIs of the network",
    "n_selected": "number of them that are selected for the class",
    "mean_importance": "mean importance over the network's ROIs",
    "importance_sd": "standard deviation over folds of the network's mean importance in each fold (ddof 0)",
    "mean_selection_frequency": "mean over the network's ROIs of the share of folds in which they are selected; equal "
    "to the mean over folds of the share of selected ROIs",
    "selection_sd": "standard deviation over folds of the share of the network's ROIs that are selected (ddof 0)",
    "n_folds": "number of folds",
}


def select(weights: NDArray[np.floating], fraction: float) -> NDArray[np.bool_]:
    """Mark the ``ceil(fraction * R)`` largest of the last axis (..., R), positive ones only."""
    n = math.ceil(fraction * weights.shape[-1])
    top = np.argsort(-weights, axis=-1, kind="stable")[..., :n]
    marks = np.zeros(weights.shape, dtype=bool)
    np.put_along_axis(marks, top, True, axis=-1)
    return marks & (weights > 0)


def importance(weights: NDArray[np.floating], odds_ratio: OddsRatio = "symmetric") -> NDArray[np.floating]:
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


class Ranking(NamedTuple):
    """Importance of ROIs over folds, and the ROIs that are selected by it."""

    importance: NDArray[np.floating]  # (classes, rois)
    order: NDArray[np.integer]  # (classes, rois), most important first
    selected: NDArray[np.bool_]  # (classes, rois)
    fold_importance: NDArray[np.floating]  # (folds, classes, rois)
    fold_selected: NDArray[np.bool_]  # (folds, classes, rois)


def ranking(coefficients: NDArray[np.floating], fraction: float, odds_ratio: OddsRatio) -> Ranking:
    """Rank the ROIs of each class over folds.

    ``symmetric`` takes the odds ratio of the mean weight, and selects by `select`. ``published`` takes the mean of the
    folds' odds ratios, and selects what exceeds their percentile, as the published code does.

    Parameters
    ----------
    coefficients : float array (folds, classes, rois)
    fraction : float
        Share of ROIs to select.
    odds_ratio : {"symmetric", "published"}
        See `importance`.
    """
    of_folds = importance(coefficients.astype(float), odds_ratio)
    if odds_ratio == "published":
        whole = ranked_by = of_folds.mean(axis=0)
        selected, fold_selected = _above_percentile(whole, fraction), _above_percentile(of_folds, fraction)
    else:
        ranked_by = coefficients.mean(axis=0, dtype=float)
        whole = importance(ranked_by)
        selected, fold_selected = select(ranked_by, fraction), select(coefficients, fraction)
    return Ranking(whole, np.argsort(-ranked_by, axis=-1, kind="stable"), selected, of_folds, fold_selected)


def _above_percentile(values: NDArray[np.floating], fraction: float) -> NDArray[np.bool_]:
    """Mark the values of the last axis that exceed its percentile, whatever their sign."""
    marks: NDArray[np.bool_] = values > np.percentile(values, 100 * (1 - fraction), axis=-1, keepdims=True)
    return marks


def roi_weights(
    coefficients: NDArray[np.floating],
    rois: pd.DataFrame,
    classes: Sequence[str],
    fraction: float = 0.02,
    odds_ratio: OddsRatio = "symmetric",
    controls: NDArray[np.floating] | None = None,
) -> pd.DataFrame:
    """Rank the ROIs of each class.

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
        See `ranking`.
    controls : float array (controls, folds, classes, rois), optional
        Coefficients of the regressions on other volumes, in the order of `bolt.explain.weights.SIGN_CONTROLS`.

    Returns
    -------
    DataFrame
        Columns of `ROI_COLUMNS`, sorted by class (in the given order) and rank.
    """
    if coefficients.shape[1:] != (len(classes), len(rois)):
        raise DataError(
            f"coefficients are for {coefficients.shape[1]} classes and {coefficients.shape[2]} ROIs, "
            f"but there are {len(classes)} classes and {len(rois)} ROIs",
            hint="Explain the run again with the cache it was trained on",
        )
    if controls is not None and controls.shape != (len(SIGN_CONTROLS), *coefficients.shape):
        raise DataError(
            f"coefficients of controls have shape {controls.shape}, those of important volumes {coefficients.shape}",
            hint="Delete the file and run again",
        )
    mean = coefficients.mean(axis=0, dtype=float)
    spread = coefficients.std(axis=0, dtype=float)
    ranked = ranking(coefficients, fraction, odds_ratio)
    others = np.full((len(SIGN_CONTROLS), *mean.shape), np.nan)
    if controls is not None:
        others = controls.mean(axis=1, dtype=float)
    unbiased = [SIGN_CONTROLS.index(name) for name in UNBIASED]
    agrees = (np.sign(others[unbiased]) == np.sign(mean)).all(axis=0)
    frequency = ranked.fold_selected.mean(axis=0)
    tables = []
    for c, name in enumerate(classes):
        order = ranked.order[c]
        table = rois[["value", "name", "network", "hemisphere"]].reset_index(drop=True).iloc[order]
        tables.append(
            table.assign(
                **{
                    "class": name,
                    "rank": np.arange(1, len(rois) + 1),
                    "weight": mean[c, order],
                    "weight_sd": spread[c, order],
                    **dict(zip(CONTROL_WEIGHTS.values(), others[:, c, order], strict=True)),
                    "sign_agrees": agrees[c, order],
                    "importance": ranked.importance[c, order],
                    "selected": ranked.selected[c, order],
                    "selection_frequency": frequency[c, order],
                    "n_folds": len(coefficients),
                }
            )
        )
    return pd.concat(tables, ignore_index=True)[list(ROI_COLUMNS)]


def network_summary(
    coefficients: NDArray[np.floating],
    rois: pd.DataFrame,
    classes: Sequence[str],
    fraction: float = 0.02,
    odds_ratio: OddsRatio = "symmetric",
) -> pd.DataFrame:
    """Summarise the ROIs of each network; parameters as in `roi_weights`, columns of `NETWORK_COLUMNS`."""
    important, _, selected, fold_important, fold_selected = ranking(coefficients, fraction, odds_ratio)
    networks = rois["network"].fillna("n/a").to_numpy()
    rows = []
    for network in sorted(set(networks)):
        members = np.flatnonzero(networks == network)
        for c, name in enumerate(classes):
            rows.append(
                {
                    "class": name,
                    "network": network,
                    "n_rois": len(members),
                    "n_selected": selected[c, members].sum(),
                    "mean_importance": important[c, members].mean(),
                    "importance_sd": fold_important[:, c, members].mean(axis=-1).std(),
                    "mean_selection_frequency": fold_selected[:, c, members].mean(),
                    "selection_sd": fold_selected[:, c, members].mean(axis=-1).std(),
                    "n_folds": len(coefficients),
                }
            )
    summary = pd.DataFrame(rows, columns=list(NETWORK_COLUMNS))
    return summary.sort_values(
        ["class", "n_selected", "mean_importance", "network"], ascending=[True, False, False, True], ignore_index=True
    )


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
        As in `roi_weights`.
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
        The controls are missing; or as `roi_weights`.
    """
    weights, controls = np.load(coefficients, allow_pickle=False), coefficients.with_name("coefficients_controls.npy")
    if not holds_something(controls):
        what = "file not found: regressions on control volumes, with which the sign of weights is compared"
        raise DataError(what, where=controls, hint="Delete the coefficients.npy beside it and run again")
    table = roi_weights(weights, rois, classes, fraction, odds_ratio, np.load(controls, allow_pickle=False))
    names = map_names(classes, atlas, space)
    labels = image if image is None or len(image.shape) == 3 else strongest(image)
    for column, (ending, _) in MAPS.items():
        for path in sorted([*out.glob(f"*_{ending}.nii.gz"), *out.glob(f"*_{ending}.json")]):
            path.unlink()
        if image is None or labels is None:
            continue
        for name, files in zip(classes, names, strict=True):
            rows = table[table["class"] == name]
            numbers = rows[column].to_numpy(np.uint8 if column == "selected" else np.float32)
            about = {"Space": space, "Atlas": atlas, "Class": name, "Folds": len(weights)}
            about = {"Description": ROI_COLUMNS[column], "Units": MAPS[column][1], **about}
            canvas = labels if column == "selected" else image  # a mask cannot be a sum of maps
            write_map(paint(canvas, rows["value"].to_numpy(int), numbers), out / files[column], about)
    networks = network_summary(weights, rois, classes, fraction, odds_ratio)
    write_table(networks, out / "networks.tsv", NETWORK_COLUMNS)
    write_table(table, out / "roi_weights.tsv", ROI_COLUMNS)
