"""The selected regions on a brain: glass brain, slices and fsaverage5 surfaces in one figure, with a key of names.

Two classes share a brain, red and blue; more get a panel each. Shades show in how many folds a region was selected.

The key beside a brain: class colours, selected regions with their networks, and in how many folds.

The networks of the selected regions, and how much they vary between folds.

The explanation in one picture: regions on the cortex, importance over time.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.colors import ListedColormap, to_hex, to_rgb
from nilearn import datasets, plotting
from nilearn.image import crop_img
from numpy.typing import NDArray
from scipy.ndimage import center_of_mass

from bolt.explain.weights import paint
from bolt.report.figures.brains.cortex import cortex_view, labels_of_vertices
from bolt.report.figures.series import draw_importance, time_unit
from bolt.report.figures.style import INK, LINE, MUTED, WIDTH, canvas, class_colours

LISTED = 10  # ROIs named beside the brain
LINE_SPACING = 1.35
FREQUENCIES = ("a third of the folds or fewer", "up to two thirds", "more")


def line_height(size: float) -> float:
    """Return the height (inches) of a line of text of `size` points."""
    return size * LINE_SPACING / 72


def key_height(rows: pd.DataFrame, size: float) -> float:
    """Return the height (inches) of `draw_key`."""
    return line_height(size) * (len(listing(rows)) + 1.6)


def listing(rows: pd.DataFrame) -> list[tuple[str, str]]:
    """List a class's selected ROIs by rank: name with network (else coordinates), and folds that select it."""
    rows = rows.sort_values("rank")
    lines = []
    for row in rows.head(LISTED).to_dict("records"):
        folds = f"{round(row['selection_frequency'] * row['n_folds'])} of {row['n_folds']}"
        lines.append((f"{row['rank']}. {row['name']}{_where(row)}", folds))
    if len(rows) > LISTED:
        lines.append((f"and {len(rows) - LISTED} more", ""))
    return lines or [("no ROI", "")]


def _where(row: dict[Any, Any]) -> str:
    network = row["network"] if isinstance(row["network"], str) and row["network"] != "n/a" else ""
    if network:
        return "" if network.lower() in str(row["name"]).lower() else f" ({network})"
    return f" ({', '.join(f'{v:d}' for v in row['centre'])} mm)".replace("-", "−")


def draw_key(
    figure: Any, place: tuple[float, float, float], name: str, rows: pd.DataFrame, colour: str, size: float
) -> None:
    """Write colour, class and ROIs at `place`: left, top, width in inches from the upper left corner."""
    left, top, width = place
    w, h = figure.get_size_inches()
    indent, step = 0.16, line_height(size)
    figure.text(left / w, 1 - top / h, "■", color=colour, fontsize=size + 2, va="top")
    bold = {"fontsize": size + 1, "fontweight": "bold"}
    heading = figure.text((left + indent) / w, 1 - top / h, f"favours {name}", color=INK, va="top", **bold)
    unit = figure.text((left + width) / w, 1 - top / h, "folds", fontsize=size, color=MUTED, va="top", ha="right")
    renderer = figure.canvas.get_renderer()
    room = (width - indent - 0.08) * figure.dpi
    _shorten(heading, room - unit.get_window_extent(renderer).width, renderer)
    for i, (text, folds) in enumerate(listing(rows)):
        y = 1 - (top + step * (i + 1.5)) / h
        right = figure.text((left + width) / w, y, folds, fontsize=size, color=MUTED, va="top", ha="right")
        line = figure.text((left + indent) / w, y, text, fontsize=size, va="top")
        _shorten(line, room - right.get_window_extent(renderer).width, renderer)


def _shorten(line: Any, pixels: float, renderer: Any) -> None:
    """Shorten a text until it fits."""
    text = line.get_text()
    while line.get_window_extent(renderer).width > pixels and len(text) > 4:
        text = text[:-1]
        line.set_text(text.rstrip() + "…")


def draw_shades(figure: Any, place: tuple[float, float], colours: Sequence[Sequence[str]], size: float) -> None:
    """Explain pale and full colours in one line."""
    (x, y), (w, h) = place, figure.get_size_inches()
    renderer = figure.canvas.get_renderer()

    def write(text: str, colour: str) -> None:
        nonlocal x
        artist = figure.text(x / w, 1 - y / h, text, fontsize=size, color=colour, va="top")
        x += artist.get_window_extent(renderer).width / figure.dpi

    write("Shade: selected in  ", MUTED)
    for i, meaning in enumerate(FREQUENCIES):
        for shades in colours:
            write("■", shades[i])
        write(f" {meaning}   ", MUTED)


