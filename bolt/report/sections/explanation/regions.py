"""Which regions: brain maps, the selected ROIs, and their networks."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import pandas as pd

from bolt.config import Explain, Paths
from bolt.config.layout import ModelRun
from bolt.config.study import Study
from bolt.io.errors import BoltError
from bolt.io.files import read_table
from bolt.report.figures.brains.networks import plot_networks
from bolt.report.html import Block, Picture, Table, Text, View
from bolt.report.runs import figure_folder, run_anchor, run_figure
from bolt.report.tables.explanation import selected_networks, selected_rois, sign_counts

if TYPE_CHECKING:
    from bolt.atlases.image import Atlas

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
    from bolt.report.figures.brains.interactive import write_views  # nilearn is slow to import; the report draws none
    from bolt.report.figures.brains.regions import plot_regions

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
