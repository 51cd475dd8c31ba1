"""ROI series and importance over time, also of a task with its events; how much of each ROI was acquired; landmarks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from string import ascii_lowercase
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from numpy.typing import NDArray

from bolt.explain.tasks import MOST
from bolt.report.figures.style import DIVERGING, INK, LANDMARK, MANY, MUTED, canvas
from bolt.report.tables import TASK_KEYS, task_titles


class TimeCourse(NamedTuple):
    """Importance (T,) of the volumes of one scan.

    Attributes
    ----------
    importance : (T,) array
    tokens : int array
        Rows that are landmarks.
    tr : float
        Repetition time, s; NaN: time is counted in volumes.
    volumes : int array (T,)
        Volume of the scan that each row is.
    """

    importance: NDArray[np.floating]
    tokens: NDArray[np.integer]
    tr: float
    volumes: NDArray[np.integer]


def time_course(
    course: TimeCourse,
    series: NDArray[np.floating],
    rois: pd.DataFrame,
    out: Path,
    *,
    title: str = "",
    landmarks: NDArray[np.integer] | None = None,
    label: str = "importance",
) -> None:
    """Draw importance above the z-scored series (T, R) of one scan, ROIs by network; dropped volumes are gaps.

    `landmarks` are rows of true events (of the phantom), drawn as a bar.
    """
    with canvas(out, height=4.2) as figure:
        upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[1, 2.2])
        draw_importance(upper, course, landmarks)
        upper.set_ylabel(label)
        if title:
            figure.suptitle(title, x=0.01, ha="left", fontsize=8.5, color=MUTED)
        _draw_series(lower, series, rois, course.tr, course.volumes, 18)


def draw_importance(axis: Axes, course: TimeCourse, landmarks: NDArray[np.integer] | None = None) -> None:
    """Draw importance over time, landmarks shaded; `landmarks` as in `time_course`."""
    importance, tokens, tr, volumes = course
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
    series: NDArray[np.floating], rois: pd.DataFrame, tr: float, volumes: NDArray[np.integer], out: Path, title: str
) -> None:
    """Draw the z-scored ROI series (T, R) of one scan as a heat map; parameters as in `TimeCourse`."""
    with canvas(out, height=3.2) as figure:
        axis = figure.subplots()
        _draw_series(axis, series, rois, tr, volumes, 22)
        axis.set_title(title, fontweight="normal", fontsize=8.5, color=MUTED)


def _draw_series(
    axis: Axes, series: NDArray[np.floating], rois: pd.DataFrame, tr: float, volumes: NDArray[np.integer], aspect: float
) -> None:
    _, unit, limits = _time_axis(tr, volumes)
    picture = carpet(axis, with_gaps(series, volumes), rois, limits)
    axis.set_xlabel(unit)
    axis.figure.colorbar(picture, ax=axis, label="BOLD (z)", aspect=aspect, pad=0.01)


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
    look: Any = {"cmap": DIVERGING, "vmin": -limit, "vmax": limit, "aspect": "auto", "interpolation": "nearest"}
    picture = axis.imshow(series[:, order].T, extent=(*extent, len(order), 0), **look)
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


STRIP = "viridis"
"""Colours of importance."""
LANE = 0.09
"""Height of a lane of events, relative to that of the curve's axis."""


LEVELS = {"subject": ("subjects", MANY[0]), "token": ("single volumes", MANY[1])}
"""Levels of the curve: their names and colours."""
CONTROLS: dict[str, tuple[str, dict[str, Any]]] = {
    "random": ("random volumes", {"color": INK, "ls": "--"}),
    "random direction": ("random direction", {"color": MANY[2], "ls": (0, (6, 2))}),
    "wrong class": ("wrong class", {"color": MANY[3], "ls": "-."}),
    "fixed class": ("same class in all scans", {"color": MANY[6], "ls": (0, (3, 1, 1, 1, 1, 1))}),
}
"""Control volumes: their names and lines."""


def of_task(table: pd.DataFrame, key: Sequence[str]) -> pd.DataFrame:
    """Return the rows of one class, task and run."""
    return table[(table[TASK_KEYS] == list(key)).all(axis=1)]


