"""Pictures for visual quality control of a subject within a minute.

Mosaics are WebP images of about 50 to 150 kB. Two images that should agree are alternated in one SVG (hovering holds
the second), as in fMRIPrep. They are drawn here because those of nireports take 1.7 MB each. The carpet plot, small
groups of voxels over time, by tissue, below head motion, is after Power (2017, doi:10.1016/j.neuroimage.2016.08.009).
"""

from __future__ import annotations

import base64
import html
import io
import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

from bolt.preprocess.images import Image, ants

matplotlib.use("agg")

import matplotlib.pyplot as plt
import numpy as np
from scipy import ndimage
from sklearn.cluster import KMeans

from bolt.io.files import read_table, write_bytes, write_text
from bolt.io.streams import iter_volumes
from bolt.preprocess import images
from bolt.preprocess.quality.measures import HEAD_RADIUS, MOVED, OUTLIER

BRAIN, GREY, WHITE = "#ff8c42", "#f4e04d", "#19c5e0"
"""Contour colours of the brain, grey matter and white matter."""
FRAME = 12.0
"""mm shown around the brain."""
PIXEL = 1.5
"""mm per pixel, before pictures are scaled to `WIDTH`."""
SLICES = 7
LARGE = (3, 0.75)
"""Slices and mm per pixel of the picture of BOLD and T1w, in which a millimetre must be seen."""
WIDTH = 1260
"""Width of a picture in pixels."""
QUALITY, FLICKER_QUALITY = 62, 28
"""WebP quality of single pictures, and of the two in an SVG."""
ROWS = {1: ("grey matter", "#c9a400", 260), 2: ("white matter", "#1598b0", 110), 3: ("CSF", "#8e5bb5", 50)}
"""Name, colour and maximal number of rows of each tissue, by its label in the segmentation."""
NEIGHBOURS = 30
"""Voxels that are averaged in a row, at most: noise of single voxels would hide what many of them share."""
LIMIT = 2.5
"""Standard deviations from the mean shown as black and white."""
DPI = 100
Contours = Sequence[tuple[Image, str]]


def draw_anatomical(
    paths: Mapping[str, Path], template: Path, figures: Path, prefix: str, space: str, numbers: Mapping[str, Any]
) -> None:
    """Draw two pictures: tissues on the T1w; T1w and template in turn, with the template's contours.

    Parameters
    ----------
    paths : mapping
        See `bolt.config.derivatives.anatomical_names`.
    template : path
        Template folder.
    figures : path
        Folder of the pictures.
    prefix, space : str
        Parts of their names.
    numbers : mapping
        Result of `bolt.preprocess.quality.compute.anatomical_numbers`.
    """
    mask = images.read(paths["mask"])
    edges, size = [(mask, BRAIN), *tissue_edges(paths)], f"{numbers['brain_ml']:.0f} ml"
    title = f"Brain (orange, {size}), grey matter (yellow) and white matter (blue) on the T1w"
    write_bytes(View(mask).draw(images.read(paths["t1w"]), edges, title), figures / f"{prefix}desc-tissues_T1w.webp")
    head, view, edges = template_view(template)
    contours = f"with contours of the template's brain (orange) and white matter (blue), {space}"
    fit = f"correlation {numbers['template_correlation']:.2f}"
    write_flicker(
        view.draw(head, edges, f"TEMPLATE {contours}", quality=FLICKER_QUALITY),
        view.draw(images.read(paths["warped"]), edges, f"T1w {contours} · {fit}", quality=FLICKER_QUALITY),
        figures / f"{prefix}space-{space}_desc-normalisation_T1w.svg",
    )


