"""Importance over the course of a task, and where it lies relative to the task's events."""

from __future__ import annotations

import numpy as np

from bolt.config.layout import ModelRun
from bolt.config.study import Study
from bolt.io.files import read_json, read_table
from bolt.report.figures.tasks import draw_masked, draw_tasks, of_task
from bolt.report.html import Block, Picture, Table
from bolt.report.runs import run_figure
from bolt.report.tables.explanation import TASK_KEYS, alignment_table, task_titles

COURSE = (
    "Importance of each moment for the prediction, relative to untrained models and to the scan's mean: mean over test "
    "scans (line) with its 95 % interval (grey). Thin grey line: importance under untrained models of the same "
    "architecture, by which it is divided; it is lower at both ends, where fewer windows overlap, whatever the task. "
    "Events are drawn {onset}, where at least half of the scans agree; paler where fewer do."
)
ALIGNMENT = (
    "Is importance higher during the task's events? Importance is relative to untrained models, so that an effect of "
    "position in the scan does not count. Ratio: importance during events relative to the scan's mean; 1 is no more "
    "than elsewhere. By position alone: the ratio under untrained models, which was divided out; a ratio is convincing "
    "only if it is further from 1 than that. p: permutation test over all shifts in time, applied to the events of all "
    "scans together; Holm-corrected within a task."
)
MASKED = (
    "{title}: importance relative to untrained models (top), the ROI series, mean over test scans (middle), and the "
    "series times importance, scaled from 0 (lowest) to 1 (highest), so that the moments behind the decision remain "
    "visible (bottom)."
)


def onset(study: Study) -> str:
    """Return when events are drawn."""
    shift = study.config.explain.hrf_shift
    return f"{shift:g} s after they were shown" if shift else "when they were shown (the BOLD response follows later)"


def tasks_blocks(study: Study, run: ModelRun) -> list[Block]:
    """Show importance over each task, its relation to events, and one task's masked series; [] without events."""
    out, missing = run.explanation, dict.fromkeys(TASK_KEYS, "")
    if not (out / "tasks.tsv").is_file():
        return []
    curves = read_table(out / "tasks.tsv", text=tuple(TASK_KEYS)).fillna(missing)
    if curves.empty:
        return []
    events, aligned = (
        read_table(out / name, text=(*TASK_KEYS, "trial_type")).fillna(missing)
        for name in ("tasks_blocks.tsv", "tasks_alignment.tsv")
    )
    picture = run_figure(study, run, "tasks")
    draw_tasks(curves, events, picture)
    blocks: list[Block] = [
        Picture(picture, COURSE.format(onset=onset(study))),
        Table(alignment_table(aligned), ALIGNMENT, out / "tasks_alignment.tsv"),
    ]
    if (out / "tasks_series.npy").is_file():
        about = read_json(out / "tasks_series.json")
        key = (about["class"], about["task"], about["run"])
        series, masked = np.load(out / "tasks_series.npy", allow_pickle=False)
        picture = run_figure(study, run, "masked_task")
        rois = read_table(run.cache / "rois.tsv", text=("name", "network", "hemisphere"))
        curve, shown = of_task(curves, key), of_task(events, key)
        draw_masked(curve, shown, series, masked, rois, about["RepetitionTime"], picture)
        blocks.append(Picture(picture, MASKED.format(title=task_titles([key])[key])))
    return blocks
