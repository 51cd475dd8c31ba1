"""The results of an experiment at each site: one line per site, one mark per row."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from bolt.report.figures.forest import ROW, STRIPE
from bolt.report.figures.style import INK, MANY, canvas
from bolt.report.tables.fidelity import LEGEND, marked
from bolt.report.tables.numbers import metric_name

MOST = 5
"""Rows that are drawn; more cannot be told apart."""
NO_SKILL = {"auc": 0.5, "r": 0.0}


def has_sites(by_site: pd.DataFrame) -> bool:
    """Return whether a table of sites has anything to draw."""
    return bool(by_site.loc[by_site["metric"].isin(NO_SKILL), "pooled"].notna().any())


def shown_rows(by_site: pd.DataFrame, reference: str = "") -> list[str]:
    """Return the rows that are drawn: `reference`, then the others in their order, at most `MOST`."""
    rows = dict.fromkeys(by_site["row"])
    return sorted(rows, key=lambda row: row != reference)[:MOST]


def draw_sites(by_site: pd.DataFrame, out: Path, *, reference: str = "", unknown: Collection[str] = ()) -> None:
    """Draw the AUC (of numbers: r) at each site with its 95 % interval, for the `shown_rows` of an experiment.

    Parameters
    ----------
    by_site : DataFrame
        `bolt.experiments.results.SITE_COLUMNS`; at least one row.
    out : Path
    reference : str
        Row that is drawn whatever its place.
    unknown : collection of str
        Reconstructed rows, which are marked.
    """
    seen = by_site[by_site["metric"].isin(NO_SKILL)]
    rows = shown_rows(seen, reference)
    names = [marked(row, unknown) for row in rows]
    parts = list(seen[seen["row"].isin(rows)].groupby(["dataset", "atlas"], sort=False))
    height = max(part["site"].nunique() for _, part in parts) * (ROW + 0.05 * len(rows)) + 1.3
    with canvas(out, width=min(5.5 * len(parts) + 1, 12), height=height) as figure:
        axes = figure.subplots(1, len(parts), squeeze=False)[0]
        for axis, (key, part) in zip(axes, parts, strict=True):
            _panel(axis, part, rows)
            axis.set_title(", ".join(key))
        keys = [axes[0].plot([], [], "D-", ms=4, lw=1.4, color=MANY[i], label=name)[0] for i, name in enumerate(names)]
        keys.append(axes[0].plot([], [], "--", lw=0.9, color=INK, label="no skill")[0])
        keys.append(axes[0].plot([], [], "D", ms=4, mfc="white", color=INK, label="too few for an interval")[0])
        title = "test scans of a site, 95 % interval"
        title += "" if names == rows else f"; {LEGEND}"
        figure.legend(handles=keys, loc="outside lower center", ncols=3, title=title)


def _panel(axis: Axes, part: pd.DataFrame, rows: list[str]) -> None:
    """Draw one dataset and atlas; the largest site is on top."""
    sizes = part.groupby("site")["n_scans"].max().sort_values(ascending=False, kind="stable")
    for i in range(0, len(sizes), 2):
        axis.axhspan(i - 0.5, i + 0.5, color=STRIPE, lw=0, zorder=0)
    offsets: Any = dict(zip(rows, np.linspace(-0.3, 0.3, len(rows)) if len(rows) > 1 else [0.0], strict=True))
    for value in part.dropna(subset="pooled").itertuples():
        y, colour = list(sizes.index).index(value.site) + offsets[value.row], MANY[rows.index(value.row)]
        known = np.isfinite(value.low)
        axis.hlines(
            y, value.low if known else value.pooled, value.high if known else value.pooled, color=colour, lw=1.4
        )
        axis.plot(value.pooled, y, "D", ms=3.6, color=colour, mfc=colour if known else "white", zorder=3)
    metric = part["metric"].iloc[0]
    axis.axvline(NO_SKILL[metric], color=INK, ls="--", lw=0.9, zorder=1)
    axis.set_yticks(range(len(sizes)), [f"{site} ({n} scan{'s' * (n != 1)})" for site, n in sizes.items()])
    axis.set_ylim(len(sizes) - 0.5, -0.5)
    axis.tick_params(axis="y", length=0)
    axis.set_xlabel(metric_name(metric))
