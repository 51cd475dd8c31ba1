"""The course of a hyper-parameter search, and the values it tried and chose."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bolt.report.figures.style import INK, LINE, MANY, MUTED, canvas

LOGARITHMIC_FROM = 50
"""Ratio of the largest to the smallest positive value from which an axis is logarithmic."""


def draw(best: Mapping[int, dict[str, Any]], trials: Mapping[int, pd.DataFrame], out: Path) -> None:
    """Draw the validation loss of all trials, and the values tried and chosen, by fold."""
    names = list(next(iter(best.values()))["values"])
    configured = next(iter(trials.values())).iloc[0]
    with canvas(out, height=max(2.6, 0.75 * len(names) + 0.8)) as figure:
        grid = figure.add_gridspec(len(names), 2, width_ratios=(1, 1.15))
        _course(figure.add_subplot(grid[:, 0]), trials)
        for row, name in enumerate(names):
            axis = figure.add_subplot(grid[row, 1])
            tried = pd.concat([table[name] for table in trials.values()])
            if tried.dtype.kind in "if" and tried.min() > 0 and tried.max() > LOGARITHMIC_FROM * tried.min():
                axis.set_xscale("log")
            axis.plot(tried, np.zeros(len(tried)), "|", ms=9, color=LINE, zorder=1)
            axis.plot([configured[name]], [0], "D", ms=8, mfc="none", mec=INK, zorder=3)
            for place, (fold, found) in enumerate(best.items()):
                height = 0.5 * ((place + 0.5) / len(best) - 0.5)  # equal choices above each other
                axis.plot([found["values"][name]], [height], "o", ms=4.5, color=MANY[fold % len(MANY)], zorder=2)
            axis.set(ylim=(-0.6, 0.6), yticks=[])
            axis.spines["left"].set_visible(False)
            axis.set_title(name.split(".")[-1].replace("_", " "), fontsize=8.5, fontweight="normal")


def _course(axis: Any, trials: Mapping[int, pd.DataFrame]) -> None:
    lowest, highest = np.inf, -np.inf
    for fold, table in trials.items():
        losses = table["validation_loss"].astype(float)
        colour = MANY[fold % len(MANY)]
        axis.plot(table["trial"], losses, "o", ms=2.5, mew=0, alpha=0.5, color=colour)
        best = losses.cummin().ffill()
        axis.step(table["trial"], best, where="post", lw=1.3, color=colour, label=f"fold {fold}")
        lowest, highest = min(lowest, losses.min()), max(highest, losses.median(), best.max())
    margin = 0.08 * max(highest - lowest, 1e-3)
    axis.set(xlabel="trial", ylabel="validation loss", ylim=(lowest - margin, highest + margin))
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.tick_params(colors=MUTED)
    if len(trials) <= 5:
        axis.legend(loc="upper right")
