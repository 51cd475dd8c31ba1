"""T1w images are averaged, brains extracted, settings tried in order, and implausible normalisations refused."""

from __future__ import annotations

import json
from pathlib import Path

import ants
import numpy as np
import pytest

from bolt.io.errors import BoltWarning, DataError
from bolt.preprocess import anatomical, images
from bolt.preprocess.anatomical import anatomical_names, conform, preprocess_anatomical
from tests.preprocess.conftest import SETTINGS as HEAD_SETTINGS
from tests.preprocess.conftest import SPACE, moved

SETTINGS = HEAD_SETTINGS.model_copy(update={"mask_resolution": 4.0, "tissue_resolution": 4.0})


@pytest.fixture
def repeats(head, tmp_path):
    """Return the noiseless head, its affine and three noisy images: the second is moved and brighter."""
    truth, affine = images.load(head.t1w)
    rng = np.random.default_rng(1)
    position = images.rigid_matrix(np.array([2.0, -3.0, 1.0, 0.03, -0.02, 0.02]), np.zeros(3))
    heads = truth, 1.4 * moved(truth, affine, position), truth
    paths = [str(tmp_path / f"{i}.nii.gz") for i in range(3)]
    for path, values in zip(paths, heads, strict=True):
        images.save(np.clip(values + rng.normal(0, 6, truth.shape), 0, None), affine, path)
    return truth, affine, paths


def test_another_image_is_brought_to_place_and_intensity_of_the_first(repeats):
    truth, _, paths = repeats
    first, second = images.read(paths[0]), images.read(paths[1])
    head = truth > 20
    moved_back = anatomical.aligned(second, first, SETTINGS).numpy()[head]
    assert np.corrcoef(second.numpy()[head], truth[head])[0, 1] < 0.9 < np.corrcoef(moved_back, truth[head])[0, 1]
    assert np.median(moved_back) == pytest.approx(np.median(first.numpy()[head]), rel=0.05)


@pytest.mark.slow
def test_the_average_is_less_noisy_and_leaves_out_what_differs(repeats, tmp_path):
    truth, affine, paths = repeats
    likeness, head = {}, truth > 20
    for n in (1, 3):
        made = conform(tmp_path, SETTINGS, paths[0], paths[1:n])
        assert made["n_averaged"] == n
        likeness[n] = np.corrcoef(images.load(made["t1w"])[0][head], truth[head])[0, 1]
    assert likeness[3] > likeness[1]
    other = str(tmp_path / "other.nii.gz")
    images.save(np.random.default_rng(0).random(truth.shape), affine, other)
    with pytest.warns(BoltWarning, match=r"other.nii.gz: left out of the average T1w: it differs from the session's"):
        assert conform(tmp_path, SETTINGS, paths[0], [other, paths[2]])["n_averaged"] == 2


def test_a_t1w_keeps_its_own_resolution_on_request(head, tmp_path):
    for resolution, size in ((6.0, 6.0), (None, 4.0)):
        settings = SETTINGS.model_copy(update={"working_resolution": resolution})
        made = conform(tmp_path, settings, str(head.t1w))
        assert images.read(made["t1w"]).spacing == pytest.approx((size,) * 3)


def test_a_brain_is_one_piece_without_holes_and_larger_than_a_few_millilitres():
    mask = np.zeros((60, 60, 60), dtype=bool)
    mask[2:4, 2:4, 2:4] = True
    for few in (0 * mask, mask):
        with pytest.raises(DataError, match="too little for a brain"):
            anatomical.one_piece(few, (2.0, 2.0, 2.0))
    mask[10:50, 10:50, 10:50] = True
    mask[30, 30, 30] = False
    largest = anatomical.one_piece(mask, (2.0, 2.0, 2.0))
    assert largest[10:50, 10:50, 10:50].all() and largest.sum() == 40**3


def test_a_few_bright_voxels_do_not_coarsen_a_t1w_on_disk(tmp_path):
    data = np.random.default_rng(0).uniform(1, 1000, (30, 30, 30))
    data[0, 0, 0] = 1e7
    anatomical.write_t1w(images.to_ants(data, np.eye(4)), tmp_path / "T1w.nii.gz")
    kept = images.read(tmp_path / "T1w.nii.gz").numpy()
    np.testing.assert_allclose(kept.ravel()[1:], data.ravel()[1:], atol=2.1)
    assert kept[0, 0, 0] > 30_000


@pytest.fixture
def mask(head) -> ants.ANTsImage:
    return images.read(head.template / "brain_mask.nii.gz")


def linear(path: Path, scale: float = 1.0, shift: float = 0.0) -> Path:
    matrix = np.diag([scale, scale, scale, 1.0])
    matrix[0, 3] = shift
    images.write_matrix(matrix, path)
    return path


