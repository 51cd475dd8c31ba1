"""Series of probabilistic atlases equal those of nilearn's NiftiMapsMasker."""

import tracemalloc
import warnings

import nibabel as nib
import numpy as np
import pandas as pd
import pytest
from nilearn.image import resample_img
from nilearn.maskers import NiftiMapsMasker
from scipy.ndimage import gaussian_filter

from bolt.atlases.image import load_atlas
from bolt.config import load_denoise
from bolt.explain.regions import write_regions
from bolt.explain.weights import paint
from bolt.io.errors import DataError
from bolt.io.files import read_json, write_yaml
from bolt.io.streams import volume_writer
from bolt.series.parcellate import parcellate
from tests.series.test_parcellate import AFFINE, SHAPE, SPACE, T, make_atlas, save

NONE = load_denoise("none")
COARSE = np.array([[3.1, 0.2, 0, -2], [0, 2.8, 0.1, 1], [0.1, 0, 3.3, -3], [0, 0, 0, 1.0]])


def write_maps(folder, affine=AFFINE, shape=SHAPE, n=4, seed=1, signed=False):
    """Write an atlas of smooth maps that overlap, zero in most of the image."""
    rng = np.random.default_rng(seed)
    maps = np.stack([gaussian_filter(rng.normal(size=shape), 1.5) for _ in range(n)], axis=-1).astype(np.float32)
    maps = np.where(np.abs(maps) > 0.03 if signed else maps > 0.03, maps, 0).astype(np.float32)
    folder.mkdir(parents=True, exist_ok=True)
    image = nib.Nifti1Image(maps, affine)
    nib.save(image, folder / "maps.nii.gz")
    table = pd.DataFrame({"value": range(1, n + 1), "name": [f"mode {k}" for k in range(n)]})
    table.assign(network=None, hemisphere=None).to_csv(folder / "labels.tsv", sep="\t", index=False, na_rep="n/a")
    keys = {"name": folder.name, "kind": "maps", "spaces": [SPACE], "file": "maps.nii.gz"}
    write_yaml(keys, folder / "atlas.yaml")
    return str(folder), image


@pytest.fixture
def data():
    return np.random.default_rng(0).normal(1000, 50, (*SHAPE, T)).astype(np.float32)


@pytest.fixture
def modes(tmp_path):
    return write_maps(tmp_path / "modes")


def save_bold(folder, data):
    return str(save(folder / f"x_space-{SPACE}_bold.nii.gz", data))


def save_mask(folder, inside):
    nib.save(nib.Nifti1Image(inside.astype(np.uint8), AFFINE), folder / "mask.nii.gz")
    return str(folder / "mask.nii.gz")


def fitted(maps, image, mask=None):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        masker = NiftiMapsMasker(maps, mask_img=mask, standardize=None, resampling_target="data", keep_masked_maps=True)
        return masker.fit_transform(image)


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("grid", [(AFFINE, SHAPE), (COARSE, (8, 9, 7))])
@pytest.mark.parametrize("masked", [False, True])
def test_equals_nilearn(tmp_path, data, grid, masked, signed):
    folder, maps = write_maps(tmp_path / "modes", *grid, signed=signed)
    image, inside = save_bold(tmp_path, data), np.random.default_rng(2).random(SHAPE) > 0.3
    mask = save_mask(tmp_path, inside) if masked else None
    result = parcellate(image, [load_atlas(folder)], mask=mask, denoise=NONE, threshold=0)["modes"]
    if masked and signed:  # here nilearn leaves out voxels without any positive weight
        on_grid = resample_img(maps, AFFINE, SHAPE, "linear", force_resample=True, copy_header=True).get_fdata()
        expected = np.linalg.lstsq(on_grid[inside], data[inside].astype(float), rcond=None)[0].T
    else:
        expected = fitted(maps, image, mask)
    np.testing.assert_allclose(result.series, expected, rtol=1e-4, atol=1e-2)
    assert result.metadata["Extraction"] == "least squares"
    coverage = result.coverage
    assert (coverage.n_masked > 0).all() if masked else (coverage.n_masked == 0).all()
    if masked and grid[1] == SHAPE:
        weights = np.abs(maps.get_fdata())
        share = weights[inside].sum(axis=0) / weights.sum(axis=(0, 1, 2))
        np.testing.assert_allclose(coverage.coverage, share, atol=1e-4)


def test_maps_and_labels_in_one_pass_whatever_their_order(tmp_path, data, modes):
    folder, maps = modes
    image, labels = save_bold(tmp_path, data), make_atlas()
    alone = parcellate(image, [labels], denoise=NONE)["cubes"]
    both = parcellate(image, [load_atlas(folder), labels], denoise=NONE, threshold=0)
    assert list(both) == ["modes", "cubes"]
    np.testing.assert_array_equal(both["cubes"].series, alone.series)
    pd.testing.assert_frame_equal(both["cubes"].coverage, alone.coverage)
    np.testing.assert_allclose(both["modes"].series, fitted(maps, image), rtol=1e-4, atol=1e-2)


def test_voxels_that_are_not_finite_are_left_out_of_their_volume(tmp_path, data, modes):
    folder, maps = modes
    data[4, 4, 4, 3] = np.nan
    data[5, 5, :, 7] = np.inf
    result = parcellate(save_bold(tmp_path, data), [load_atlas(folder)], denoise=NONE, threshold=0)["modes"]
    weights = maps.get_fdata().reshape(-1, 4)
    for t in (0, 3, 7):
        values = data[..., t].reshape(-1).astype(float)
        good = np.isfinite(values)
        expected = np.linalg.lstsq(weights[good], values[good], rcond=None)[0]
        np.testing.assert_allclose(result.series[t], expected, rtol=1e-4)
    assert result.coverage.n_nonfinite.gt(0).any() and result.coverage.coverage.lt(1).any()


