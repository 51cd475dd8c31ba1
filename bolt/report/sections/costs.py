"""What a run cost: the report's table of time, memory and energy."""

from __future__ import annotations

import pandas as pd

from bolt.config.layout import Layout
from bolt.jobs.ledger import SUMS, Energy, ledger
from bolt.report.html import Block, Table
from bolt.report.tables.readable import DASH, number

SHOWN = 8
"""Stages with a line of their own; the rest share one."""


def costs_section(layout: Layout) -> list[Block]:
    """The stages of this dataset that cost most, the others together, and all; nothing where no job was measured."""
    energy = Energy.assumed()
    table, _ = ledger(layout.ledger.parent, energy, layout.results.name)
    if table.empty:
        return []
    stages = table.groupby("stage").agg(dict.fromkeys(SUMS, "sum") | {"peak_memory_mb": "max"})
    stages = stages.sort_values("kwh", ascending=False, kind="stable")
    rows = [(name, stages.loc[[name]]) for name in stages.index[:SHOWN]]
    if len(stages) > SHOWN:
        rows.append((f"{len(stages) - SHOWN} other stages", stages.iloc[SHOWN:]))
    rows.append(("all", stages))
    unit = "kWh" if stages["kwh"].sum() >= 1 else "Wh"
    frame = pd.DataFrame([_row(name, part, unit) for name, part in rows])
    if not stages["gpu_hours"].any():
        frame = frame.drop(columns="GPU time")
    caption = (
        f"What the jobs that led here cost; times are summed over them. Energy is an estimate: {energy}. Jobs that "
        "were made again count once."
    )
    return [Table(frame, caption, layout.ledger)]


def _row(name: str, part: pd.DataFrame, unit: str) -> dict[str, str]:
    sums = part[SUMS].sum()
    return {
        "stage": name,
        "jobs": str(int(sums["jobs"])),
        "wall time": _time(sums["wall_hours"]),
        "processor time": _time(sums["cpu_hours"]),
        "GPU time": _time(sums["gpu_hours"]),
        "memory at most (MB)": f"{part['peak_memory_mb'].max():.0f}",
        f"energy ({unit})": number(float(f"{sums['kwh'] * (1 if unit == 'kWh' else 1000):.2g}"), 2),
    }


def _time(hours: float) -> str:
    """With the unit that suits it."""
    if not hours:
        return DASH
    if hours >= 1:
        return f"{hours:.1f} h"
    return f"{hours * 60:.1f} min" if hours >= 1 / 60 else f"{hours * 3600:.0f} s"
