"""When a task's decisive moments come: importance over time with the task's blocks, and series masked by it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from numpy.typing import NDArray

from bolt.config import Config, Dataset, Model
from bolt.config.layout import Layout
from bolt.explain.events import MOST
from bolt.explain.tasks import COURSE
from bolt.io.files import read_json, read_table
from bolt.report.figures.plots import carpet
from bolt.report.figures.style import INK, MANY, MUTED, canvas
from bolt.report.html import Block, Picture, Table, figure_folder
from bolt.report.tables.readable import p_value

KEYS = list(COURSE)
LANE = 0.09
"""Height of a lane of blocks, of the height of the curve's axis."""


def tasks_blocks(
    config: Config, dataset: Dataset, layout: Layout, atlas: str, model: Model, seed: int, stem: str
) -> list[Block]:
    """Importance over the course of each task, how it lies to the blocks, and one task's series masked by it; [] where
    no scan has events."""
    out = layout.run(atlas, model, seed).explanation
    if not (out / "tasks.tsv").is_file():
        return []
    curves = read_table(out / "tasks.tsv", text=tuple(KEYS)).fillna(dict.fromkeys(KEYS, ""))
    if curves.empty:
        return []
    blocks = read_table(out / "tasks_blocks.tsv", text=(*KEYS, "trial_type")).fillna(dict.fromkeys(KEYS, ""))
    aligned = read_table(out / "tasks_alignment.tsv", text=(*KEYS, "trial_type")).fillna(dict.fromkeys(KEYS, ""))
    shift = config.explain.hrf_shift
    moved = (
        f"as they were shown, moved by {shift:g} s" if shift else "as they were shown (the BOLD response comes later)"
    )
    picture = figure_folder(layout) / f"{stem}_tasks.png"
    draw_tasks(curves, blocks, picture)
    found: list[Block] = [
        Picture(
            picture,
            "Importance of each moment for the prediction, mean over test scans (line) with its 95 % interval (grey), "
            f"in times of the scan's own mean. Blocks are drawn {moved}, and only where at least half of the scans "
            "agree; paler where fewer do.",
        ),
        Table(
            alignment_table(aligned),
            "Does importance lie where the task's events are? Importance during events over the scan's mean: 1 is no "
            "more than elsewhere. p: events of all scans shifted together in time, all shifts; corrected by Holm "
            "within a task.",
            out / "tasks_alignment.tsv",
        ),
    ]
    if (out / "tasks_series.npy").is_file():
        about = read_json(out / "tasks_series.json")
        key = tuple(about[name] for name in KEYS)
        series, masked = np.load(out / "tasks_series.npy", allow_pickle=False)
        picture = figure_folder(layout) / f"{stem}_masked_task.png"
        rois = read_table(layout.cache(atlas) / "rois.tsv", text=("name", "network", "hemisphere"))
        draw_masked(_of(curves, key), _of(blocks, key), series, masked, rois, about["RepetitionTime"], picture)
        found.append(
            Picture(
                picture,
                f"{titles([key])[key]}: importance (above), the ROI series, mean over test scans (middle), and the "
                "same times importance, from 0 at its least to 1 at its most (below): what the decision rests on stays "
                "visible.",
            )
        )
    return found


def alignment_table(aligned: pd.DataFrame) -> pd.DataFrame:
    """``tasks_alignment.tsv`` for people."""
    keys = list(aligned[KEYS].itertuples(index=False, name=None))
    names = titles(list(dict.fromkeys(keys)))
    return pd.DataFrame(
        {
            "task": [names[key] for key in keys],
            "events": aligned["trial_type"],
            "time (%)": [f"{100 * share:.0f}" for share in aligned["share_of_time"]],
            "importance (%)": [f"{100 * share:.0f}" for share in aligned["share_of_importance"]],
            "ratio": [f"{ratio:.2f}" for ratio in aligned["ratio"]],
            "p, corrected (Holm)": [p_value(p) for p in aligned["p_holm"]],
            "scans": aligned["n_scans"].astype(str),
        }
    )


def titles(keys: Sequence[tuple[str, str, str]]) -> dict[tuple[str, str, str], str]:
    """What the courses (class, task, run) are called, without what all of a class share."""
    named = {}
    for name, task, run in keys:
        own = [key for key in keys if key[0] == name]
        parts = [name]
        parts += [task] if task and task != name and len({key[1] for key in own}) > 1 else []
        parts += [f"run {run}"] if run and len({key[2] for key in own if key[1] == task}) > 1 else []
        named[name, task, run] = " · ".join(parts)
    return named


def draw_tasks(curves: pd.DataFrame, blocks: pd.DataFrame, out: Path) -> None:
    """A panel a class, task and run: mean importance over time with its interval, on the task's blocks.

    Parameters
    ----------
    curves : DataFrame
        `bolt.explain.tasks.TASK_COLUMNS`.
    blocks : DataFrame
        `bolt.explain.tasks.BLOCK_COLUMNS`.
    out : Path
        PNG.
    """
    keys = list(dict.fromkeys(curves[KEYS].itertuples(index=False, name=None)))
    names = titles(keys)
    with canvas(out, height=0.45 + 1.32 * len(keys)) as figure:
        grid = figure.subplots(len(keys), 2, squeeze=False, width_ratios=[4.2, 1])
        for (axis, beside), key in zip(grid, keys, strict=True):
            curve = _of(curves, key)
            draw_course(axis, beside, curve, _of(blocks, key))
            axis.set_title(f"{names[key]} ({_scans(curve)})")
        grid[-1, 0].set_xlabel("time (s)")
        figure.supylabel("importance (1: the scan's mean)", fontsize=9)


