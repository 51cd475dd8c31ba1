"""Atlases in several spaces: the image of the data's space, or one carried over by TemplateFlow's transform."""

import ants
import nibabel as nib
import numpy as np
import pytest
from nilearn.image import resample_to_img
from scipy.ndimage import gaussian_filter

from bolt.atlases import description, staging
from bolt.atlases.description import FETCH, describe_atlas, serves, transform_name
from bolt.atlases.image import load_atlas
from bolt.atlases.transforms import read_composite, resample_labels
from bolt.config import Config
from bolt.io.errors import ConfigError, DataError
from bolt.io.files import read_json, sha256, write_yaml
from bolt.preprocess import images
from bolt.preprocess.registration import dice
from tests.atlases.test_atlases import write_own
from tests.shared import shared_data

SIX, NINE = "MNI152NLin6Asym", "MNI152NLin2009cAsym"
FIELD_AFFINE = np.diag([-3.0, 3.0, 2.0, 1.0])  # RAS; its axes need not point as the image's
FIELD_AFFINE[:3, 3] = 36, -3, -4
FIELD_SHAPE = (16, 15, 20)


def write_transform(path, seed=0):
    """Write an ITK composite of an affine and displacements, as antsRegistration does: displacements act first."""
    field = gaussian_filter(np.random.default_rng(seed).normal(size=(*FIELD_SHAPE, 3)), (2, 2, 2, 0)) * 30
    flipped, spacing = images.FLIP @ FIELD_AFFINE, (3.0, 3.0, 2.0)
    grid = {"origin": tuple(flipped[:3, 3]), "spacing": spacing, "direction": flipped[:3, :3] / spacing}
    warp = ants.transform_from_displacement_field(ants.from_numpy(field, **grid, has_components=True))
    affine = ants.new_ants_transform(transform_type="AffineTransform")
    affine.set_fixed_parameters(np.array([-3.0, 2, 5]))
    affine.set_parameters(np.array([1.1, 0.05, -0.1, 0, 0.9, 0.2, 0.1, 0, 1.05, 4, -2, 3]))
    path.parent.mkdir(parents=True, exist_ok=True)
    images.write_composite([warp, affine], path)
    return path


@pytest.fixture
def transform(home, monkeypatch):
    """The transform between the two MNI spaces, another than TemplateFlow's."""
    path = write_transform(home / transform_name(SIX, NINE))
    monkeypatch.setitem(description.MD5, (SIX, NINE), description.md5(path))
    return path


def blobs(seed=1):
    """Labels up to 9170 in an oblique image, without a symmetry that could hide a flip."""
    data = gaussian_filter(np.random.default_rng(seed).normal(size=(14, 12, 16)), 2)
    labels = np.array([0, 2001, 9170, 17, 300], np.int32)[np.digitize(data, np.quantile(data, [0.3, 0.5, 0.7, 0.9]))]
    affine = images.rigid_matrix(np.array([-12.0, -4, 1, 0.1, -0.2, 0.05]), np.zeros(3)) @ np.diag([3.0, 3, 3, 1])
    return nib.Nifti1Image(labels, affine)


def test_labels_go_through_a_composite_as_in_ants(tmp_path):
    path, labels = write_transform(tmp_path / "xfm.h5"), blobs()
    ours = resample_labels(labels, read_composite(path))
    assert ours.shape == FIELD_SHAPE
    np.testing.assert_allclose(ours.affine, FIELD_AFFINE, atol=1e-6)
    theirs = ants.apply_transforms(
        images.to_ants(np.zeros(FIELD_SHAPE), FIELD_AFFINE),
        images.to_ants(np.asarray(labels.dataobj), labels.affine),
        [str(path)],
        interpolator="nearestNeighbor",
    ).numpy()
    ours = np.asarray(ours.dataobj)
    assert set(np.unique(ours)) == {0, 17, 300, 2001, 9170}
    assert (ours == theirs).mean() > 0.999  # but for voxels half-way between two labels
    moved = points_through(read_composite(path)[::-1])
    assert np.abs(points_through(read_composite(path)) - moved).max() > 0.5  # so the order makes a difference


def points_through(chain):
    points = np.indices((4, 4, 4)).reshape(3, -1).T * 6.0 - 9
    for step in chain:
        points = step(points)
    return points


