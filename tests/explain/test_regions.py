"""From regression weights to brain maps."""

from __future__ import annotations

from pathlib import Path

import nibabel as nib
import numpy as np
import pandas as pd
import pytest

from bolt.errors import DataError
from bolt.explain.regions import map_names, network_summary, paint, roi_weights, select, write_regions
from bolt.files import read_json, read_table

CLASSES = ["control", "patient"]
ROIS = pd.DataFrame(
    {
        "value": [30, 10, 20, 2001],  # neither sorted nor consecutive
        "name": ["a", "b", "c", "d"],
        "network": ["visual", "visual", "default", "default"],
        "hemisphere": ["L", "R", "L", "R"],
    }
)
POSITIVE = np.array([[0.0, 2.0, -1.0, 0.1], [0.0, 1.0, -3.0, 1.5]])
COEFFICIENTS = np.stack([-POSITIVE, POSITIVE], axis=1)


def label_image() -> nib.Nifti1Image:
    data = np.zeros((4, 4, 4), dtype=np.int16)
    data[0, 0, 0], data[1, 1, 1], data[2, 2, :2], data[3, 3, 3] = 10, 20, 30, 2001
    return nib.Nifti1Image(data, np.diag([2.0, 2.0, 2.0, 1.0]))


def test_top_share_is_rounded_up_and_positive_only() -> None:
    assert select(np.arange(400.0) + 1, 0.02).sum() == 8
    assert select(np.arange(116.0) + 1, 0.02).sum() == 3
    assert select(np.array([1.0, 2.0]), 0.02).tolist() == [False, True]
    assert not select(-np.ones(10), 0.5).any()


def test_weights_by_hand_and_binary_maps_mirror_each_other() -> None:
    table = roi_weights(COEFFICIENTS, ROIS, CLASSES, fraction=0.25)
    patient = table[table["class"] == "patient"].set_index("name")
    assert patient["weight"].to_dict() == {"b": 1.5, "d": 0.8, "a": 0.0, "c": -2.0}
    assert patient.loc["b", "importance"] == pytest.approx(np.exp(1.5) - 1)
    assert patient.loc["b", "weight_sd"] == pytest.approx(0.5)
    assert patient["rank"].tolist() == [1, 2, 3, 4] and patient.index[patient["selected"]].tolist() == ["b"]
    # b leads in the first fold only, d in the second
    assert patient.loc["b", "selection_frequency"] == 0.5 and patient.loc["d", "selection_frequency"] == 0.5
    control = table[table["class"] == "control"].set_index("name")
    assert control.loc["c", "importance"] == pytest.approx(np.exp(2.0) - 1) and control.loc["c", "selected"]
    pd.testing.assert_series_equal(control["weight"].sort_index(), -patient["weight"].sort_index())


def test_network_summary_adds_up() -> None:
    summary = network_summary(roi_weights(COEFFICIENTS, ROIS, CLASSES, fraction=0.5))
    patient = summary[summary["class"] == "patient"].set_index("network")
    assert patient["n_rois"].to_dict() == {"visual": 2, "default": 2}
    assert patient["n_selected"].sum() == 2
    assert patient.loc["visual", "mean_importance"] == pytest.approx((np.expm1(1.5) + 0) / 2)


def test_painting_goes_by_value_not_by_position() -> None:
    image = paint(label_image(), ROIS["value"].to_numpy(), np.array([3.0, 1.0, 2.0, 4.0], dtype=np.float32))
    data = image.get_fdata()
    assert [data[0, 0, 0], data[1, 1, 1], data[2, 2, 1], data[3, 3, 3]] == [1, 2, 3, 4]
    assert (data != 0).sum() == 5
    with pytest.raises(DataError, match="77"):
        paint(label_image(), np.array([10, 77]), np.ones(2))


def test_files(tmp_path: Path) -> None:
    np.save(tmp_path / "coefficients.npy", COEFFICIENTS)
    out = tmp_path / "out"
    write_regions(tmp_path / "coefficients.npy", ROIS, CLASSES, label_image(), out, fraction=0.25, space="MNI152")
    signed, mask = (nib.load(out / name) for name in map_names("patient"))
    assert signed.get_fdata()[1, 1, 1] == pytest.approx(-2.0)
    np.testing.assert_array_equal(signed.affine, label_image().affine)
    assert np.argwhere(mask.get_fdata()).tolist() == [[0, 0, 0]]
    assert read_json(out / "class-patient_desc-weights_statmap.json")["Space"] == "MNI152"
    assert len(read_table(out / "roi_weights.tsv")) == 8
    assert len(read_table(out / "networks.tsv")) == 4


def test_without_an_image_there_are_tables_only(tmp_path: Path) -> None:
    np.save(tmp_path / "coefficients.npy", COEFFICIENTS)
    write_regions(tmp_path / "coefficients.npy", ROIS, CLASSES, None, tmp_path / "out", fraction=0.25)
    assert not list((tmp_path / "out").glob("*.nii.gz"))


def test_coefficients_of_another_atlas_are_refused() -> None:
    with pytest.raises(DataError, match="4 ROIs"):
        roi_weights(COEFFICIENTS, ROIS.iloc[:3], CLASSES)
