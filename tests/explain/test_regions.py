"""From regression weights to brain maps."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pandas as pd
import pytest

from bolt.explain.regions import importance, network_summary, roi_weights, select, write_regions
from bolt.explain.weights import map_names, paint
from bolt.io.errors import DataError
from bolt.io.files import read_json, read_table

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
CONTROL_COEFFICIENTS = np.stack([0.1 * COEFFICIENTS, -COEFFICIENTS, 0.5 * COEFFICIENTS + 0.45])
"""Of random volumes (the same signs), of the wrong class (opposite signs), and of a fixed class."""


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
    summary = network_summary(COEFFICIENTS, ROIS, CLASSES, fraction=0.5)
    patient = summary[summary["class"] == "patient"].set_index("network")
    assert patient["n_rois"].to_dict() == {"visual": 2, "default": 2}
    assert patient["n_selected"].sum() == 2
    assert patient.loc["visual", "mean_importance"] == pytest.approx((np.expm1(1.5) + 0) / 2)
    of_folds = np.expm1(POSITIVE[:, :2]).mean(axis=1)
    assert patient.loc["visual", "importance_sd"] == pytest.approx(of_folds.std())
    # b in both folds, a in neither: half of the network, each time
    assert patient.loc["visual", "mean_selection_frequency"] == 0.5 and patient.loc["visual", "selection_sd"] == 0
    assert (summary["n_folds"] == 2).all()


def test_painting_goes_by_value_not_by_position() -> None:
    image = paint(label_image(), ROIS["value"].to_numpy(), np.array([3.0, 1.0, 2.0, 4.0], dtype=np.float32))
    data = image.get_fdata()
    assert [data[0, 0, 0], data[1, 1, 1], data[2, 2, 1], data[3, 3, 3]] == [1, 2, 3, 4]
    assert (data != 0).sum() == 5
    with pytest.raises(DataError, match="77"):
        paint(label_image(), np.array([10, 77]), np.ones(2))


def published_maps(folds: list[np.ndarray], percent: float) -> tuple[np.ndarray, np.ndarray]:
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
def test_published_odds_ratios_are_averaged_over_folds_and_cut_at_the_percentile(n_classes: int, n_rois: int) -> None:
    """On noisy folds, in which the two conventions select different ROIs."""
    random = np.random.default_rng(n_rois)
    folds = [
        0.1 * random.standard_normal((1 if n_classes == 2 else 7, n_rois)) * random.uniform(0.5, 8, n_rois)
        for _ in range(5)
    ]
    expected, chosen = published_maps(folds, 2)
    ours = np.array([np.concatenate([-w, w]) if n_classes == 2 else w for w in folds])
    rois = pd.DataFrame({"value": range(n_rois), "name": "r", "network": "n", "hemisphere": "L"})
    names = [f"c{i}" for i in range(n_classes)]
    table = roi_weights(ours, rois, names, 0.02, "published")
    symmetric = roi_weights(ours, rois, names, 0.02)
    differ = 0
    for i, name in enumerate(names):
        rows = table[table["class"] == name].sort_values("value")
        np.testing.assert_allclose(rows["importance"], expected[i], rtol=1e-12)
        np.testing.assert_array_equal(rows["selected"], chosen[i])
        np.testing.assert_array_equal(rows["rank"], np.argsort(np.argsort(-expected[i])) + 1)
        frequency = np.mean([published_maps([w], 2)[1][i] for w in folds], axis=0)
        np.testing.assert_allclose(rows["selection_frequency"], frequency)
        other = symmetric[symmetric["class"] == name].sort_values("value")
        differ += (other["selected"].to_numpy() != rows["selected"].to_numpy()).any()
    assert differ  # so nothing may claim that both select the same ROIs


def test_published_odds_ratios_differ_for_the_first_of_two_classes_alone() -> None:
    """Within a fold: exp(w) - 1 of the second class, 1 - exp(w) of the first, with the same w."""
    symmetric, published = importance(COEFFICIENTS), importance(COEFFICIENTS, "published")
    np.testing.assert_array_equal(symmetric[:, 1], published[:, 1])
    np.testing.assert_allclose(published[:, 0], 1 - np.exp(POSITIVE))
    np.testing.assert_allclose(symmetric[:, 0], np.exp(-POSITIVE) - 1)
    assert symmetric[1, 0, 2] == pytest.approx(np.exp(3) - 1) and published[:, 0].max() < 1
    seven = np.random.default_rng(0).standard_normal((2, 7, 4))
    np.testing.assert_array_equal(importance(seven), importance(seven, "published"))


def test_exchanged_classes_exchange_their_maps() -> None:
    one = roi_weights(COEFFICIENTS, ROIS, CLASSES, fraction=0.25)
    other = roi_weights(COEFFICIENTS[:, ::-1], ROIS, CLASSES, fraction=0.25)
    for name, mirror in (CLASSES, CLASSES[::-1]):
        left, right = one[one["class"] == name], other[other["class"] == mirror]
        pd.testing.assert_frame_equal(
            left.drop(columns="class").reset_index(drop=True), right.drop(columns="class").reset_index(drop=True)
        )


def written_maps(folder: Path, atlas: str = "made", **options: Any) -> dict[str, dict[str, np.ndarray]]:
    """Class to its maps as arrays, from files."""
    np.save(folder / "coefficients.npy", COEFFICIENTS)
    np.save(folder / "coefficients_controls.npy", CONTROL_COEFFICIENTS)
    write_regions(
        folder / "coefficients.npy",
        ROIS,
        CLASSES,
        label_image(),
        folder / "out",
        fraction=0.25,
        atlas=atlas,
        space="MNI152",
        **options,
    )
    names = dict(zip(CLASSES, map_names(CLASSES, atlas, "MNI152"), strict=True))
    return {c: {k: nib.load(folder / "out" / f).get_fdata() for k, f in files.items()} for c, files in names.items()}


def test_maps_hold_what_the_table_says(tmp_path: Path) -> None:
    """The atlas's values are not consecutive; every voxel of every ROI has the table's number, all others zero."""
    maps, labels = written_maps(tmp_path), label_image().get_fdata()
    table = read_table(tmp_path / "out/roi_weights.tsv")
    for name, of_class in maps.items():
        for column, data in of_class.items():
            for row in table[table["class"] == name].to_dict("records"):
                assert data[labels == row["value"]] == pytest.approx(float(row[column]))
            assert (data[labels == 0] == 0).all()
    chosen = set(table.loc[(table["class"] == "patient") & table["selected"], "value"])
    assert set(labels[maps["patient"]["selected"] == 1]) == chosen == {10}
    np.testing.assert_array_equal(maps["control"]["weight"], -maps["patient"]["weight"])


def test_no_two_classes_share_maps() -> None:
    """Names may differ in signs, case or script alone."""
    classes = ["-1", "1", "a_b", "ab", "AB", "健康", "患者", "1x1", "6"]
    names = [files["weight"] for files in map_names(classes)]
    assert len({name.casefold() for name in names}) == len(classes)
    assert all(re.fullmatch(r"class-[A-Za-z0-9]+_stat-logodds_statmap\.nii\.gz", name) for name in names)
    assert map_names(["patient", *classes])[0]["weight"] == "class-patient_stat-logodds_statmap.nii.gz"


def test_maps_are_named_as_derivatives_and_described(tmp_path: Path) -> None:
    written_maps(tmp_path, atlas="elsewhere")
    written_maps(tmp_path)  # the maps of an earlier call are gone
    files = sorted(path.name for path in (tmp_path / "out").glob("*.nii.gz"))
    assert len(files) == 6 and "space-MNI152_atlas-made_class-patient_stat-logodds_statmap.nii.gz" in files
    about = read_json(tmp_path / "out/space-MNI152_atlas-made_class-patient_stat-oddsratio_statmap.json")
    assert about["Space"] == "MNI152" and about["Folds"] == 2 and "odds ratio" in about["Description"]
    image = nib.load(tmp_path / "out" / files[0])
    np.testing.assert_array_equal(image.affine, label_image().affine)
    assert map_names(["task two"])[0]["selected"] == "class-tasktwo_desc-top_mask.nii.gz"
    assert len(read_table(tmp_path / "out/networks.tsv")) == 4


def test_left_stays_left() -> None:
    """An ROI that lies on one side only is painted at the same millimetres, whatever way the voxels run."""
    affine = np.diag([-2.0, 2, 2, 1])
    affine[:3, 3] = [6, 0, 0]
    image = nib.Nifti1Image(label_image().get_fdata().astype(np.int16), affine)
    painted = paint(image, np.array([10]), np.array([1.0]))
    place = nib.affines.apply_affine(painted.affine, np.argwhere(painted.get_fdata())[0])
    assert place.tolist() == [6, 0, 0]  # right of the middle, as in the atlas


def test_without_an_image_there_are_tables_only(tmp_path: Path) -> None:
    np.save(tmp_path / "coefficients.npy", COEFFICIENTS)
    with pytest.raises(DataError, match="Delete the coefficients.npy"):
        write_regions(tmp_path / "coefficients.npy", ROIS, CLASSES, None, tmp_path / "out", fraction=0.25)
    np.save(tmp_path / "coefficients_controls.npy", CONTROL_COEFFICIENTS)
    write_regions(tmp_path / "coefficients.npy", ROIS, CLASSES, None, tmp_path / "out", fraction=0.25)
    assert not list((tmp_path / "out").glob("*.nii.gz"))


def test_coefficients_of_another_atlas_are_refused() -> None:
    with pytest.raises(DataError, match="4 ROIs"):
        roi_weights(COEFFICIENTS, ROIS.iloc[:3], CLASSES)


def test_networks_by_hand_in_both_kinds_of_odds_ratios() -> None:
    """Network "default" has the ROIs c and d, whose patient weights are -1, 0.1 and -3, 1.5 in the two folds."""
    for way, control in (
        ("symmetric", np.expm1([[1, -0.1], [3, -1.5]])),
        ("published", -np.expm1([[-1, 0.1], [-3, 1.5]])),
    ):
        table = network_summary(COEFFICIENTS, ROIS, CLASSES, 0.25, way).set_index(["class", "network"])  # type: ignore[arg-type]
        patient = np.expm1([[-1, 0.1], [-3, 1.5]])
        for name, folds in (("patient", patient), ("control", control)):
            assert table.at[(name, "default"), "importance_sd"] == pytest.approx(folds.mean(axis=1).std())
        mean = np.array([2.0, -0.8])  # of the weights -(-1), -(-3) and -0.1, -1.5
        expected = np.expm1(mean) if way == "symmetric" else control.mean(axis=0)
        assert table.at[("control", "default"), "mean_importance"] == pytest.approx(expected.mean())


def test_two_per_cent_of_the_rois_are_selected_unless_said_otherwise() -> None:
    """Rounded up: one of four."""
    assert roi_weights(COEFFICIENTS, ROIS, CLASSES).groupby("class")["selected"].sum().tolist() == [1, 1]
    assert network_summary(COEFFICIENTS, ROIS, CLASSES).groupby("class")["n_selected"].sum().tolist() == [1, 1]


def test_signs_are_compared_with_those_of_controls() -> None:
    """Patient weights: a 0, b 1.5, c -2, d 0.8; with the fixed class 0.45 more than half of them."""
    patient = roi_weights(COEFFICIENTS, ROIS, CLASSES, controls=CONTROL_COEFFICIENTS).set_index(["class", "name"])
    patient = patient.loc["patient"].astype({"sign_agrees": bool})
    assert patient["weight_random"].to_dict() == pytest.approx({"b": 0.15, "d": 0.08, "a": 0.0, "c": -0.2})
    assert patient["weight_wrong_class"].to_dict() == pytest.approx({"b": -1.5, "d": -0.8, "a": 0.0, "c": 2.0})
    assert patient["weight_fixed_class"].to_dict() == pytest.approx({"b": 1.2, "d": 0.85, "a": 0.45, "c": -0.55})
    assert patient["sign_agrees"].to_dict() == {"b": True, "d": True, "a": False, "c": True}  # whatever the wrong class
    turned = CONTROL_COEFFICIENTS * np.array([1, 1, -1])[:, None, None, None]
    assert not roi_weights(COEFFICIENTS, ROIS, CLASSES, controls=turned).query("name != 'a'")["sign_agrees"].all()
    assert not roi_weights(COEFFICIENTS, ROIS, CLASSES)["sign_agrees"].any()  # without controls, none is known to
    with pytest.raises(DataError, match="coefficients of controls"):
        roi_weights(COEFFICIENTS, ROIS, CLASSES, controls=CONTROL_COEFFICIENTS[:, :1])
