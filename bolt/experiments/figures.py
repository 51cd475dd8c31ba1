"""Figures of experiments: rows as a forest plot, sweeps as curves, cost against scan length, and power spectra."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from bolt.config.study import Entry
from bolt.evaluate.scores import METRICS, NUMBER_METRICS
from bolt.experiments.spectra import ALL
from bolt.report.figures.performance import ROW, STRIPE
from bolt.report.figures.style import INK, LINE, MANY, MUTED, canvas
from bolt.report.numbers import LEGEND, MARK, METRIC_NAMES, RECONSTRUCTED, TOO_FEW, marked

BEHIND = {"facecolor": "white", "alpha": 0.8, "edgecolor": "none", "pad": 0.4}  # of numbers at an edge
WIDEST = 0.6  # share of the scale, and
BULK = 12  # interquartile ranges, up to which an axis shows everything
REACH = 5  # interquartile ranges to either side of the bulk otherwise
LOGARITHMIC_FROM = 5  # ratio of the largest to the smallest value; shares of the subjects are always linear
OFFSET = 0.012  # of the axis, between points of several lines at one value
MARGIN = 0.08  # of the axis, on both sides of the values; all of them are on it, trained or not
MEASURES = {
    "operations": ("operations", 1e9, "10⁹"),
    "seconds": ("time", 1.0, "s"),
    "peak_bytes": ("memory", 1e6, "MB"),
}
"""Column of measured costs to its name, the size of its unit, and the unit."""
DASHES = ("-", "--")


def draw_forest(results: pd.DataFrame, out: Path, *, reference: str = "") -> None:
    """Draw `RESULT_COLUMNS`: a panel per dataset and metric, a line per row (bold: `reference`)."""
    atlases = {atlas: MANY[i % len(MANY)] for i, atlas in enumerate(dict.fromkeys(results["atlas"]))}
    parts = list(results.groupby("dataset", sort=False))
    heights = [part["row"].nunique() * ROW + 0.75 for _, part in parts] or [1.0]
    with canvas(out, width=10.5, height=sum(heights) + 0.6) as figure:
        places: Any = figure.subfigures(len(parts), 1, height_ratios=heights, squeeze=False)[:, 0] if parts else []
        for place, (dataset, part) in zip(places, parts, strict=True):
            axes = _metric_panels(place, dataset, part, sharey=True)
            for axis, metric in axes.items():
                _forest_panel(axis, part[part["metric"] == metric], atlases)
            first, order = next(iter(axes)), list(dict.fromkeys(part["row"]))
            first.set_yticks(range(len(order)), [_row_name(row, part[part["row"] == row]) for row in order])
            for row, label in zip(order, first.get_yticklabels(), strict=True):
                label.set_fontweight("bold" if row == reference else "normal")
        if figure.axes:
            _legend(figure, results, atlases, missing=":")


def metrics_of(part: pd.DataFrame) -> tuple[str, ...]:
    """Return the paper's metrics that results have: those of classes, or of numbers."""
    return METRICS if "accuracy" in set(part["metric"]) else NUMBER_METRICS


def _metric_panels(place: Any, title: str, part: pd.DataFrame, **options: Any) -> dict[Axes, str]:
    """Return a panel for each of the paper's metrics in one part of a figure."""
    metrics = metrics_of(part)
    place.suptitle(title, x=0.01, ha="left", fontweight="bold", fontsize=10.5)
    axes = dict(zip(place.subplots(1, len(metrics), squeeze=False, **options)[0], metrics, strict=True))
    for axis, metric in axes.items():
        name = METRIC_NAMES.get(metric, metric.capitalize())
        axis.set_title(name if metric in NUMBER_METRICS else f"{name} (%)")
    return axes


