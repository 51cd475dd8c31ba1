"""Pictures for visual quality control of a subject within a minute.

Mosaics are WebP images of about 50 to 150 kB. Two images that should agree are alternated in one SVG (hovering holds
the second), as in fMRIPrep. They are drawn here because those of nireports take 1.7 MB each.
"""

from __future__ import annotations

import base64
import html
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

from bolt.preprocess.antspy import ants

matplotlib.use("agg")

import matplotlib.pyplot as plt
import numpy as np
from scipy import ndimage
from sklearn.cluster import KMeans

from bolt.io.files import write_bytes, write_text
from bolt.preprocess import images
from bolt.preprocess.quality.carpet import DPI, draw_carpet, to_webp

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
Contours = Sequence[tuple[ants.ANTsImage, str]]


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
    view = View(mask)
    write_bytes(
        view.draw(
            images.read(paths["t1w"]),
            [(mask, BRAIN), *tissue_edges(paths)],
            f"Brain (orange, {numbers['brain_ml']:.0f} ml), grey matter (yellow) and white matter (blue) on the T1w",
        ),
        figures / f"{prefix}desc-tissues_T1w.webp",
    )
    head, brain = images.read(template / "T1w.nii.gz"), images.read(template / "brain_mask.nii.gz")
    view, edges = View(brain), [(brain, BRAIN), (white_matter(head, brain), WHITE)]
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
    head, brain = images.read(template / "T1w.nii.gz"), images.read(template / "brain_mask.nii.gz")
    view, edges = View(brain), [(brain, BRAIN), (white_matter(head, brain), WHITE)]
    covered = f"{100 * numbers['template_brain_covered']:.0f} % of the brain acquired"
    write_bytes(
        view.draw(
            images.read(paths["reference"]),
            edges,
            f"Mean BOLD with contours of the template's brain (orange) and white matter (blue), {space} · {covered}",
        ),
        figures / f"{scan_id}_space-{space}_desc-normalisation_boldref.webp",
    )
    write_bytes(
        view.draw(
            images.read(paths["tsnr"]),
            [(brain, "white")],
            f"Temporal signal-to-noise ratio, median {numbers['median_tsnr']:.0f}; white: the template's brain",
            colours="inferno",
        ),
        figures / f"{scan_id}_space-{space}_desc-tsnr_boldmap.webp",
    )
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

    def __init__(self, mask: ants.ANTsImage, slices: int = SLICES, pixel: float = PIXEL) -> None:
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
        self, image: ants.ANTsImage, contours: Contours, title: str, colours: str = "gray", quality: int = QUALITY
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
            self._label(axes, k)
        figure.text(0.006, 1 - 15 / pixels, title, color="white", fontsize=11.5, va="center")
        if colours != "gray":
            bar = figure.colorbar(
                picture, cax=figure.add_axes((0.8, 1 - 11 / pixels, 0.18, 8 / pixels)), orientation="horizontal"
            )
            bar.ax.tick_params(colors="white", labelsize=7, pad=1, length=2)
        return to_webp(figure, quality=quality)

    def _strips(self, image: ants.ANTsImage) -> list[np.ndarray]:
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

    def _label(self, axes: plt.Axes, k: int) -> None:
        """Label the sides of the head, and the position (mm) of each slice."""
        sides = ("P", "A") if k == 0 else ("L", "R")
        for text, x, align in ((sides[0], 0.003, "left"), (sides[1], 0.997, "right")):
            axes.text(x, 0.9, text, color="white", ha=align, fontsize=10, transform=axes.transAxes)
        for i, index in enumerate(self.at[k]):
            label = f"{'xyz'[k]} = {self.low[k] + self.pixel * index:.0f}"
            axes.text(
                (i + 0.5) / self.slices,
                0.012,
                label,
                color="#bbbbbb",
                ha="center",
                fontsize=7.5,
                transform=axes.transAxes,
            )


def tissue_edges(paths: Mapping[str, Path]) -> list[tuple[ants.ANTsImage, str]]:
    """Return images whose contours are the outer edges of grey and of white matter, with their colours."""
    grey, white = images.read(paths["gm"]), images.read(paths["wm"])
    return [(grey + white, GREY), (white, WHITE)]


def white_matter(t1w: ants.ANTsImage, mask: ants.ANTsImage) -> ants.ANTsImage:
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
    width, height = _size(second)
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


def _size(webp: bytes) -> tuple[int, int]:
    """Read width and height of a lossy WebP picture."""
    width, height = struct.unpack("<HH", webp[26:30])
    return width & 0x3FFF, height & 0x3FFF
