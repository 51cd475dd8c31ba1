"""Pictures and numbers (their contents are looked at by people; the workflows' tests write them)."""

from __future__ import annotations

import matplotlib.image
import numpy as np

from bolt.preprocess import images, pictures, registration


def test_white_matter_is_the_brightest_class():
    data = np.full((20, 20, 20), 30.0)
    data[4:16, 4:16, 4:16] = 60
    data[7:13, 7:13, 7:13] = 90
    data += np.random.default_rng(0).normal(0, 2, data.shape)
    image, mask = images.to_ants(data, np.eye(4)), images.to_ants(np.ones(data.shape), np.eye(4))
    found = pictures.white_matter(image, mask).numpy() > 0.5
    core = np.zeros(data.shape, dtype=bool)
    core[7:13, 7:13, 7:13] = True
    assert registration.dice(found, core) > 0.9


def test_mosaic_shows_the_slices_and_the_contours(tmp_path, head):
    image, mask = images.read(head.template / "T1w.nii.gz"), images.read(head.template / "brain_mask.nii.gz")
    pictures._mosaic(image, [(mask, pictures.BRAIN)], "title", tmp_path / "a.png")
    picture = matplotlib.image.imread(tmp_path / "a.png")[..., :3]
    assert picture.shape[1] > 1000
    orange = (picture[..., 0] > 0.75) & (picture[..., 2] < 0.4)
    assert orange.sum() > 2000  # contours in all three rows
    thirds = np.array_split(orange, 3, axis=0)
    assert all(part.sum() > 300 for part in thirds)
