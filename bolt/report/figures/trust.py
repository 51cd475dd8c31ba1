"""Whether an explanation can be trusted: sanity checks, stability and faithfulness.

Matrices of connections: how strongly each goes with the prediction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from numpy.typing import NDArray
from scipy.spatial.distance import squareform

from bolt.explain.trust.faithfulness import DIRECTIONS, REPLACEMENTS
from bolt.explain.trust.similarity import GONE, PERMUTED, RETRAINED
from bolt.report.figures.style import DIVERGING, INK, LINE, MANY, MUTED, WIDTH, canvas
from bolt.report.numbers import DASH, decimal
from bolt.report.tables import NAMES, ORDERS

ORDER_STYLES = {
    "importance": (MANY[1], "-", 2.2),
    "rollout": (MANY[0], "--", 1.5),
    "integrated_gradients": (MANY[2], "-.", 1.5),
    "position": (MANY[4], (0, (6, 1.5)), 1.8),
    "shifted": (MANY[7], (0, (3, 1, 1, 1, 1, 1)), 1.8),
    "random": (INK, ":", 1.8),
}
"""Colour, dashes and width."""
COLUMNS = 3  # of panels, one per class
MOST_NAMES = 40  # networks that are named on the axes
CORRELATIONS = (
    ("rho", "low", "high", MANY[0], "mean curve removed"),
    ("rho_raw", "raw_low", "raw_high", MANY[1], "mean curve not removed"),
)


def draw_faithfulness(lines: pd.DataFrame, out: Path) -> None:
    """Draw curves of deletion and insertion (``faithfulness.tsv``): a row per replacement, a line per order."""
    with canvas(out, height=5.4) as figure:
        shared: Any = {"sharex": True, "sharey": True, "gridspec_kw": {"wspace": 0.08}}
        panels = figure.subplots(len(REPLACEMENTS), len(DIRECTIONS), **shared)
        for row, replacement in zip(panels, REPLACEMENTS, strict=True):
            unit = "volumes" if replacement == "mean" else "blocks"
            for axis, direction in zip(row, DIRECTIONS, strict=True):
                here = lines[(lines["replacement"] == replacement) & (lines["direction"] == direction)]
                for order in reversed(ORDERS):
                    line = here[here["order"] == order].sort_values("share")
                    colour, dashes, width = ORDER_STYLES[order]
                    look: Any = {"color": colour, "ls": dashes, "lw": width, "zorder": 2 + (order == "importance")}
                    axis.plot(100 * line["share"], line["probability"], label=ORDERS[order], **look)
                    axis.fill_between(100 * line["share"], line["low"], line["high"], color=colour, alpha=0.12, lw=0)
                axis.set(xlim=(0, 100), ylim=(0, 1.02), title=NAMES["curves"][replacement][direction])
                axis.set_xlabel(f"{unit} {'replaced' if direction == 'deletion' else 'put back'} (%)")
                axis.xaxis.set_tick_params(labelbottom=True)
            row[0].set_ylabel("probability of the class\npredicted on the intact scan")
        keys, names = panels[0, 0].get_legend_handles_labels()
        figure.legend(keys[::-1], names[::-1], loc="outside lower center", ncols=3, handlelength=3.4)


def draw_sanity(table: pd.DataFrame, out: Path) -> None:
    """Draw ρ along the cascade with its interval, beside it models trained apart; and for each layer alone.

    `table` is ``sanity.tsv``.
    """
    cascade = table[table["check"] == "cascade"]
    steps = cascade[cascade["fold"] == "all"].sort_values("step")
    alone = table[(table["check"] == "independent") & (table["fold"] == "all")]
    models = table[table["check"].isin([PERMUTED, RETRAINED]) & (table["fold"] == "all") & (table["n_scans"] > 0)]
    models = models.sort_values("check")
    widths = [cascade["step"].nunique() + 1.2 * len(models)] + [len(alone)] * (len(alone) > 0)
    with canvas(out, height=3.3) as figure:
        axes = figure.subplots(1, len(widths), sharey=True, squeeze=False, width_ratios=widths)[0]
        for fold, part in cascade.groupby("fold"):
            ordered = part.sort_values("step")
            if fold != "all":
                axes[0].plot(ordered["step"], ordered["rho"], color=MANY[0], lw=0.7, alpha=0.45, zorder=2)
                continue
            for value, low, high, colour, label in CORRELATIONS:
                axes[0].fill_between(ordered["step"], ordered[low], ordered[high], color=colour, alpha=0.2, lw=0)
                axes[0].plot(ordered["step"], ordered[value], "o-", ms=4, lw=1.8, color=colour, label=label, zorder=3)
        places, names = steps["step"].tolist(), ["as trained", *steps["layer"].iloc[1:]]
        if len(models):
            last = int(cascade["step"].max())
            beside = [last + 1.5 + 1.2 * i for i in range(len(models))]
            axes[0].axvline(last + 0.75, color=MUTED, lw=0.8, ls=":")
            _points(axes[0], beside, models)
            places, names = [*places, *beside], [*names, *models["check"]]
        _layer_ticks(axes[0], places, names)
        axes[0].set_title("randomised from the classifier down to …")
        if len(alone):
            _points(axes[1], range(len(alone)), alone)
            _layer_ticks(axes[1], range(len(alone)), alone["layer"].tolist())
            axes[1].set(xlim=(-0.5, len(alone) - 0.5))
            axes[1].set_title("one layer randomised")
        lowest = table[["low", "raw_low"]].min().min()
        for axis in axes:
            axis.axhspan(-GONE, GONE, color="#e3e7ec", lw=0, zorder=0, label=f"|ρ| < {GONE}")
            axis.axhline(0, color=MUTED, lw=0.8, zorder=1)
            axis.set_ylim(min(-0.3, lowest - 0.05), 1.08)
        axes[0].set_ylabel("rank correlation ρ\nwith the original importance")
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)


def _points(axis: Axes, places: Any, table: pd.DataFrame) -> None:
    for value, low, high, colour, _ in CORRELATIONS:
        axis.vlines(list(places), table[low], table[high], color=colour, lw=1.6, zorder=2)
        axis.plot(list(places), table[value], "o", ms=4.5, color=colour, zorder=3)


def _layer_ticks(axis: Axes, places: Any, names: list[str]) -> None:
    axis.set_xticks(list(places), names, rotation=35, ha="right", rotation_mode="anchor", color=INK)


def draw_stability(folds: pd.DataFrame, out: Path) -> None:
    """Draw the agreement of every two folds (``stability.tsv``) as matrices: maps of regions, and importance."""
    names = sorted({*folds["one"], *folds["other"]}, key=int)
    many = len(names) > 6
    panels = (("regions", "pearson", "maps of regions"), ("importance", "spearman", "importance over time"))
    with canvas(out, height=1.2 + 0.26 * max(len(names), 6)) as figure:
        axes = figure.subplots(1, 2)
        for axis, (what, measure, title) in zip(axes, panels, strict=True):
            means = folds[folds["what"] == what].groupby(["one", "other"])[measure].mean()  # over classes
            half = means.unstack().reindex(index=names, columns=names)
            square = half.combine_first(half.T).to_numpy()
            image = axis.imshow(square, cmap=DIVERGING, vmin=-1, vmax=1)
            axis.set_facecolor(LINE)  # the diagonal: a fold and itself
            for (i, j), value in np.ndenumerate(square):
                text = "" if i == j else DASH if np.isnan(value) else decimal(value)
                text = text.replace("0.", ".", 1) if many else text  # to fit the cell
                colour = "white" if abs(value) > 0.5 else INK
                axis.text(j, i, text, ha="center", va="center", fontsize=6.5 if many else 9, color=colour)
            axis.set_xticks(range(len(names)), names)
            axis.set_yticks(range(len(names)), names)
            axis.tick_params(length=0)
            axis.spines[:].set_visible(False)
            axis.set(xlabel="fold", ylabel="fold")
            axis.set_title(title)
        bar = figure.colorbar(image, ax=axes.tolist(), shrink=0.85, ticks=[-1, -0.5, 0, 0.5, 1])
        bar.set_label("correlation", color=INK)
        bar.outline.set_visible(False)


def colour_map(classes: Sequence[str], name: str) -> str:
    """Return the colours of correlations with the prediction of a class: its own colour is positive."""
    return f"{DIVERGING[:-2]}" if len(classes) == 2 and classes[0] != name else DIVERGING


def plot_network_matrices(table: pd.DataFrame, classes: Sequence[str], out: Path) -> None:
    """Draw the mean correlation of each pair of networks, with the number of significant ones.

    Parameters
    ----------
    table : DataFrame
        ``connection_networks.tsv``.
    classes : sequence of str
        In the order of their colours.
    out : Path
    """
    networks = sorted(set(table["network_a"]) | set(table["network_b"]))
    matrices, counts = {}, {}
    for name, rows in table.groupby("class", sort=False):
        values = np.full((len(networks), len(networks)), np.nan)
        number = np.zeros(values.shape, int)
        a, b = (rows[f"network_{end}"].map(networks.index).to_numpy(int) for end in "ab")
        for i, j in ((a, b), (b, a)):
            values[i, j], number[i, j] = rows["mean_r"], rows["n_significant"]
        matrices[str(name)], counts[str(name)] = values, number
    _draw(matrices, classes, out, networks, counts)


def plot_roi_matrices(correlations: Mapping[str, NDArray[np.floating]], classes: Sequence[str], out: Path) -> None:
    """Draw the correlation of every connection, in the order of the atlas.

    Parameters
    ----------
    correlations : dict
        Class to the strict upper triangle, row by row (``connections.npy``).
    classes, out
        As in `plot_network_matrices`.
    """
    _draw({name: squareform(values) for name, values in correlations.items()}, classes, out, [], {})


def _draw(
    matrices: Mapping[str, NDArray[np.floating]],
    classes: Sequence[str],
    out: Path,
    names: Sequence[str],
    counts: Mapping[str, NDArray[np.integer]],
) -> None:
    """Draw a panel per class, all with the same scale."""
    columns = min(COLUMNS, len(matrices))
    rows = -(-len(matrices) // columns)
    named = names if len(names) <= MOST_NAMES else []
    side = 4.2 if columns == 1 else WIDTH / columns
    largest = max(float(np.nanmax(np.abs(values))) for values in matrices.values()) or 1.0
    width = min(WIDTH, side * columns + 1.4)
    with canvas(out, width=width, height=side * rows + (0.9 if named else 0.2)) as figure:
        panels = figure.subplots(rows, columns, squeeze=False)
        for axes in panels.flat[len(matrices) :]:
            axes.axis("off")
        for number, (axes, (name, values)) in enumerate(zip(panels.flat, matrices.items(), strict=False)):
            picture = axes.imshow(values, cmap=colour_map(classes, name), vmin=-largest, vmax=largest)
            axes.set_title(name)
            axes.spines[:].set_visible(False)
            axes.tick_params(length=0, labelsize=7)
            places = np.arange(len(named))
            axes.set_xticks(places, named, rotation=90)
            axes.set_yticks(places, named if number % columns == 0 else [])
            if not named:
                axes.set(xticks=[], yticks=[], xlabel="ROIs in the order of the atlas")
            for i, j in np.argwhere(counts[name] > 0) if name in counts else ():  # significant connections
                axes.text(j, i, counts[name][i, j], ha="center", va="center", fontsize=6)
            if number == len(matrices) - 1 or columns == 1:
                bar = figure.colorbar(picture, ax=list(panels.flat), shrink=0.7 / rows, aspect=18)
                bar.set_label("correlation with the prediction")
                bar.outline.set_edgecolor(LINE)
