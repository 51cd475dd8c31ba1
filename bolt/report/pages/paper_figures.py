"""The paper's figures of explanations, for all datasets: brain maps, and importance over the course of tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from bolt.config import Experiment
from bolt.config.study import Study
from bolt.experiments.entries import Entry
from bolt.explain.regions import ROI_COLUMNS
from bolt.explain.tasks import TASK_COLUMNS
from bolt.io.errors import BoltError, DataError
from bolt.io.files import holds_something, read_json, read_table, write_table, write_text
from bolt.report.experiments.landmarks import tested
from bolt.report.experiments.paper_layout import dataset_titles, in_papers_order
from bolt.report.figures.tasks import draw_masked, draw_tasks, of_task
from bolt.report.sections.explanation.moments import COURSE, MASKED, onset
from bolt.report.sections.explanation.regions import atlas_of, brain_caption
from bolt.report.tables.explanation import TASK_KEYS, selected_rois, task_titles
from bolt.report.tables.markup import Sheet, markdown

WHERE = {"dataset": "Dataset", "atlas": "Atlas", "row": "What the experiment's file calls the model", "seed": "Seed"}
PAPERS_TASKS = ("EMOTION", "RELATIONAL", "GAMBLING", "LANGUAGE", "SOCIAL", "MOTOR")
"""Order of the panels of the paper's figure of tasks; working memory is its second part."""
STRIPS = "The strip below each curve has its mean as colours, on the scale beside the panels."
ONE_SEED = " Several seeds were trained; this is seed {seed}."
CONTROLLED = (
    "Weights on landmark volumes may only repeat the model's predictions, because the landmarks are chosen by them. "
    "The last column names the control volumes on which a weight keeps its sign; the target `figures` explains them "
    "and shows how stable the weights are."
)


class Explained(NamedTuple):
    """An explained row of an experiment: its entry and title, its study, its folder, and the first seed."""

    entry: Entry
    title: str
    study: Study
    folder: Path
    seed: int

    @property
    def stem(self) -> str:
        """Return what its figures are called, without the experiment's name."""
        return "_".join([self.entry.dataset, self.entry.atlas, self.entry.model.run_name])

    @property
    def where(self) -> dict[str, object]:
        """Return what identifies it in tables."""
        entry = self.entry
        return {"dataset": entry.dataset, "atlas": entry.atlas, "row": entry.row, "seed": self.seed}

    @property
    def remark(self) -> str:
        """Return what a caption says of seeds, and of how much of the dataset was tested."""
        several = len(self.study.config.seeds) > 1
        scope = tested(self.entry)
        return (ONE_SEED.format(seed=self.seed) if several else "") + (f" {scope}." if scope else "")


def write_brain_maps(experiment: Experiment, entries: Sequence[Entry], studies: Mapping[str, Study], out: Path) -> None:
    """Write the selected ROIs of all datasets as a table, and a brain per dataset.

    Raises
    ------
    DataError
        Nothing is explained.
    """
    from bolt.report.figures.brains.maps import plot_regions  # nilearn is slow to import

    tables, parts = [], []
    for found in _explained(experiment, entries, studies, "roi_weights.tsv"):
        weights = read_table(found.folder / "roi_weights.tsv", text=("class", "name", "network", "hemisphere"))
        picture = out / f"{experiment.name}_{found.stem}.png"
        try:
            image = atlas_of(found.study, found.entry.atlas).label_image
        except BoltError as error:
            drawing = f"No brain map: {error}"
        else:
            plot_regions(weights, image, found.study.dataset.coloured, picture)
            drawing = f"![{found.title}]({picture.name})\n\n{brain_caption(found.study.config.explain)}{found.remark}"
        rois = selected_rois(weights)
        rois.insert(0, "", rois.pop("ROI"))
        sheet = markdown(Sheet(f"{found.title}: selected ROIs", rois, CONTROLLED))
        parts.append(f"## {found.title}\n\n{drawing}\n\n{sheet}")
        tables.append(weights[weights["selected"].astype(bool)].assign(**found.where))
    _write(experiment, parts, out)
    write_table(pd.concat(tables)[[*WHERE, *ROI_COLUMNS]], out / f"{experiment.name}.tsv", {**WHERE, **ROI_COLUMNS})


