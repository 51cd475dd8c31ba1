"""ROI means equal nilearn's, coverage is counted correctly, and the files are as documented."""

import json
from dataclasses import replace

import nibabel as nib
import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from nilearn import signal
from nilearn.maskers import NiftiLabelsMasker

from bolt.atlases.image import Atlas
from bolt.config import Denoise, load_denoise
from bolt.io.errors import BoltWarning, DataError
from bolt.io.files import read_json, read_table, write_json
from bolt.io.streams import iter_volumes
from bolt.series.denoise import choose_confounds
from bolt.series.parcellate import COVERAGE_COLUMNS, parcellate, write_parcellated
from bolt.series.rois import Averaged, RoiVoxels, coverage_of

SPACE = "MNI152NLin6Asym"
NAME = f"sub-01_space-{SPACE}_bold.nii.gz"
SHAPE, T = (12, 11, 10), 8
AFFINE = np.diag([3.0, 3, 3, 1])
NONE = load_denoise("none")


def make_atlas(name="cubes", values=(7, 300, 4001), affine=AFFINE, shape=SHAPE):
    """Return an atlas of slabs along the first axis, by default on the image's grid."""
    data = np.zeros(shape, np.int32)
    for k, value in enumerate(values):
        data[1 + 3 * k : 4 + 3 * k, 2:9, 2:9] = value
    labels = pd.DataFrame({"value": values, "name": [f"ROI {v}" for v in values], "network": "A", "hemisphere": "L"})
    return Atlas(name, [SPACE], labels, nib.Nifti1Image(data, affine), "0" * 64)


def save(path, data, affine=AFFINE, scale=None):
    image = nib.Nifti1Image(data, affine)
    image.header.set_zooms((*image.header.get_zooms()[:3], 2.0))
    image.header.set_xyzt_units("mm", "sec")
    if scale:
        image.header.set_slope_inter(*scale)
    nib.save(image, path)
    return path


@pytest.fixture(autouse=True)
def no_collection(monkeypatch):
    """nilearn collects garbage nine times per call, which takes seconds in a large process."""
    monkeypatch.setattr("gc.collect", lambda *_: 0)


@pytest.fixture
def data():
    return np.random.default_rng(0).normal(1000, 50, (*SHAPE, T))


def means(data, atlas, keep=None):
    keep = np.ones(SHAPE, bool) if keep is None else keep
    return np.stack([data[(atlas.data == v) & keep].mean(axis=0) for v in atlas.values], axis=1)


def parcellated(folder, data, *atlases, **options):
    """Save an image in the atlas's space, and return the series of the first atlas, or of `make_atlas()`."""
    atlases = atlases or (make_atlas(),)
    path = save(folder / NAME, data.astype(np.float32))
    return parcellate(path, atlases, **{"denoise": NONE} | options)[atlases[0].name]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 10**6),
    dtype=st.sampled_from(["uint8", "int16", "int32", "float32", "float64", ">i2", ">f4"]),
    scale=st.sampled_from([None, (0.013, -3.0), (2.5, 400.0)]),
    suffix=st.sampled_from([".nii", ".nii.gz"]),
    n_rois=st.integers(1, 12),
    masked=st.booleans(),
    shift=st.tuples(*[st.floats(-2, 2)] * 3),
)
def test_equals_nilearn_whatever_the_image(tmp_path, seed, dtype, scale, suffix, n_rois, masked, shift):
    random = np.random.default_rng(seed)
    labels = random.integers(0, n_rois + 1, (6, 5, 6)) * 7
    affine = np.diag([6.0, 6, 6, 1])
    affine[:3, 3] = shift
    values = np.unique(labels[labels > 0])
    assume(len(values) == n_rois)
    table = pd.DataFrame({"value": values, "name": values.astype(str), "network": "A", "hemisphere": "L"})
    atlas = Atlas("random", [SPACE], table, nib.Nifti1Image(labels.astype(np.int32), affine), "")
    data = random.normal(120, 20, (*SHAPE, 4)).astype(dtype)
    path = save(tmp_path / f"space-{SPACE}_bold{suffix}", data, scale=scale)
    mask = tmp_path / "mask.nii" if masked else None
    if mask:
        nib.save(nib.Nifti1Image((random.random(SHAPE) > 0.4).astype(np.uint8), AFFINE), mask)
    ours = parcellate(path, [atlas], mask=mask, denoise=NONE, threshold=0)["random"]
    assume((ours.coverage.n_voxels > ours.coverage.n_masked).all())  # nilearn has no column for an ROI without voxels
    masker = NiftiLabelsMasker(atlas.image, mask_img=mask and str(mask), resampling_target="data", standardize=None)
    np.testing.assert_allclose(ours.series, masker.fit_transform(path), rtol=1e-5)
    assert ours.series.dtype == np.float32


