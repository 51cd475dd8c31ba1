"""Landmark regressions against the rank of importance, as in the paper's figure of subset indices."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from string import ascii_lowercase
from typing import Any, NamedTuple

import pandas as pd
from matplotlib.axes import Axes

from bolt.report.figures.style import INK, MANY, MUTED, canvas

LEVELS = {"subject": ("subjects", MANY[0]), "token": ("single volumes", MANY[1])}
"""Levels of the curve: their names and colours."""
CONTROLS: dict[str, tuple[str, dict[str, Any]]] = {
    "random": ("random volumes", {"color": INK, "ls": "--"}),
    "random direction": ("random direction", {"color": MANY[2], "ls": (0, (6, 2))}),
    "wrong class": ("wrong class", {"color": MANY[3], "ls": "-."}),
    "fixed class": ("same class in all scans", {"color": MANY[6], "ls": (0, (3, 1, 1, 1, 1, 1))}),
}
"""Control volumes: their names and lines."""


class Curve(NamedTuple):
    """One dataset: title, ``subsets.tsv``, ``landmarks.tsv``, and the accuracy of guessing with equal odds."""

    title: str
    subsets: pd.DataFrame
    landmarks: pd.DataFrame
    chance: float


def draw_curves(curves: Sequence[Curve], out: Path) -> None:
    """Draw accuracy with its spread over folds, and importance: a row per dataset."""
    with canvas(out, height=0.9 + 2.6 * len(curves)) as figure:
        grid = figure.subplots(len(curves), 2, squeeze=False, sharex="row")
        for letter, (left, right), curve in zip(ascii_lowercase, grid, curves, strict=False):
            _accuracy(left, curve)
            _importance(right, curve)
            left.set_title(f"({letter}) {curve.title}" if len(curves) > 1 else curve.title)
            for axis in (left, right):
                axis.margins(x=0.01)
        for axis in grid[-1]:
            axis.set_xlabel("subset index (0: most important)")
        handles, labels = grid[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3)


def _means(table: pd.DataFrame, level: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return mean and sd over folds by offset."""
    rows = table[table["level"] == level]
    mean, sd = (rows[rows["fold"] == name].set_index("offset").sort_index() for name in ("mean", "sd"))
    return mean, sd


def _accuracy(axis: Axes, curve: Curve) -> None:
    for level, (name, colour) in LEVELS.items():
        mean, sd = _means(curve.subsets, level)
        values, spread = 100 * mean["accuracy"], 100 * sd["accuracy"]
        axis.fill_between(mean.index, values - spread, values + spread, color=colour, alpha=0.18, lw=0)
        axis.plot(mean.index, values, color=colour, lw=1.6, label=name)
    rows = curve.landmarks[(curve.landmarks["fold"] == "mean") & (curve.landmarks["level"] == "subject")]
    controls = rows[rows["importance"] != "inner"].set_index("tokens")["accuracy"]
    for control, (name, style) in CONTROLS.items():
        if control in controls:
            axis.axhline(100 * controls[control], label=f"{name}, subjects", lw=1.1, **style)
    axis.axhline(100 * curve.chance, color=MUTED, ls=":", lw=1.2, label="chance at equal odds")
    axis.set_ylabel("accuracy (%)")


def _importance(axis: Axes, curve: Curve) -> None:
    mean, sd = _means(curve.subsets, "subject")
    axis.fill_between(mean.index, mean["score"] - sd["score"], mean["score"] + sd["score"], color=INK, alpha=0.15, lw=0)
    axis.plot(mean.index, mean["score"], color=INK, lw=1.6)
    axis.set_ylim(bottom=0)
    axis.set_ylabel("importance (× smallest weight)")