def write_task_timing(
    experiment: Experiment, entries: Sequence[Entry], studies: Mapping[str, Study], out: Path
) -> None:
    """Write importance over the tasks of all datasets as a table, and two figures per dataset, (a) and (b).

    Raises
    ------
    DataError
        Nothing is explained.
    """
    tables, parts = [], []
    for found in _explained(experiment, entries, studies, "tasks.tsv"):
        curves = _read(found.folder / "tasks.tsv", *TASK_KEYS)
        tables.append(curves.assign(**found.where))
        text = "No scan has events."
        if len(curves):
            text = "\n\n".join(_task_figures(experiment, found, curves, out))
        parts.append(f"## {found.title}\n\n{text}\n")
    _write(experiment, parts, out)
    write_table(pd.concat(tables)[[*WHERE, *TASK_COLUMNS]], out / f"{experiment.name}.tsv", {**WHERE, **TASK_COLUMNS})


def _task_figures(experiment: Experiment, found: Explained, curves: pd.DataFrame, out: Path) -> Iterator[str]:
    """Draw (a) importance over each task but the masked one, and (b) the masked one; yield their Markdown."""
    events = _read(found.folder / "tasks_blocks.tsv", *TASK_KEYS, "trial_type")
    about = found.folder / "tasks_series.json"
    masked = tuple(read_json(about)[key] for key in TASK_KEYS) if about.is_file() else None
    keys = sorted(dict.fromkeys(curves[TASK_KEYS].itertuples(index=False, name=None)), key=_place)
    others = [key for key in keys if key != masked] or keys
    curves_of_others = pd.concat([of_task(curves, key) for key in others])
    picture = out / f"{experiment.name}_{found.stem}_a.png"
    draw_tasks(curves_of_others, events, picture, strips=True)
    about_events = COURSE.format(onset=onset(found.study))
    yield f"![(a) {found.title}]({picture.name})\n\n(a) {about_events} {STRIPS}{found.remark}"
    if masked is None:
        return
    picture = out / f"{experiment.name}_{found.stem}_b.png"
    series, product = np.load(found.folder / "tasks_series.npy", allow_pickle=False)
    rois = read_table(found.study.layout.cache(found.entry.atlas) / "rois.tsv", text=("name", "network", "hemisphere"))
    curve, shown, tr = of_task(curves, masked), of_task(events, masked), read_json(about)["RepetitionTime"]
    draw_masked(curve, shown, series, product, rois, tr, picture)
    about_masked = MASKED.format(title=task_titles([masked])[masked])
    yield f"![(b) {found.title}]({picture.name})\n\n(b) {about_masked}{found.remark}"


def _place(key: tuple[str, str, str]) -> tuple[int, tuple[str, str, str]]:
    """Return the place of a task's panel: in the paper's order, then others by name."""
    return (PAPERS_TASKS.index(key[0]) if key[0] in PAPERS_TASKS else len(PAPERS_TASKS)), key


def _explained(
    experiment: Experiment, entries: Sequence[Entry], studies: Mapping[str, Study], name: str
) -> list[Explained]:
    """Return the entries whose first seed has a file of this name, in the paper's order.

    Raises
    ------
    DataError
        There is none.
    """
    found, titles = [], dataset_titles(entries)
    for entry in in_papers_order(entries):
        study = studies[entry.dataset]
        if entry.explanations and holds_something(entry.explanations[0] / name):
            title = f"{titles[entry.dataset]}, {entry.atlas}, {entry.row}"
            found.append(Explained(entry, title, study, entry.explanations[0], study.config.seeds[0]))
    if not found:
        raise DataError(
            f"no run of experiment '{experiment.name}' has been explained",
            hint=f"Ask for the target '{experiment.name}'",
        )
    return found


def _read(path: Path, *text: str) -> pd.DataFrame:
    """Read a table of tasks, in which a scan without task or run has empty ones."""
    return read_table(path, text=text).fillna(dict.fromkeys(TASK_KEYS, ""))


def _write(experiment: Experiment, parts: Sequence[str], out: Path) -> None:
    """Write ``<name>.md``."""
    shows = f"{experiment.paper.shows} of the paper. " if experiment.paper else ""
    head = f"# {experiment.title}\n\n{shows}{experiment.description}\n\n"
    write_text(head + "\n".join(parts), out / f"{experiment.name}.md")
