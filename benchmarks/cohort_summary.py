"""What simulated runs show (`cohort.py` beside this file): a table with a row a run, and a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bolt.report.figures.style import INK, MANY, MUTED, canvas

COLUMNS = {
    "case": "Name of the run",
    "subjects": "Of the cohort; a T1w and a BOLD image each",
    "slots": "Cluster jobs at once, queued or running (--jobs)",
    "jobs": "Jobs of rules",
    "cluster_jobs": "Jobs submitted, with those submitted again",
    "makespan_h": "Hours from the scheduler's begin to the report",
    "ideal_h": "The larger of work / slots and the longest chain of jobs, in hours",
    "chain_h": "The longest chain of jobs, each alone",
    "efficiency": "ideal_h / makespan_h",
    "busy": "Mean share of the slots whose job runs on a node",
    "submit_s": "From Snakemake's choice of a job to its first second, mean over cluster jobs",
    "node_s": "On the node, mean",
    "notice_s": "From its end to when Snakemake knows, mean",
    "waiting": "Share of a cluster job's life that is not on the node",
    "start_cpu_s": "Processor seconds of Snakemake before its scheduler begins",
    "dag_cpu_s": "… of the DAG before the index, within these",
    "index_cpu_s": "… to enter the scans into the DAG once the index is written",
    "run_cpu_s": "… of the whole run after the start",
    "round_cpu_s": "… to choose jobs, a round",
    "rounds": "Times that the scheduler chose jobs",
    "busy_snakemake": "run_cpu_s / makespan: near 1 the scheduler is the limit",
    "queries": "Status queries",
    "mb": "Peak memory of Snakemake, MB",
    "complete": "Whether all was made",
}


def summary(found: dict[str, Any]) -> dict[str, Any]:
    """A row of the table."""
    case, log, cpu = found["case"], found["log"], found["cpu"]
    begins, ends = _column(log, "begins"), _column(log, "ends")
    chosen, noticed = _column(log, "chosen"), _column(log, "noticed")
    work = sum(entry["work"] for entry in log if not entry["died"])
    slots, makespan = case["slots"], float(noticed.max())
    ideal = max(work / slots, found["critical"])
    node = (ends - begins).sum()
    return {
        "case": case["name"],
        "subjects": case["subjects"],
        "slots": slots,
        "jobs": found["jobs"],
        "cluster_jobs": len(log),
        "makespan_h": makespan / 3600,
        "ideal_h": ideal / 3600,
        "chain_h": found["critical"] / 3600,
        "efficiency": ideal / makespan,
        "busy": node / slots / makespan,
        "submit_s": (begins - chosen).mean(),
        "node_s": (ends - begins).mean(),
        "notice_s": (noticed - ends).mean(),
        "waiting": 1 - node / (noticed - chosen).sum(),
        "start_cpu_s": cpu["start"],
        "dag_cpu_s": cpu["dag"],
        "index_cpu_s": found["after_index"],
        "run_cpu_s": cpu["run"],
        "round_cpu_s": cpu["choosing"] / found["rounds"],
        "rounds": found["rounds"],
        "busy_snakemake": cpu["run"] / makespan,
        "queries": found["queries"],
        "mb": found["mb"],
        "complete": found["complete"],
    }


def _column(log: list[dict[str, Any]], name: str) -> NDArray[np.floating]:
    return np.array([entry[name] for entry in log], float)


def running(log: list[dict[str, Any]]) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
    """Moments, and how many cluster jobs run on nodes from each on."""
    moments = np.concatenate([_column(log, "begins"), _column(log, "ends")])
    steps = np.repeat([1, -1], len(log))
    order = np.argsort(moments, kind="stable")
    return moments[order], np.cumsum(steps[order])


def draw(runs: Sequence[dict[str, Any]], out: Path) -> None:
    """Left: makespan against the ideal one; right: cluster jobs that compute, minute by minute, a panel a run."""
    rows = [summary(found) for found in runs]
    with canvas(out, height=3.4) as figure:
        left_part, right_part = figure.subfigures(1, 2, width_ratios=[1, 1.5])
        _draw_makespan(left_part.subplots(), rows)
        panels = right_part.subplots(len(runs), 1, sharex=True, squeeze=False)[:, 0]
        for axes, found, row, colour in zip(panels, runs, rows, MANY, strict=False):
            minutes, busy = by_minute(found["log"])
            axes.fill_between(minutes / 60, busy, step="post", color=colour, lw=0)
            axes.set(ylim=(0, None), xlim=(0, None))
            axes.set_title(f"{row['slots']} slots, {100 * row['busy']:.0f} % of them busy", fontsize="medium")
        panels[-1].set_xlabel("Hours since the start")
        right_part.supylabel("Cluster jobs that compute", fontsize="medium")


def _draw_makespan(axes: Any, rows: Sequence[dict[str, Any]]) -> None:
    slots = [row["slots"] for row in rows]
    axes.plot(slots, [row["ideal_h"] for row in rows], "--", color=MUTED, label="ideal")
    axes.plot(slots, [row["makespan_h"] for row in rows], "-", color=INK, zorder=1, label="simulated")
    for row, colour in zip(rows, MANY, strict=False):
        axes.plot(row["slots"], row["makespan_h"], "o", color=colour)
        label = f"{row['makespan_h']:.1f} h"
        axes.annotate(label, (row["slots"], row["makespan_h"]), xytext=(5, 4), textcoords="offset points")
    axes.set(xscale="log", xlabel="Job slots", ylabel="Hours to the report", xlim=(None, 1.8 * max(slots)))
    axes.set_ylim(0, 1.1 * max(row["makespan_h"] for row in rows))
    axes.set_xticks(slots, [str(n) for n in slots])
    axes.minorticks_off()
    axes.legend()


def by_minute(log: list[dict[str, Any]]) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
    """Minutes since the start, and how many cluster jobs run on nodes in each, on average."""
    moments, count = running(log)
    edges = np.arange(0, moments[-1] + 60, 60.0)
    # seconds on nodes until each moment, all jobs together: between two moments their number stays
    seconds = np.concatenate([[0.0], np.cumsum(np.diff(moments) * count[:-1])])
    return edges[:-1] / 60, np.diff(np.interp(edges, moments, seconds)) / 60