def draw_functional(
    paths: Mapping[str, Path], template: Path, figures: Path, scan_id: str, space: str, numbers: Mapping[str, Any]
) -> None:
    """Draw four pictures: T1w and BOLD in turn; mean BOLD with the template's contours; tSNR; carpet plot.

    Parameters
    ----------
    paths : mapping
        As in `bolt.preprocess.quality.compute.functional_numbers`; also wm, gm and forward of the anatomical
        derivatives, reference (in template space), and bold if there is a 4D image in template space.
    template, figures, space, numbers
        As in `draw_anatomical`.
    scan_id : str
        Prefix of the pictures' names.
    """
    data, affine = images.load(paths["native_reference"])
    to_t1w = np.linalg.inv(images.read_matrix(paths["bold_to_t1w"]))  # from T1w to BOLD points
    view, edges = View(images.read(paths["t1w_mask"]), *LARGE), tissue_edges(paths)
    contours = "with contours of the T1w's grey matter (yellow) and white matter (blue)"
    fit = f"fitted by {numbers['coregistration_method']}"
    if "boundary_cost" in numbers:
        fit += f", boundary cost {numbers['boundary_cost']:.2f}"
    write_flicker(
        view.draw(images.read(paths["t1w"]), edges, f"T1w {contours}", quality=FLICKER_QUALITY),
        view.draw(images.to_ants(data, to_t1w @ affine), edges, f"BOLD {contours} · {fit}", quality=FLICKER_QUALITY),
        figures / f"{scan_id}_desc-coregistration_boldref.svg",
    )
    _, view, edges = template_view(template)
    covered = f"{100 * numbers['template_brain_covered']:.0f} % of the brain acquired"
    title = f"Mean BOLD with contours of the template's brain (orange) and white matter (blue), {space} · {covered}"
    mean = view.draw(images.read(paths["reference"]), edges, title)
    write_bytes(mean, figures / f"{scan_id}_space-{space}_desc-normalisation_boldref.webp")
    title = f"Temporal signal-to-noise ratio, median {numbers['median_tsnr']:.0f}; white: the template's brain"
    tsnr = view.draw(images.read(paths["tsnr"]), [(edges[0][0], "white")], title, colours="inferno")
    write_bytes(tsnr, figures / f"{scan_id}_space-{space}_desc-tsnr_boldmap.webp")
    draw_carpet(paths, figures / f"{scan_id}_desc-carpetplot_bold.webp", numbers)


class View:
    """Axial, coronal and sagittal slices through a brain, the same for all images drawn.

    Parameters
    ----------
    mask : ANTs image
        The brain over which the slices are spread.
    slices : int
        Along each axis.
    pixel : float
        mm per pixel, before the picture is scaled.
    """

    def __init__(self, mask: Image, slices: int = SLICES, pixel: float = PIXEL) -> None:
        self.slices, self.pixel = slices, pixel
        voxels = 2 * np.argwhere(mask.numpy()[::2, ::2, ::2] > 0.5)  # every second voxel: an eighth of the memory
        points = images.apply(images.affine_of(mask), voxels)
        self.low, high = points.min(axis=0) - FRAME, points.max(axis=0) + FRAME
        self.shape = tuple(np.ceil((high - self.low) / pixel).astype(int))
        self.at = []
        for size in self.shape:
            cuts = np.linspace(FRAME, size * pixel - FRAME, slices + 2)[1:-1]
            self.at.append(np.round(cuts / pixel).astype(int))

    def draw(
        self, image: Image, contours: Contours, title: str, colours: str = "gray", quality: int = QUALITY
    ) -> bytes:
        """Draw an image as WebP, with contours at one half, and with a colour bar unless `colours` are grey.

        All slices of an orientation are drawn as one strip, which is much faster than one plot per slice.
        """
        shown, *edges = (self._strips(layer) for layer in (image, *(contour for contour, _ in contours)))
        x, y, z = self.shape
        heights = [y / x, z / x, z / y]  # of the strips, relative to the width of a slice
        pixels = WIDTH / self.slices * sum(heights) + 34
        figure = plt.figure(figsize=(WIDTH / DPI, pixels / DPI), facecolor="black")
        positive = np.concatenate([strip[strip > 0] for strip in shown])
        bright = np.quantile(positive, 0.995) if positive.size else 1.0
        top = 1 - 30 / pixels
        for k, height in zip((2, 1, 0), heights, strict=True):
            share = WIDTH / self.slices * height / pixels
            axes = figure.add_axes((0, top - share, 1, share))
            top -= share
            picture = axes.imshow(shown[k], cmap=colours, vmin=0, vmax=bright, interpolation="bilinear", aspect="auto")
            for edge, (_, colour) in zip(edges, contours, strict=True):
                axes.contour(edge[k], levels=[0.5], colors=colour, linewidths=0.8)
            axes.axis("off")
            style: dict[str, Any] = {"color": "white", "fontsize": 10, "transform": axes.transAxes}
            axes.text(0.003, 0.9, "P" if k == 0 else "L", ha="left", **style)
            axes.text(0.997, 0.9, "A" if k == 0 else "R", ha="right", **style)
            for i, index in enumerate(self.at[k]):
                place, label = (i + 0.5) / self.slices, f"{'xyz'[k]} = {self.low[k] + self.pixel * index:.0f}"
                axes.text(place, 0.012, label, **style | {"color": "#bbbbbb", "ha": "center", "fontsize": 7.5})
        figure.text(0.006, 1 - 15 / pixels, title, color="white", fontsize=11.5, va="center")
        if colours != "gray":
            bar = figure.colorbar(
                picture, cax=figure.add_axes((0.8, 1 - 11 / pixels, 0.18, 8 / pixels)), orientation="horizontal"
            )
            bar.ax.tick_params(colors="white", labelsize=7, pad=1, length=2)
        return to_webp(figure, quality=quality)

    def _strips(self, image: Image) -> list[np.ndarray]:
        """Sample the slices across each axis of space, side by side, superior or anterior up, left on the left."""
        data, to_voxels = image.numpy(), np.linalg.inv(images.affine_of(image))
        strips = []
        for k in range(3):
            places = [np.arange(size) for size in self.shape]
            places[k] = self.at[k]
            points = self.low + self.pixel * np.stack(np.meshgrid(*places, indexing="ij"), axis=-1)
            sampled = ndimage.map_coordinates(data, np.moveaxis(images.apply(to_voxels, points), -1, 0), order=1)
            strips.append(np.hstack([image_slice.T[::-1] for image_slice in np.moveaxis(sampled, k, 0)]))
        return strips


