"""ROI series and importance over time, and how much of each ROI was acquired.

Small drawings within a page (SVG): a scan among the others, which ROIs it covers, its course of importance.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
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


WIDTH, HEIGHT, EDGE = 460, 34, 8
AXIS = 13
"""Height of the two numbers below a strip."""
FENCE = 3.0
"""Interquartile ranges beyond the quartiles from which a value is an outlier: Tukey's outer fence. With 25 measures a
scan, the inner one (1.5) marks many that are good."""


def outlying(values: pd.Series, better: str) -> pd.Series:
    """Return which values are outliers towards the bad end (towards either, if neither is good)."""
    low, high = values.quantile([0.25, 0.75])
    far = FENCE * (high - low)
    below, above = values < low - far, values > high + far
    return {"high": below, "low": above}.get(better, below | above)


def strip(values: pd.Series, outlier: pd.Series, excluded: pd.Series, cutoff: float | None) -> str:
    """Draw each scan's value as a dot; outliers and excluded scans are larger, named, and link to their rows.

    All series are indexed by scan_id; missing values are not drawn, the cut-off is dashed.
    """
    shown = values.dropna()
    ends = [*shown, *([] if cutoff is None else [cutoff])]
    low, high = min(ends), max(ends)
    span = (high - low) or 1.0

    def place(value: float) -> float:
        return EDGE + (value - low) / span * (WIDTH - 2 * EDGE)

    jitter = np.random.default_rng(0).uniform(-9, 9, len(shown))  # so that equal values do not hide each other
    ordinary, special = [], []
    for (scan, value), shake in zip(shown.items(), jitter, strict=True):
        x, y = place(value), HEIGHT / 2 + shake
        if outlier[scan] or excluded[scan]:
            kind = "out" if excluded[scan] else "odd"
            name = html.escape(str(scan))
            special.append(
                f'<a href="#{name}"><circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="4.5">'
                f"<title>{name}: {value:.3g}</title></circle></a>"
            )
        else:
            ordinary.append(f"M{x:.1f} {y:.1f}h0")
    median = place(float(shown.median()))
    line = "" if cutoff is None else f'<path class="cut" d="M{place(cutoff):.1f} 0V{HEIGHT}"/>'
    at = f'y="{HEIGHT + AXIS - 3}"'
    ends_shown = f'<text x="{EDGE}" {at}>{low:.4g}</text><text class="end" x="{WIDTH - EDGE}" {at}>{high:.4g}</text>'
    return (
        f'<svg class="strip" viewBox="0 0 {WIDTH} {HEIGHT + AXIS}" role="group" aria-label="one dot per scan">'
        f'<path class="median" d="M{median:.1f} 3V{HEIGHT - 3}"/>'
        f'<path class="dots" d="{"".join(ordinary)}"/>{line}{"".join(special)}{ends_shown}</svg>'
    )


def coverage_strip(
    rois: Sequence[str], shares: Sequence[float], networks: Sequence[str | None], threshold: float
) -> str:
    """Draw the coverage of an atlas's ROIs (names, shares) as bars by network; red if below the threshold."""
    order = sorted(range(len(rois)), key=lambda i: (str(networks[i] or ""), i))
    step, height = 900 / len(rois), 46
    bars, names, start = [], [], 0
    for x, i in enumerate(order):
        share = shares[i]
        colour = "#1f6f8b" if share >= threshold else "#b42318"
        tall = max(2.0, share * height)
        title = html.escape(f"{rois[i]}: {100 * share:.0f} %")
        bars.append(
            f'<rect x="{x * step:.2f}" y="{height - tall:.1f}" width="{step * 0.92:.2f}" height="{tall:.1f}" '
            f'fill="{colour}"><title>{title}</title></rect>'
        )
        last = x + 1 == len(order) or (networks[order[x + 1]] or "") != (networks[i] or "")
        if last:
            name = html.escape(str(networks[i] or ""))
            names.append(f'<path class="mark" d="M{start * step:.1f} {height + 3}H{(x + 0.92) * step:.1f}"/>')
            names.append(f'<text x="{(start + x + 1) / 2 * step:.1f}" y="{height + 15}">{name}</text>')
            start = x + 1
    cut = f'<path class="cut" d="M0 {height * (1 - threshold):.1f}H900"/>'
    about = f'viewBox="0 0 900 {height + 20}" role="img" aria-label="coverage of each ROI"'
    return f'<svg class="coverage" {about}>{"".join(bars)}{cut}{"".join(names)}</svg>'


def course_strip(courses: Sequence[NDArray[np.floating]], volumes: NDArray[np.integer], tr: float, tokens: int) -> str:
    """Draw importance (T,) of each seed, and its mean, relative to the scan's mean; dropped volumes are gaps.

    Parameters
    ----------
    courses : sequence of (T,) arrays
    volumes : int array (T,)
        Volume of the scan that each row is.
    tr : float
        Repetition time, s; NaN: the axis counts volumes.
    tokens : int
        How many of the most important volumes get a dot.
    """
    rows = np.array([course / (course.mean() or 1.0) for course in courses])
    mean = rows.mean(axis=0)
    step, unit = (tr, "s") if np.isfinite(tr) else (1.0, "volumes")
    width, height, top = 900, 70, max(float(rows.max()), 1.0)
    x = (volumes + 0.5) / (volumes[-1] + 1) * width

    def y(value: Any) -> Any:
        return height - 2 - np.clip(value, 0, top) / top * (height - 6)

    def line(row: NDArray[np.floating], kind: str) -> str:
        pens = np.where(np.diff(volumes, prepend=-9) > 1, "M", "L")
        points = "".join(f"{pen}{i:.1f} {j:.1f}h0" for pen, i, j in zip(pens, x, y(row), strict=True))
        return f'<path class="{kind}" d="{points}"/>'

    thin = "".join(line(row, "seed") for row in rows) if len(rows) > 1 else ""
    dots = "".join(
        f'<circle cx="{x[i]:.1f}" cy="{y(mean[i]):.1f}" r="3.5"><title>{volumes[i] * step:.4g} {unit}: '
        f"{mean[i]:.2g} times the mean</title></circle>"
        for i in np.argsort(-mean, kind="stable")[:tokens]
    )
    at, end = f'y="{height + 12}"', f"{(volumes[-1] + 1) * step:.4g} {unit}"
    return (
        f'<svg class="course" viewBox="0 0 {width} {height + 16}" role="img" aria-label="importance over time">'
        f'<path class="level" d="M0 {y(1.0):.1f}H{width}"/>{thin}{line(mean, "mean")}{dots}'
        f'<text x="0" {at}>0</text><text x="{width}" {at} text-anchor="end">{end}</text>'
        f'<text x="{width / 2}" {at} text-anchor="middle">highest: {top:.2g} times the mean</text></svg>'
    )