def test_a_map_outside_the_mask_is_nan_and_below_the_threshold_too(tmp_path, data, modes):
    folder, image = modes
    maps = image.get_fdata(dtype=np.float32)
    maps[..., 1] = 0
    maps[:2, :2, :2, 1] = 1
    nib.save(nib.Nifti1Image(maps, AFFINE), tmp_path / "modes/maps.nii.gz")
    inside = np.ones(SHAPE, np.uint8)
    inside[:2] = 0
    mask, bold = save_mask(tmp_path, inside), save_bold(tmp_path, data)
    result = parcellate(bold, [load_atlas(folder)], mask=mask, denoise=NONE, threshold=0.01)["modes"]
    assert np.isnan(result.series).all(axis=0).tolist() == [False, True, False, False]
    assert result.coverage.coverage[1] == 0 and result.coverage.covered.tolist() == [1, 0, 1, 1]
    middle = np.sort(result.coverage.coverage)[2:].mean()
    strict = parcellate(bold, [load_atlas(folder)], mask=mask, denoise=NONE, threshold=middle)["modes"]
    assert strict.coverage.covered.sum() == 1
    kept = strict.coverage.covered.to_numpy() == 1
    np.testing.assert_array_equal(strict.series[:, kept], result.series[:, kept])  # all maps stay in the fit


def test_weight_beyond_the_field_of_view_is_not_covered(tmp_path, data, modes):
    folder, maps = modes
    half = save_bold(tmp_path, data[: SHAPE[0] // 2])
    weights = np.abs(maps.get_fdata())
    result = parcellate(half, [load_atlas(folder)], denoise=NONE, threshold=0)["modes"]
    share = weights[: SHAPE[0] // 2].sum(axis=(0, 1, 2)) / weights.sum(axis=(0, 1, 2))
    np.testing.assert_allclose(result.coverage.inside, share, atol=1e-4)
    np.testing.assert_allclose(result.coverage.coverage, share, atol=1e-4)


def test_memory_does_not_grow_with_the_scan(tmp_path, modes):
    """Neither for maps nor for labels."""
    atlas, peaks, rng = load_atlas(modes[0]), [], np.random.default_rng(0)
    for n_volumes in (20, 400):
        path = tmp_path / f"{n_volumes}_space-{SPACE}_bold.nii.gz"
        with volume_writer(path, AFFINE, SHAPE, tr=2.0, code=4) as append:
            for _ in range(n_volumes):
                append(rng.normal(1000, 10, SHAPE).astype(np.float32))
        tracemalloc.start()
        parcellate(path, [atlas, make_atlas()], denoise=NONE, threshold=0)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] - peaks[0] < 100 * int(np.prod(SHAPE)) * 4  # the 380 more volumes are not kept


def test_tables_and_images_that_do_not_fit(tmp_path, modes):
    folder, image = modes
    table = tmp_path / "modes/labels.tsv"
    text = table.read_text()
    more, other = text + "5\tmode 5\tn/a\tn/a\n", text.replace("\n2\t", "\n7\t")
    for changed, message in ((more, "4 maps, but the table of labels has 5 rows"), (other, "maps must be 1, 2, 3")):
        table.write_text(changed)
        with pytest.raises(DataError, match=message):
            load_atlas(folder)
    table.write_text(text)
    nib.save(nib.Nifti1Image(image.get_fdata()[..., 0], AFFINE), tmp_path / "modes/maps.nii.gz")
    with pytest.raises(DataError, match="expected a 4D image with a map per ROI"):
        load_atlas(folder)


def test_numbers_are_painted_as_weighted_sums_and_labels_are_the_strongest_map(modes):
    folder, maps = modes
    atlas, weights = load_atlas(folder), maps.get_fdata()
    painted = paint(atlas.image, np.array([3, 1]), np.array([2.0, -1.0], np.float32))
    np.testing.assert_allclose(painted.get_fdata(), 2 * weights[..., 2] - weights[..., 0], atol=1e-6)
    labels = np.asarray(atlas.label_image.dataobj)
    expected = np.where(weights.max(axis=-1) > 0, weights.argmax(axis=-1) + 1, 0)
    assert (labels == expected).mean() > 0.999 and set(np.unique(labels)) == {0, 1, 2, 3, 4}


def test_brain_maps_of_an_explanation(tmp_path, modes):
    atlas, maps = load_atlas(modes[0]), modes[1]
    coefficients = np.random.default_rng(0).normal(size=(3, 2, 4))
    np.save(tmp_path / "coefficients.npy", coefficients)
    np.save(tmp_path / "coefficients_controls.npy", np.stack([coefficients] * 3))
    told = {"fraction": 0.25, "atlas": "modes", "space": SPACE}
    write_regions(tmp_path / "coefficients.npy", atlas.labels, ["a", "b"], atlas.image, tmp_path / "out", **told)
    stem = f"out/space-{SPACE}_atlas-modes_class-b"
    weight = nib.load(tmp_path / f"{stem}_stat-logodds_statmap.nii.gz").get_fdata()
    np.testing.assert_allclose(weight, maps.get_fdata() @ coefficients[:, 1].mean(axis=0), atol=1e-5)
    assert set(np.unique(nib.load(tmp_path / f"{stem}_desc-top_mask.nii.gz").get_fdata())) == {0, 1}
    assert read_json(tmp_path / f"{stem}_desc-top_mask.json")["Atlas"] == "modes"
