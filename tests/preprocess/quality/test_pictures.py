"""Pictures and the sample of the carpet plot (the workflow tests draw all pictures)."""

from __future__ import annotations

import io
import re

import numpy as np
from PIL import Image

from bolt.preprocess import images, registration
from bolt.preprocess.quality import pictures


def test_white_matter_is_the_brightest_class():
    data, core = np.full((20, 20, 20), 30.0), np.zeros((20, 20, 20), dtype=bool)
    data[4:16, 4:16, 4:16] = 60
    data[7:13, 7:13, 7:13], core[7:13, 7:13, 7:13] = 90, True
    data += np.random.default_rng(0).normal(0, 2, data.shape)
    image, mask = images.to_ants(data, np.eye(4)), images.to_ants(np.ones(data.shape), np.eye(4))
    assert registration.dice(pictures.white_matter(image, mask).numpy() > 0.5, core) > 0.9


def test_a_view_shows_the_slices_and_the_contours(head):
    image, mask = images.read(head.template / "T1w.nii.gz"), images.read(head.template / "brain_mask.nii.gz")
    webp = pictures.View(mask).draw(image, [(mask, pictures.BRAIN)], "title")
    picture = np.asarray(Image.open(io.BytesIO(webp)).convert("RGB")) / 255
    assert picture.shape[1] == pictures.WIDTH
    orange = (picture[..., 0] > 0.6) & (picture[..., 2] < 0.45)
    assert orange.sum() > 1500  # contours in all three rows
    assert all(part.sum() > 200 for part in np.array_split(orange, 3, axis=0))


def test_two_images_in_turn_have_one_size_and_few_bytes(tmp_path, head):
    image, mask = images.read(head.template / "T1w.nii.gz"), images.read(head.template / "brain_mask.nii.gz")
    first, second = (pictures.View(mask).draw(shown, [], "title") for shown in (image, mask))
    pictures.write_flicker(first, second, tmp_path / "a.svg")
    text = (tmp_path / "a.svg").read_text()
    size = [str(n) for n in Image.open(io.BytesIO(first)).size]
    found = re.findall(r'<image class="(\w+)" width="(\d+)" height="(\d+)"', text)
    assert found == [("second", *size), ("first", *size)] and len(text) < 200_000


def test_the_carpet_averages_neighbours_and_removes_the_trend():
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2, 3], [100, 800, 300, 100]).reshape(13, 10, 10)
    slope = np.linspace(0, 50, 20)
    bold = rng.normal(size=(20, *labels.shape)) + slope[:, None, None, None]
    bold[:, labels == 3] = 7.0  # constant
    values, rows = pictures.sample(iter(bold), labels)
    assert rows == {1: 260, 2: 110}
    assert values.shape == (370, 20)
    np.testing.assert_allclose(values.std(axis=1), 1)
    assert np.abs(np.corrcoef(values.mean(axis=0), slope)[0, 1]) < 1e-6
    first = bold.reshape(20, -1)[:, 100:103].mean(axis=1)  # 800 voxels of grey matter in 260 rows
    detrended = first - np.polyval(np.polyfit(np.arange(20), first, 1), np.arange(20))
    np.testing.assert_allclose(values[0], detrended / detrended.std(), atol=1e-9)


def test_the_carpet_takes_an_empty_tissue():
    labels = (np.indices((4, 4, 4))[0] == 0).astype(int)
    values, rows = pictures.sample(iter(np.random.default_rng(0).normal(size=(5, 4, 4, 4))), labels)
    assert rows == {1: 16} and len(values) == 16
