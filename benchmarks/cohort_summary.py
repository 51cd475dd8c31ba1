"""What simulated runs show (`cohort.py` beside this file): a table with a row a run, and a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bolt.report.style import INK, MANY, MUTED, canvas

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
    """Left: makespan against the ideal one; right: slots that compute over time. One colour a number of slots."""
    rows = [summary(found) for found in runs]
    with canvas(out, height=3.2) as figure:
        left, right = figure.subplots(1, 2, width_ratios=[1, 1.7])
        slots = [row["slots"] for row in rows]
        left.plot(slots, [row["ideal_h"] for row in rows], "--", color=MUTED, label="ideal")
        left.plot(slots, [row["makespan_h"] for row in rows], "-", color=INK, zorder=1)
        for row, colour in zip(rows, MANY, strict=False):
            left.plot(row["slots"], row["makespan_h"], "o", color=colour)
            label = f"{row['makespan_h']:.1f} h"
            left.annotate(label, (row["slots"], row["makespan_h"]), xytext=(5, 4), textcoords="offset points")
        left.set(xscale="log", yscale="log", xlabel="Job slots", ylabel="Hours to the report", title="Makespan")
        left.set_xticks(slots, [str(n) for n in slots])
        left.minorticks_off()
        left.legend()
        for found, row, colour in zip(runs, rows, MANY, strict=False):
            moments, busy = running(found["log"])
            label = f"{row['slots']} slots ({100 * row['busy']:.0f} % busy)"
            right.step(moments / 3600, 100 * busy / row["slots"], where="post", color=colour, label=label, lw=1)
        right.set(
            xscale="log", xlabel="Hours since the start", ylabel="Slots that compute (%)", title="Use of the slots"
        )
        right.set(ylim=(0, 105), xlim=(0.02, None), title="Use of the slots")
        right.legend(loc="upper left")
        figure.tight_layout()