def template_view(template: Path) -> tuple[Image, View, list[tuple[Image, str]]]:
    """Return a template's head, the slices through its brain, and the contours of its brain and white matter."""
    head, brain = images.read(template / "T1w.nii.gz"), images.read(template / "brain_mask.nii.gz")
    return head, View(brain), [(brain, BRAIN), (white_matter(head, brain), WHITE)]


def tissue_edges(paths: Mapping[str, Path]) -> list[tuple[Image, str]]:
    """Return images whose contours are the outer edges of grey and of white matter, with their colours."""
    grey, white = images.read(paths["gm"]), images.read(paths["wm"])
    return [(grey + white, GREY), (white, WHITE)]


def white_matter(t1w: Image, mask: Image) -> Image:
    """Segment white matter as the brightest of three k-means classes: good enough to draw its contour."""
    data, inside = t1w.numpy(), mask.numpy() > 0.5
    values = data[inside]
    sample = np.clip(values[:: max(1, len(values) // 20_000)], *np.quantile(values, [0.01, 0.99]))
    start = np.linspace(sample.min(), sample.max(), 3)[:, None]
    centres = np.sort(KMeans(3, init=start, n_init=1).fit(sample[:, None]).cluster_centers_.ravel())
    white = inside & (data > centres[1:].mean())
    return ants.smooth_image(t1w.new_image_like(white.astype(np.float32)), 0.7)


def write_flicker(first: bytes, second: bytes, path: Path) -> None:
    """Write two WebP pictures of equal size as an SVG that alternates them; hovering holds the second.

    Without animation (in print, or if the reader prefers reduced motion) the second is shown.
    """
    width, height = (side & 0x3FFF for side in struct.unpack("<HH", second[26:30]))  # where lossy WebP has them
    layers = [
        f'<image class="{name}" width="{width}" height="{height}" '
        f'href="data:image/webp;base64,{base64.b64encode(picture).decode()}"/>'
        for name, picture in (("second", second), ("first", first))
    ]
    style = (
        ".first{animation:turn 3s step-end infinite}@keyframes turn{0%{opacity:1}50%{opacity:0}100%{opacity:1}}"
        "svg:hover .first{animation:none;opacity:0}"
        "@media print,(prefers-reduced-motion:reduce){.first{animation:none;opacity:0}}"
    )
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="100%">'
    title = html.escape(path.stem)
    write_text(f"{head}<title>{title}</title><style>{style}</style>{''.join(layers)}</svg>\n", path)


def draw_carpet(paths: Mapping[str, Path], out: Path, numbers: Mapping[str, Any]) -> None:
    """Draw head motion, displacement and DVARS, and below them the brain's voxels, as WebP.

    The voxels are taken from the 4D image in template space, or from the raw file if there is none.

    Parameters
    ----------
    paths : mapping
        confounds, dseg and forward; bold and mask, or raw, native_mask and bold_to_t1w.
    out : path
    numbers : mapping
        mean_fd and max_fd.
    """
    tissues, transforms = images.read(paths["dseg"]), []
    if "bold" in paths:
        bold, transforms = paths["bold"], [str(paths["forward"])]
        mask, affine = images.load(paths["mask"])
    else:  # express the scanner's grid in T1w space; the transform maps points of the T1w to the BOLD
        bold = paths["raw"]
        mask, affine = images.load(paths["native_mask"])
        affine = np.linalg.inv(images.read_matrix(paths["bold_to_t1w"])) @ affine
    labels = ants.apply_transforms(images.to_ants(mask, affine), tissues, transforms, "nearestNeighbor").numpy()
    values, rows = sample(iter_volumes(bold), np.rint(labels) * (mask > 0))
    table = read_table(paths["confounds"])
    figure, axes = plt.subplots(
        5, 1, figsize=(12.6, 8), sharex=True, height_ratios=[1, 1, 1, 1, 4], layout="constrained"
    )
    for axis, colour in zip("xyz", ("#c0392b", "#27ae60", "#2471a3"), strict=True):
        axes[0].plot(table[f"trans_{axis}"], color=colour, label=axis, linewidth=1)
        axes[1].plot(HEAD_RADIUS * table[f"rot_{axis}"], color=colour, label=axis, linewidth=1)
    axes[0].legend(loc="upper right", ncols=3, frameon=False, fontsize=8)
    axes[2].fill_between(table.index, table["framewise_displacement"].fillna(0), color="#555555", linewidth=0)
    axes[2].axhline(MOVED, color="#e4572e", linewidth=0.8, linestyle="--")
    axes[2].set_ylim(0, max(1.0, 1.1 * numbers["max_fd"]))
    axes[3].plot(table["std_dvars"], color="#555555", linewidth=1)
    axes[3].axhline(OUTLIER, color="#e4572e", linewidth=0.8, linestyle="--")
    names = ("Translation\n(mm)", "Rotation (mm\nat 50 mm)", "FD (mm)", "Standardised\nDVARS")
    for axis, name in zip(axes, names, strict=False):
        axis.set_ylabel(name, fontsize=8)
        axis.tick_params(labelsize=8)
        axis.spines[["top", "right"]].set_visible(False)
        axis.margins(x=0)
    extent = (-0.5, values.shape[1] - 0.5, len(values), 0)
    shown = {"cmap": "gray", "vmin": -LIMIT, "vmax": LIMIT, "aspect": "auto", "interpolation": "nearest"}
    image = axes[4].imshow(values, extent=extent, **shown)
    ends = np.cumsum(list(rows.values()))
    for label, end in zip(rows, ends, strict=True):
        axes[4].axhspan(end - rows[label], end, xmax=0.004, color=ROWS[label][1])
        axes[4].axhline(end, color=ROWS[label][1], linewidth=1)
    axes[4].set_yticks(ends - np.asarray(list(rows.values())) / 2, [ROWS[label][0] for label in rows], fontsize=8)
    axes[4].set_xlabel("Volume")
    figure.colorbar(image, ax=axes[4], fraction=0.02, pad=0.01).set_label("SD (detrended)", fontsize=8)
    voxels = "voxels in template space" if "bold" in paths else "native voxels, not motion-corrected"
    figure.suptitle(
        f"Head motion: mean FD {numbers['mean_fd']:.2f} mm, maximum {numbers['max_fd']:.2f} mm · {voxels}", fontsize=11
    )
    write_bytes(to_webp(figure, quality=55), out)


def to_webp(figure: plt.Figure, **encoding: int) -> bytes:
    """Render and close a figure; `encoding` are options of Pillow's WebP encoder."""
    stream = io.BytesIO()
    figure.savefig(stream, format="webp", dpi=DPI, facecolor=figure.get_facecolor(), pil_kwargs=encoding)
    plt.close(figure)
    return stream.getvalue()


def sample(volumes: Iterable[np.ndarray], labels: np.ndarray) -> tuple[np.ndarray, dict[int, int]]:
    """Average groups of neighbouring voxels, spread evenly over each tissue.

    Parameters
    ----------
    volumes : iterable of T (X, Y, Z) arrays
    labels : (X, Y, Z) array
        1, 2, 3: grey matter, white matter, cerebrospinal fluid; 0 elsewhere.

    Returns
    -------
    values : (N, T) array
        Linearly detrended, in standard deviations; tissues in order.
    rows : dict
        Label to number of rows; tissues whose voxels are all constant are omitted.
    """
    groups = []
    for label, (_, _, most) in ROWS.items():
        voxels = np.flatnonzero(labels.ravel() == label)
        n_rows = min(most, len(voxels))
        width = min(NEIGHBOURS, len(voxels) // max(n_rows, 1))
        starts = np.linspace(0, len(voxels) - width, n_rows).astype(int)
        groups.append(voxels[starts[:, None] + np.arange(width)])
    chosen_labels = np.repeat(list(ROWS), [len(group) for group in groups])
    groups = [group for group in groups if len(group)]
    means = [[volume.ravel()[group].mean(axis=1, dtype=np.float64) for group in groups] for volume in volumes]
    values = np.stack([np.concatenate(rows) for rows in means], axis=1)
    time = np.arange(values.shape[1]) - (values.shape[1] - 1) / 2
    values -= values.mean(axis=1, keepdims=True)
    values -= np.outer(values @ time / max((time**2).sum(), 1), time)
    sd = values.std(axis=1)
    varies = sd > 0
    rows = {label: int((chosen_labels[varies] == label).sum()) for label in ROWS}
    return values[varies] / sd[varies, None], {label: count for label, count in rows.items() if count}
