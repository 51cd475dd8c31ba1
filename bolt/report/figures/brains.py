"""Regions on the brain: figures of ROIs with a key of names, networks, connections, and views to turn.

Two classes share a brain, red and blue; more get a panel each. Shades show in how many folds a region was selected.
Vertices of the inflated fsaverage5 cortex, whose meshes nilearn ships, are assigned to ROIs by MNI coordinates; ROIs
away from the cortex (cerebellum, deep nuclei) get none.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from functools import cache, lru_cache
from html import escape
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import ListedColormap, to_hex, to_rgb
from matplotlib.figure import Figure
from nilearn import datasets, plotting, surface
from nilearn.image import crop_img
from nilearn.surface import PolyData, PolyMesh, SurfaceImage
from numpy.typing import NDArray
from scipy.ndimage import center_of_mass, distance_transform_edt

from bolt.explain.weights import paint
from bolt.io.files import write_text
from bolt.report.figures.series import TimeCourse, draw_importance, time_unit
from bolt.report.figures.style import DIVERGING, INK, LINE, MUTED, WIDTH, canvas, class_colours
from bolt.report.figures.trust import colour_map

REACH = 4.0  # mm between a vertex and its ROI
DPI = 300  # of pictures of the cortex
LISTED = 10  # ROIs named beside the brain
LINE_SPACING = 1.35
FREQUENCIES = ("a third of the folds or fewer", "up to two thirds", "more")
VIEWS = (("left", "lateral"), ("left", "medial"), ("right", "medial"), ("right", "lateral"))
SHADES = (0.4, 0.68, 1.0)  # opacity of the class colour: few folds, some, most
SLICES = 7
PAPER = ListedColormap(colormaps["gray"](np.linspace(0.3, 1, 256))).with_extremes(under="white")
SLICE_STYLE: Any = {"annotate": False, "draw_cross": False, "black_bg": False, "colorbar": False}
SLICE_STYLE |= {"cmap": PAPER, "vmin": 0.02, "vmax": 1}  # light, so that pale colours stand out; white around the head
# inches: heights of a class's panel with more than two classes, of a class's bar of a network, of the overview, and of
# a class's connections
PANEL, BAR, OVERVIEW, CONNECTOME = 1.42, 0.15, 2.5, 2.1
Box = tuple[float, float, float, float]


# ---- cortex --------------------------------------------------------------------------------------------------------
@cache
def meshes() -> Any:
    """Return nilearn's fsaverage5: white, pial and inflated meshes, and sulcal depth."""
    return datasets.fetch_surf_fsaverage("fsaverage5")


@lru_cache(maxsize=4)
def labels_of_vertices(image: nib.Nifti1Image) -> dict[str, NDArray[np.integer]]:
    """Return the label value of each vertex per hemisphere, 0 for none.

    A vertex takes the nearest ROI within `REACH` mm of the point halfway between white matter and pial surface, so
    parcels meet at their true borders, and a sphere just below the cortex is still visible.
    """
    labels = np.asanyarray(image.dataobj).astype(int)
    sizes = nib.affines.voxel_sizes(image.affine)
    distance, nearest = distance_transform_edt(labels == 0, sampling=sizes, return_indices=True)
    labels = np.where(distance <= REACH, labels[tuple(nearest)], 0)
    found = {}
    for side in ("left", "right"):
        pial, white = (surface.load_surf_mesh(meshes()[f"{s}_{side}"]).coordinates for s in ("pial", "white"))
        midway = np.asarray(pial + white) / 2
        voxels = nib.affines.apply_affine(np.linalg.inv(image.affine), midway).round().astype(int)
        inside = ((voxels >= 0) & (voxels < labels.shape)).all(axis=1)
        found[side] = np.where(inside, labels[tuple(np.where(inside[:, None], voxels, 0).T)], 0)
    return found


