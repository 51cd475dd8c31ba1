"""Atlases are searched in order, verified by checksum, and labelled by value."""

import shutil

import nibabel as nib
import numpy as np
import pandas as pd
import pytest
from nilearn.image import resample_img
from scipy.spatial import cKDTree

from bolt.atlases.description import ATLASES, describe_atlas, known_atlases
from bolt.atlases.image import Atlas, load_atlas, resample_to
from bolt.atlases.labels import load_labels
from bolt.io.errors import ConfigError, DataError
from bolt.io.files import read_json, sha256, write_yaml
from tests.shared import shared_data

GRID = np.diag([4.0, 4, 4, 1])


def write_own(folder, values=(5, 300, 17), image_values=None, **keys):
    """Write an atlas of three cubes, with values that are neither consecutive nor within int8."""
    folder.mkdir(parents=True, exist_ok=True)
    data = np.zeros((9, 9, 9), np.int16)
    for k, value in enumerate(image_values or values):
        data[3 * k : 3 * k + 3, 2:7, 2:7] = value
    nib.save(nib.Nifti1Image(data, GRID), folder / "labels.nii.gz")
    about = {"name": "own", "spaces": ["MNI152NLin6Asym"], "file": "labels.nii.gz", **keys}
    write_yaml({k: v for k, v in about.items() if v is not None}, folder / "atlas.yaml")
    table = pd.DataFrame({"value": values, "name": [f"ROI {v}" for v in values]})
    table.assign(network="A", hemisphere="L").to_csv(folder / "labels.tsv", sep="\t", index=False)
    return str(folder)


@pytest.mark.parametrize("name", known_atlases())
def test_every_atlas_is_described(name):
    about = describe_atlas(name)
    assert about.name == name and about.licence and about.citation and about.doi and about.spaces
    for space, image in about.by_space.items():
        assert image.url and "{" not in repr(image) + about.description
        assert image.templateflow is None or image.templateflow.startswith(f"tpl-{space}/")
    if about.labels:  # a member of a family, with its publisher's table
        assert about.kind != "maps" or (len(about.by_space) == 2 and about.labels_url.endswith(about.labels))
        return
    labels = load_labels(name)
    assert labels["hemisphere"].isin(["L", "R", "M"]).all() and labels["value"].is_monotonic_increasing
    assert set(read_json(ATLASES / name / "labels.json")) == set(labels)
    assert about.radius_mm if about.kind == "spheres" else about.image_in().sha256


