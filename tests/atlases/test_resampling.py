"""Atlases on the grid of an image: what nilearn makes of them, without its import."""

import nibabel as nib
import numpy as np
import pandas as pd
import pytest
from nilearn.image import resample_img

from bolt.atlases.image import Atlas, resample_to

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