def cortex_view(
    codes: NDArray[np.integer], side: str, view: str, colours: Sequence[str], inches: float
) -> NDArray[np.uint8]:
    """Render one hemisphere on a transparent background, `inches` wide and three quarters as high in print.

    Parameters
    ----------
    codes : int array (vertices,)
        0: no colour; n: the n-th of `colours`.
    side : {"left", "right"}
    view : {"lateral", "medial"}

    Returns
    -------
    uint8 array (height, width, 4)
    """
    figure = Figure(figsize=(inches, inches), dpi=DPI, facecolor="none")
    canvas = FigureCanvasAgg(figure)
    axes: Any = figure.add_axes((0, 0, 1, 1), projection="3d", facecolor="none")
    plotting.plot_surf_roi(
        meshes()[f"infl_{side}"],
        np.where(codes > 0, codes, np.nan).astype(float),
        hemi=side,
        view=view,
        bg_map=meshes()[f"sulc_{side}"],
        bg_on_data=False,
        cmap=ListedColormap(list(colours)),
        vmin=1,
        vmax=max(len(colours), 2),
        colorbar=False,
        axes=axes,
        engine="matplotlib",
    )
    axes.set_box_aspect(None, zoom=1.45)
    canvas.draw()
    picture = np.asarray(canvas.buffer_rgba())
    return picture[picture.shape[0] // 8 : -picture.shape[0] // 8].copy()


# ---- the key beside a brain: class colours, selected regions with their networks, and in how many folds ------------
def key_height(rows: pd.DataFrame, size: float) -> float:
    """Return the height (inches) of `draw_key`."""
    return size * LINE_SPACING / 72 * (len(listing(rows)) + 1.6)


def listing(rows: pd.DataFrame) -> list[tuple[str, str]]:
    """List a class's selected ROIs by rank: name with network (else coordinates), and folds that select it."""
    rows = rows.sort_values("rank")
    lines = []
    for row in rows.head(LISTED).to_dict("records"):
        folds = f"{round(row['selection_frequency'] * row['n_folds'])} of {row['n_folds']}"
        where = row["network"] if isinstance(row["network"], str) and row["network"] != "n/a" else ""
        if not where:
            where = f"{', '.join(f'{v:d}' for v in row['centre'])} mm".replace("-", "−")
        named = where.lower() in str(row["name"]).lower()
        lines.append((f"{row['rank']}. {row['name']}{'' if named else f' ({where})'}", folds))
    if len(rows) > LISTED:
        lines.append((f"and {len(rows) - LISTED} more", ""))
    return lines or [("no ROI", "")]


def draw_key(
    figure: Any, place: tuple[float, float, float], name: str, rows: pd.DataFrame, colour: str, size: float
) -> None:
    """Write colour, class and ROIs at `place`: left, top, width in inches from the upper left corner."""
    left, top, width = place
    indent, step = 0.16, size * LINE_SPACING / 72
    _write(figure, left, top, "■", size=size + 2, color=colour)
    heading = _write(figure, left + indent, top, f"favours {name}", size=size + 1, fontweight="bold", color=INK)
    unit = _write(figure, left + width, top, "folds", size=size, color=MUTED, ha="right")
    renderer = figure.canvas.get_renderer()
    room = (width - indent - 0.08) * figure.dpi
    _shorten(heading, room - unit.get_window_extent(renderer).width, renderer)
    for i, (text, folds) in enumerate(listing(rows)):
        y = top + step * (i + 1.5)
        right = _write(figure, left + width, y, folds, size=size, color=MUTED, ha="right")
        line = _write(figure, left + indent, y, text, size=size)
        _shorten(line, room - right.get_window_extent(renderer).width, renderer)


def _shorten(line: Any, pixels: float, renderer: Any) -> None:
    """Shorten a text until it fits."""
    text = line.get_text()
    while line.get_window_extent(renderer).width > pixels and len(text) > 4:
        text = text[:-1]
        line.set_text(text.rstrip() + "…")


def draw_shades(figure: Any, place: tuple[float, float], colours: Sequence[Sequence[str]], size: float) -> None:
    """Explain pale and full colours in one line."""
    x, renderer = place[0], figure.canvas.get_renderer()
    parts = [("Shade: selected in  ", MUTED)]
    for i, meaning in enumerate(FREQUENCIES):
        parts += [*(("■", shades[i]) for shades in colours), (f" {meaning}   ", MUTED)]
    for text, colour in parts:
        artist = _write(figure, x, place[1], text, size=size, color=colour)
        x += artist.get_window_extent(renderer).width / figure.dpi


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


def _codes(selected: pd.DataFrame, classes: Sequence[str]) -> dict[int, int]:
    """Map label values to colour numbers from 1: the shades of the first class, then of the second, ..."""
    codes: dict[int, int] = {}
    for i, name in enumerate(classes):
        rows = selected[selected["class"] == name]
        # up to a third of the folds, up to two thirds, more
        shade = np.searchsorted([1 / 3 + 1e-6, 2 / 3 - 1e-6], rows["selection_frequency"].to_numpy(float), side="right")
        numbers = len(SHADES) * i + 1 + shade
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
        self._overlay(plotting.plot_glass_brain(None, axes=axes, display_mode=mode, annotate=False, alpha=0.5), size)

    def slices(self, figure: Any, box: Box, n: int, size: float) -> None:
        """Draw n axial slices; letters of `size` points."""
        axes, heights = figure.add_axes(_fractions(figure, box)), cuts(self.heights, n)
        display = plotting.plot_anat(_template(), axes=axes, display_mode="z", cut_coords=heights, **SLICE_STYLE)
        self._overlay(display, size)

    def _overlay(self, display: Any, size: float) -> None:
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


def _write(figure: Any, x: float, y: float, text: str, *, size: float, **options: Any) -> Any:
    """Write text at inches from the left and from the top."""
    w, h = figure.get_size_inches()
    return figure.text(x / w, 1 - y / h, text, fontsize=size, va="top", **options)


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


def plot_networks(table: pd.DataFrame, classes: Sequence[str], out: Path) -> None:
    """Draw the share of selected ROIs and the mean importance of networks, with sd over folds (``networks.tsv``)."""
    share = table.groupby("network")["mean_selection_frequency"].max().sort_values(ascending=False, kind="stable")
    networks, colours = list(share.index), class_colours(classes)
    overall = 100 * (table["mean_selection_frequency"] * table["n_rois"]).sum() / table["n_rois"].sum()
    step, height = 0.8 / len(classes), len(networks) * (BAR * len(classes) + 0.16) + 0.85
    measures = (
        ("mean_selection_frequency", "selection_sd", 100, "ROIs selected (%)"),
        ("mean_importance", "importance_sd", 1, "mean importance (odds ratio − 1)"),
    )
    with canvas(out, width=WIDTH, height=height) as figure:
        for axes, (mean, sd, factor, label) in zip(figure.subplots(1, 2, sharey=True), measures, strict=True):
            for i, name in enumerate(classes):
                rows = table[table["class"] == name].set_index("network").reindex(networks)
                places = np.arange(len(rows)) + (i - (len(classes) - 1) / 2) * step
                axes.barh(
                    *(places, rows[mean] * factor, step * 0.9),
                    xerr=rows[sd] * factor,
                    color=colours[name],
                    label=name,
                    error_kw={"ecolor": INK, "elinewidth": 0.8},
                )
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


def plot_overview(
    table: pd.DataFrame | None,
    image: nib.Nifti1Image | None,
    classes: Sequence[str],
    course: TimeCourse,
    out: Path,
    title: str,
) -> None:
    """Draw ``roi_weights.tsv`` (with more than two classes, the first) and the importance of one scan.

    Without a table or the image of its atlas, only importance is drawn.
    """
    with_brain = table is not None and image is not None
    with canvas(out, width=WIDTH, height=OVERVIEW, layout=None) as figure:
        left = 0.5 if with_brain else 0.09
        axis = figure.add_axes((left, 0.19, 0.98 - left, 0.59))
        draw_importance(axis, course)
        axis.set_xlabel(time_unit(course.tr))
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


def plot_connectome(table: pd.DataFrame, image: nib.Nifti1Image, classes: Sequence[str], out: Path) -> None:
    """Draw the given rows of ``connections.tsv``, a brain per class.

    Parameters
    ----------
    table : DataFrame
        At least one row.
    image : label image of the atlas
    classes : sequence of str
        In the order of their colours.
    out : Path
    """
    largest, panels = table["r"].abs().max(), list(table.groupby("class", sort=False))
    height = CONNECTOME * len(panels)
    with canvas(out, width=WIDTH, height=height, layout=None) as figure:
        for row, (name, rows) in enumerate(panels):
            values = np.unique(rows[["value_a", "value_b"]].to_numpy(int))
            a, b = (np.searchsorted(values, rows[f"value_{end}"]) for end in "ab")
            matrix = np.zeros((len(values), len(values)))
            matrix[a, b] = matrix[b, a] = rows["r"]
            top = 1 - row * CONNECTOME / height
            axes = figure.add_axes((0, top - CONNECTOME / height, 0.9, 0.9 * CONNECTOME / height))
            plotting.plot_connectome(
                matrix,
                centres(image, values),
                axes=axes,
                display_mode="lyrz",
                node_size=10,
                node_color=INK,
                edge_cmap=colour_map(classes, str(name)),
                edge_vmin=-largest,
                edge_vmax=largest,
                edge_kwargs={"linewidth": 1.2},
                colorbar=row == 0,
            )
            figure.text(0.01, top - 0.02, str(name), va="top", fontweight="bold", fontsize=9)


def write_views(
    table: pd.DataFrame, image: nib.Nifti1Image, classes: Sequence[str], stem: Path
) -> dict[str, list[Path]]:
    """Write ``<stem>_volume.html`` and ``<stem>_cortex.html`` per class (of ``roi_weights.tsv``), two classes in one.

    Colours are regression weights: of all ROIs in the volume, of the selected ROIs on the cortex. With two classes, red
    favours the first and blue the second, as in the figures.

    Returns
    -------
    dict
        Classes shown to their files: the volume's, the cortex's.
    """
    together = len(classes) == 2
    views = {}
    for i, name in enumerate(classes[:1] if together else classes):
        rows = table[table["class"] == name]
        both = table[is_drawn(table) & table["class"].isin(classes if together else [name])]
        chosen = rows["weight"].where(rows["value"].isin(both["value"]), 0)
        number = "" if together else f"-{i + 1}"
        files = [stem.with_name(f"{stem.name}_{part}{number}.html") for part in ("volume", "cortex")]
        title = escape(f"red: {classes[0]}, blue: {classes[1]}" if together else name)
        painted = paint(image, rows["value"].to_numpy(int), rows["weight"].to_numpy(np.float32))
        look: Any = {"cmap": DIVERGING, "title": title}
        volume = plotting.view_img(painted, threshold=None, resampling_interpolation="nearest", opacity=0.75, **look)
        of_value = dict(zip(rows["value"].astype(int), chosen.astype(float), strict=True))
        vertices = labels_of_vertices(image).items()  # as in the figures
        numbers = {side: pd.Series(labels).map(of_value).fillna(0).to_numpy() for side, labels in vertices}
        mesh = PolyMesh(**{side: meshes()[f"infl_{side}"] for side in numbers})
        depth = PolyData(**{side: meshes()[f"sulc_{side}"] for side in numbers})
        data, background = (SurfaceImage(mesh=mesh, data=values) for values in (PolyData(**numbers), depth))
        shown = np.abs(chosen[chosen != 0])
        cortex = plotting.view_surf(
            surf_mesh=mesh,
            surf_map=data,
            bg_map=background,
            hemi="both",
            threshold=float(shown.min()) * 0.999 if len(shown) else 1e-6,
            vmax=float(shown.max()) if len(shown) else 1.0,
            title_fontsize=16,
            colorbar_fontsize=12,
            **look,
        )
        for view, file in zip((volume, cortex), files, strict=True):
            write_text(str(view.html), file)
        views[" and ".join(classes) if together else name] = files
    return views
