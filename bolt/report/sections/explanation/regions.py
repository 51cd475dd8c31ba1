"""Which regions: brain maps, the selected ROIs, and their networks.

Which connections: matrices, the strongest on the brain, and their table.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from bolt.config import Explain, Paths
from bolt.config.layout import ModelRun
from bolt.config.study import Study
from bolt.explain.connections import SHUFFLES
from bolt.io.errors import BoltError
from bolt.io.files import holds_something, read_table
from bolt.report.figures.brains.maps import plot_networks
from bolt.report.figures.trust import plot_network_matrices, plot_roi_matrices
from bolt.report.html import Block, Picture, Table, Text, View
from bolt.report.runs import figure_folder, run_anchor, run_figure
from bolt.report.tables.explanation import selected_networks, selected_rois, sign_counts, strongest_connections

if TYPE_CHECKING:
    from bolt.atlases.image import Atlas
if TYPE_CHECKING:
    import nibabel as nib


BRAIN = (
    "Regions whose activity at landmark volumes favours a class: the top {share:.2g} % of ROIs by {rank}, "
    "mean over folds. Glass brain (from the left, behind, right and above), axial slices on the MNI152 template, and "
    "inflated fsaverage5 cortex, which cannot show deep regions or the cerebellum. Colour: class; shade: number of "
    "folds that select the region (pale: few; none: not drawn)."
)
STRONGEST = (
    "The ROIs of this atlas are maps that overlap: each voxel of these pictures shows the ROI whose map is strongest "
    "there. The NIfTI files of weights are sums of all maps, each times the weight of its ROI."
)
SELECTED = (
    "Selected ROIs. The weight is the change in log odds per standard deviation of BOLD, mean ± standard deviation "
    "over folds. A region is only as reliable as the share of folds that select it. Last column: control volumes "
    "on which the regression gives the weight the same sign."
)
SIGNS = (
    "Landmarks are chosen by the predicted class, so the sign of a weight may only repeat the prediction. It is "
    "the same on random volumes and on volumes chosen for one class in all scans for {counts}; by chance it would "
    "be for a quarter. Where the sign depends on how volumes are chosen, do not call a region more or less active "
    "in a class."
)
NETWORKS = (
    "Left: share of each network's ROIs that are selected; dashed: the share if networks made no difference. Right: "
    "mean importance of all ROIs of a network. Bars: mean over folds; whiskers: standard deviation."
)
INTERACTIVE = (
    "Colours are regression weights (log odds per standard deviation): {signs}. The view takes a few seconds to load."
)


def regions_blocks(study: Study, run: ModelRun) -> list[Block]:
    """Show the brain, the selected ROIs and their networks; [] without ``roi_weights.tsv``."""
    out = run.explanation
    if not (out / "roi_weights.tsv").is_file():
        return []
    weights = read_table(out / "roi_weights.tsv", text=("class", "name", "network", "hemisphere"))
    blocks = _brain_blocks(study, run, weights)
    blocks.append(Table(selected_rois(weights), SELECTED, out / "roi_weights.tsv"))
    if weights["selected"].astype(bool).any():
        blocks.append(Text(SIGNS.format(counts=sign_counts(weights))))
    networks = read_table(out / "networks.tsv", text=("class", "network")).fillna({"network": "n/a"})
    if set(networks["network"]) != {"n/a"}:
        picture = run_figure(study, run, "networks")
        plot_networks(networks, study.dataset.coloured, picture)
        blocks.append(Picture(picture, NETWORKS))
        blocks.append(Table(selected_networks(networks), "Networks of the selected ROIs.", out / "networks.tsv"))
    return blocks


def brain_picture(study: Study, run: ModelRun) -> Picture:
    """Return the picture that `regions_blocks` draws, with its caption."""
    return Picture(run_figure(study, run, "brain"), brain_caption(study.config.explain))


def brain_caption(explain: Explain) -> str:
    """Return the caption of a brain map."""
    rank = "odds ratio" if explain.odds_ratio == "published" else "regression weight"
    return BRAIN.format(share=100 * explain.top_rois, rank=rank)


def _brain_blocks(study: Study, run: ModelRun, weights: pd.DataFrame) -> list[Block]:
    from bolt.report.figures.brains.maps import plot_regions
    from bolt.report.figures.brains.views import write_views  # nilearn is slow to import; the report draws none

    classes = study.dataset.coloured
    try:
        atlas = atlas_of(study, run.atlas)
        image = atlas.label_image
    except BoltError as error:
        return [Text(f"No brain map: {error}", warning=True)]
    brain = brain_picture(study, run)
    plot_regions(weights, image, classes, brain.file)
    two = len(classes) == 2
    signs = f"red favours {classes[0]}, blue {classes[-1]}" if two else "red favours the class, blue speaks against it"
    blocks: list[Block] = [brain]
    if atlas.is_maps:
        blocks.insert(0, Text(STRONGEST))
    stem = figure_folder(study.layout) / run_anchor(run)
    for shown, (volume, cortex) in write_views(weights, image, classes, stem).items():
        caption = INTERACTIVE.format(signs=signs)
        blocks.append(View(cortex, f"Interactive cortex: selected regions, {shown}", caption))
        blocks.append(View(volume, f"Interactive slices: weights of all regions, {shown}", caption))
    return blocks


def atlas_of(study: Study, name: str) -> Atlas:
    """Return a configured atlas with its image in the study's space."""
    return _atlas(study.config.atlas_places[name], study.space, study.config.paths)