def draw_tasks(curves: pd.DataFrame, events: pd.DataFrame, out: Path, *, strips: bool = False) -> None:
    """Draw mean importance (`TASK_COLUMNS`) over events (`BLOCK_COLUMNS`): a panel per class, task and run.

    With `strips`, importance is also a strip of colours below each curve, on one scale for all panels, as in the paper.
    """
    keys = list(dict.fromkeys(curves[TASK_KEYS].itertuples(index=False, name=None)))
    names = task_titles(keys)
    scale = {"vmin": float(curves["mean"].min()), "vmax": float(curves["mean"].max()), "cmap": STRIP}
    with canvas(out, height=0.45 + 1.32 * len(keys)) as figure:
        grid = figure.subplots(len(keys), 2, squeeze=False, width_ratios=[4.2, 1])
        for (axis, beside), key in zip(grid, keys, strict=True):
            curve = of_task(curves, key)
            draw_course(axis, beside, curve, of_task(events, key))
            n = int(curve["n_scans"].max())
            axis.set_title(f"{names[key]} ({n} scan{'s' if n > 1 else ''})")
            if strips:
                picture = _draw_strip(axis, curve, scale)
        few = len(keys) < 3  # one line of a label would be longer than they are high
        then = "\n" if few else " "
        if strips:
            shape: dict[str, Any] = {"shrink": 1.0, "aspect": 10 * len(keys)} if few else {"shrink": 0.4, "aspect": 30}
            figure.colorbar(picture, ax=grid, label=f"mean relative{then}importance", pad=0.01, **shape)
        grid[-1, 0].set_xlabel("time (s)")
        figure.supylabel(f"relative importance{then}(1: the scan's mean)", fontsize=9, multialignment="center")


def _draw_strip(axis: Axes, curve: pd.DataFrame, scale: dict[str, Any]) -> Any:
    """Draw mean importance as colours in a strip below the curve."""
    low, high = axis.get_ylim()
    bottom, (left, right) = low - 1.6 * LANE * (high - low), axis.get_xlim()
    volumes = np.arange(int(curve["volume"].iloc[0]), int(curve["volume"].iloc[-1]) + 1)
    values = curve.set_index("volume")["mean"].reindex(volumes).to_numpy(float)
    step = right / (volumes[-1] + 1)
    extent = (volumes[0] * step, right, bottom, low)
    picture = axis.imshow(values[None], extent=extent, aspect="auto", interpolation="nearest", **scale)
    axis.set_yticks([tick for tick in axis.get_yticks() if low <= tick <= high])  # of the curve, not of the strip
    axis.set(xlim=(left, right), ylim=(bottom, high))
    return picture


def draw_course(axis: Axes, beside: Axes, curve: pd.DataFrame, events: pd.DataFrame) -> None:
    """Draw one curve over its events, with their key on the axis `beside`."""
    time = curve["time"].to_numpy()
    step = float(np.median(np.diff(time))) if len(time) > 1 else 1.0
    drawn = [name for name in ("mean", "low", "high", "untrained", "raw") if name in curve]
    low, high = float(curve[drawn].min().min()), float(curve[drawn].max().max())
    agreed = {kind: rows[rows["share"] >= MOST] for kind, rows in events.groupby("trial_type", sort=False)}
    colours = {kind: MANY[i % len(MANY)] for i, kind in enumerate(agreed)}
    lanes = _lanes({kind: set(rows["volume"]) for kind, rows in agreed.items()})
    room = (high - low or 1.0) * 1.06  # between the curve and the lanes of events
    top = low + room * (1 + LANE * 1.3 * (max(lanes.values(), default=-1) + 1))
    for kind, rows in agreed.items():
        bottom, colour = low + room * (1 + LANE * (0.3 + 1.3 * lanes[kind])), colours[kind]
        for start, end, share in _stretches(rows, step):
            axis.axvspan(start, end, color=colour, alpha=0.16 * share, lw=0, zorder=0)
            axis.fill_between([start, end], bottom, bottom + LANE * room, color=colour, alpha=share, lw=0, zorder=1)
    volumes = np.arange(int(curve["volume"].iloc[0]), int(curve["volume"].iloc[-1]) + 1)
    line = curve.set_index("volume").reindex(volumes)  # a volume that no scan has is a gap
    middle = (volumes + 0.5) * step
    axis.fill_between(middle, line["low"], line["high"], color=MUTED, alpha=0.3, lw=0)
    if "untrained" in line:
        axis.plot(middle, line["untrained"], color=MUTED, lw=0.8)
    if "raw" in line:
        axis.plot(middle, line["raw"], color=INK, lw=0.6, ls=(0, (3, 2)))
    axis.plot(middle, line["mean"], color=INK, lw=1.3)
    axis.set(xlim=(0, (volumes[-1] + 1) * step), ylim=(low - 0.03 * room, top))
    axis.locator_params(axis="y", nbins=4)
    beside.set_axis_off()
    keys = [Patch(color=colours[kind], label=kind) for kind, rows in agreed.items() if len(rows)]
    if keys:
        beside.legend(handles=keys, loc="center left", bbox_to_anchor=(-0.1, 0.5), fontsize=7.5, handlelength=1.0)
    n_varying = len(agreed) - len(keys)
    if n_varying:
        note = f"{n_varying} event type{'s' if n_varying > 1 else ''} at times\nthat differ between scans"
        beside.text(0, 0 if keys else 0.5, note, fontsize=7, color=MUTED)