def test_the_repetition_time_is_that_of_the_sidecar(tmp_path, data):
    assert parcellated(tmp_path, data).metadata["RepetitionTime"] == 2.0  # of the header
    write_json({"RepetitionTime": 0.72}, tmp_path / "task-rest_bold.json")  # of another image
    write_json({"RepetitionTime": 0.8}, tmp_path / "sub-01_bold.json")
    with pytest.warns(BoltWarning, match="TR is 2 s in the header and 0.8 s in the sidecar; the sidecar's is used"):
        assert parcellated(tmp_path, data).metadata["RepetitionTime"] == 0.8
    assert parcellated(tmp_path, data, tr=2.0).metadata["RepetitionTime"] == 2.0


def test_several_atlases_that_overlap_in_one_pass(tmp_path, data, monkeypatch):
    first, second = make_atlas(), make_atlas("other", values=(2, 9))
    path, passes = save(tmp_path / NAME, data.astype(np.float32)), []
    counted = lambda image, voxels: passes.append(image) or iter_volumes(image, voxels)  # noqa: E731
    monkeypatch.setattr("bolt.series.parcellate.iter_volumes", counted)
    both = parcellate(path, [first, second], denoise=NONE)
    assert len(passes) == 1
    np.testing.assert_allclose(both["cubes"].series, means(data, first), rtol=1e-5)
    np.testing.assert_allclose(both["other"].series, means(data, second), rtol=1e-5)


def test_nonfinite_voxels_are_left_out_and_counted(tmp_path, data):
    """One that is finite at times counts with its mean, so that none of its ROI's volumes stands out."""
    atlas = make_atlas()
    roi = np.argwhere(atlas.data == 300)
    data[tuple(roi[0])] += 1000
    data[(*roi[0], slice(2, 4))] = np.nan
    data[(*roi[1], slice(None))] = np.inf
    result = parcellated(tmp_path, data, atlas)
    voxels = np.delete(data[atlas.data == 300], 1, axis=0)
    voxels[0, 2:4] = np.nanmean(voxels[0])
    np.testing.assert_allclose(result.series[:, 1], voxels.mean(axis=0), rtol=1e-5)
    assert result.coverage.n_nonfinite.tolist() == [0, 2, 0]
    assert result.coverage.coverage[1] == pytest.approx(1 - 2 / len(roi), abs=1e-4)


def test_coverage_at_the_threshold_is_enough():
    rois = RoiVoxels(np.arange(12), np.repeat([0, 1, 2], 4), np.array([4, 4, 4]), np.ones(3))
    varies = np.array([1, 1, 0, 0, 1, 0, 0, 0, 1, 1, 1, 0], bool)
    found = Averaged(np.ones((T, 3)), np.ones(12, bool), varies, np.ones(12), np.zeros(12))
    table = coverage_of(make_atlas(), rois, found, 0.5, 0.3)
    assert table.coverage.tolist() == [0.5, 0.25, 0.75] and table.covered.tolist() == [True, False, True]


def test_coverage_below_the_threshold_is_nan_never_dropped(tmp_path, data):
    data[:, :, 5:] = 0  # end of the field of view; the ROIs extend from 2 to 8
    data[4:7, :, 4:] = 0
    result = parcellated(tmp_path, data, threshold=0.4)
    np.testing.assert_allclose(result.coverage.coverage, [3 / 7, 2 / 7, 3 / 7], atol=1e-4)
    assert result.coverage.covered.tolist() == [1, 0, 1]
    assert result.coverage.n_constant.tolist() == [84, 105, 84]
    assert np.isnan(result.series).all(axis=0).tolist() == [False, True, False]
    assert list(result.coverage) == list(COVERAGE_COLUMNS)
    with pytest.raises(DataError, match="no ROI of atlas 'cubes' is covered"):
        parcellated(tmp_path, 0 * data, threshold=0)