def test_a_known_shift_moves_labels_where_the_transform_says(tmp_path):
    """Points of the target go to the source: labels move the other way, over the image's own field of view."""
    images.write_matrix(images.rigid_matrix(np.array([6.0, 0, 0, 0, 0, 0]), np.zeros(3)), tmp_path / "shift.mat")
    images.write_composite([ants.read_transform(str(tmp_path / "shift.mat"))], tmp_path / "shift.h5")
    data = np.zeros((20, 20, 20), np.int32)
    data[10, 10, 10] = 7
    moved = resample_labels(nib.Nifti1Image(data, np.diag([2.0, 2, 2, 1])), read_composite(tmp_path / "shift.h5"))
    centre = nib.affines.apply_affine(moved.affine, np.argwhere(np.asarray(moved.dataobj) == 7)).mean(axis=0)
    np.testing.assert_allclose(centre, [20 - 6, 20, 20], atol=0.51)


def test_names_of_older_itk_and_other_transforms(tmp_path):
    import h5py

    path = write_transform(tmp_path / "xfm.h5")
    with h5py.File(path, "a") as file:
        for part in file["TransformGroup"].values():
            for name in [name for name in part if name.endswith("Parameters")]:
                part.move(name, name.replace("Transform", "Tranform"))
    assert len(read_composite(path)) == 2
    with h5py.File(path, "a") as file:
        del file["TransformGroup/1/TransformType"]
        file["TransformGroup/1/TransformType"] = [b"BSplineTransform_double_3_3"]
    with pytest.raises(DataError, match="of type BSplineTransform cannot be applied"):
        read_composite(path)
    path.write_text("<html>")
    with pytest.raises(DataError, match="not readable as an ITK transform"):
        read_composite(path)


def test_the_template_brains_overlap_by_the_published_transform():
    home = shared_data("templateflow")
    path = home / transform_name(SIX, NINE)
    own, other = (home / f"tpl-{space}/tpl-{space}_res-02_desc-brain_mask.nii.gz" for space in (SIX, NINE))
    if not (path.is_file() and other.is_file()):
        pytest.skip(f"real data not found: {path}, {other}")
    carried = resample_labels(nib.load(own), read_composite(path))
    carried = resample_to_img(carried, nib.load(other), interpolation="nearest", force_resample=True, copy_header=True)
    assert dice(carried.get_fdata() > 0, nib.load(other).get_fdata() > 0.5) > 0.95


# ---- which image -------------------------------------------------------------------------------


def test_the_image_is_that_of_the_space(tmp_path):
    own = write_own(tmp_path / "own", values=(5, 17, 300))
    write_own(tmp_path / "other", values=(17, 5, 300))  # the same labels elsewhere
    (tmp_path / "other/labels.nii.gz").rename(tmp_path / "own/other.nii.gz")
    files = {SIX: {"file": "labels.nii.gz"}, NINE: {"file": "other.nii.gz"}}
    write_yaml({"name": "own", "images": files}, tmp_path / "own/atlas.yaml")
    for space, file in ((SIX, "labels"), (NINE, "other"), (None, "labels")):
        atlas = load_atlas(own, space=space)
        assert atlas.sha256 == sha256(tmp_path / f"own/{file}.nii.gz")
        assert atlas.spaces == [space or SIX] and not atlas.carried
    assert describe_atlas(own).spaces == [SIX, NINE]


def test_one_image_in_the_flat_form_serves_all_its_spaces(tmp_path):
    own = write_own(tmp_path / "own", spaces=[SIX, NINE])
    first, second = load_atlas(own), load_atlas(own, space=NINE)
    assert first.sha256 == second.sha256 and first.spaces == second.spaces == [SIX, NINE]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"spaces": None}, "'spaces' is missing"),
        ({"spaces": None, "images": {SIX: {"file": "labels.nii.gz"}}}, "under 'images', none beside it"),
        ({"file": None, "spaces": [SIX], "images": {NINE: {"file": "labels.nii.gz"}}}, "remove 'spaces'"),
        ({"file": None, "spaces": None, "images": {NINE: {"name": "x"}}}, "unknown key 'images.*name'"),
    ],
)
def test_keys_of_images_that_do_not_fit(tmp_path, keys, message):
    with pytest.raises(ConfigError, match=message):
        describe_atlas(write_own(tmp_path / "own", **keys))


