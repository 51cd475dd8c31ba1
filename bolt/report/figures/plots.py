"""Pictures of scans, training and results. They draw numbers that other rooms computed.

Every function takes the path of a PNG, and writes an SVG and a PDF beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import NDArray

from bolt.report.figures.style import DIVERGING, INK, LANDMARK, LINE, MANY, MUTED, WIDTH, canvas, class_colours

METRIC_NAMES = {"accuracy": "accuracy", "recall": "recall", "precision": "precision", "auc": "AUC"}


def cohort(scans: pd.DataFrame, classes: Sequence[str], out: Path) -> None:
    """Who is in the dataset: label by site, age, sex and head motion (those that are known).

    Parameters
    ----------
    scans : DataFrame
        Rows of ``scans.tsv``.
    classes : sequence of str
    out : Path
    """
    colours = class_colours(classes)
    panels = [("site", "Scans by site"), ("sex", "Scans by sex"), ("age", "Age"), ("mean_fd", "Head motion")]
    panels = [(c, t) for c, t in panels if c in scans and scans[c].notna().any()]
    panels = panels or [("task", "Scans")]
    units = {"age": "years", "mean_fd": "mean FD (mm)"}
    names = [column for column, _ in panels]
    many = len(names) > 1 and "site" in names and scans["site"].nunique() > 4  # then sites have a row of their own
    rest = [name for name in names if name != "site"] if many else names
    rows: Any = [["site"] * len(rest), rest] if many else [rest]
    with canvas(out, height=4.6 if many else 2.6) as figure:
        axes = figure.subplot_mosaic(rows)
        for column, title in panels:
            axis = axes[column]
            if column in units:
                _strip(axis, scans, column, colours)
                axis.set_ylabel(units[column])
            else:
                _counts(axis, scans, column, colours)
            axis.set_title(title)
        handles = [axes[names[0]].plot([], [], "s", color=c, label=name)[0] for name, c in colours.items()]
        figure.legend(handles=handles, loc="outside lower center", ncols=min(len(classes), 7))


def _counts(axis: Axes, scans: pd.DataFrame, column: str, colours: Mapping[str, str]) -> None:
    table = pd.crosstab(scans[column].fillna("unknown").astype(str), scans["label"].astype(str))
    shown = table.loc[table.sum(axis=1).sort_values(ascending=False, kind="stable").index[:30]]
    bottom = np.zeros(len(shown))
    for name, colour in colours.items():
        heights = shown[name].to_numpy() if name in shown else np.zeros(len(shown))
        bars = axis.bar(np.arange(len(shown)), heights, bottom=bottom, color=colour, width=0.7)
        if len(shown) <= 5:
            texts = [str(h) if h > 0.06 * shown.sum(axis=1).max() else "" for h in heights]  # those that find room
            axis.bar_label(bars, texts, label_type="center", color="white", fontsize=8)
        bottom += heights
    slanted = len(shown) > 4 or max(map(len, shown.index)) > 8
    axis.set_xticks(range(len(shown)), shown.index)
    if slanted:
        axis.tick_params(axis="x", labelsize=7.5)
        axis.set_xticks(range(len(shown)), shown.index, rotation=45, ha="right", rotation_mode="anchor")
    axis.set_ylabel("scans")
    axis.yaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    if len(table) > len(shown):
        axis.set_xlabel(f"{len(table) - len(shown)} smaller not shown")


def _strip(axis: Axes, scans: pd.DataFrame, column: str, colours: Mapping[str, str]) -> None:
    random = np.random.default_rng(0)
    for i, (name, colour) in enumerate(colours.items()):
        values = pd.to_numeric(scans.loc[scans["label"].astype(str) == name, column], errors="coerce").dropna()
        size, alpha = (3, 0.55) if len(values) < 200 else (2, 0.35)
        axis.plot(i + random.uniform(-0.22, 0.22, len(values)), values, "o", ms=size, alpha=alpha, mew=0, color=colour)
        if len(values):
            axis.hlines(values.median(), i - 0.32, i + 0.32, color=INK, lw=1.6, zorder=3)
    axis.set_xticks([])
    axis.set_xlim(-0.6, len(colours) - 0.4)
    known = pd.to_numeric(scans[column], errors="coerce").dropna()
    if column == "mean_fd" and known.min() > 0 and known.max() > 8 * known.median():  # a few who move hide the others
        axis.set_yscale("log")
        axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    elif column == "mean_fd":
        axis.set_ylim(bottom=0)


def time_course(
    importance: NDArray[np.floating],
    series: NDArray[np.floating],
    rois: pd.DataFrame,
    tokens: NDArray[np.integer],
    tr: float,
    out: Path,
    *,
    title: str = "",
    landmarks: NDArray[np.integer] | None = None,
    volumes: NDArray[np.integer] | None = None,
) -> None:
    """One scan: importance over time above its ROI series, ROIs grouped by network; dropped volumes are gaps.

    Parameters
    ----------
    importance : float array (T,)
    series : float array (T, R)
        z-scored.
    rois : DataFrame
        With ``network``, one row a ROI.
    tokens : int array
        Rows of the series that were chosen as landmarks; they are shaded.
    tr : float
        Seconds; NaN: the axis counts volumes.
    out : Path
    title : str
    landmarks : int array, optional
        Rows at which something is known to have happened (the phantom's truth), drawn as a bar.
    volumes : int array (T,), optional
        Volumes of the scan that the rows are; default: all, from the first.
    """
    step, unit = (tr, "time (s)") if np.isfinite(tr) else (1.0, "volume")
    volumes = np.arange(len(importance)) if volumes is None else volumes
    time = volumes * step
    limits = (time[0] - step / 2, time[-1] + step / 2)
    with canvas(out, height=4.2) as figure:
        upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[1, 2.2])
        for i, token in enumerate(np.sort(tokens)):
            name = f"the {len(tokens)} most important volumes" if i == 0 else None
            upper.axvspan(time[token] - step / 2, time[token] + step / 2, color=LANDMARK, lw=0, zorder=0, label=name)
        whole = with_gaps(importance, volumes)
        upper.plot((volumes[0] + np.arange(len(whole))) * step, whole, color=INK, lw=1.3)
        alone = np.diff(volumes, prepend=-9) > 1
        alone &= np.diff(volumes, append=volumes[-1] + 9) > 1  # between two gaps there is no line to draw
        upper.plot(time[alone], importance[alone], ".", color=INK, ms=2.5)
        top = max(float(importance.max()), 1e-12)
        if landmarks is not None and len(landmarks):
            bars = [(time[v] - step / 2, step) for v in landmarks]
            upper.broken_barh(bars, (1.04 * top, 0.09 * top), color=MANY[2], lw=0, label="true events")
        upper.set(ylabel="importance", xlim=limits)
        upper.set_ylim(min(0.0, float(importance.min())), 1.2 * top)
        upper.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=2, borderaxespad=0.1, handlelength=1.2)
        if title:
            figure.suptitle(title, x=0.01, ha="left", fontsize=8.5, color=MUTED)
        picture = carpet(lower, with_gaps(series, volumes), rois, limits)
        lower.set_xlabel(unit)
        figure.colorbar(picture, ax=lower, label="BOLD (z)", aspect=18, pad=0.01)


def example_series(
    series: NDArray[np.floating],
    rois: pd.DataFrame,
    tr: float,
    out: Path,
    *,
    title: str = "",
    volumes: NDArray[np.integer] | None = None,
) -> None:
    """The z-scored ROI series (T, R) of one scan as a heat map, ROIs grouped by network; as in `time_course`."""
    step, unit = (tr, "time (s)") if np.isfinite(tr) else (1.0, "volume")
    volumes = np.arange(len(series)) if volumes is None else volumes
    limits = ((volumes[0] - 0.5) * step, (volumes[-1] + 0.5) * step)
    with canvas(out, height=3.2) as figure:
        axis = figure.subplots()
        picture = carpet(axis, with_gaps(series, volumes), rois, limits)
        axis.set_xlabel(unit)
        axis.set_title(title, fontweight="normal", fontsize=8.5, color=MUTED)
        figure.colorbar(picture, ax=axis, label="BOLD (z)", aspect=22, pad=0.01)


def with_gaps(values: NDArray[np.floating], volumes: NDArray[np.integer]) -> NDArray[np.floating]:
    """A row for each volume from the first to the last of `volumes`; NaN where it was dropped."""
    whole = np.full((volumes[-1] - volumes[0] + 1, *values.shape[1:]), np.nan)
    whole[volumes - volumes[0]] = values
    return whole


def carpet(
    axis: Axes, series: NDArray[np.floating], rois: pd.DataFrame, extent: tuple[float, float], limit: float = 3.0
) -> Any:
    """Heat map with one band a network; bands too thin for a name are counted to 'other'. Colours end at ± `limit`."""
    networks = rois["network"].fillna("no network").astype(str).reset_index(drop=True)
    sizes = networks.value_counts()
    if len(sizes) > 1:
        networks = networks.where(networks.map(sizes) >= 0.035 * len(networks), "other")
    names = [n for n in sorted(networks.unique()) if n != "other"] + ["other"] * ("other" in set(networks))
    order = np.concatenate([np.flatnonzero(networks == n) for n in names])
    picture = axis.imshow(
        series[:, order].T,
        aspect="auto",
        cmap=DIVERGING,
        vmin=-limit,
        vmax=limit,
        interpolation="nearest",
        extent=(extent[0], extent[1], len(order), 0),
    )
    ends = np.cumsum([int((networks == n).sum()) for n in names])
    for end in ends[:-1]:
        axis.axhline(end, color=INK, lw=0.7)
    starts = np.concatenate([[0], ends[:-1]])
    axis.set_yticks((starts + ends) / 2, names if len(names) > 1 else [f"{len(order)} ROIs"])
    axis.tick_params(axis="y", length=0)
    return picture


def training_curves(histories: Mapping[int, pd.DataFrame], out: Path) -> None:
    """Loss and accuracy (r² of numbers) over epochs, a thin line a fold, the mean thick.

    Parameters
    ----------
    histories : mapping
        Fold to its ``history.tsv`` (``epoch``, ``train_loss``, ``validation_loss``,
        ``train_accuracy`` or ``train_r2``, ``validation_accuracy`` or ``validation_r2``; those that are there).
    out : Path
    """
    colours = {"train": MANY[0], "validation": MANY[1]}
    metric = "r2" if any("train_r2" in history for history in histories.values()) else "accuracy"
    with canvas(out, height=2.6) as figure:
        axes = figure.subplots(1, 2)
        for axis, what in zip(axes, ("loss", metric), strict=True):
            for part, colour in colours.items():
                column = f"{part}_{what}"
                curves = [h.set_index("epoch")[column] for h in histories.values() if column in h]
                for curve in curves:
                    axis.plot(curve.index, curve, color=colour, lw=0.7, alpha=0.35)
                if curves:
                    mean = pd.concat(curves, axis=1).mean(axis=1)
                    axis.plot(mean.index, mean, color=colour, lw=2, label=part)
            axis.set(xlabel="epoch", title={"r2": "r²"}.get(what, what.capitalize()))
            axis.xaxis.set_major_locator(MaxNLocator(nbins=7, integer=True))
        axes[0].set_ylim(bottom=0)
        axes[1].set_ylim(0 if metric == "accuracy" else -1, 1.03)
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)


def performance(table: pd.DataFrame, pooled: Mapping[str, Any], out: Path) -> None:
    """Metrics of folds and pooled with 95 % intervals, ROC curve, confusion matrix.

    Parameters
    ----------
    table : DataFrame
        ``metrics.tsv``.
    pooled : mapping
        ``pooled`` of ``summary.json``.
    out : Path
    """
    curve = pooled.get("roc")
    with canvas(out, height=3.1) as figure:
        axes = figure.subplots(1, 3 if curve else 2, width_ratios=[1.35, 1, 1] if curve else [1.2, 1])
        _metric_dots(axes[0], table, pooled)
        keys = [
            axes[0].plot([], [], "D-", ms=5, lw=1.6, color=INK, label="all test scans, with 95 % interval")[0],
            axes[0].plot([], [], "o", ms=3.5, mew=0, alpha=0.5, color=MANY[0], label="one fold")[0],
            axes[0].plot([], [], color=MANY[1], ls="--", lw=1, label="no skill: the largest class, a coin")[0],
        ]
        figure.legend(handles=keys, loc="outside lower left", ncols=3)
        if curve:
            axes[1].plot([0, 1], [0, 1], color=LINE, lw=1, ls="--")
            axes[1].plot(curve["false_positive_rate"], curve["true_positive_rate"], color=MANY[0], lw=1.8)
            axes[1].set(xlabel="false positive rate", ylabel="true positive rate", title="ROC")
            axes[1].set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), aspect="equal")
        _confusion(axes[-1], np.array(pooled["confusion"]), pooled["classes"])


def predicted_numbers(pooled: Mapping[str, Any], out: Path, unit: str = "label") -> None:
    """Predicted against true numbers of all test scans.

    Parameters
    ----------
    pooled : mapping
        ``pooled`` of ``summary.json``: ``truth``, ``predicted``, ``r``.
    out : Path
    unit : str
        What the numbers are.
    """
    truth, predicted = np.array(pooled["truth"]), np.array(pooled["predicted"])
    ends = (min(truth.min(), predicted.min()), max(truth.max(), predicted.max()))
    with canvas(out, width=WIDTH / 2, height=3.1) as figure:
        axis = figure.subplots()
        axis.plot(ends, ends, color=LINE, lw=1, ls="--")
        axis.plot(truth, predicted, "o", ms=3.5, mew=0, alpha=0.5, color=MANY[0])
        axis.set(xlabel=f"true {unit}", ylabel=f"predicted {unit}", title="Test scans")


def _metric_dots(axis: Axes, table: pd.DataFrame, pooled: Mapping[str, Any]) -> None:
    folds = table[table["state"] == "ok"]
    for i, metric in enumerate(METRIC_NAMES):
        spread = np.linspace(-0.12, 0.12, len(folds)) if len(folds) > 1 else np.zeros(len(folds))
        axis.plot(folds[metric], i + 0.22 + spread / 2, "o", ms=3.5, mew=0, alpha=0.5, color=MANY[0])
        value = pooled[metric]
        if value["value"] is None:
            continue
        axis.hlines(i - 0.12, value["low"], value["high"], color=INK, lw=1.6)
        axis.plot(value["value"], i - 0.12, "D", ms=5, color=INK)
    rows = {metric: i for i, metric in enumerate(METRIC_NAMES)}
    for metric, null in (("accuracy", pooled["majority_accuracy"]), ("auc", 0.5)):
        axis.vlines(null, rows[metric] - 0.4, rows[metric] + 0.45, color=MANY[1], ls="--", lw=1.2)
    axis.set_yticks(range(4), METRIC_NAMES.values())
    axis.set(ylim=(3.5, -0.6), xlim=(-0.03, 1.03), title="Test scans")


def _confusion(axis: Axes, counts: NDArray[np.integer], classes: Sequence[str]) -> None:
    share = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    axis.imshow(share, cmap="Blues", vmin=0, vmax=1)
    for (row, column), value in np.ndenumerate(counts):
        colour = "white" if share[row, column] > 0.55 else INK
        text = f"{value}\n{share[row, column]:.0%}" if len(classes) <= 3 else str(value)
        axis.text(column, row, text, ha="center", va="center", color=colour, fontsize=8.5 if len(classes) <= 3 else 7.5)
    ticks = range(len(classes))
    axis.set_xticks(
        ticks, classes, rotation=0 if len(classes) == 2 else 45, ha="center" if len(classes) == 2 else "right"
    )
    axis.set_yticks(ticks, classes, rotation=90 if len(classes) == 2 else 0, va="center")
    axis.set(xlabel="predicted", ylabel="true", title="Confusion")
    axis.tick_params(length=0)


def coverage(table: pd.DataFrame, threshold: float, out: Path) -> None:
    """Share of each ROI inside the scanned field and brain, ROIs sorted, range over scans.

    Parameters
    ----------
    table : DataFrame
        One row a ROI: ``median``, ``minimum``, ``maximum`` over scans.
    threshold : float
        Below it an ROI counts as not covered.
    out : Path
    """
    table = table.sort_values("median", kind="stable").reset_index(drop=True)
    with canvas(out, width=WIDTH, height=2.2) as figure:
        axis = figure.subplots()
        x = np.arange(len(table))
        axis.fill_between(
            x, table["minimum"], table["maximum"], step="mid", color=MANY[0], alpha=0.25, lw=0, label="range"
        )
        axis.step(x, table["median"], where="mid", color=MANY[0], lw=1.5, label="median over scans")
        axis.axhline(threshold, color=MANY[1], ls="--", lw=1, label="threshold")
        axis.set(xlim=(-0.5, len(table) - 0.5), ylim=(0, 1.03), ylabel="coverage", xlabel="ROIs, least covered first")
        axis.legend(loc="lower right", ncols=3)
