"""The key beside a brain: class colours, selected regions with their networks, and in how many folds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from bolt.report.figures.style import INK, MUTED

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