def draw_course(axis: Axes, beside: Axes, curve: pd.DataFrame, blocks: pd.DataFrame, *, headroom: float = 0.06) -> None:
    """One curve on its blocks; their key fills the axis `beside`, and `headroom` is left between curve and blocks."""
    time = curve["time"].to_numpy()
    step = float(np.median(np.diff(time))) if len(time) > 1 else 1.0
    low, high = float(curve[["mean", "low"]].min().min()), float(curve[["mean", "high"]].max().max())
    kinds = list(dict.fromkeys(blocks["trial_type"]))
    agreed = {kind: own[own["share"] >= MOST] for kind, own in blocks.groupby("trial_type", sort=False)}
    lanes = _lanes({kind: set(own["volume"]) for kind, own in agreed.items()})
    room = (high - low or 1.0) * (1 + headroom)
    top = low + room * (1 + LANE * 1.3 * (max(lanes.values(), default=-1) + 1))
    for i, kind in enumerate(kinds):
        colour = MANY[i % len(MANY)]
        bottom = low + room * (1 + LANE * (0.3 + 1.3 * lanes[kind]))
        for start, end, share in _stretches(agreed[kind], step):
            axis.axvspan(start, end, color=colour, alpha=0.16 * share, lw=0, zorder=0)
            axis.fill_between([start, end], bottom, bottom + LANE * room, color=colour, alpha=share, lw=0, zorder=1)
    whole = np.arange(int(curve["volume"].iloc[0]), int(curve["volume"].iloc[-1]) + 1)
    line = curve.set_index("volume").reindex(whole)  # a volume that no scan has is a gap
    middle = (whole + 0.5) * step
    axis.fill_between(middle, line["low"], line["high"], color=MUTED, alpha=0.3, lw=0)
    axis.plot(middle, line["mean"], color=INK, lw=1.3)
    axis.set(xlim=(0, (whole[-1] + 1) * step), ylim=(low - 0.03 * room, top))
    axis.locator_params(axis="y", nbins=4)
    shown = [Patch(color=MANY[i % len(MANY)], label=kind) for i, kind in enumerate(kinds) if len(agreed[kind])]
    beside.set_axis_off()
    if shown:
        beside.legend(handles=shown, loc="center left", bbox_to_anchor=(-0.1, 0.5), fontsize=7.5, handlelength=1.0)
    rest = len(kinds) - len(shown)
    if rest:
        what = f"{rest} kinds of events come" if rest > 1 else "1 kind of event comes"
        beside.text(0, 0 if shown else 0.5, f"{what}\nat other times in each scan", fontsize=7, color=MUTED)


def draw_masked(
    curve: pd.DataFrame,
    blocks: pd.DataFrame,
    series: NDArray[np.floating],
    masked: NDArray[np.floating],
    rois: pd.DataFrame,
    tr: float,
    out: Path,
) -> None:
    """Importance with blocks, above the series (volumes, rois) and the same times importance, ROIs by network."""
    limit = max(float(np.nanpercentile(np.abs(series), 99)), 1e-6)
    with canvas(out, height=6.4) as figure:
        grid = figure.subplots(3, 2, height_ratios=[1, 1.9, 1.9], width_ratios=[5, 1])
        draw_course(grid[0, 0], grid[0, 1], curve, blocks)
        grid[0, 0].set_title("Importance")
        for row, (values, title) in zip(
            grid[1:], ((series, "ROI series, mean over scans"), (masked, "ROI series × importance")), strict=True
        ):
            picture = carpet(row[0], values, rois, (0.0, len(values) * tr), limit)
            row[0].set_title(title)
            row[1].set_axis_off()
            figure.colorbar(picture, ax=row[1], label="BOLD (z)", fraction=0.35, aspect=14, location="left")
        grid[2, 0].set_xlabel("time (s)")
        for axis in grid[:2, 0]:
            axis.set_xlim(0, len(series) * tr)
            axis.tick_params(axis="x", labelbottom=False)


def _of(table: pd.DataFrame, key: Sequence[str]) -> pd.DataFrame:
    return table[(table[KEYS] == list(key)).all(axis=1)]


def _scans(curve: pd.DataFrame) -> str:
    n = int(curve["n_scans"].max())
    return f"{n} scan{'s' if n > 1 else ''}"


def _lanes(kinds: dict[str, set[int]]) -> dict[str, int]:
    """Kinds of events that overlap in time get lanes of their own; others share the first."""
    taken: list[set[int]] = []
    lanes = {}
    for kind, volumes in kinds.items():
        free = next((i for i, lane in enumerate(taken) if not lane & volumes), len(taken))
        taken = [*taken, set()] if free == len(taken) else taken
        taken[free] |= volumes
        lanes[kind] = free
    return lanes


def _stretches(own: pd.DataFrame, step: float) -> list[tuple[float, float, float]]:
    """Start and end (s) of runs of volumes with one share, to the nearest tenth, and the share."""
    found: list[tuple[float, float, float]] = []
    for time, share in zip(own["time"], own["share"].round(1), strict=True):
        if found and abs(found[-1][1] - time) < 0.01 * step and found[-1][2] == share:
            found[-1] = (found[-1][0], time + step, share)
        else:
            found.append((time, time + step, share))
    return found
