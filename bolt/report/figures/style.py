"""The style of all figures: palette, sizes, saving.

Colours can be distinguished with common forms of colour blindness: red and blue of equal weight for two classes, Okabe
and Ito's set for more (https://jfly.uni-koeln.de/color/).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
from fontTools import subset
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_pdf import FigureCanvasPdf
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from bolt.io.files import atomic, read_yaml

logging.getLogger("fontTools").setLevel(logging.WARNING)  # it logs pages of notes for every PDF
WIDTH = 7.2  # inches: two journal columns
LINE = "#d5dae1"
TWO = ("#c0392b", "#2166ac")
MANY = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c510a", "#7a5195", "#8a7f00", "#7f7f7f")
LANDMARK = "#f5c35b"
DIVERGING = "RdBu_r"
DPI = 180
NOT_EMBEDDED = ("GDEF", "GPOS", "GSUB")
"""Tables of fonts for kerning and ligatures: text in a PDF is already laid out, and reducing them takes longest."""
RC: Any = read_yaml(Path(__file__).with_name("style.yaml"))  # matplotlib's stubs want each key as a literal
"""Matplotlib's parameters."""
INK, MUTED = RC["text.color"], RC["xtick.color"]


def class_colours(classes: Sequence[str]) -> dict[str, str]:
    """Return a colour for each class, in the order of `classes`."""
    palette = TWO if len(classes) == 2 else MANY
    return {name: palette[i % len(palette)] for i, name in enumerate(classes)}


@contextmanager
def canvas(out: Path, width: float = WIDTH, height: float = 3.0, **options: Any) -> Iterator[Figure]:
    """Save a figure as `out` (PNG, for screens), with SVG and PDF beside it (for papers); sizes in inches."""
    with matplotlib.rc_context(RC):
        figure = Figure(figsize=(width, height), **{"layout": "constrained", **options})
        FigureCanvasAgg(figure)
        yield figure
        _save(figure, out)


def _save(figure: Figure, out: Path) -> None:
    """Save a figure in three formats with one layout; equal figures are equal files.

    `Figure.savefig` would draw each format twice, the first time to find the layout.
    """
    figure.dpi = DPI
    if engine := figure.get_layout_engine():
        engine.execute(figure)
        figure.set_layout_engine("none")
    with atomic(out) as temporary:
        FigureCanvasAgg(figure).print_png(temporary)
    with atomic(out.with_suffix(".svg")) as temporary:
        FigureCanvasSVG(figure).print_svg(temporary, metadata={"Date": None})
    figure.dpi = DPI  # the resolution of images in vector files
    with atomic(out.with_suffix(".pdf")) as temporary, _plain_fonts():
        FigureCanvasPdf(figure).print_pdf(temporary, metadata={"CreationDate": None})


@contextmanager
def _plain_fonts() -> Iterator[None]:
    """Embed fonts without the tables `NOT_EMBEDDED`, which matplotlib has no option for."""
    default = subset.Options._drop_tables_default
    subset.Options._drop_tables_default = [*default, *NOT_EMBEDDED]
    try:
        yield
    finally:
        subset.Options._drop_tables_default = default
