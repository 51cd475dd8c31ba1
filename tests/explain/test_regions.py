"""From regression weights to brain maps."""

import re

import nibabel as nib
import numpy as np
import pandas as pd
import pytest

from bolt.explain.regions import region_tables, select, write_regions
from bolt.explain.weights import map_names, paint
from bolt.io.errors import DataError
from bolt.io.files import read_json, read_table

CLASSES = ["control", "patient"]
ROIS = pd.DataFrame({"value": [30, 10, 20, 2001], "name": list("abcd")})  # neither sorted nor consecutive
ROIS = ROIS.assign(network=["visual", "visual", "default", "default"], hemisphere=["L", "R", "L", "R"])
POSITIVE = np.array([[0.0, 2.0, -1.0, 0.1], [0.0, 1.0, -3.0, 1.5]])
COEFFICIENTS = np.stack([-POSITIVE, POSITIVE], axis=1)
CONTROL_COEFFICIENTS = np.stack([0.1 * COEFFICIENTS, -COEFFICIENTS, 0.5 * COEFFICIENTS + 0.45])
"""Of random volumes (the same signs), of the wrong class (opposite signs), and of a fixed class."""


AFFINE = np.diag([2.0, 2.0, 2.0, 1.0])


def label_image(affine=AFFINE):
    data = np.zeros((4, 4, 4), dtype=np.int16)
    data[0, 0, 0], data[1, 1, 1], data[2, 2, :2], data[3, 3, 3] = 10, 20, 30, 2001
    return nib.Nifti1Image(data, affine)


def test_top_share_is_rounded_up_and_positive_only():
    assert select(np.arange(400.0) + 1, 0.02).sum() == 8
    assert select(np.arange(116.0) + 1, 0.02).sum() == 3
    assert select(np.arange(100.0) + 1, 0.07).sum() == 7
    assert select(np.array([1.0, 2.0]), 0.02).tolist() == [False, True]
    assert not select(-np.ones(10), 0.5).any()
    for table, marks in zip(region_tables(COEFFICIENTS, ROIS, CLASSES), ("selected", "n_selected"), strict=True):
        assert table.groupby("class")[marks].sum().tolist() == [1, 1]  # 2 % unless said otherwise


def test_weights_by_hand_and_binary_maps_mirror_each_other():
    table, _ = region_tables(COEFFICIENTS, ROIS, CLASSES, fraction=0.25)
    patient, control = (table[table["class"] == name].set_index("name") for name in ("patient", "control"))
    assert patient["weight"].to_dict() == {"b": 1.5, "d": 0.8, "a": 0.0, "c": -2.0}
    assert patient.loc["b", "importance"] == pytest.approx(np.exp(1.5) - 1)
    assert patient.loc["b", "weight_sd"] == pytest.approx(0.5)
    assert patient["rank"].tolist() == [1, 2, 3, 4] and patient.index[patient["selected"]].tolist() == ["b"]
    # b leads in the first fold only, d in the second
    assert patient["selection_frequency"].to_dict() == {"b": 0.5, "d": 0.5, "a": 0, "c": 0}
    assert control.loc["c", "importance"] == pytest.approx(np.exp(2.0) - 1) and control.loc["c", "selected"]
    pd.testing.assert_series_equal(control["weight"].sort_index(), -patient["weight"].sort_index())
    other = region_tables(COEFFICIENTS[:, ::-1], ROIS, CLASSES, fraction=0.25)[0].set_index(["class", "name"])
    for name, exchanged in (("patient", control), ("control", patient)):  # classes exchanged exchange their maps
        pd.testing.assert_frame_equal(other.loc[name], exchanged.drop(columns="class"))


