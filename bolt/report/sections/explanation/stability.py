"""Would other folds or seeds have told the same story? Correlations of maps and importance, as matrices and words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from numpy.typing import NDArray

from bolt.config import Config, Dataset, Model
from bolt.config.layout import Layout
from bolt.io.files import read_table
from bolt.report.figures.style import DIVERGING, INK, LINE, canvas
from bolt.report.html import Block, Picture, Table, Text, figure_folder
from bolt.report.sections.explanation.verdicts import plain
from bolt.report.tables.readable import DASH

ENDS = ("mean", "lowest", "highest")
WORDS = (
    "Every fold has a model of its own, trained on other subjects, so its regions and moments may differ. Below, what "
    "the models of every two folds say is compared. Folds share most of their training subjects: agreement means that "
    "a result does not hang on a few of them, not that it has been found again in new ones. A region is called "
    "important only with its selection frequency, the share of folds in which it is among the top."
)
PICTURE = (
    "Agreement of every two {kind}. Left: correlation of the regression weights of all ROIs{mean}. Right: rank "
    "correlation of the importance of the same scans, mean over {scans} scans, after the mean curve of the other scans "
    "is removed. 1: the same; 0: nothing in common."
)
TABLE = (
    "Mean over pairs of folds (or seeds), lowest to highest in brackets. Dice: shared ROIs of the two selections, "
    "1 where they are the same; in brackets what as many ROIs drawn at random would share. Same class: scans for which "
    "both models predict the same one."
)


def stability_blocks(
    config: Config, dataset: Dataset, layout: Layout, atlas: str, model: Model, seed: int, stem: str
) -> list[Block]:
    """Agreement over folds and seeds; [] where it was not computed."""
    file = layout.run(atlas, model, seed).explanation / "stability.tsv"
    if not file.is_file():
        return []
    table = read_table(file, text=("between", "what", "class", "one", "other"))
    if table.empty:
        return [Text("One fold alone cannot say how stable its regions and moments are: train more folds.")]
    blocks: list[Block] = [Text(WORDS)]
    folds = table[(table["between"] == "folds") & ~table["one"].isin(ENDS)]
    if len(folds):
        picture = figure_folder(layout) / f"{stem}_stability.png"
        draw_stability(folds, picture)
        mean = ", mean over the classes" if folds["class"].nunique() > 2 else ""
        scans = f"{folds.loc[folds['what'] == 'importance', 'n'].max():.0f}"
        blocks.append(Picture(picture, PICTURE.format(kind="folds", mean=mean, scans=scans)))
    return [*blocks, Table(stability_table(table), TABLE, file)]


def stability_table(table: pd.DataFrame) -> pd.DataFrame:
    """For people: a row a class and the importance, between folds and between seeds."""
    ends = table[table["one"].isin(ENDS)]
    rows = []
    for (between, what, name), part in ends.groupby(["between", "what", "class"], sort=False, dropna=False):
        values = part.set_index("one")
        where = f"regions, {name}" if what == "regions" else "importance over time"
        rows.append(
            {
                "": where,
                "between": f"{_pairs(table, between, what, name)} of {between}",
                "correlation": _spread(values["pearson"]),
                "rank correlation": _spread(values["spearman"]),
                "with the mean curve": _spread(values["spearman_raw"]),
                "Dice (by chance)": _beside_chance(values.loc["mean"]),
                "same class (%)": _share(values.at["mean", "same_class"]),
            }
        )
    frame = pd.DataFrame(rows)
    return frame[[column for column in frame if (frame[column] != DASH).any()]]


def _pairs(table: pd.DataFrame, between: str, what: str, name: Any) -> str:
    own = table[(table["between"] == between) & (table["what"] == what) & ~table["one"].isin(ENDS)]
    n = len(own) if pd.isna(name) else int((own["class"] == name).sum())
    return "1 pair" if n == 1 else f"{n} pairs"


def draw_stability(folds: pd.DataFrame, out: Any) -> None:
    """Two matrices, a row and a column a fold: maps of regions, and importance.

    Parameters
    ----------
    folds : DataFrame
        Pairs of folds of ``stability.tsv``.
    out : Path
        Ends in ``.png``.
    """
    names = sorted({*folds["one"], *folds["other"]}, key=int)
    regions, importance = (folds[folds["what"] == what] for what in ("regions", "importance"))
    with canvas(out, height=1.2 + 0.26 * max(len(names), 6)) as figure:
        left, right = figure.subplots(1, 2)
        _matrix(left, _square(regions, "pearson", names), names, "maps of regions")
        image = _matrix(right, _square(importance, "spearman", names), names, "importance over time")
        bar = figure.colorbar(image, ax=[left, right], shrink=0.85, ticks=[-1, -0.5, 0, 0.5, 1])
        bar.set_label("correlation", color=INK)
        bar.outline.set_visible(False)


def _square(pairs: pd.DataFrame, value: str, names: list[str]) -> NDArray[np.floating]:
    """Symmetric, (folds, folds), NaN on the diagonal; mean over classes."""
    means = pairs.groupby(["one", "other"])[value].mean()
    square = np.full((len(names), len(names)), np.nan)
    for (one, other), number in means.items():  # type: ignore[misc]
        i, j = names.index(one), names.index(other)
        square[i, j] = square[j, i] = number
    return square


def _matrix(axis: Axes, square: NDArray[np.floating], names: list[str], title: str) -> Any:
    image = axis.imshow(square, cmap=DIVERGING, vmin=-1, vmax=1)
    axis.set_facecolor(LINE)  # the diagonal: a fold and itself
    for (i, j), value in np.ndenumerate(square):
        text = "" if i == j else DASH if np.isnan(value) else plain(value)
        if len(names) > 6:  # two digits find room
            text = text.replace("0.", ".", 1)
        colour = "white" if abs(value) > 0.5 else INK
        axis.text(j, i, text, ha="center", va="center", fontsize=9 if len(names) < 7 else 6.5, color=colour)
    axis.set_xticks(range(len(names)), names)
    axis.set_yticks(range(len(names)), names)
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    axis.set(xlabel="fold", ylabel="fold")
    axis.set_title(title)
    return image


def _spread(values: pd.Series) -> str:
    if pd.isna(values["mean"]):
        return DASH
    if values["lowest"] == values["highest"]:
        return plain(values["mean"])
    return f"{plain(values['mean'])} [{plain(values['lowest'])}, {plain(values['highest'])}]"


def _beside_chance(mean: pd.Series) -> str:
    return DASH if pd.isna(mean["dice_chance"]) else f"{plain(mean['dice'])} ({plain(mean['dice_chance'])})"


def _share(value: float) -> str:
    return DASH if pd.isna(value) else f"{100 * value:.0f}"