def _lanes(kinds: dict[str, set[int]]) -> dict[str, int]:
    """Give event types that overlap in time separate lanes; others share the first."""
    taken: list[set[int]] = []
    lanes = {}
    for kind, volumes in kinds.items():
        free = next((i for i, lane in enumerate(taken) if not lane & volumes), len(taken))
        taken = [*taken, set()] if free == len(taken) else taken
        taken[free] |= volumes
        lanes[kind] = free
    return lanes


def _stretches(rows: pd.DataFrame, step: float) -> list[tuple[float, float, float]]:
    """Join consecutive volumes of equal share: start and end (s), and the share to the nearest tenth."""
    share = rows["share"].round(1)
    is_start = ((rows["time"].diff() - step).abs() >= 0.01 * step) | (share.diff() != 0)
    parts = rows.assign(share=share).groupby(is_start.cumsum())
    return list(zip(parts["time"].min(), parts["time"].max() + step, parts["share"].first(), strict=True))


def draw_masked(
    curve: pd.DataFrame,
    events: pd.DataFrame,
    series: NDArray[np.floating],
    masked: NDArray[np.floating],
    rois: pd.DataFrame,
    tr: float,
    out: Path,
) -> None:
    """Draw importance over events, the mean series (volumes, rois), and the series times importance."""
    limit = max(float(np.nanpercentile(np.abs(series), 99)), 1e-6)
    panels = ((series, "ROI series, mean over scans"), (masked, "ROI series × importance"))
    with canvas(out, height=6.4) as figure:
        grid = figure.subplots(3, 2, height_ratios=[1, 1.9, 1.9], width_ratios=[5, 1])
        draw_course(grid[0, 0], grid[0, 1], curve, events)
        grid[0, 0].set_title("Importance")
        for row, (values, title) in zip(grid[1:], panels, strict=True):
            picture = carpet(row[0], values, rois, (0.0, len(values) * tr), limit)
            row[0].set_title(title)
            row[1].set_axis_off()
            figure.colorbar(picture, ax=row[1], label="BOLD (z)", fraction=0.35, aspect=14, location="left")
        grid[2, 0].set_xlabel("time (s)")
        for axis in grid[:2, 0]:
            axis.set_xlim(0, len(series) * tr)
            axis.tick_params(axis="x", labelbottom=False)


class Curve(NamedTuple):
    """One dataset: title, ``subsets.tsv``, ``landmarks.tsv``, and the accuracy of guessing with equal odds."""

    title: str
    subsets: pd.DataFrame
    landmarks: pd.DataFrame
    chance: float


def draw_landmarks(curves: Sequence[Curve], out: Path) -> None:
    """Draw accuracy with its spread over folds, and importance: a row per dataset."""
    with canvas(out, height=0.9 + 2.6 * len(curves)) as figure:
        grid = figure.subplots(len(curves), 2, squeeze=False, sharex="row")
        for letter, (left, right), curve in zip(ascii_lowercase, grid, curves, strict=False):
            title, subsets, landmarks, chance = curve
            indexed = subsets.set_index(["fold", "level", "offset"]).sort_index()
            means, sds = indexed.loc["mean"], indexed.loc["sd"]
            for level, (name, colour) in LEVELS.items():
                if level == "token" and means["accuracy"].loc[level].equals(means["accuracy"].loc["scan"]):
                    continue  # one sample per scan
                mean, sd = 100 * means["accuracy"].loc[level], 100 * sds["accuracy"].loc[level]
                left.fill_between(mean.index, mean - sd, mean + sd, color=colour, alpha=0.18, lw=0)
                left.plot(mean.index, mean, color=colour, lw=1.6, label=name)
            of_subjects = (landmarks["fold"] == "mean") & (landmarks["level"] == "subject")
            rows = landmarks[of_subjects & (landmarks["importance"] != "inner")]
            controls = rows.set_index("tokens")["accuracy"]
            for control, (name, style) in CONTROLS.items():
                if control in controls:
                    left.axhline(100 * controls[control], label=f"{name}, subjects", lw=1.1, **style)
            left.axhline(100 * chance, color=MUTED, ls=":", lw=1.2, label="chance at equal odds")
            left.set(ylabel="accuracy (%)")
            left.set_title(f"({letter}) {title}" if len(curves) > 1 else title)
            mean, sd = means["score"].loc["subject"], sds["score"].loc["subject"]
            right.fill_between(mean.index, mean - sd, mean + sd, color=INK, alpha=0.15, lw=0)
            right.plot(mean.index, mean, color=INK, lw=1.6)
            right.set_ylim(bottom=0)
            right.set(ylabel="importance (× smallest weight)")
            for axis in (left, right):
                axis.margins(x=0.01)
        for axis in grid[-1]:
            axis.set_xlabel("subset index (0: most important)")
        handles, labels = grid[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3)