def _legend(figure: Figure, results: pd.DataFrame, colours: Mapping[str, str], *, missing: str) -> None:
    """Explain colours and marks below a figure; `missing` is the line format of rows with missing folds."""
    axis = figure.axes[0]
    keys = [axis.plot([], [], "D-", ms=4, lw=1.6, color=colour, label=name)[0] for name, colour in colours.items()]
    if results["paper_mean"].notna().any():
        keys.append(axis.plot([], [], "o", ms=5, mfc="none", mec=INK, label="the paper's mean over folds")[0])
    if (results["n_folds"] < results["expected_folds"]).any():
        keys.append(axis.plot([], [], missing, ms=4, mfc="white", lw=1.6, color=INK, label="folds are missing")[0])
    keys.append(axis.plot([], [], "--", lw=0.9, color=INK, label="no skill")[0])
    title = "mean over folds, 95 % interval"
    if RECONSTRUCTED in set(results.get("fidelity", ())):
        title += f"; {LEGEND}"
    figure.legend(handles=keys, loc="outside lower center", ncols=6, title=title)


def _forest_panel(axis: Axes, part: pd.DataFrame, atlases: Mapping[str, str]) -> None:
    """Draw each row's mean and interval, and the paper's mean: arrows and numbers stand for what is off the axis."""
    order = list(dict.fromkeys(part["row"]))
    scale = 1 if part["metric"].iloc[0] in NUMBER_METRICS else 100
    for i in range(0, len(order), 2):
        axis.axhspan(i - 0.5, i + 0.5, color=STRIPE, lw=0, zorder=0)
    drawn = [atlas for atlas in atlases if atlas in set(part["atlas"])]
    offsets = dict(zip(drawn, np.linspace(-0.18, 0.18, len(drawn)) if len(drawn) > 1 else [0.0], strict=True))
    low, high = _limits(axis, part, scale)
    edge = axis.get_yaxis_transform()
    for value in part.itertuples():
        y, colour = order.index(value.row) + offsets[value.atlas], atlases[value.atlas]
        mean, paper = scale * value.mean, scale * value.paper_mean
        if low <= mean <= high:
            start, end = scale * value.low, scale * value.high
            if np.isnan(start):
                right = mean > (low + high) / 2  # the words are to the left, so that they are on the axis
                place: Any = {"xytext": (-5 if right else 5, 0), "ha": "right" if right else "left", "va": "center"}
                axis.annotate(TOO_FEW, (mean, y), textcoords="offset points", fontsize=6, color=colour, **place)
            dots = "-" if value.n_folds == value.expected_folds else ":"
            axis.hlines(y, max(start, low), min(end, high), color=colour, lw=1.6, ls=dots, zorder=2)
            axis.plot(mean, y, "D", ms=3.6, color=colour, mew=0, zorder=4)
            for beyond, x, shape in ((start < low, 0.012, "<"), (end > high, 0.988, ">")):
                if beyond:
                    axis.plot(x, y, shape, ms=4.5, color=colour, mew=0, transform=edge, zorder=4)
        if low <= paper <= high:
            axis.plot(paper, y, "o", ms=5, mfc="none", mec=colour, mew=1.1, zorder=3)
        named = (("", mean), ("paper ", paper))  # NaN is beyond neither end
        below = ", ".join(f"{name}{number:.3g}" for name, number in named if number < low)
        above = ", ".join(f"{name}{number:.3g}" for name, number in named if number > high)
        look: Any = {"va": "center", "fontsize": 6.5, "color": colour, "bbox": BEHIND, "zorder": 5, "transform": edge}
        if below:
            axis.text(0.01, y, f"◂ {below}", ha="left", **look)
        if above:
            axis.text(0.99, y, f"{above} ▸", ha="right", **look)
    axis.set_ylim(len(order) - 0.5, -0.5)
    axis.tick_params(axis="y", length=0)