def test_an_atlas_of_one_space_is_carried_over_once(tmp_path, transform):
    own, cache = write_own(tmp_path / "own"), tmp_path / "work/atlases"
    atlas = load_atlas(own, space=NINE, cache=cache)
    assert atlas.spaces == [NINE] and set(np.unique(atlas.data)) == {0, 5, 17, 300}
    assert atlas.carried["From"] == SIX and atlas.carried["Transform"] == transform.name
    assert atlas.carried["ImageSHA256"] == sha256(tmp_path / "own/labels.nii.gz")
    assert atlas.carried["TransformSHA256"] == sha256(transform)
    kept = sorted(cache.iterdir())
    assert [p.name.split("_desc-")[0] for p in kept] == [f"own_space-{NINE}_from-{SIX}"] * 2
    assert read_json(kept[0]) == atlas.carried
    stamp = kept[1].stat().st_mtime_ns
    again = load_atlas(own, space=NINE, cache=cache)
    assert kept[1].stat().st_mtime_ns == stamp and again.sha256 == atlas.sha256 != load_atlas(own).sha256
    np.testing.assert_array_equal(again.data, atlas.data)
    np.testing.assert_allclose(again.image.affine, atlas.image.affine)
    alone = str((tmp_path / "own/labels.nii.gz").rename(tmp_path / f"tpl-{SIX}_dseg.nii.gz"))
    assert load_atlas(alone, space=NINE, cache=cache).carried["From"] == SIX
    write_transform(transform, seed=5)
    with pytest.raises(DataError, match="not TemplateFlow's transform"):
        load_atlas(alone, space=NINE, cache=cache)  # another transform has another place in the cache


def test_without_its_transform_an_atlas_is_not_carried(tmp_path, home):
    own = write_own(tmp_path / "own")
    with pytest.raises(DataError, match=f"from {SIX} to {NINE} is missing") as caught:
        load_atlas(own, space=NINE)
    assert FETCH[1:] in caught.value.hint and str(home) in str(caught.value)
    with pytest.raises(DataError, match="is in MNI152NLin6Asym, but the image is in MNIInfant") as caught:
        load_atlas(own, space="MNIInfant")
    assert f"--output-spaces {SIX}" in caught.value.hint
    assert not serves(describe_atlas(own), "MNIInfant", None) and serves(describe_atlas(own), NINE, None)
    write_transform(home / transform_name(SIX, "MNIInfant"))  # one that the home has, whatever its checksum
    assert load_atlas(own, space="MNIInfant").carried["From"] == SIX


def test_a_lost_roi_is_an_error(tmp_path, transform):
    own = write_own(tmp_path / "own")
    image = nib.load(tmp_path / "own/labels.nii.gz")
    image.affine[:3, 3] = 500
    nib.save(nib.Nifti1Image(np.asarray(image.dataobj), image.affine), tmp_path / "own/labels.nii.gz")
    with pytest.raises(DataError, match="5, 17, 300 are not in the image"):
        load_atlas(own, space=NINE)


def test_a_transform_is_staged_into_the_home(tmp_path, home, monkeypatch):
    path = write_transform(tmp_path / "site" / transform_name(SIX, NINE))
    monkeypatch.setitem(description.MD5, (SIX, NINE), description.md5(path))
    monkeypatch.setattr(description, "TEMPLATEFLOW", (tmp_path / "site").as_uri())
    placeholder = home / transform_name(SIX, NINE)
    placeholder.parent.mkdir(parents=True)
    placeholder.touch()
    config = Config(dataset="x", atlases=[write_own(tmp_path / "own")], paths={"work": tmp_path / "work"})
    staging.stage_atlases(config, NINE)
    assert sha256(placeholder) == sha256(path) and len(list(config.paths.carried_atlases.iterdir())) == 2
    placeholder.unlink()
    monkeypatch.setitem(description.MD5, (SIX, NINE), "0" * 32)
    with pytest.raises(DataError, match="not TemplateFlow's transform"):
        staging.stage_atlases(config, NINE)
