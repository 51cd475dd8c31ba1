"""ROI series and importance over time, and how much of each ROI was acquired."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from numpy.typing import NDArray

from bolt.report.figures.style import DIVERGING, INK, LANDMARK, MANY, MUTED, canvas


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
    """Draw importance (T,) above the z-scored series (T, R) of one scan, ROIs by network; dropped volumes are gaps.

    Parameters
    ----------
    tokens : int array
        Rows that are landmarks; they are shaded.
    tr : float
        Repetition time, s; NaN: the axis counts volumes.
    landmarks : int array, optional
        Rows of true events (of the phantom), drawn as a bar.
    volumes : int array (T,), optional
        Volume of the scan that each row is; default: all, from the first.
    """
    volumes = np.arange(len(importance)) if volumes is None else volumes
    _, unit, limits = _time_axis(tr, volumes)
    with canvas(out, height=4.2) as figure:
        upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[1, 2.2])
        draw_importance(upper, importance, tokens, tr, landmarks=landmarks, volumes=volumes)
        if title:
            figure.suptitle(title, x=0.01, ha="left", fontsize=8.5, color=MUTED)
        picture = carpet(lower, with_gaps(series, volumes), rois, limits)
        lower.set_xlabel(unit)
        figure.colorbar(picture, ax=lower, label="BOLD (z)", aspect=18, pad=0.01)


def draw_importance(
    axis: Axes,
    importance: NDArray[np.floating],
    tokens: NDArray[np.integer],
    tr: float,
    *,
    landmarks: NDArray[np.integer] | None = None,
    volumes: NDArray[np.integer] | None = None,
) -> None:
    """Draw importance (T,) over time; parameters as in `time_course`."""
    volumes = np.arange(len(importance)) if volumes is None else volumes
    step, _, limits = _time_axis(tr, volumes)
    time = volumes * step
    for i, token in enumerate(np.sort(tokens)):
        label = f"the {len(tokens)} most important volumes" if i == 0 else None
        axis.axvspan(time[token] - step / 2, time[token] + step / 2, color=LANDMARK, lw=0, zorder=0, label=label)
    gapped = with_gaps(importance, volumes)
    axis.plot((volumes[0] + np.arange(len(gapped))) * step, gapped, color=INK, lw=1.3)
    alone = np.diff(volumes, prepend=-9) > 1
    alone &= np.diff(volumes, append=volumes[-1] + 9) > 1  # between two gaps there is no line to draw
    axis.plot(time[alone], importance[alone], ".", color=INK, ms=2.5)
    top = max(float(importance.max()), 1e-12)
    if landmarks is not None and len(landmarks):
        bars = [(time[v] - step / 2, step) for v in landmarks]
        axis.broken_barh(bars, (1.04 * top, 0.09 * top), color=MANY[2], lw=0, label="true events")
    axis.set(ylabel="importance", xlim=limits)
    axis.set_ylim(min(0.0, float(importance.min())), 1.2 * top)
    axis.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=2, borderaxespad=0.1, handlelength=1.2)


def example_series(
    series: NDArray[np.floating],
    rois: pd.DataFrame,
    tr: float,
    out: Path,
    *,
    title: str = "",
    volumes: NDArray[np.integer] | None = None,
) -> None:
    """Draw the z-scored ROI series (T, R) of one scan as a heat map; parameters as in `time_course`."""
    volumes = np.arange(len(series)) if volumes is None else volumes
    _, unit, limits = _time_axis(tr, volumes)
    with canvas(out, height=3.2) as figure:
        axis = figure.subplots()
        picture = carpet(axis, with_gaps(series, volumes), rois, limits)
        axis.set_xlabel(unit)
        axis.set_title(title, fontweight="normal", fontsize=8.5, color=MUTED)
        figure.colorbar(picture, ax=axis, label="BOLD (z)", aspect=22, pad=0.01)


def time_unit(tr: float) -> str:
    """Return the label of a time axis; NaN: the TR is unknown, and the axis counts volumes."""
    return "time (s)" if np.isfinite(tr) else "volume"


def _time_axis(tr: float, volumes: NDArray[np.integer]) -> tuple[float, str, tuple[float, float]]:
    """Return the step between volumes, the unit and the limits of a time axis; volumes if the TR is unknown."""
    step = tr if np.isfinite(tr) else 1.0
    return step, time_unit(tr), ((volumes[0] - 0.5) * step, (volumes[-1] + 0.5) * step)


def with_gaps(values: NDArray[np.floating], volumes: NDArray[np.integer]) -> NDArray[np.floating]:
    """Return a row for each volume from the first to the last of `volumes`; NaN for dropped volumes."""
    gapped = np.full((volumes[-1] - volumes[0] + 1, *values.shape[1:]), np.nan)
    gapped[volumes - volumes[0]] = values
    return gapped


def carpet(
    axis: Axes, series: NDArray[np.floating], rois: pd.DataFrame, extent: tuple[float, float], limit: float = 3.0
) -> Any:
    """Draw a heat map with one band per network; thin bands are joined as 'other', colours end at ± `limit`."""
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


def coverage(table: pd.DataFrame, threshold: float, out: Path) -> None:
    """Draw the coverage of each ROI: ``median``, ``minimum`` and ``maximum`` over scans."""
    table = table.sort_values("median", kind="stable").reset_index(drop=True)
    with canvas(out, height=2.2) as figure:
        axis = figure.subplots()
        x = np.arange(len(table))
        low, high = table["minimum"], table["maximum"]
        axis.fill_between(x, low, high, step="mid", color=MANY[0], alpha=0.25, lw=0, label="range")
        axis.step(x, table["median"], where="mid", color=MANY[0], lw=1.5, label="median over scans")
        axis.axhline(threshold, color=MANY[1], ls="--", lw=1, label="threshold")
        axis.set(xlim=(-0.5, len(table) - 0.5), ylim=(0, 1.03), ylabel="coverage", xlabel="ROIs, least covered first")
        axis.legend(loc="lower right", ncols=3)