def _limits(axis: Axes, part: pd.DataFrame, scale: int) -> tuple[float, float]:
    """Set limits that show every interval, or only the bulk where a few rows are far off; draw the no-skill line."""
    seen = scale * part[["low", "high", "mean", "paper_mean"]].to_numpy(float)
    means = scale * part["mean"].dropna().to_numpy()
    levels = sorted({round(scale * level, 1) for level in part["no_skill"].dropna()})
    if not len(means):
        return -np.inf, np.inf
    first, last = np.percentile(means, [25, 75])
    inside = np.array([*seen[np.isfinite(seen)], *levels])
    if np.ptp(inside) > max(BULK * (last - first), WIDEST * scale):
        reach = max(REACH * (last - first), 0.2 * scale)
        inside = inside[(inside >= first - reach) & (inside <= last + reach)]
    low, high = inside.min(), inside.max()
    margin = 0.06 * (high - low) or 0.01 * scale
    axis.set_xlim(low - margin, high + margin)
    for level in levels:
        if low <= level <= high:
            axis.axvline(level, color=INK, ls="--", lw=0.9, zorder=1)
    if levels and not low <= levels[0] <= high:
        words = f"no skill: {levels[0]:g}"
        axis.set_xlabel(f"← {words}" if levels[0] < low else f"{words} →", fontsize=7.5, color=MUTED)
    return low - margin, high + margin


def _row_name(row: str, values: pd.DataFrame) -> str:
    """Return the row's name, with a dagger if it is reconstructed, and the number of its folds if some are missing."""
    folds = values.groupby("atlas", sort=False)[["n_folds", "expected_folds"]].max()  # undefined metrics have fewer
    lacking = folds[folds["n_folds"] < folds["expected_folds"]]
    row += f" {MARK}" if RECONSTRUCTED in set(values.get("fidelity", ())) else ""
    if not values["expected_folds"].any():
        return f"{row} (not applicable)"
    counts = ", ".join(dict.fromkeys(f"{line.n_folds} of {line.expected_folds}" for line in lacking.itertuples()))
    return f"{row} ({counts} folds)" if counts else row


def draw_curves(results: pd.DataFrame, entries: Sequence[Entry], out: Path, *, key: str = "") -> None:
    """Draw a sweep of the setting `key`: a row of panels per dataset and atlas, a panel per metric, a colour per line.

    `results` are `RESULT_COLUMNS`; `entries` are the same rows, each with its ``line`` and ``value``.
    """
    lines, values = ({entry.row: getattr(entry, name) for entry in entries} for name in ("line", "value"))
    table = results.assign(line=results["row"].map(lines), value=results["row"].map(values))
    of_share = key == "train_share"
    if of_share:
        table["value"] *= 100
    setting = "training subjects (%)" if of_share else key.split(".")[-1].replace("_", " ")
    colours = {line: MANY[i % len(MANY)] for i, line in enumerate(dict.fromkeys(table["line"]))}
    parts = list(table.groupby(["dataset", "atlas"], sort=False))
    with canvas(out, width=10.5, height=2.7 * len(parts) + 0.5) as figure:
        for place, (names, part) in zip(figure.subfigures(len(parts), 1, squeeze=False)[:, 0], parts, strict=True):
            for axis, metric in _metric_panels(place, ", ".join(names), part).items():
                axis.set_xlabel(setting)
                scale = 1 if metric in NUMBER_METRICS else 100
                _curve_panel(axis, part[part["metric"] == metric], colours, scale, linear=of_share)
        unknown = set(table.loc[table["fidelity"] == RECONSTRUCTED, "line"])
        _legend(figure, table, {marked(line, unknown): colour for line, colour in colours.items()}, missing="D:")


