"""Which connections: matrices, the strongest on the brain, and their table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from bolt.config.layout import ModelRun
from bolt.config.study import Study
from bolt.explain.connections import SHUFFLES
from bolt.io.errors import BoltError
from bolt.io.files import holds_something, read_table
from bolt.report.figures.connections import plot_network_matrices, plot_roi_matrices
from bolt.report.html import Block, Picture, Table, Text
from bolt.report.runs import run_figure
from bolt.report.sections.explanation.regions import atlas_of
from bolt.report.tables.explanation import strongest_connections

if TYPE_CHECKING:
    import nibabel as nib

TEXT = ("class", "name_a", "network_a", "name_b", "network_b")
MEANING = (
    "How each connection (correlation of two ROIs over the whole scan) goes with the prediction over test scans: what "
    "people with that prediction have in common. It does not show that the model reads these connections, and motion "
    "or site may underlie both."
)
NETWORKS = (
    "Mean correlation of the connections between networks with the predicted log odds of {classes}. Numbers: "
    "connections whose own correlation is significant after correction for all connections. {colours}"
)
ROIS = "Correlation of every connection with the predicted log odds of {classes}. {colours}"
BRAIN = (
    "The {n} strongest connections with p < 0.05 after correction for all connections. The views from the left and "
    "right show those within a hemisphere only. {colours}"
)
NONE = "No connection goes with the prediction more than the strongest of shuffled predictions does (p < 0.05)."
STRONGEST = (
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
    blocks: list[Block] = [Text(MEANING), Picture(picture, (NETWORKS if len(networks) else ROIS).format(**words))]
    clear = table[(table["p"] < 0.05) & (table["rank"] <= DRAWN)]
    shown = table[table["rank"] <= SHOWN]
    image = _image(study, run)
    if clear.empty:
        blocks.append(Text(NONE))
    elif image is not None:
        from bolt.report.figures.brains.connectome import plot_connectome  # nilearn is slow to import

        brain = run_figure(study, run, "connectome")
        plot_connectome(clear, image, classes, brain)
        blocks.append(Picture(brain, BRAIN.format(n=len(clear), colours=words["colours"])))
    caption = STRONGEST.format(shuffles=SHUFFLES, n=table["n"].iloc[0])
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
    from bolt.report.figures.brains.regions import centres

    values = np.unique(table[["value_a", "value_b"]].to_numpy(int))
    return {int(v): str(place).replace("-", "−") for v, place in zip(values, centres(image, values), strict=True)}


def _colours(classes: list[str], names: list[str]) -> str:
    """Say what red and blue mean."""
    if len(classes) != 2:
        return "Red: the stronger the connection, the more the class is predicted; blue: the weaker."
    red, blue = classes
    return f"Red: the stronger the connection, the more {red} is predicted; blue: the more {blue}."