Box = tuple[float, float, float, float]
VIEWS = (("left", "lateral"), ("left", "medial"), ("right", "medial"), ("right", "lateral"))
SHADES = (0.4, 0.68, 1.0)  # opacity of the class colour: few folds, some, most
SLICES = 7
PAPER = ListedColormap(colormaps["gray"](np.linspace(0.3, 1, 256))).with_extremes(under="white")
SLICE_STYLE: Any = {"annotate": False, "draw_cross": False, "black_bg": False, "colorbar": False}
SLICE_STYLE |= {"cmap": PAPER, "vmin": 0.02, "vmax": 1}  # light, so that pale colours stand out; white around the head
PANEL = 1.42  # inches: height of a class's panel, with more than two classes


def plot_regions(table: pd.DataFrame, image: nib.Nifti1Image, classes: Sequence[str], out: Path) -> None:
    """Draw the ROIs of every class that `is_drawn` chooses (``roi_weights.tsv``, label image of the atlas)."""
    gc.collect()
    gc.freeze()  # nilearn collects garbage whenever it reads an image: do not search all imported modules each time
    selected = table[is_drawn(table)].copy()
    selected["centre"] = centres(image, selected["value"].to_numpy(int))
    if len(classes) == 2:
        _together(selected, image, classes, out)
    else:
        _apart(selected, image, classes, out)


def is_drawn(table: pd.DataFrame) -> pd.Series:
    """Return which rows of ``roi_weights.tsv`` are drawn: ROIs selected by the mean over folds and by some fold."""
    return table["selected"].astype(bool) & (table["selection_frequency"] > 0)


def centres(image: nib.Nifti1Image, values: NDArray[np.integer]) -> list[tuple[int, ...]]:
    """Return the centre of each ROI in whole mm (x, y, z)."""
    found = center_of_mass(np.ones(image.shape), np.asanyarray(image.dataobj), values) if len(values) else []
    return [tuple(np.round(nib.affines.apply_affine(image.affine, c)).astype(int).tolist()) for c in found]


def shades(colour: str) -> list[str]:
    """Return a class's colour from pale to full, for ROIs selected in few, some and most folds."""
    return [to_hex(tuple(1 - share * (1 - c) for c in to_rgb(colour))) for share in SHADES]  # type: ignore[arg-type]


def shade_of(frequency: NDArray[np.floating] | pd.Series) -> NDArray[np.integer]:
    """Return the index of the shade: up to a third of the folds, up to two thirds, more."""
    return np.searchsorted([1 / 3 + 1e-6, 2 / 3 - 1e-6], np.asarray(frequency, float), side="right")


def _codes(selected: pd.DataFrame, classes: Sequence[str]) -> dict[int, int]:
    """Map label values to colour numbers from 1: the shades of the first class, then of the second, ..."""
    codes: dict[int, int] = {}
    for i, name in enumerate(classes):
        rows = selected[selected["class"] == name]
        numbers = len(SHADES) * i + 1 + shade_of(rows["selection_frequency"])
        codes |= dict(zip(rows["value"].astype(int), numbers, strict=True))
    return codes