@pytest.mark.parametrize("way", ["symmetric", "published"])
def test_networks_by_hand_in_both_kinds_of_odds_ratios(way):
    """Network "default" has the ROIs c and d, whose patient weights are -1, 0.1 and -3, 1.5 in the two folds."""
    patient = np.expm1([[-1, 0.1], [-3, 1.5]])
    control = np.expm1([[1, -0.1], [3, -1.5]]) if way == "symmetric" else -patient
    table = region_tables(COEFFICIENTS, ROIS, CLASSES, 0.25, way)[1].set_index(["class", "network"])
    assert (table["n_rois"] == 2).all() and (table["n_folds"] == 2).all()
    # of b and a, b is selected in the first fold (its weights are 2 and 1, those of d 0.1 and 1.5)
    row = table.loc[("patient", "visual")]
    assert row[["n_selected", "mean_selection_frequency", "selection_sd"]].tolist() == [1, 0.25, 0.25]
    for name, folds in (("patient", patient), ("control", control)):
        assert table.at[(name, "default"), "importance_sd"] == pytest.approx(folds.mean(axis=1).std())
    # means of the weights -(-1), -(-3) and -0.1, -1.5
    expected = np.expm1([2.0, -0.8]) if way == "symmetric" else control.mean(axis=0)
    assert table.at[("control", "default"), "mean_importance"] == pytest.approx(expected.mean())


def published_maps(folds, percent):
    """Importance and selection as the published code computes them, from the coefficients that scikit-learn returns."""
    of_folds = []
    for coefficients in folds:
        if len(coefficients) == 1:  # scikit-learn has one row for two classes
            odds = np.exp(coefficients[0])
            of_folds.append([1 - odds, odds - 1])
        else:
            of_folds.append([np.exp(row) - 1 for row in coefficients])
    mean = np.array(of_folds).mean(axis=0)
    return mean, np.stack([row > np.percentile(row, 100 - percent) for row in mean])


@pytest.mark.parametrize(("n_classes", "n_rois"), [(2, 400), (2, 116), (2, 51), (7, 60)])
def test_published_odds_ratios_are_averaged_over_folds_and_cut_at_the_percentile(n_classes, n_rois):
    """On noisy folds, in which the two conventions select different ROIs."""
    random = np.random.default_rng(n_rois)
    shape = 1 if n_classes == 2 else 7, n_rois
    folds = [0.1 * random.standard_normal(shape) * random.uniform(0.5, 8, n_rois) for _ in range(5)]
    expected, chosen = published_maps(folds, 2)
    ours = np.array([np.concatenate([-w, w]) if n_classes == 2 else w for w in folds])
    rois = pd.DataFrame({"value": range(n_rois), "name": "r", "network": "n", "hemisphere": "L"})
    names = [f"c{i}" for i in range(n_classes)]
    table, symmetric = (
        region_tables(ours, rois, names, 0.02, way)[0].sort_values(["class", "value"], ignore_index=True)
        for way in ("published", "symmetric")
    )
    np.testing.assert_allclose(table["importance"], expected.ravel(), rtol=1e-12)
    np.testing.assert_array_equal(table["selected"], chosen.ravel())
    np.testing.assert_array_equal(table["rank"], np.argsort(np.argsort(-expected)).ravel() + 1)
    frequency = np.mean([published_maps([w], 2)[1] for w in folds], axis=0)
    np.testing.assert_allclose(table["selection_frequency"], frequency.ravel())
    assert (symmetric["selected"] != table["selected"]).any()  # so nothing may claim that both select the same ROIs


def test_painting_goes_by_value_at_the_same_millimetres_whatever_way_the_voxels_run():
    affine = np.diag([-2.0, 2, 2, 1])
    affine[:3, 3] = [6, 0, 0]
    painted = paint(label_image(affine), ROIS["value"].to_numpy(), np.array([3.0, 1.0, 2.0, 4.0], dtype=np.float32))
    data = painted.get_fdata()
    assert [data[0, 0, 0], data[1, 1, 1], data[2, 2, 1], data[3, 3, 3]] == [1, 2, 3, 4]
    assert (data != 0).sum() == 5 and np.array_equal(painted.affine, affine)
    with pytest.raises(DataError, match="77"):
        paint(label_image(), np.array([10, 77]), np.ones(2))


def write_maps(folder, image, atlas="made"):
    np.save(folder / "coefficients.npy", COEFFICIENTS)
    of = {"fraction": 0.25, "atlas": atlas, "space": "MNI152"}
    write_regions(folder / "coefficients.npy", ROIS, CLASSES, image, folder / "out", **of)