@pytest.mark.parametrize("masked", [False, True])
def test_voxels_without_signal_are_not_covered_with_or_without_a_mask_of_the_signal(tmp_path, data, masked):
    """The first ROI has lost its signal in four of seven layers, and a BOLD mask may say so, too."""
    mask = None
    data[1:4, :, 2:6] *= 0.2
    if masked:
        seen = np.ones(SHAPE, np.uint8)
        seen[1:4, :, 2:6] = 0
        mask = tmp_path / "mask.nii.gz"
        nib.save(nib.Nifti1Image(seen, AFFINE), mask)
    table = parcellated(tmp_path, data, mask=mask).coverage
    np.testing.assert_allclose(table.coverage, [3 / 7, 1, 1], atol=1e-4)
    assert table.covered.tolist() == [0, 1, 1]
    assert (table.n_dark + table.n_masked).tolist() == [84, 0, 0] and table.n_masked[0] == 84 * masked
    assert table.brightness[1:].tolist() == pytest.approx([1, 1], abs=0.02)
    assert table.brightness[0] == pytest.approx(1 if masked else 0.2, abs=0.02)
    assert table.tsnr[1:].tolist() == pytest.approx([1000 / 50] * 2, rel=0.2)


def test_images_without_their_mean_have_no_dark_voxels(tmp_path, data):
    data -= data.mean(axis=-1, keepdims=True)
    table = parcellated(tmp_path, data).coverage
    assert (table.coverage == 1).all() and (table.n_dark == 0).all()
    assert table.brightness.isna().all() and table.tsnr.isna().all()


def test_any_share_of_brightness_can_be_asked_for_and_a_constant_roi_has_no_tsnr(tmp_path, data):
    data[1:4] *= 0.5
    for share, n_dark in ((0, 0), (0.3, 0), (0.7, 147)):
        table = parcellated(tmp_path, data, threshold=0, signal=share).coverage
        assert table.n_dark.tolist() == [n_dark, 0, 0]
    data[1:4] = 1000
    assert np.isnan(parcellated(tmp_path, data).coverage.tsnr).tolist() == [True, False, False]


def test_what_lies_beyond_the_grid_is_not_covered(tmp_path, data):
    cut = parcellated(tmp_path, data[:, :, :5], threshold=0.4).coverage  # three of the ROIs' seven layers
    np.testing.assert_allclose(cut.coverage, 3 / 7, atol=1e-4)
    assert (cut.n_voxels == 63).all()
    slab = parcellated(tmp_path, data[:3]).coverage  # nothing of the second and third ROI
    assert slab.covered.tolist() == [1, 0, 0] and slab.n_voxels.tolist() == [98, 0, 0]


def test_one_atlas_outside_the_image_does_not_disturb_another(tmp_path, data):
    path = save(tmp_path / NAME, data.astype(np.float32))
    far = make_atlas("far", affine=AFFINE + np.outer([1, 0, 0, 0], [0, 0, 0, 900]))
    for atlases in ([far, make_atlas()], [far]):
        with pytest.raises(DataError, match="no ROI of atlas 'far' is covered"):
            parcellate(path, atlases, denoise=NONE)
    partly = make_atlas("partly", affine=AFFINE + np.outer([1, 0, 0, 0], [0, 0, 0, 21]))
    both = parcellate(path, [partly, make_atlas()], denoise=NONE)
    assert both["partly"].coverage.covered.tolist() == [1, 0, 0]
    np.testing.assert_allclose(both["cubes"].series, means(data, make_atlas()), rtol=1e-5)
    np.testing.assert_allclose(both["partly"].series[:, 0], data[8:11, 2:9, 2:9].mean(axis=(0, 1, 2)), rtol=1e-5)


def test_space_is_that_of_sidecar_or_request_or_of_labels_that_have_none(tmp_path, data):
    bare = save(tmp_path / "bold.nii.gz", data.astype(np.float32))
    assert parcellate(bare, [make_atlas()], denoise=NONE, space=SPACE)["cubes"].metadata["Space"] == SPACE
    with pytest.warns(UserWarning, match="declares no space"):
        found = parcellate(bare, [replace(make_atlas(), spaces=[])], denoise=NONE)
    assert found["cubes"].metadata["Space"] == "assumed"
    (tmp_path / "bold.json").write_text(json.dumps({"SpatialReference": SPACE}))
    assert parcellate(bare, [make_atlas()], denoise=NONE)["cubes"].metadata["Space"] == SPACE
    (tmp_path / "bold.json").write_text(json.dumps({"SpatialReference": "MNI152NLin2009cAsym"}))
    with pytest.raises(DataError, match="but the image is in MNI152NLin2009cAsym"):
        parcellate(bare, [make_atlas()], denoise=NONE)


def test_a_number_that_no_scanner_makes_is_refused_although_float32_holds_it(tmp_path, data):
    data[4, 4, 4, 3] = 3e38
    with pytest.raises(DataError, match=r"volume 3 .* is 3e\+38"):
        parcellated(tmp_path, data)


