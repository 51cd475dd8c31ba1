"""Which regions: the brain in pictures and to be turned, the selected ROIs, and their networks."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import pandas as pd

from bolt.atlases.image import Atlas, load_atlas
from bolt.config import Config, Dataset, Model
from bolt.config.layout import Layout
from bolt.io.errors import BoltError
from bolt.io.files import read_table
from bolt.report.figures.brain import plot_regions
from bolt.report.figures.interactive import write_views
from bolt.report.figures.networks import plot_networks
from bolt.report.html import Block, Picture, Table, Text, View, figure_folder
from bolt.report.tables import readable

BRAIN = (
    "Regions whose activity at landmark volumes speaks for a class: the top {share:.2g} % of ROIs by regression "
    "weight, mean over folds. Glass brain (from the left, behind, right and above), axial slices on the MNI152 "
    "template and the inflated fsaverage5 cortex, which cannot show deep regions and the cerebellum. Colour shows the "
    "class, shade in how many folds a region is among the top ones: a pale region seldom returns."
)
SELECTED = (
    "Selected ROIs. The weight is the change in log odds per standard deviation of BOLD, mean ± sd over folds. "
    "Trust a region only as far as it is selected in most folds."
)
NETWORKS = (
    "Left: share of each network's ROIs that a fold selects; dashed, the share if networks did not matter. Right: "
    "importance of all its ROIs. Bars are means, whiskers the standard deviation over folds."
)
TURNED = (
    "Colours are regression weights (log odds per standard deviation): {signs}. It may take a few seconds to load, "
    "from the folder of this report alone."
)


def regions_blocks(
    config: Config, dataset: Dataset, layout: Layout, atlas: str, model: Model, seed: int, stem: str
) -> list[Block]:
    """The brain, the selected ROIs and their networks; [] where there are no ``roi_weights.tsv``."""
    out, classes = layout.run(atlas, model, seed).explanation, dataset.classes or []
    if not (out / "roi_weights.tsv").is_file():
        return []
    weights = read_table(out / "roi_weights.tsv", text=("class", "name", "network", "hemisphere"))
    blocks = _pictures(config, layout, atlas, weights, classes, stem)
    blocks.append(Table(readable.top_rois(weights), SELECTED, out / "roi_weights.tsv"))
    networks = read_table(out / "networks.tsv", text=("class", "network"))
    networks["network"] = networks["network"].fillna("n/a")
    if set(networks["network"]) != {"n/a"}:
        picture = figure_folder(layout) / f"{stem}_networks.png"
        plot_networks(networks, classes, picture)
        blocks.append(Picture(picture, NETWORKS))
        blocks.append(Table(readable.networks(networks), "Networks of the selected ROIs.", out / "networks.tsv"))
    return blocks


def brain_picture(layout: Layout, stem: str) -> Path:
    """Where `regions_blocks` draws the brain."""
    return figure_folder(layout) / f"{stem}_brain.png"


def brain_block(config: Config, layout: Layout, stem: str) -> Picture:
    """The picture that `regions_blocks` draws, with what it shows."""
    return Picture(brain_picture(layout, stem), BRAIN.format(share=100 * config.explain.top_rois))


def _pictures(
    config: Config, layout: Layout, atlas: str, weights: pd.DataFrame, classes: list[str], stem: str
) -> list[Block]:
    paths = config.paths
    try:
        image = _atlas(config.atlas_places[atlas], paths.atlas_dir, paths.templateflow_home).image
    except BoltError as error:
        return [Text(f"No brain map: {error}", warning=True)]
    plot_regions(weights, image, classes, brain_picture(layout, stem))
    blocks: list[Block] = [brain_block(config, layout, stem)]
    signs = (
        f"red speaks for {classes[0]}, blue for {classes[-1]}" if len(classes) == 2 else "red for it, blue against it"
    )
    caption = TURNED.format(signs=signs)
    for shown, (volume, cortex) in write_views(weights, image, classes, figure_folder(layout) / stem).items():
        blocks.append(View(cortex, f"Turn the cortex: selected regions, {shown}", caption))
        blocks.append(View(volume, f"Browse the slices: weights of all regions, {shown}", caption))
    return blocks


@lru_cache(maxsize=4)
def _atlas(place: str, atlas_dir: Path | None, templateflow_home: Path | None) -> Atlas:
    """Once for all models and seeds."""
    return load_atlas(place, atlas_dir=atlas_dir, templateflow_home=templateflow_home)