@pytest.mark.parametrize(("name", "n"), [("schaefer400", 400), ("aal116", 116), ("cc200", 200)])
def test_labels_of_published_atlases_fit_their_images(name, n):
    atlas = load_atlas(name, atlas_dir=shared_data("atlases"))
    assert len(atlas.labels) == n
    assert set(np.unique(atlas.data)) - {0} == set(atlas.values)
    for row in atlas.labels.iloc[:: n // 20].itertuples():
        centre = nib.affines.apply_affine(atlas.image.affine, np.argwhere(atlas.data == row.value)).mean(axis=0)
        np.testing.assert_allclose(centre, [row.x, row.y, row.z], atol=0.06)
    if name != "cc200":
        sides = atlas.labels[atlas.labels.hemisphere != "M"]
        assert ((sides.x > 0) == (sides.hemisphere == "R")).all()


def test_names_of_published_atlases():
    labels = load_labels("schaefer400")
    assert labels.network.value_counts().to_dict() == {
        "Default": 91, "SomMot": 77, "Vis": 61, "Cont": 52, "SalVentAttn": 47, "DorsAttn": 46, "Limbic": 26,
    }  # fmt: skip
    assert "LH_SalVentAttn_FrOperIns_1" in set(labels.name)  # v0.14.3; v0.8.1 called it FrOper_1
    assert (labels.hemisphere == ["L"] * 200 + ["R"] * 200).all()
    aal = load_labels("aal116").set_index("value").name
    assert (aal[2001], aal[9170]) == ("Precentral_L", "Vermis_10")
    assert load_atlas("schaefer400", templateflow_home=shared_data("templateflow")).image.shape == (91, 109, 91)


def test_spheres_are_drawn_around_their_centres():
    atlas = load_atlas("dosenbach160")
    voxels = np.indices(atlas.data.shape).reshape(3, -1).T
    places = nib.affines.apply_affine(atlas.image.affine, voxels)
    distance, nearest = cKDTree(atlas.labels[["x", "y", "z"]].to_numpy(float)).query(places)
    np.testing.assert_array_equal(atlas.data.ravel(), np.where(distance <= 5, atlas.values[nearest], 0))
    assert (np.bincount(atlas.data.ravel())[1:] >= 30).all() and atlas.sha256 == load_atlas("dosenbach160").sha256


def test_a_folder_is_an_atlas(tmp_path):
    atlas = load_atlas(write_own(tmp_path / "own"))
    assert atlas.name == "own" and atlas.data.dtype == np.int32 and (atlas.data == 300).sum() == 75
    assert atlas.values.tolist() == [5, 17, 300]  # by value, whatever the order of the table
    assert atlas.labels.name.tolist() == ["ROI 5", "ROI 17", "ROI 300"]


def test_order_of_search(tmp_path, monkeypatch):
    own = write_own(tmp_path / "own", templateflow="tpl/labels.nii.gz")
    places = ["first/labels.nii.gz", "env/labels.nii", "home/tpl/labels.nii.gz", "own/labels.nii.gz"]
    data = np.asarray(nib.load(tmp_path / places[-1]).dataobj)
    for place in places:
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        image = nib.Nifti1Image(data, GRID)
        image.header["descrip"] = place.encode()
        nib.save(image, tmp_path / place)
    monkeypatch.setenv("BOLT_ATLAS_DIR", str(tmp_path / "env"))
    assert load_atlas(own, atlas_dir=tmp_path / "first").sha256 == sha256(tmp_path / places[0])
    for place in places[1:]:
        assert load_atlas(own).sha256 == sha256(tmp_path / place)
        (tmp_path / place).write_bytes(b"")  # as TemplateFlow's placeholders
    with pytest.raises(DataError, match="BOLT_ATLAS_DIR.*TemplateFlow home"):
        load_atlas(own)


def test_wrong_checksum(tmp_path):
    with pytest.raises(DataError, match="not the image of atlas"):
        load_atlas(write_own(tmp_path / "own", sha256=["0" * 64]))
    right = sha256(tmp_path / "own/labels.nii.gz")
    assert load_atlas(write_own(tmp_path / "own", sha256=["0" * 64, right])).sha256 == right


def test_labels_and_image_must_agree(tmp_path):
    with pytest.raises(DataError, match="17 are in the image but not"):
        load_atlas(write_own(tmp_path / "a" / "own", values=(5, 300), image_values=(5, 300, 17)))
    with pytest.raises(DataError, match="17 are not in the image"):
        load_atlas(write_own(tmp_path / "b" / "own", image_values=(5, 300)))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("value\t", "number\t", "columns missing: value"),
        ("\n300\t", "\n5\t", "'value' empty or not unique: 5"),
        ("ROI 300", "ROI 5", "'name' empty or not unique: ROI 5"),
        ("\n300\t", "\n0\t", "whole number from 1"),
        ("\n300\t", "\n3.5\t", "whole number from 1"),
    ],
)
def test_bad_tables(tmp_path, old, new, message):
    own = write_own(tmp_path / "own")
    table = tmp_path / "own" / "labels.tsv"
    table.write_text(table.read_text().replace(old, new))
    with pytest.raises(DataError, match=message):
        load_labels(own)


@pytest.mark.parametrize(
    ("data", "affine", "message"),
    [
        (np.full((4, 4, 4), 0.5, np.float32), GRID, "fractions"),
        (np.ones((4, 4, 4, 2), np.int16), GRID, "3D"),
        (np.ones((4, 4, 4), np.int16), None, "neither sform nor qform is set"),
        (np.zeros((4, 4, 4), np.int16), GRID, "must be positive"),
        (np.full((4, 4, 4), -1, np.int16), GRID, "must be positive"),
    ],
)
def test_images_that_hold_no_labels_are_refused(tmp_path, data, affine, message):
    nib.save(nib.Nifti1Image(data, affine), tmp_path / "labels.nii.gz")
    with pytest.raises(DataError, match=message):
        load_atlas(str(tmp_path / "labels.nii.gz"))


def test_labels_as_other_programs_write_them(tmp_path):
    """NaN as background (SPM), and whole numbers scaled by a factor that is not quite right."""
    labels = nib.load(tmp_path / write_own(tmp_path / "own") / "labels.nii.gz").get_fdata()
    nib.save(nib.Nifti1Image(np.where(labels == 0, np.nan, labels), GRID), tmp_path / "spm.nii.gz")
    assert load_atlas(str(tmp_path / "spm.nii.gz")).values.tolist() == [5, 17, 300]
    percent = np.random.default_rng(0).uniform(0, 100, labels.shape)
    for name, data in {"scaled.nii": np.minimum(labels, 116), "percent.nii": percent}.items():
        scaled = nib.Nifti1Image(data, GRID)
        scaled.set_data_dtype(np.uint8)
        nib.save(scaled, tmp_path / name)
        assert nib.load(tmp_path / name).dataobj.slope < 0.5
    assert load_atlas(str(tmp_path / "scaled.nii")).values.tolist() == [5, 17, 116]
    with pytest.raises(DataError, match="fractions"):
        load_atlas(str(tmp_path / "percent.nii"))
    noise = np.random.default_rng(0).integers(0, 50, (9, 9, 9)).astype(np.int16)
    nib.save(nib.Nifti1Image(noise, GRID), tmp_path / "cut.nii.gz")
    (tmp_path / "cut.nii.gz").write_bytes((tmp_path / "cut.nii.gz").read_bytes()[:-200])
    with pytest.raises(DataError, match="truncated or damaged"):
        load_atlas(str(tmp_path / "cut.nii.gz"))