def _curve_panel(axis: Axes, part: pd.DataFrame, colours: dict[str, str], scale: int, linear: bool = False) -> None:
    """Draw one metric: complete rows are joined by a solid line, rows with missing folds are hollow and dotted."""
    values = np.array(sorted(part["value"].unique()))
    log = not linear and values[0] > 0 and values[-1] / values[0] >= LOGARITHMIC_FROM
    first, last = (np.log10(values[[0, -1]])) if log else values[[0, -1]]
    shift = OFFSET * (last - first)
    lines = [line for line in colours if line in set(part["line"])]
    for i, line in enumerate(lines):
        rows, colour = part[part["line"] == line].sort_values("value"), colours[line]
        moved = shift * (i - (len(lines) - 1) / 2)
        x = (rows["value"] * 10**moved if log else rows["value"] + moved).to_numpy()
        mean, low, high, paper = (scale * rows[name].to_numpy(float) for name in ("mean", "low", "high", "paper_mean"))
        complete = (rows["n_folds"] == rows["expected_folds"]).to_numpy()
        axis.plot(x, np.where(complete, mean, np.nan), "-", lw=1.6, color=colour, zorder=3)
        axis.plot(x, mean, ":", lw=1.2, color=colour, zorder=2)
        axis.vlines(x[complete], low[complete], high[complete], color=colour, lw=1.2, alpha=0.7, zorder=2)
        axis.vlines(x[~complete], low[~complete], high[~complete], color=colour, lw=1.2, ls=":", zorder=2)
        axis.plot(x[complete], mean[complete], "D", ms=4, color=colour, mew=0, zorder=4)
        axis.plot(x[~complete], mean[~complete], "D", ms=4, mfc="white", mec=colour, zorder=4)
        axis.plot(x, paper, "o", ms=5.5, mfc="none", mec=colour, mew=1.1, zorder=3)
    for level in sorted({round(scale * level, 1) for level in part["no_skill"].dropna()}):
        axis.axhline(level, color=INK, ls="--", lw=0.9, zorder=1)
    margin = MARGIN * (last - first) or 0.5
    left, right = first - margin, last + margin
    if log:
        axis.set_xscale("log")
    axis.set_xlim((10**left, 10**right) if log else (left, right))
    axis.set_xticks(values, [f"{value:g}" for value in values])
    axis.xaxis.set_minor_locator(NullLocator())


def draw_cost(table: pd.DataFrame, out: Path) -> None:
    """Draw operations, time and memory against length (``complexity.tsv``): a row per atlas, a line per model."""
    atlases, lengths = sorted(table["atlas"].unique()), sorted(table["length"].unique())
    ours = list(table.loc[table["model"] == "bolt", "row"].unique())
    others = list(table.loc[table["model"] != "bolt", "row"].unique())
    looks = {name: (MANY[i % len(MANY)], DASHES[i // len(MANY) % len(DASHES)]) for i, name in enumerate(others)}
    looks |= {name: (INK, DASHES[i % len(DASHES)]) for i, name in enumerate(ours)}
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
                axis.yaxis.set_major_formatter("{x:g}")  # the default writes formulae
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


def draw_spectra(spectra: pd.DataFrame, shares: pd.DataFrame, out: Path) -> None:
    """Draw a row per dataset: all ROIs of each atlas with the spread between scans, then the networks of each atlas.

    `spectra` and `shares` are ``spectra.tsv`` and ``bands.tsv`` of all datasets and atlases.
    """
    datasets, columns = sorted(spectra["dataset"].unique()), 1 + spectra.groupby("dataset")["atlas"].nunique().max()
    with canvas(out, width=max(7.2, 3.1 * columns), height=0.4 + 2.9 * len(datasets)) as figure:
        grid = figure.subplots(len(datasets), columns, squeeze=False)
        for axes, dataset in zip(grid, datasets, strict=True):
            rows = spectra[spectra["dataset"] == dataset]
            for i, (atlas, part) in enumerate(rows[rows["network"] == ALL].groupby("atlas")):
                low, high = part["density"] - part["sd"], part["density"] + part["sd"]
                axes[0].fill_between(part["frequency"], low, high, color=MANY[i], alpha=0.2, lw=0)
                axes[0].plot(part["frequency"], part["density"], color=MANY[i], lw=1.6, label=atlas)
            axes[0].set_title(f"{dataset} · all ROIs, ± sd of scans")
            for axis, (atlas, part) in zip(axes[1:], rows.groupby("atlas"), strict=False):
                for i, (network, line) in enumerate(part[part["network"] != ALL].groupby("network")):
                    axis.plot(line["frequency"], line["density"], color=MANY[i % len(MANY)], lw=1.2, label=network)
                axis.set_title(f"{dataset} · {atlas}, networks")
            edges = shares.loc[shares["dataset"] == dataset, ["band", "low", "high"]].drop_duplicates()
            for axis in axes:
                if not axis.lines:
                    axis.set_axis_off()
                    continue
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
