"""Summarise simulated runs (`cohort.py`) in a table, one row per run, and a figure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bolt.report.figures.style import INK, MANY, MUTED, canvas

COLUMNS = {
    "case": "Name of the run",
    "subjects": "Subjects in the cohort; one T1w and one BOLD image each",
    "slots": "Simultaneous cluster jobs, queued or running (--jobs)",
    "jobs": "Rule jobs",
    "cluster_jobs": "Jobs submitted, including resubmissions",
    "makespan_h": "Hours from the start of the scheduler to the report",
    "ideal_h": "The larger of work / slots and the longest chain of jobs, in hours",
    "chain_h": "The longest chain of jobs, each running alone, in hours",
    "efficiency": "ideal_h / makespan_h",
    "busy": "Mean share of the slots whose job runs on a node",
    "submit_s": "Seconds from Snakemake's choice of a job to its start, mean over cluster jobs",
    "node_s": "Seconds on the node, mean over cluster jobs",
    "notice_s": "Seconds from a job's end until Snakemake notices, mean over cluster jobs",
    "waiting": "Share of a cluster job's lifetime not spent on the node",
    "start_cpu_s": "CPU seconds of Snakemake before its scheduler starts",
    "dag_cpu_s": "CPU seconds to build the DAG before the index, part of start_cpu_s",
    "index_cpu_s": "CPU seconds to add the scans to the DAG once the index is written",
    "run_cpu_s": "CPU seconds of the whole run after the start",
    "round_cpu_s": "CPU seconds to choose jobs, per round",
    "rounds": "Times the scheduler chose jobs",
    "busy_snakemake": "run_cpu_s / makespan; near 1 the scheduler is the bottleneck",
    "queries": "Status queries",
    "mb": "Peak memory of Snakemake, MB",
    "complete": "Whether all outputs were made",
}


def summary(run: dict[str, Any]) -> dict[str, Any]:
    """Return the table row of a run."""
    case, log, cpu = run["case"], run["log"], run["cpu"]
    begins, ends = _column(log, "begins"), _column(log, "ends")
    chosen, noticed = _column(log, "chosen"), _column(log, "noticed")
    work = sum(entry["work"] for entry in log if not entry["died"])
    slots, makespan = case["slots"], float(noticed.max())
    ideal = max(work / slots, run["critical"])
    node = (ends - begins).sum()
    return {
        "case": case["name"],
        "subjects": case["subjects"],
        "slots": slots,
        "jobs": run["jobs"],
        "cluster_jobs": len(log),
        "makespan_h": makespan / 3600,
        "ideal_h": ideal / 3600,
        "chain_h": run["critical"] / 3600,
        "efficiency": ideal / makespan,
        "busy": node / slots / makespan,
        "submit_s": (begins - chosen).mean(),
        "node_s": (ends - begins).mean(),
        "notice_s": (noticed - ends).mean(),
        "waiting": 1 - node / (noticed - chosen).sum(),
        "start_cpu_s": cpu["start"],
        "dag_cpu_s": cpu["dag"],
        "index_cpu_s": run["after_index"],
        "run_cpu_s": cpu["run"],
        "round_cpu_s": cpu["choosing"] / run["rounds"],
        "rounds": run["rounds"],
        "busy_snakemake": cpu["run"] / makespan,
        "queries": run["queries"],
        "mb": run["mb"],
        "complete": run["complete"],
    }


def _column(log: list[dict[str, Any]], name: str) -> NDArray[np.floating]:
    """Return one field of all cluster jobs."""
    return np.array([entry[name] for entry in log], float)


def running(log: list[dict[str, Any]]) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
    """Return time points and the number of cluster jobs running on nodes from each one on."""
    moments = np.concatenate([_column(log, "begins"), _column(log, "ends")])
    steps = np.repeat([1, -1], len(log))
    order = np.argsort(moments, kind="stable")
    return moments[order], np.cumsum(steps[order])


def draw(runs: Sequence[dict[str, Any]], out: Path) -> None:
    """Draw the makespan against the ideal (left) and running cluster jobs by minute, one panel per run (right)."""
    rows = [summary(run) for run in runs]
    with canvas(out, height=3.4) as figure:
        left_part, right_part = figure.subfigures(1, 2, width_ratios=[1, 1.5])
        _draw_makespan(left_part.subplots(), rows)
        panels = right_part.subplots(len(runs), 1, sharex=True, squeeze=False)[:, 0]
        for axes, run, row, colour in zip(panels, runs, rows, MANY, strict=False):
            minutes, busy = by_minute(run["log"])
            axes.fill_between(minutes / 60, busy, step="post", color=colour, lw=0)
            axes.set(ylim=(0, None), xlim=(0, None))
            axes.set_title(f"{row['slots']} slots, {100 * row['busy']:.0f} % of them busy", fontsize="medium")
        panels[-1].set_xlabel("Hours since the start")
        right_part.supylabel("Running cluster jobs", fontsize="medium")


def _draw_makespan(axes: Any, rows: Sequence[dict[str, Any]]) -> None:
    """Draw simulated and ideal makespan against the number of slots."""
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
    """Return minutes since the start and the mean number of cluster jobs running on nodes in each."""
    moments, count = running(log)
    edges = np.arange(0, moments[-1] + 60, 60.0)
    # total node seconds of all jobs up to each time point; the number of running jobs is constant in between
    seconds = np.concatenate([[0.0], np.cumsum(np.diff(moments) * count[:-1])])
    return edges[:-1] / 60, np.diff(np.interp(edges, moments, seconds)) / 60