def test_maps_hold_what_the_table_says_and_are_named_as_derivatives(tmp_path):
    """The atlas's values are not consecutive; every voxel of every ROI has the table's number, all others zero."""
    with pytest.raises(DataError, match="regressions on control volumes"):
        write_maps(tmp_path, None)
    np.save(tmp_path / "coefficients_controls.npy", CONTROL_COEFFICIENTS)
    write_maps(tmp_path, None)
    assert not list((tmp_path / "out").glob("*.nii.gz"))  # without an image there are tables only
    write_maps(tmp_path, label_image(), atlas="elsewhere")
    write_maps(tmp_path, label_image())  # the maps of an earlier call are gone
    table, labels, out = read_table(tmp_path / "out/roi_weights.tsv"), label_image().get_fdata(), tmp_path / "out"
    files = map_names(CLASSES, "made", "MNI152")
    assert sorted(p.name for p in out.glob("*.nii.gz")) == sorted(name for of in files for name in of.values())
    for name, of_class in zip(CLASSES, files, strict=True):
        for column, file in of_class.items():
            data = nib.load(out / file).get_fdata()
            for row in table[table["class"] == name].to_dict("records"):
                assert data[labels == row["value"]] == pytest.approx(float(row[column]))
            assert (data[labels == 0] == 0).all()
    assert table.loc[(table["class"] == "patient") & table["selected"], "value"].tolist() == [10]
    np.testing.assert_array_equal(nib.load(out / file).affine, label_image().affine)
    about = read_json(out / "space-MNI152_atlas-made_class-patient_stat-oddsratio_statmap.json")
    assert about["Space"] == "MNI152" and about["Folds"] == 2 and "odds ratio" in about["Description"]
    assert len(read_table(out / "networks.tsv")) == 4


def test_no_two_classes_share_maps():
    """Names may differ in signs, case or script alone."""
    classes = ["-1", "1", "a_b", "ab", "AB", "健康", "患者", "1x1", "6"]
    names = [files["weight"] for files in map_names(classes)]
    assert len({name.casefold() for name in names}) == len(classes)
    assert all(re.fullmatch(r"class-[A-Za-z0-9]+_stat-logodds_statmap\.nii\.gz", name) for name in names)
    assert map_names(["patient", *classes])[0]["weight"] == "class-patient_stat-logodds_statmap.nii.gz"
    assert map_names(["task two"])[0]["selected"] == "class-tasktwo_desc-top_mask.nii.gz"


def test_signs_are_compared_with_those_of_controls():
    """Patient weights: a 0, b 1.5, c -2, d 0.8; with the fixed class 0.45 more than half of them."""
    table, _ = region_tables(COEFFICIENTS, ROIS, CLASSES, controls=CONTROL_COEFFICIENTS)
    patient = table.set_index(["class", "name"]).loc["patient"].astype({"sign_agrees": bool})
    assert patient["weight_random"].to_dict() == pytest.approx({"b": 0.15, "d": 0.08, "a": 0.0, "c": -0.2})
    assert patient["weight_wrong_class"].to_dict() == pytest.approx({"b": -1.5, "d": -0.8, "a": 0.0, "c": 2.0})
    assert patient["weight_fixed_class"].to_dict() == pytest.approx({"b": 1.2, "d": 0.85, "a": 0.45, "c": -0.55})
    assert patient["sign_agrees"].to_dict() == {"b": True, "d": True, "a": False, "c": True}  # whatever the wrong class
    turned = CONTROL_COEFFICIENTS * np.array([1, 1, -1])[:, None, None, None]
    table, _ = region_tables(COEFFICIENTS, ROIS, CLASSES, controls=turned)
    assert not table.query("name != 'a'")["sign_agrees"].all()
    assert not region_tables(COEFFICIENTS, ROIS, CLASSES)[0]["sign_agrees"].any()  # without controls, none is known to


def test_coefficients_that_do_not_fit_are_refused():
    with pytest.raises(DataError, match="4 ROIs"):
        region_tables(COEFFICIENTS, ROIS.iloc[:3], CLASSES)
    with pytest.raises(DataError, match="coefficients of controls"):
        region_tables(COEFFICIENTS, ROIS, CLASSES, controls=CONTROL_COEFFICIENTS[:, :1])