@lru_cache(maxsize=4)
def _atlas(place: str, space: str | None, paths: Paths) -> Atlas:
    """Load an atlas once for all models and seeds."""
    from bolt.atlases.image import load_atlas

    return load_atlas(
        place,
        space=space,
        atlas_dir=paths.atlas_dir,
        templateflow_home=paths.templateflow_home,
        cache=paths.carried_atlases,
    )


TEXT = ("class", "name_a", "network_a", "name_b", "network_b")
MEANING = (
    "How each connection (correlation of two ROIs over the whole scan) goes with the prediction over test scans: what "
    "people with that prediction have in common. It does not show that the model reads these connections, and motion "
    "or site may underlie both."
)
BLOCKS_OF_NETWORKS = (
    "Mean correlation of the connections between networks with the predicted log odds of {classes}. Numbers: "
    "connections whose own correlation is significant after correction for all connections. {colours}"
)
ROIS = "Correlation of every connection with the predicted log odds of {classes}. {colours}"
CONNECTED_BRAIN = (
    "The {n} strongest connections with p < 0.05 after correction for all connections. The views from the left and "
    "right show those within a hemisphere only. {colours}"
)
NONE = "No connection goes with the prediction more than the strongest of shuffled predictions does (p < 0.05)."
STRONGEST_CONNECTIONS = (
    "The strongest connections. p: share of {shuffles} shuffles of the predictions within folds whose strongest "
    "correlation is at least as strong. In brackets: the centre of the ROI, mm in the atlas's space. Over {n} people "
    "or scans, each tested by a model that had not seen it."
)
DRAWN = 50
"""Connections of each class on the brain."""
SHOWN = 15
"""Connections of each class in the table of the page."""


def connections_blocks(study: Study, run: ModelRun) -> list[Block]:
    """Show matrices, the brain and a table; [] without ``connections.tsv``."""
    file = run.explanation / "connections.tsv"
    if not holds_something(file):
        return []
    table = read_table(file, text=TEXT)
    names, classes = list(table["class"].unique()), study.dataset.coloured
    words = {"classes": names[0] if len(names) == 1 else "each class", "colours": _colours(classes, names)}
    picture = run_figure(study, run, "connections")
    networks = read_table(run.explanation / "connection_networks.tsv", text=TEXT)
    if len(networks):
        plot_network_matrices(networks, classes, picture)
    else:
        values = np.load(run.explanation / "connections.npy", allow_pickle=False)
        plot_roi_matrices(dict(zip(names, values, strict=True)), classes, picture)
    blocks: list[Block] = [
        Text(MEANING),
        Picture(picture, (BLOCKS_OF_NETWORKS if len(networks) else ROIS).format(**words)),
    ]
    clear = table[(table["p"] < 0.05) & (table["rank"] <= DRAWN)]
    shown = table[table["rank"] <= SHOWN]
    image = _image(study, run)
    if clear.empty:
        blocks.append(Text(NONE))
    elif image is not None:
        from bolt.report.figures.brains.views import plot_connectome  # nilearn is slow to import

        brain = run_figure(study, run, "connectome")
        plot_connectome(clear, image, classes, brain)
        blocks.append(Picture(brain, CONNECTED_BRAIN.format(n=len(clear), colours=words["colours"])))
    caption = STRONGEST_CONNECTIONS.format(shuffles=SHUFFLES, n=table["n"].iloc[0])
    blocks.append(Table(strongest_connections(shown, _places(shown, image)), caption, file))
    return blocks


def _image(study: Study, run: ModelRun) -> nib.Nifti1Image | None:
    """Return the label image of the atlas, if it is there; else the chapter on regions says why not."""
    try:
        return atlas_of(study, run.atlas).label_image
    except BoltError:
        return None


def _places(table: pd.DataFrame, image: nib.Nifti1Image | None) -> dict[int, str]:
    """Return the centre of each ROI in mm, for names that do not say where it is."""
    if image is None:
        return {}
    from bolt.report.figures.brains.maps import centres

    values = np.unique(table[["value_a", "value_b"]].to_numpy(int))
    return {int(v): str(place).replace("-", "−") for v, place in zip(values, centres(image, values), strict=True)}


def _colours(classes: list[str], names: list[str]) -> str:
    """Say what red and blue mean."""
    if len(classes) != 2:
        return "Red: the stronger the connection, the more the class is predicted; blue: the weaker."
    red, blue = classes
    return f"Red: the stronger the connection, the more {red} is predicted; blue: the more {blue}."
