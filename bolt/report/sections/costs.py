"""Computing resources: time and memory of the jobs behind the results."""

from __future__ import annotations

import pandas as pd

from bolt.config.layout import Layout
from bolt.jobs.ledger import SUMS, ledger
from bolt.report.html import Block, Table
from bolt.report.tables.numbers import DASH

LISTED = 8
"""Stages with a row of their own; the rest share one."""


def costs_section(layout: Layout) -> list[Block]:
    """Return the most expensive stages of this dataset, the others together, and the total; [] without measurements."""
    table, _ = ledger(layout.ledger.parent, layout.results.name)
    if table.empty:
        return []
    stages = table.groupby("stage").agg(dict.fromkeys(SUMS, "sum") | {"peak_memory_mb": "max"})
    stages = stages.sort_values("cpu_hours", ascending=False, kind="stable")
    rows = [(name, stages.loc[[name]]) for name in stages.index[:LISTED]]
    if len(stages) > LISTED:
        rows.append((f"{len(stages) - LISTED} other stages", stages.iloc[LISTED:]))
    rows.append(("all", stages))
    frame = pd.DataFrame([_row(name, part) for name, part in rows])
    if not stages["gpu_hours"].any():
        frame = frame.drop(columns="GPU time")
    caption = "Resources of the jobs behind these results; times are summed over jobs. Repeated jobs count once."
    return [Table(frame, caption, layout.ledger)]


def _row(name: str, part: pd.DataFrame) -> dict[str, str]:
    sums = part[SUMS].sum()
    return {
        "stage": name,
        "jobs": str(int(sums["jobs"])),
        "wall time": _time(sums["wall_hours"]),
        "processor time": _time(sums["cpu_hours"]),
        "GPU time": _time(sums["gpu_hours"]),
        "peak memory (MB)": f"{part['peak_memory_mb'].max():.0f}",
    }


def _time(hours: float) -> str:
    """Return a time in a suitable unit."""
    if not hours:
        return DASH
    if hours >= 1:
        return f"{hours:.1f} h"
    return f"{hours * 60:.1f} min" if hours >= 1 / 60 else f"{hours * 3600:.0f} s"
