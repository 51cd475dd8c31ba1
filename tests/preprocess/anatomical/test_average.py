"""Averaging of several T1w images: less noise, in the place and intensity of the first."""

import numpy as np
import pytest

from bolt.io.errors import BoltWarning, DataError
from bolt.preprocess import images
from bolt.preprocess.anatomical.average import aligned
from bolt.preprocess.anatomical.steps import Conform
from tests.preprocess.conftest import SETTINGS, moved

POSITION = np.array([2.0, -3.0, 1.0, 0.03, -0.02, 0.02])


@pytest.fixture
def repeats(head, tmp_path):
    """Return the noiseless head, its affine and three noisy images: the second is moved and brighter."""
    truth, affine = images.load(head.t1w)
    rng = np.random.default_rng(1)
    position = images.rigid_matrix(POSITION, np.zeros(3))
    heads = truth, 1.4 * moved(truth, affine, position), truth
    paths = [tmp_path / f"{i}.nii.gz" for i in range(3)]
    for path, values in zip(paths, heads, strict=True):
        images.save(np.clip(values + rng.normal(0, 6, truth.shape), 0, None), affine, path)
    return truth, affine, paths


def test_another_image_is_brought_to_place_and_intensity_of_the_first(repeats):
    truth, _, paths = repeats
    first, second = images.read(paths[0]), images.read(paths[1])
    head = truth > 20
    moved_back = aligned(second, first, SETTINGS).numpy()[head]
    assert np.corrcoef(second.numpy()[head], truth[head])[0, 1] < 0.9 < np.corrcoef(moved_back, truth[head])[0, 1]
    assert np.median(moved_back) == pytest.approx(np.median(first.numpy()[head]), rel=0.05)


def conform(paths, folder):
    folder.mkdir()
    step = Conform(settings=SETTINGS.model_dump(), t1w=str(paths[0]), more=[str(path) for path in paths[1:]])
    made = step.work(folder)
    return images.load(made["out"])[0], made["n_averaged"]


@pytest.mark.slow
def test_the_average_is_less_noisy(repeats, tmp_path):
    truth, _, paths = repeats
    head = truth > 20
    (one, n_one), (three, n_three) = conform(paths[:1], tmp_path / "one"), conform(paths, tmp_path / "three")
    assert (n_one, n_three) == (1, 3)
    r_one, r_three = (np.corrcoef(image[head], truth[head])[0, 1] for image in (one, three))
    assert r_three > r_one


@pytest.mark.slow
def test_an_image_that_differs_is_left_out_with_a_warning(repeats, tmp_path):
    _, affine, paths = repeats
    other = tmp_path / "other.nii.gz"
    images.save(np.random.default_rng(0).random(images.load(paths[0])[0].shape), affine, other)
    with pytest.raises(DataError, match="differs from the session's first T1w"):
        aligned(images.read(other), images.read(paths[0]), SETTINGS)
    with pytest.warns(BoltWarning, match=r"other.nii.gz: left out of the average T1w: it differs"):
        _, n = conform([paths[0], other, paths[2]], tmp_path / "out")
    assert n == 2


def test_a_t1w_keeps_its_own_resolution_on_request(head, tmp_path):
    for resolution, size in ((6.0, 6.0), (None, 4.0)):
        settings = SETTINGS.model_copy(update={"working_resolution": resolution})
        made = Conform(settings=settings.model_dump(), t1w=str(head.t1w)).work(tmp_path)
        assert images.read(made["out"]).spacing == pytest.approx((size,) * 3)