@pytest.mark.parametrize("x", ["n/a", "left"])
def test_spheres_have_their_centres(tmp_path, x):
    own = write_own(tmp_path / "own", kind="spheres", file=None, radius_mm=5)
    table = pd.read_csv(tmp_path / "own/labels.tsv", sep="\t").assign(x=[0, x, 9], y=0, z=0)
    table.to_csv(tmp_path / "own/labels.tsv", sep="\t", index=False)
    with pytest.raises(DataError, match="x, y or z is missing or no number: ROI 300"):
        load_atlas(own)


def test_a_label_image_alone_is_an_atlas_with_rois_named_by_value(tmp_path):
    write_own(tmp_path / "own")
    for name, spaces in {
        "my_labels-x.nii.gz": [],
        "tpl-MNI152NLin6Asym_atlas-x_dseg.nii.gz": ["MNI152NLin6Asym"],
        "sub-01_space-MNI152NLin6Asym_dseg.nii.gz": ["MNI152NLin6Asym"],
    }.items():
        shutil.copy(tmp_path / "own/labels.nii.gz", tmp_path / name)
        atlas = load_atlas(str(tmp_path / name))
        assert atlas.spaces == spaces and atlas.sha256 == sha256(tmp_path / name)
        assert atlas.values.tolist() == [5, 17, 300] and atlas.labels.name.tolist() == ["5", "17", "300"]
    assert load_atlas(str(tmp_path / "my_labels-x.nii.gz")).name == "mylabelsx"


def test_unknown_atlas_and_bad_keys(tmp_path):
    with pytest.raises(ConfigError, match=r"unknown atlas .yeo7.*aal116.*schaefer400"):
        load_atlas("yeo7")
    with pytest.raises(ConfigError, match="atlas 'own' is in folder 'other'"):
        load_atlas(write_own(tmp_path / "other"))
    bad = {"unknown key 'spacing'": {"spacing": "x"}, "'file' is missing": {"file": None}}
    for message, keys in (bad | {"spheres need": {"kind": "spheres", "file": None}}).items():
        with pytest.raises(ConfigError, match=message):
            load_atlas(write_own(tmp_path / "own", **keys))


# ---- on the grid of an image, as nilearn makes it, without its import ----------------------------
AFFINE = np.array([[2.0, 0, 0, -20], [0, 2, 0, -24], [0, 0, 2, -16], [0, 0, 0, 1]])
OBLIQUE = np.array([[1.9, 0.3, 0.1, -19], [-0.3, 2.1, 0.2, -22], [0, -0.2, 2.4, -15], [0, 0, 0, 1]])


@pytest.fixture
def atlas():
    labels = np.zeros((20, 24, 16), np.int32)
    labels[3:17, 4:20, 2:14] = np.random.default_rng(0).integers(0, 5, (14, 16, 12))
    return Atlas("small", [], pd.DataFrame({"value": [1, 2, 3, 4]}), nib.Nifti1Image(labels, AFFINE), "")


@pytest.mark.parametrize(
    ("shape", "affine"),
    [
        ((20, 24, 16), AFFINE),
        ((20, 24, 16), AFFINE * [[-1], [1], [1], [1]] @ np.diag([1.0, 1, 1, 1])),
        ((14, 16, 11), np.array([[3.0, 0, 0, -20], [0, 3, 0, -24], [0, 0, 3, -16], [0, 0, 0, 1]])),
        ((18, 20, 12), OBLIQUE),
    ],
)
def test_labels_are_those_of_nilearn(atlas, shape, affine):
    theirs = resample_img(atlas.image, affine, shape, interpolation="nearest", force_resample=False, copy_header=True)
    ours = resample_to(atlas, shape, affine)
    assert ours.any() and ours.dtype == np.int32
    np.testing.assert_array_equal(ours, np.asarray(theirs.dataobj))


def test_a_field_of_view_that_begins_within_the_atlas(atlas):
    """nilearn moves the labels there: its padding ignores how much it cuts off at the start."""
    affine = AFFINE.copy()
    affine[:3, 3] += [10, 12, 8]  # 5, 6 and 4 voxels
    np.testing.assert_array_equal(resample_to(atlas, (12, 14, 10), affine), atlas.data[5:17, 6:20, 4:14])