def test_mask_must_lie_on_the_grid_and_hold_something(tmp_path, data):
    mask = tmp_path / "mask.nii.gz"
    for affine, fill, message in ((AFFINE * 1.01, 1, "grid"), (AFFINE, 0, "empty")):
        nib.save(nib.Nifti1Image(np.full(SHAPE, fill, np.uint8), affine), mask)
        with pytest.raises(DataError, match=message):
            parcellated(tmp_path, data, mask=mask)


def test_cleaning_the_means_equals_cleaning_the_voxels(tmp_path):
    rng = np.random.default_rng(3)
    n = 60
    data = rng.normal(1000, 30, (*SHAPE, n)).astype(np.float32)
    confounds = pd.DataFrame(rng.normal(size=(n, 3)), columns=["trans_x", "trans_y", "other"])
    keys, atlas = {"detrend": True, "high_pass": 0.01, "low_pass": 0.1}, make_atlas()
    strategy = Denoise(name="test", confounds=["trans_?"], **keys)
    ours = parcellated(tmp_path, data, atlas, denoise=strategy, confounds=confounds).series
    voxels, used = data[atlas.data == 300].astype(float).T, confounds[["trans_x", "trans_y"]]
    cleaned = signal.clean(voxels, confounds=used, standardize=None, standardize_confounds=True, t_r=2.0, **keys)
    np.testing.assert_allclose(ours[:, 1], cleaned.mean(axis=1), atol=1e-3)


def test_denoising_leaves_uncovered_rois_nan_and_does_not_standardise(tmp_path, data):
    data[4:7] = 0
    confounds = pd.DataFrame({"trans_x": np.arange(T) ** 2.0})
    strategy = Denoise(name="test", confounds=["trans_x"])
    result = parcellated(tmp_path, data, denoise=strategy, confounds=confounds)
    assert np.isnan(result.series[:, 1]).all()
    np.testing.assert_allclose(result.series[:, 0].mean(), 1000, rtol=0.01)
    assert abs(np.corrcoef(result.series[:, 0], confounds["trans_x"])[0, 1]) < 1e-3
    with pytest.raises(DataError, match="cannot be applied to 8 volumes"):
        parcellated(tmp_path, data, denoise=Denoise(name="band", high_pass=0.01, low_pass=0.1))


def test_24_parameters_are_24_or_an_error():
    suffixes = ("", "_derivative1", "_power2", "_derivative1_power2")
    names = [f"{kind}_{axis}{suffix}" for kind in ("trans", "rot") for axis in "xyz" for suffix in suffixes]
    table = pd.DataFrame(np.random.default_rng(0).normal(size=(T, 24)), columns=names)
    table["csf"] = 1.0
    table.loc[0, [n for n in names if "derivative" in n]] = np.nan
    chosen = choose_confounds(table, load_denoise("24p"), T, "x")
    assert chosen.regressors.shape == (T, 24) and chosen.kept is None and np.isfinite(chosen.regressors).all()
    assert np.isnan(table.iloc[0]["trans_x_derivative1"])  # the caller's table is unchanged
    with pytest.raises(DataError, match="no confounds column matches"):
        choose_confounds(table.drop(columns=[n for n in names if "power2" in n]), load_denoise("24p"), T, "x")
    table.loc[3, "rot_z"] = np.nan
    with pytest.raises(DataError, match="'rot_z' is missing in row 3"):
        choose_confounds(table, load_denoise("24p"), T, "x")
    with pytest.raises(DataError, match="needs confounds"):
        choose_confounds(None, load_denoise("24p"), T, "x")
    assert choose_confounds(table, NONE, T, "x").regressors is None


def test_files_of_the_contract(tmp_path, data):
    results = parcellate(save(tmp_path / NAME, data.astype(np.float32)), [make_atlas()], denoise=NONE, tr=2.0)
    write_parcellated(results, tmp_path / "out", "sub-01")
    ends = ("coverage.json", "coverage.tsv", "timeseries.json", "timeseries.npy")
    tables, about, sidecar, series = (tmp_path / f"out/sub-01_atlas-cubes_{end}" for end in ends)
    assert {*(tmp_path / "out").iterdir()} == {tables, about, sidecar, series, tmp_path / "out/status.json"}
    np.testing.assert_array_equal(np.load(series), results["cubes"].series)
    told = {"Atlas": "cubes", "Space": SPACE, "AtlasSHA256": "0" * 64, "RepetitionTime": 2.0}
    assert told.items() <= read_json(sidecar).items() and read_json(sidecar)["Denoising"]["name"] == "none"
    assert len(read_table(about)) == 3 and read_json(tmp_path / "out/status.json")["state"] == "ok"
