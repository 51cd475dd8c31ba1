"""Where deep grey matter is."""

from __future__ import annotations

import numpy as np

from bolt.preprocess import images
from bolt.preprocess.tissues import deep_grey


def test_it_is_carried_to_the_head(tmp_path):
    affine = np.diag([2.0, 2, 2, 1])
    affine[:3, 3] = [-90, -120, -70]
    head = images.to_ants(np.ones((90, 110, 90)), affine)
    moved = images.rigid_matrix(np.array([10.0, 0, 0, 0, 0, 0]), np.zeros(3))
    images.write_matrix(moved, tmp_path / "to_t1w.txt")  # points of the T1w to points of the template
    mask = deep_grey(head, tmp_path / "to_t1w.txt").numpy()

    def at(*place):
        return mask[tuple(np.round(images.apply(np.linalg.inv(moved @ affine), np.array(place))).astype(int))]

    for side in (-1, 1):
        for inside in ((12, -19, 7), (13, 10, 8), (26, 4, 2), (19, -1, -1)):  # thalamus, caudate, putamen, pallidum
            assert at(side * inside[0], *inside[1:]) == 1, inside
        for outside in ((30, -40, 30), (30, -70, 10), (50, 0, 20), (25, 40, 10), (12, -19, 45)):  # centrum semiovale, …
            assert at(side * outside[0], *outside[1:]) == 0, outside
    assert 60 < mask.sum() * 8 / 1000 < 140  # ml
