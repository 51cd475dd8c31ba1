"""Regions land on the right side of the brain, in the colour of their class."""

from __future__ import annotations

from pathlib import Path

import nibabel as nib
import numpy as np
import pandas as pd
import pytest

from bolt.atlases import load_atlas
from bolt.report.brain import LETTERS, _listing, _rois_of_vertices, plot_regions
from bolt.report.style import class_colours
from tests.report.test_figures import has_colour
from tests.shared import shared_data


def sphere_atlas(centres: list[tuple[int, int, int]], radius: float = 8) -> nib.Nifti1Image:
    """Spheres with the values 5, 10, ... on a 4-mm MNI grid."""
    affine = np.diag([4.0, 4, 4, 1])
    affine[:3, 3] = [-90, -126, -72]
    grid = np.stack(np.meshgrid(*map(np.arange, (46, 55, 46)), indexing="ij"), -1) * 4 + affine[:3, 3]
    labels = np.zeros(grid.shape[:3], np.int16)
    for i, centre in enumerate(centres, start=1):
        labels[((grid - centre) ** 2).sum(-1) <= radius**2] = 5 * i
    return nib.Nifti1Image(labels, affine)


IMAGE = sphere_atlas([(-50, -20, 50), (50, -20, 50), (-40, 30, 30), (0, -55, -35)])
NAMES = ["left motor", "right motor", "left frontal", "vermis"]


def weights(classes: list[str], chosen: dict[str, list[int]]) -> pd.DataFrame:
    rows = [
        {
            "class": name,
            "rank": rank,
            "value": value,
            "name": NAMES[value // 5 - 1],
            "network": "motor",
            "selected": value in chosen[name],
        }
        for name in classes
        for rank, value in enumerate((5, 10, 15, 20), start=1)
    ]
    return pd.DataFrame(rows)


def test_vertices_find_rois_of_their_own_hemisphere() -> None:
    nearest = _rois_of_vertices(IMAGE)
    flat = np.append(IMAGE.get_fdata().ravel(), 0)
    left, right = set(flat[nearest["left"]]), set(flat[nearest["right"]])
    assert left == {0, 5, 15} and right == {0, 10}  # the vermis is not cortex


def test_a_complete_atlas_covers_most_of_the_cortex() -> None:
    """Sampling works in millimetres: a full slab of labels reaches every vertex."""
    full = nib.Nifti1Image(np.ones((46, 55, 46), np.int16), IMAGE.affine)
    assert all((index >= 0).mean() > 0.99 for index in _rois_of_vertices(full).values())


def test_two_classes_share_a_brain(tmp_path: Path) -> None:
    classes = ["female", "male"]
    plot_regions(weights(classes, {"female": [5, 20], "male": [10]}), IMAGE, classes, tmp_path / "brain.png")
    assert all(has_colour(tmp_path / "brain.png", c, 200) for c in class_colours(classes).values())
    assert (tmp_path / "brain.svg").stat().st_size < 2_000_000  # the surfaces are pictures, not triangles


@pytest.mark.slow
def test_a_class_without_regions_is_drawn_empty(tmp_path: Path) -> None:
    classes = ["female", "male"]
    plot_regions(weights(classes, {"female": [5], "male": []}), IMAGE, classes, tmp_path / "brain.png")
    assert _listing(weights(classes, {"female": [], "male": []}).iloc[:0], "male") == ["no ROI"]


@pytest.mark.slow
def test_three_classes_have_a_row_each_and_real_atlas(tmp_path: Path) -> None:
    classes = ["a", "b", "c"]
    image = load_atlas("dosenbach160").image
    table = weights(classes, {"a": [5], "b": [10], "c": [15, 20]})
    plot_regions(table, image, classes, tmp_path / "brain.png")
    assert all(has_colour(tmp_path / "brain.png", c, 50) for c in class_colours(classes).values())


def test_long_names_are_cut_and_known_networks_not_repeated() -> None:
    table = weights(["a"], {"a": [5, 10]}).assign(selected=True)
    table["name"] = ["x" * 80, "7Networks_LH_Motor_3", "y", "z"]
    lines = _listing(table, "a")
    assert len(lines[0]) == LETTERS and lines[0].endswith("…")
    assert lines[1] == "2. 7Networks_LH_Motor_3" and lines[2] == "3. y (motor)"


def test_surface_agrees_with_the_publishers_own_parcellation() -> None:
    """Schaefer's volume on our vertices against Schaefer's fsaverage5 annotation (surface and volume
    releases differ by about a quarter of the vertices, at the borders of 400 small parcels)."""
    folder = shared_data("atlases")
    image = nib.load(folder / "Schaefer2018_400Parcels_7Networks_order_FSLMNI152_2mm.nii.gz")
    flat = np.append(np.asanyarray(image.dataobj).ravel(), 0).astype(int)
    nearest = _rois_of_vertices(image)
    for side, short, first in (("left", "lh", 0), ("right", "rh", 200)):
        published = nib.freesurfer.read_annot(folder / f"fsa5_{short}_schaefer_400.annot")[0]
        ours = flat[nearest[side]]
        cortex = published > 0
        assert (ours[cortex] == published[cortex] + first).mean() > 0.7
        assert (ours[cortex] > 0).mean() > 0.99
