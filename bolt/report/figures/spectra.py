"""Power spectra of the ROI series."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from bolt.report.figures.style import INK, LINE, MANY, canvas
from bolt.series.spectra import ALL


def draw(spectra: pd.DataFrame, shares: pd.DataFrame, out: Path) -> None:
    """Draw a row per dataset: all ROIs of each atlas with the spread between scans, then the networks of each atlas.

    `spectra` and `shares` are `SPECTRUM_COLUMNS` and `BAND_COLUMNS` of all datasets and atlases.
    """
    datasets, columns = sorted(spectra["dataset"].unique()), 1 + spectra.groupby("dataset")["atlas"].nunique().max()
    with canvas(out, width=max(7.2, 3.1 * columns), height=0.4 + 2.9 * len(datasets)) as figure:
        grid = figure.subplots(len(datasets), columns, squeeze=False)
        for axes, dataset in zip(grid, datasets, strict=True):
            rows = spectra[spectra["dataset"] == dataset]
            edges = shares.loc[shares["dataset"] == dataset, ["band", "low", "high"]].drop_duplicates()
            for i, (atlas, part) in enumerate(rows[rows["network"] == ALL].groupby("atlas")):
                low, high = part["density"] - part["sd"], part["density"] + part["sd"]
                axes[0].fill_between(part["frequency"], low, high, color=MANY[i], alpha=0.2, lw=0)
                axes[0].plot(part["frequency"], part["density"], color=MANY[i], lw=1.6, label=atlas)
            axes[0].set_title(f"{dataset} · all ROIs, ± sd of scans")
            for axis, (atlas, part) in zip(axes[1:], rows.groupby("atlas"), strict=False):
                for i, (network, line) in enumerate(part[part["network"] != ALL].groupby("network")):
                    axis.plot(line["frequency"], line["density"], color=MANY[i % len(MANY)], lw=1.2, label=network)
                axis.set_title(f"{dataset} · {atlas}, networks")
            for axis in axes:
                if axis.lines:
                    _frame(axis, edges)
                else:
                    axis.set_axis_off()


def _frame(axis: Any, edges: pd.DataFrame) -> None:
    """Draw axes, legend and bands."""
    top = axis.get_ylim()[1]
    for band, low, high in edges.drop_duplicates("band").itertuples(index=False):
        axis.axvline(low, color=LINE, lw=0.8, zorder=0)
        axis.text((low * high) ** 0.5, top, band, ha="center", va="bottom", fontsize=6.5, color=INK)
    axis.set(xscale="log", ylim=(0, top), xlabel="frequency (Hz)", ylabel="power density (1/Hz)")
    axis.set_title(axis.get_title(loc="left"), pad=12)
    ticks = [t for t in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5) if t <= edges["high"].max()]
    axis.set_xticks(ticks, [f"{t:g}" for t in ticks])
    axis.minorticks_off()
    axis.legend(fontsize=7, handlelength=1.2)