class Brain:
    """The ROIs of some classes, to be drawn in boxes: (left, top, width, height) in inches."""

    def __init__(
        self, selected: pd.DataFrame, image: nib.Nifti1Image, classes: Sequence[str], colours: dict[str, str]
    ) -> None:
        self.colours = [shade for name in classes for shade in shades(colours[name])]
        codes = _codes(selected, classes)
        of_label = np.zeros(int(np.asanyarray(image.dataobj).max()) + 1, dtype=np.int16)
        of_label[list(codes)] = list(codes.values())
        values = np.array(sorted(codes) or [0])
        self.volume = paint(image, values, of_label[values])
        self.vertices = {side: of_label[labels] for side, labels in labels_of_vertices(image).items()}
        self.heights = [z for _, _, z in selected.loc[selected["class"].isin(classes), "centre"]]
        self.scale = {"cmap": ListedColormap(self.colours), "vmin": 0.5, "vmax": len(self.colours) + 0.5}

    def glass(self, figure: Any, box: Box, mode: str, size: float) -> None:
        """Draw views (nilearn's `display_mode`) through the brain; letters of `size` points."""
        axes = figure.add_axes(_fractions(figure, box))
        display = plotting.plot_glass_brain(None, axes=axes, display_mode=mode, annotate=False, alpha=0.5)
        display.annotate(size=size)
        if self.heights:
            display.add_overlay(self.volume, threshold=0.5, **self.scale)

    def slices(self, figure: Any, box: Box, n: int, size: float) -> None:
        """Draw n axial slices; letters of `size` points."""
        axes = figure.add_axes(_fractions(figure, box))
        heights = cuts(self.heights, n)
        display = plotting.plot_anat(_template(), axes=axes, display_mode="z", cut_coords=heights, **SLICE_STYLE)
        display.annotate(size=size)
        if self.heights:
            display.add_overlay(self.volume, threshold=0.5, **self.scale)

    def surfaces(self, figure: Any, box: Box, rows: int) -> None:
        """Draw four views in one row or two, left hemisphere on the left."""
        left, top, width, height = box
        order = VIEWS if rows == 1 else [VIEWS[i] for i in (0, 3, 1, 2)]
        columns = len(order) // rows
        wide, tall = width / columns, height / rows
        for i, (side, view) in enumerate(order):
            picture = cortex_view(self.vertices[side], side, view, self.colours, wide)
            place = (left + i % columns * wide, top + i // columns * tall, wide, tall)
            axes = figure.add_axes(_fractions(figure, place))
            axes.imshow(picture, interpolation="antialiased")
            axes.axis("off")


def _together(selected: pd.DataFrame, image: nib.Nifti1Image, classes: Sequence[str], out: Path) -> None:
    """Draw both classes on one brain: glass brain, slices, surfaces, then the keys side by side."""
    colours = class_colours(classes)
    brain = Brain(selected, image, classes, colours)
    keys = [selected[selected["class"] == name] for name in classes]
    below = 4.62
    height = below + max(key_height(rows, 8) for rows in keys) + 0.3
    with canvas(out, width=WIDTH, height=height, layout=None) as figure:
        brain.glass(figure, (0, 0.02, WIDTH, 1.62), "lyrz", 9)
        brain.slices(figure, (0, 1.72, WIDTH, 1.2), SLICES, 8)
        for i, (side, view) in enumerate(VIEWS):
            _write(figure, WIDTH * (i + 0.5) / len(VIEWS), 3.02, f"{side} {view}", size=8, color=MUTED, ha="center")
        brain.surfaces(figure, (0, 3.18, WIDTH, 1.35), 1)
        for name, rows, left in zip(classes, keys, (0.15, 3.75), strict=True):
            draw_key(figure, (left, below, 3.3), name, rows, colours[name], 8)
        draw_shades(figure, (0.15, height - 0.22), [shades(colours[name]) for name in classes], 8)


def _apart(selected: pd.DataFrame, image: nib.Nifti1Image, classes: Sequence[str], out: Path) -> None:
    """Draw a panel per class: its key, glass brain above slices, surfaces."""
    colours = class_colours(classes)
    keys = [selected[selected["class"] == name] for name in classes]
    heights = [max(PANEL, key_height(rows, 7) + 0.1) for rows in keys]
    total = sum(heights) + 0.5
    with canvas(out, width=WIDTH, height=total, layout=None) as figure:
        top = 0.2
        _write(figure, 6.18, 0.03, "left and right, lateral and medial", size=7, color=MUTED, ha="center")
        for name, rows, tall in zip(classes, keys, heights, strict=True):
            brain = Brain(selected, image, [name], colours)
            draw_key(figure, (0.08, top, 2.28), name, rows, colours[name], 7)
            brain.glass(figure, (2.42, top, 2.75, 0.74), "lyrz", 7)
            brain.slices(figure, (2.42, top + 0.76, 2.75, 0.6), 5, 7)
            brain.surfaces(figure, (5.2, top, 1.95, PANEL - 0.06), 2)
            top += tall
        draw_shades(figure, (0.08, total - 0.2), [shades(INK)], 7)


def _fractions(figure: Any, box: Box) -> Box:
    """Convert a box in inches from the upper left corner to matplotlib's figure fractions."""
    left, top, width, height = box
    w, h = figure.get_size_inches()
    return left / w, 1 - (top + height) / h, width / w, height / h


def _write(figure: Any, x: float, y: float, text: str, *, size: float, **options: Any) -> None:
    """Write text at inches from the left and from the top."""
    w, h = figure.get_size_inches()
    figure.text(x / w, 1 - y / h, text, fontsize=size, va="top", **options)


def cuts(heights: Sequence[float], n: int) -> list[float]:
    """Choose heights (mm) of axial slices: through as many ROIs as possible, then through the rest of the brain."""
    chosen: list[float] = []
    for pool, apart in ((sorted(heights), 6.0), (list(range(-30, 66, 5)), 0.0)):
        while pool and len(chosen) < n:
            distance = [min((abs(z - c) for c in chosen), default=np.inf) for z in pool]
            if max(distance) <= apart:
                break
            chosen.append(float(pool[int(np.argmax(distance))]))
    return sorted(chosen)


@cache
def _template() -> Any:
    # nilearn's own of 2 mm, in a tenth of its time
    return crop_img(datasets.load_mni152_template(resolution=1).slicer[::2, ::2, ::2])


BAR = 0.15  # inches per class


def plot_networks(table: pd.DataFrame, classes: Sequence[str], out: Path) -> None:
    """Draw the share of selected ROIs and the mean importance of networks, with sd over folds (``networks.tsv``)."""
    share = table.groupby("network")["mean_selection_frequency"].max().sort_values(ascending=False, kind="stable")
    networks, colours = list(share.index), class_colours(classes)
    overall = 100 * (table["mean_selection_frequency"] * table["n_rois"]).sum() / table["n_rois"].sum()
    height = len(networks) * (BAR * len(classes) + 0.16) + 0.85
    measures = (
        ("mean_selection_frequency", "selection_sd", 100, "ROIs selected (%)"),
        ("mean_importance", "importance_sd", 1, "mean importance (odds ratio − 1)"),
    )
    with canvas(out, width=WIDTH, height=height) as figure:
        for axes, (mean, sd, factor, label) in zip(figure.subplots(1, 2, sharey=True), measures, strict=True):
            for i, name in enumerate(classes):
                rows = table[table["class"] == name].set_index("network").reindex(networks)
                _bars(axes, rows[mean] * factor, rows[sd] * factor, i, len(classes), colours[name], name)
            axes.set_xlabel(label)
            axes.set_yticks(np.arange(len(networks)), networks)
            axes.grid(axis="x", color=LINE, linewidth=0.6)
            axes.set_axisbelow(True)
            axes.locator_params(axis="x", nbins=5)
            axes.margins(y=0.02)
        left, right = figure.axes
        left.invert_yaxis()
        left.set_xlim(left=0)
        left.axvline(overall, color=MUTED, linestyle="--", linewidth=1)
        right.axvline(0, color=MUTED, linewidth=0.8)
        handles, names = left.get_legend_handles_labels()
        figure.legend(handles, names, loc="outside upper left", ncols=4)


def _bars(axes: Any, values: pd.Series, spread: pd.Series, i: int, n: int, colour: str, name: str) -> None:
    step = 0.8 / n
    places = np.arange(len(values)) + (i - (n - 1) / 2) * step
    axes.barh(
        places, values, step * 0.9, xerr=spread, color=colour, label=name, error_kw={"ecolor": INK, "elinewidth": 0.8}
    )


HEIGHT = 2.5  # inches


def plot_overview(
    table: pd.DataFrame | None,
    image: nib.Nifti1Image | None,
    classes: Sequence[str],
    importance: NDArray[np.floating],
    tokens: NDArray[np.integer],
    tr: float,
    out: Path,
    *,
    title: str,
    volumes: NDArray[np.integer] | None = None,
) -> None:
    """Draw ``roi_weights.tsv`` (with more than two classes, the first) and importance (T,) of one scan.

    Without a table or the image of its atlas, only importance is drawn. Other parameters as in
    `bolt.report.figures.series.time_course`.
    """
    with_brain = table is not None and image is not None
    with canvas(out, width=WIDTH, height=HEIGHT, layout=None) as figure:
        left = 0.5 if with_brain else 0.09
        axis = figure.add_axes((left, 0.19, 0.98 - left, 0.59))
        draw_importance(axis, importance, tokens, tr, volumes=volumes)
        axis.set_xlabel(time_unit(tr))
        figure.text(left, 0.97, title, fontsize=8.5, color=MUTED, va="top")
        if table is None or image is None:
            return
        shown = list(classes) if len(classes) == 2 else list(classes[:1])
        colours = class_colours(classes)
        selected = table[is_drawn(table) & table["class"].isin(shown)].copy()
        selected["centre"] = centres(image, selected["value"].to_numpy(int))
        Brain(selected, image, shown, colours).surfaces(figure, (0.02, 0.12, 2.85, 2.1), 2)
        for i, name in enumerate(shown):
            figure.text(0.03 + 0.2 * i, 0.02, f"■ {name}", fontsize=8.5, color=colours[name])
