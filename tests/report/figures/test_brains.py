"""Regions land on the right side of the brain, in the colour of their class."""

import nibabel as nib
import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from bolt.atlases.image import load_atlas
from bolt.report.figures.brains import (
    LISTED,
    _codes,
    centres,
    cuts,
    draw_key,
    is_drawn,
    labels_of_vertices,
    listing,
    plot_regions,
    shades,
)
from bolt.report.figures.style import class_colours
from tests.report.figures.test_plots import has_colour
from tests.shared import shared_data


def sphere_atlas(centres, radius=8):
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


def weights(classes, chosen):
    rows = [
        {"class": name, "rank": rank, "value": value, "name": NAMES[rank - 1], "selected": value in chosen[name]}
        for name in classes
        for rank, value in enumerate((5, 10, 15, 20), start=1)
    ]
    table = pd.DataFrame(rows)
    return table.assign(network="motor", weight=1.0 / table["rank"], selection_frequency=1.0, n_folds=10)


def test_regions_that_no_fold_selects_are_not_drawn():
    table = weights(["a", "b"], {"a": [5, 10], "b": [20]})
    table.loc[table["value"] == 10, "selection_frequency"] = 0.0
    assert table[is_drawn(table)]["value"].tolist() == [5, 20]


def test_vertices_find_rois_of_their_own_hemisphere():
    """Left stays left; the vermis is not cortex."""
    found = {side: set(labels) for side, labels in labels_of_vertices(IMAGE).items()}
    assert found == {"left": {0, 5, 15}, "right": {0, 10}}


def test_a_complete_atlas_covers_most_of_the_cortex():
    """Sampling works in millimetres: a full slab of labels reaches every vertex."""
    full = nib.Nifti1Image(np.ones((46, 55, 46), np.int16), IMAGE.affine)
    assert all((labels == 1).mean() > 0.99 for labels in labels_of_vertices(full).values())


def test_centres_are_millimetres_of_the_right_side():
    assert centres(IMAGE, np.array([10, 5])) == [(50, -20, 50), (-50, -20, 50)]


def test_slices_pass_through_regions_and_fill_up():
    assert cuts([], 3) == [-30.0, 15.0, 65.0]
    found = cuts([10, 11, 50], 4)
    assert {10.0, 50.0} <= set(found) and 11.0 not in found and len(found) == 4 and found == sorted(found)


def test_shades_say_how_many_folds_agree():
    table = weights(["a", "b"], {"a": [5, 10, 15], "b": [20]}).query("selected")
    table = table.assign(selection_frequency=[1 / 3, 0.5, 0.9, 1.0])
    assert _codes(table, ["a", "b"]) == {5: 1, 10: 2, 15: 3, 20: 6}
    assert shades("#c0392b")[-1] == "#c0392b"


@pytest.mark.usefixtures("pdf")
def test_two_classes_share_a_brain(tmp_path):
    classes = ["female", "male"]
    plot_regions(weights(classes, {"female": [5, 20], "male": [10]}), IMAGE, classes, tmp_path / "brain.png")
    assert all(has_colour(tmp_path / "brain.png", c, 200) for c in class_colours(classes).values())
    assert (tmp_path / "brain.svg").stat().st_size < 2_000_000  # the surfaces are pictures, not triangles
    assert "favours female" in (tmp_path / "brain.svg").read_text()  # text stays text
    pdf = (tmp_path / "brain.pdf").read_bytes()
    assert b"/FontFile2" in pdf and b"/Type3" not in pdf and len(pdf) < 2_000_000  # embedded TrueType


@pytest.mark.slow
def test_a_class_without_regions_is_drawn_empty(tmp_path):
    classes = ["female", "male"]
    plot_regions(weights(classes, {"female": [5], "male": []}), IMAGE, classes, tmp_path / "brain.png")
    assert listing(weights(classes, {"female": [], "male": []}).iloc[:0]) == [("no ROI", "")]


@pytest.mark.slow
def test_three_classes_have_a_row_each_and_real_atlas(tmp_path):
    classes = ["a", "b", "c"]
    image = load_atlas("dosenbach160").image
    table = weights(classes, {"a": [5], "b": [10], "c": [15, 20]})
    plot_regions(table, image, classes, tmp_path / "brain.png")
    assert all(has_colour(tmp_path / "brain.png", c, 50) for c in class_colours(classes).values())


def test_the_key_names_networks_once_and_places_where_there_is_none():
    table = weights(["a"], {"a": [5, 10, 15]}).query("selected").assign(selection_frequency=[0.7, 0.1, 1.0])
    table["name"], table["network"] = ["LH_Motor_3", "y", "z"], ["Motor", "motor", "n/a"]
    table["centre"] = [(0, 0, 0), (0, 0, 0), (-40, 30, 30)]
    places = [("1. LH_Motor_3", "7 of 10"), ("2. y (motor)", "1 of 10"), ("3. z (−40, 30, 30 mm)", "10 of 10")]
    assert listing(table) == places
    assert listing(pd.concat([table] * 5))[-1] == (f"and {15 - LISTED} more", "")


def test_surface_agrees_with_the_publishers_own_parcellation():
    """Schaefer's volume on our vertices against Schaefer's fsaverage5 annotation (surface and volume
    releases differ by about a quarter of the vertices, at the borders of 400 small parcels)."""
    folder = shared_data("atlases")
    image = nib.load(folder / "Schaefer2018_400Parcels_7Networks_order_FSLMNI152_2mm.nii.gz")
    found = labels_of_vertices(image)
    for side, first in (("left", 0), ("right", 200)):
        published = nib.freesurfer.read_annot(folder / f"fsa5_{side[0]}h_schaefer_400.annot")[0]
        cortex = published > 0
        assert (found[side][cortex] == published[cortex] + first).mean() > 0.7
        assert (found[side][cortex] > 0).mean() > 0.99


def test_a_long_name_of_a_class_leaves_room_for_the_folds():
    figure = Figure(figsize=(3, 2))
    FigureCanvasAgg(figure)
    rows = weights(["a", "b"], {"a": [5], "b": [10]}).query("selected and `class` == 'a'").assign(centre=[(0, 0, 0)])
    draw_key(figure, (0.1, 0.1, 2.3), "major depressive disorder, first episode", rows, "#c0392b", 7)
    heading, unit = figure.texts[1], figure.texts[2]
    assert heading.get_text().endswith("…") and unit.get_text() == "folds"
    assert heading.get_window_extent().x1 < unit.get_window_extent().x0