def field(path: Path, template: ants.ANTsImage, shift: np.ndarray) -> Path:
    """Write a displacement field; `shift` (X, Y, Z) in mm along the first axis of space."""
    parts = [template.new_image_like(part.astype(np.float32)) for part in (shift, 0 * shift, 0 * shift)]
    ants.image_write(ants.merge_channels(parts), str(path))
    return path


def test_implausible_transforms_are_refused(mask, tmp_path, monkeypatch):
    anatomical.check_transform([linear(tmp_path / "a.mat", 0.97, 3)], mask, mask)
    for scale, shift, message in ((1.3, 0, "volume"), (0.6, 0, "volume"), (1, 40, "overlap")):
        with pytest.raises(DataError, match=message) as error:
            anatomical.check_transform([linear(tmp_path / "a.mat", scale, shift)], mask, mask)
        assert error.value.hint
    wave = 14 * np.sin(np.indices(mask.shape)[0] * 4.0 / 6)
    with pytest.raises(DataError, match="folds space"):
        anatomical.check_transform([field(tmp_path / "fold.nii.gz", mask, wave)], mask, mask)
    monkeypatch.setattr(images, "places_of_grid", lambda shape, *_: np.full((*shape, 3), np.nan))
    with pytest.raises(DataError, match="infinity"):
        anatomical.check_transform([], mask, mask)


def test_settings_are_tried_in_order_until_a_result_is_plausible(head, anat, tmp_path, monkeypatch, caplog):
    """The result and the name of the settings that worked are kept; if none do, the last error is raised."""
    made = {port: anat / name for port, name in anatomical_names("sub-01_", SPACE).items()} | {"n_averaged": 1}

    def run(flow, folder, where, **_):
        folder.mkdir(exist_ok=True)
        if (name := flow.inputs.normalise.settings.name) != "good":
            raise DataError(f"no transform is plausible: {name}", where=where)
        return made

    monkeypatch.setattr(anatomical, "run", run)
    one, two, good = (SETTINGS.model_copy(update={"name": name}) for name in ("one", "two", "good"))
    given, out = (head.t1w, head.template, SPACE), tmp_path / "sub-01" / "anat"
    preprocess_anatomical(*given, [one, good], out, tmp_path / "work", prefix="sub-01_")
    assert json.loads((out / "sub-01_desc-quality.json").read_text())["registration"] == "good"
    assert "'one' failed, trying 'good' next" in caplog.text
    with pytest.raises(DataError, match="plausible: two"):
        preprocess_anatomical(*given, [one, two], out, tmp_path / "work", prefix="sub-01_")


def test_an_error_in_ants_is_bad_data(head, tmp_path, monkeypatch):
    def fails(*args, **options):
        raise RuntimeError("Registration failed with error code 1")

    monkeypatch.setattr(ants, "registration", fails)
    with pytest.raises(DataError, match="could not register"):
        anatomical.extract_brain(tmp_path, SETTINGS, *[str(head.t1w)] * 3)


def test_the_refinement_is_composed_with_the_alignment_and_can_be_undone(mask, tmp_path):
    """A brain that was displaced by a known affine and wave; forward and inverse cancel out."""
    brain = mask * 100 + ants.smooth_image(mask, 12) * 80
    wave = 3 * np.sin(np.indices(mask.shape)[0] * 4.0 / 25)
    matrix, bent = linear(tmp_path / "a.mat", 1.03, 2.0), field(tmp_path / "bent.nii.gz", mask, wave)
    back = field(tmp_path / "back.nii.gz", mask, np.zeros(mask.shape))
    subject = ants.apply_transforms(mask, brain, [str(matrix)], whichtoinvert=[True])
    none = SETTINGS.model_copy(update={"syn_iterations": [0]})
    forward, _ = anatomical.normalise(subject, brain, matrix, bent, back, none, tmp_path)
    inner = np.argwhere(mask.numpy() > 0.5)[::50]
    places = images.places_of_grid(mask.shape, images.affine_of(mask), [forward])[tuple(inner.T)]
    expected = images.places_of_grid(mask.shape, images.affine_of(mask), [bent, matrix])[tuple(inner.T)]
    np.testing.assert_allclose(places, expected, atol=0.01)
    zero = field(tmp_path / "zero.nii.gz", mask, np.zeros(mask.shape))
    forward, inverse = anatomical.normalise(subject, brain, matrix, zero, zero, SETTINGS, tmp_path)
    here = images.apply(images.affine_of(mask), inner.astype(float))
    there = images.places_of_grid(mask.shape, images.affine_of(mask), [forward, inverse])[tuple(inner.T)]
    np.testing.assert_allclose(there, here, atol=0.3)
