"""Computational cost of models against scan length."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from bolt.report.figures.style import INK, MANY, canvas
from bolt.report.tables.numbers import MARK, RECONSTRUCTED

MEASURES = {
    "operations": ("operations", 1e9, "10⁹"),
    "seconds": ("time", 1.0, "s"),
    "peak_bytes": ("memory", 1e6, "MB"),
}
"""Column to its name, the size of its unit, and the unit."""
STYLES = ("-", "--")


def draw(table: pd.DataFrame, out: Path) -> None:
    """Draw operations, time and memory against length (`COLUMNS`): a row per atlas, a line per model."""
    atlases, lengths = sorted(table["atlas"].unique()), sorted(table["length"].unique())
    ours = list(table.loc[table["model"] == "bolt", "row"].unique())
    others = list(table.loc[table["model"] != "bolt", "row"].unique())
    looks = {name: (MANY[i % len(MANY)], STYLES[i // len(MANY) % len(STYLES)]) for i, name in enumerate(others)}
    looks |= {name: (INK, STYLES[i % len(STYLES)]) for i, name in enumerate(ours)}
    with canvas(out, height=0.6 + 2.6 * len(atlases)) as figure:
        grid = figure.subplots(len(atlases), len(MEASURES), squeeze=False, sharex=True)
        for axes, atlas in zip(grid, atlases, strict=True):
            part = table[table["atlas"] == atlas]
            axes[0].set_ylabel(f"{atlas}, {int(part['n_rois'].iloc[0])} ROIs")
            for axis, (measure, (name, size, unit)) in zip(axes, MEASURES.items(), strict=True):
                for row, line in part.groupby("row", sort=False):
                    colour, style = looks[str(row)]
                    known = line.dropna(subset=[measure])
                    axis.loglog(known["length"], known[measure] / size, style, marker="o", ms=2.5, lw=1.3, color=colour)
                axis.set_title(f"{name}, {unit}")
                axis.set_xticks(lengths, [str(n) for n in lengths])
                axis.minorticks_off()
        for axis in grid[-1]:
            axis.set_xlabel("volumes")
        handles = [
            figure.axes[0].plot([], [], style, color=colour, marker="o", ms=2.5, label=name)[0]
            for name, (colour, style) in looks.items()
        ]
        title = f"{MARK} {RECONSTRUCTED}" if any(name.endswith(f" {MARK}") for name in looks) else None
        figure.legend(handles=handles, loc="outside right upper", labelcolor=INK, title=title)
