"""Does the prediction go with the important volumes? Curves of deletion and insertion, and the areas under them."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes

from bolt.config import Config, Dataset, Model
from bolt.config.layout import Layout
from bolt.explain.trust.faithfulness import DIRECTIONS, ORDERS, REPLACEMENTS
from bolt.io.files import holds_something, read_table
from bolt.report.figures.style import INK, MANY, canvas
from bolt.report.html import Block, Picture, Table, Text, figure_folder

NAMES = {
    "importance": "importance (Algorithm 1)",
    "rollout": "attention rollout",
    "integrated_gradients": "integrated gradients",
    "random": "random order",
}
LINES = {
    "importance": (MANY[1], "-", 2.2),
    "rollout": (MANY[0], "--", 1.5),
    "integrated_gradients": (MANY[2], "-.", 1.5),
    "random": (INK, ":", 1.8),
}
"""Colour, dashes and width; dashes too, for print without colour."""
TITLES = {
    ("mean", "deletion"): "Deletion, by the mean volume",
    ("mean", "insertion"): "Insertion, from the mean volume",
    ("surrogate", "deletion"): "Deletion, by scrambled time",
    ("surrogate", "insertion"): "Insertion, from scrambled time",
}
AXES = {"deletion": "replaced (%)", "insertion": "put back (%)"}
BY = {"mean": "mean volume", "surrogate": "scrambled time"}
TEXT = ("replacement", "direction", "order", "folds", "missing_folds", "better_than_random")


def faithfulness_blocks(
    config: Config, dataset: Dataset, layout: Layout, atlas: str, model: Model, seed: int, stem: str
) -> list[Block]:
    """Verdict, figure and table of areas; [] where the curves were not made."""
    out = layout.run(atlas, model, seed).explanation
    files = out / "faithfulness.tsv", out / "faithfulness_areas.tsv"
    if not all(holds_something(file) for file in files):
        return []
    lines, areas = (read_table(file, text=TEXT) for file in files)
    picture = figure_folder(layout) / f"{stem}_faithfulness.png"
    draw_curves(lines, picture)
    return [
        Text(said(areas)),
        Picture(picture, _caption(areas, config.explain.faithfulness.block)),
        Table(area_table(areas), _about_table(areas), files[1]),
    ]


def draw_curves(lines: pd.DataFrame, out: Path) -> None:
    """Draw a row of panels a replacement, deletion on the left and insertion on the right, a line an order.

    Parameters
    ----------
    lines : DataFrame
        `bolt.explain.trust.faithfulness.CURVE_COLUMNS`.
    out : Path
        PNG; vector files are written beside it.
    """
    with canvas(out, height=5.2) as figure:
        panels = figure.subplots(
            len(REPLACEMENTS), len(DIRECTIONS), sharex=True, sharey=True, gridspec_kw={"wspace": 0.08}
        )
        for row, replacement in zip(panels, REPLACEMENTS, strict=True):
            for axis, direction in zip(row, DIRECTIONS, strict=True):
                part = lines[(lines["replacement"] == replacement) & (lines["direction"] == direction)]
                _panel(axis, part)
                unit = "volumes" if replacement == "mean" else "blocks"
                axis.set(
                    title=TITLES[replacement, direction],
                    xlabel=f"{unit} {AXES[direction]}",
                    xlim=(0, 100),
                    ylim=(0, 1.02),
                )
                axis.xaxis.set_tick_params(labelbottom=True)
            row[0].set_ylabel("probability of the class\npredicted on the intact scan")
        keys, names = panels[0, 0].get_legend_handles_labels()
        figure.legend(keys[::-1], names[::-1], loc="outside lower center", ncols=len(ORDERS), handlelength=2.8)


def _panel(axis: Axes, part: pd.DataFrame) -> None:
    for order in reversed(ORDERS):
        own = part[part["order"] == order].sort_values("share")
        colour, dashes, width = LINES[order]
        share = 100 * own["share"]
        above = 3 if order == "importance" else 2
        axis.plot(share, own["probability"], dashes, color=colour, lw=width, label=NAMES[order], zorder=above)
        axis.fill_between(share, own["low"], own["high"], color=colour, alpha=0.12, lw=0)


def said(areas: pd.DataFrame) -> str:
    """What the areas say of importance, plainly."""
    own = areas[(areas["order"] == "importance") & areas["better_than_random"].notna()]
    if own.empty:
        return "Too few persons to say whether important volumes matter more to the model than random ones."
    places = {
        word: [
            f"{row.direction} ({BY[str(row.replacement)]})"
            for row in own[own["better_than_random"] == word].itertuples()
        ]
        for word in ("yes", "no", "worse")
    }
    words = {
        "yes": "The prediction depends on important volumes more than on random ones in {}.",
        "no": "That importance is better than a random order is not shown in {}.",
        "worse": "Importance is worse than a random order in {}.",
    }
    return " ".join(words[word].format(_listed(found)) for word, found in places.items() if found)


def area_table(areas: pd.DataFrame) -> pd.DataFrame:
    """Strings: area and difference to random of each order, with intervals."""
    rows = []
    for row in areas.to_dict("records"):
        known = pd.notna(row["difference"])
        judged = row["better_than_random"]
        rows.append(
            {
                "": f"{row['direction']}, {BY[row['replacement']]}",
                "order": NAMES[row["order"]],
                "area [95 %]": _interval(row["area"], row["low"], row["high"]),
                "minus random [95 %]": _interval(
                    row["difference"], row["difference_low"], row["difference_high"], sign="+"
                )
                if known
                else "–",
                "better than random": judged if isinstance(judged, str) else "–",
            }
        )
    return pd.DataFrame(rows)


def _interval(value: float, low: float, high: float, sign: str = "") -> str:
    text = f"{value:{sign}.3f} [{low:{sign}.3f}, {high:{sign}.3f}]"
    return text.replace("-", "−")


def _listed(found: list[str]) -> str:
    return found[0] if len(found) == 1 else f"{', '.join(found[:-1])} and {found[-1]}"


def _caption(areas: pd.DataFrame, block: int) -> str:
    """How to read the curves."""
    return (
        "Left: parts of each test scan are replaced, the most important first, and the model is asked again; if its "
        "decision rests on them, its probability for the class that it predicted falls early. Right: from a scan "
        "that is replaced as a whole, the most important parts are put back first; the probability should rise "
        "early. Above, volumes are replaced one by one by the scan's mean volume. A single volume can be read off "
        f"its neighbours, so below, blocks of {block} volumes are replaced by those of a copy of the scan in which "
        "each region keeps its spectrum and the regions their correlations, but nothing happens at its time. Where "
        "the line ends high on the left below, the whole copy is judged as the scan itself: the model does not need "
        "single moments, though it may use them. Importance counts evidence for the predicted class alone; the "
        "other two orders do not tell evidence for from evidence against. "
        f"{_counted(areas)} Bands are 95 % bootstrap intervals over persons or families."
    )


def _about_table(areas: pd.DataFrame) -> str:
    return (
        "Area under each curve, mean over test scans: small is good in deletion, large in insertion. 'Better than "
        "random' is 'yes' only where the 95 % interval of the difference lies on the good side of 0, 'worse' where it "
        f"lies on the other. {_counted(areas)}"
    )


def _counted(areas: pd.DataFrame) -> str:
    first = areas.iloc[0]
    missing = first["missing_folds"]
    without = f"; without fold {missing}" if isinstance(missing, str) else ""
    return f"{first['n_scans']} test scans of fold {first['folds']}{without}."
