"""Explanations of all datasets: landmark regressions beside the paper's, brain maps, and importance over tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from bolt.atlases.image import atlas_of
from bolt.config import Experiment
from bolt.config.study import Entry, Study
from bolt.evaluate.results import due, gather
from bolt.evaluate.scores import METRICS
from bolt.experiments.markup import CAPTIONS, markdown, write_sheets
from bolt.experiments.tables import ATLASES, METRIC_HEADINGS, dataset_titles, in_papers_order, two_decimals
from bolt.explain.landmarks import LANDMARK_COLUMNS, SUBSET_COLUMNS, with_means
from bolt.explain.regions import ROI_COLUMNS
from bolt.explain.tasks import TASK_COLUMNS
from bolt.io.errors import BoltError, DataError
from bolt.io.files import columns, holds_something, read_json, read_table, write_table, write_text
from bolt.report.figures.series import Curve, draw_landmarks, draw_masked, draw_tasks, of_task
from bolt.report.html import filled, say
from bolt.report.numbers import joined, scope_text
from bolt.report.tables import TASK_KEYS, Sheet, landmark_table, paper_of, read_result, selected_rois, task_titles
from bolt.series.cache import ROI_TEXT

KEYS = {name: LANDMARK_COLUMNS[name] for name in ("importance", "tokens", "level")}
LANDMARKS = {**columns("experiments", "explained"), **KEYS, **columns("experiments", "landmarks")}
SUBSETS = {**columns("experiments", "explained"), **SUBSET_COLUMNS}
ROIS = {**columns("experiments", "drawn"), **ROI_COLUMNS}
TASKS = {**columns("experiments", "drawn"), **TASK_COLUMNS}
FIGURE_ORDER = ("hcp_task", "hcp_rest", "abide1")
"""Datasets in the order of the paper's figure of landmarks."""
PAPERS_VOLUMES = {"important": "LR (Important)", "random": "LR (Random)"}
"""Volumes of the paper's table, and its headings."""
PAPERS_TASKS = ("EMOTION", "RELATIONAL", "GAMBLING", "LANGUAGE", "SOCIAL", "MOTOR")
"""Order of the panels of the paper's figure of tasks; working memory is its second part."""


def write_landmark_experiment(experiment: Experiment, entries: list[Entry], out: Path) -> None:
    """Join the landmark regressions of all datasets as tables, text and figure; entries not yet explained are skipped.

    Raises
    ------
    DataError
        Nothing is explained.
    """
    rows, curves, subsets, sheets, explained = [], [], [], [], []
    scopes: dict[str, str] = {}
    titles = dataset_titles(entries)
    for entry in in_papers_order(entries, FIGURE_ORDER):
        tables = _over_seeds(entry, "landmarks.tsv", list(KEYS))
        if tables is None:
            continue
        paper = paper_of(entry.paper_dataset, entry.atlas)
        rows.append(landmark_rows(entry, tables, paper))
        explained.append((entry, tables))
        title = f"{titles[entry.dataset]}, {entry.atlas}" + (f", {entry.row}" if len(experiment.rows) > 1 else "")
        scopes[title] = tested(entry)
        shown = landmark_table(tables, paper, expected=entry.outer * len(entry.explanations))
        sheets.append(Sheet(title, shown, CAPTIONS["landmarks"], notes=list(filter(None, [scopes[title]]))))
        curve = _over_seeds(entry, "subsets.tsv", ["offset", "level"])
        if curve is not None and len(curve):
            curves.append(Curve(title, curve, tables, 1 / len(entry.classes)))
            subsets.append(curve.assign(dataset=entry.dataset, atlas=entry.atlas, row=entry.row))
    if not rows:
        raise _nothing(experiment)
    name, notes, figures = experiment.name, joined(scopes), {}
    if curves:
        draw_landmarks(curves, out / f"{name}.png")
        figures[f"{name}.png"] = ". ".join([CAPTIONS["landmark_curves"], *notes])
    subset_table = pd.concat(subsets)[list(SUBSETS)] if subsets else pd.DataFrame(columns=list(SUBSETS))
    write_table(subset_table, out / f"{name}_subsets.tsv", SUBSETS)
    write_sheets(experiment, [*_as_in_paper(experiment, explained, notes), *sheets], out, figures)
    write_table(pd.concat(rows, ignore_index=True), out / f"{name}.tsv", LANDMARKS)


def tested(entry: Entry) -> str:
    """Return how much of the dataset was tested by the models that are explained."""
    predictions, missing = gather(entry)
    roles = predictions.reindex(columns=["scan_id", "role"])  # without any scan, there are no columns of scans
    scans = [table["scan_id"].nunique() for table in (roles[roles["role"] == "test"], roles)]
    return scope_text(len(due(entry)) - len(missing), len(due(entry)), *scans)


def _nothing(experiment: Experiment) -> DataError:
    what = f"no run of experiment '{experiment.name}' has been explained"
    return DataError(what, hint=f"Ask for the target '{experiment.name}'")


def _as_in_paper(
    experiment: Experiment, explained: Sequence[tuple[Entry, pd.DataFrame]], notes: list[str]
) -> list[Sheet]:
    """Return the regressions on important and on random volumes as the paper's table has them."""
    if experiment.paper is None:
        return []
    tables = {id(entry): table for entry, table in explained}
    entries = in_papers_order([entry for entry, _ in explained])
    titles = dataset_titles(entries)
    rows: list[dict[str, str]] = []
    bold = set()
    for entry in entries:
        table = tables[id(entry)]
        table = table[(table["level"] == "token") & (table["importance"] != "inner")]
        table = table[table["fold"].isin(["mean", "sd"])].set_index(["fold", "tokens"]).sort_index()
        names = [titles[entry.dataset], *([] if entry.atlas in ATLASES else [entry.atlas])]
        name = ", ".join([*names, *([entry.row] if len(experiment.rows) > 1 else [])])
        for metric, heading in METRIC_HEADINGS.items():
            means, sds = table.loc["mean", metric], table.loc["sd", metric]
            bold.add((len(rows), PAPERS_VOLUMES[max(PAPERS_VOLUMES, key=means.__getitem__)]))
            cells = {column: two_decimals(means[tokens], sds[tokens]) for tokens, column in PAPERS_VOLUMES.items()}
            rows.append({"": f"{name}: {heading}", **cells})
    title = experiment.paper.shows.split(" and ")[0]
    return [Sheet(title, pd.DataFrame(rows), CAPTIONS["landmarks_as_in_paper"], bold, notes)]


def _over_seeds(entry: Entry, name: str, keys: list[str]) -> pd.DataFrame | None:
    """Join a table of all seeds, with mean and sd over folds and seeds; None if no seed has it."""
    files = [folder / name for folder in entry.explanations if holds_something(folder / name)]
    if not files:
        return None
    table = pd.concat([read_result(file) for file in files], ignore_index=True)
    return with_means(table[~table["fold"].isin(["mean", "sd"])], keys)


def landmark_rows(entry: Entry, table: pd.DataFrame, paper: pd.DataFrame) -> pd.DataFrame:
    """Return the landmark regressions of one entry beside the paper's (`LANDMARKS`)."""
    mean, sd = (
        table[table["fold"] == fold].melt([*KEYS, "n_test"], list(METRICS), "metric", fold) for fold in ("mean", "sd")
    )
    known = paper.rename(columns={"mean": "paper_mean", "sd": "paper_sd"})
    both = mean.merge(sd.drop(columns="n_test"), on=[*KEYS, "metric"]).merge(known, on=["tokens", "metric"], how="left")
    table = both.rename(columns={"n_test": "n_folds"}).assign(difference=both["mean"] - both["paper_mean"])
    table = table.assign(dataset=entry.dataset, atlas=entry.atlas, row=entry.row)
    return table.assign(expected_folds=entry.outer * len(entry.explanations))[list(LANDMARKS)]


# ---- figures of one seed -------------------------------------------------------------------------------------------
class Explained(NamedTuple):
    """An explained row of an experiment, in its first seed.

    `stem` is what its figures are called, without the experiment's name; `where` identifies it in tables; `remark` is
    what a caption says of seeds, and of how much of the dataset was tested.
    """

    entry: Entry
    title: str
    study: Study
    folder: Path
    stem: str
    where: dict[str, Any]
    remark: str


def write_brain_maps(experiment: Experiment, entries: Sequence[Entry], studies: Mapping[str, Study], out: Path) -> None:
    """Write the selected ROIs of all datasets as a table, and a brain per dataset.

    Raises
    ------
    DataError
        Nothing is explained.
    """
    from bolt.report.figures.brains import plot_regions  # nilearn is slow to import

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
            caption = say("regions.brain", explain=found.study.config.explain)
            drawing = f"![{found.title}]({picture.name})\n\n{caption}{found.remark}"
        rois = selected_rois(weights)
        rois.insert(0, "", rois.pop("ROI"))
        sheet = markdown(Sheet(f"{found.title}: selected ROIs", rois, CAPTIONS["controlled"]))
        networks = read_table(found.folder / "networks.tsv", text=("class", "network"))
        if networks["network"].notna().any():
            shown = filled("selected_networks", networks[networks["n_selected"] > 0])
            sheet += f"\n{markdown(Sheet(f'{found.title}: networks of the selected ROIs', shown, ''))}"
        parts.append(f"## {found.title}\n\n{drawing}\n\n{sheet}")
        tables.append(weights[weights["selected"].astype(bool)].assign(**found.where))
    _write(experiment, parts, pd.concat(tables), ROIS, out)


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
        figures = _task_figures(found, curves, out / f"{experiment.name}_{found.stem}") if len(curves) else []
        text = "\n\n".join(figures) or "No scan has events."
        parts.append(f"## {found.title}\n\n{text}\n")
    _write(experiment, parts, pd.concat(tables), TASKS, out)


def _task_figures(found: Explained, curves: pd.DataFrame, stem: Path) -> Iterator[str]:
    """Draw (a) importance over each task but the masked one, and (b) the masked one; yield their Markdown."""
    events = _read(found.folder / "tasks_blocks.tsv", *TASK_KEYS, "trial_type")
    about = found.folder / "tasks_series.json"
    masked = tuple(read_json(about)[key] for key in TASK_KEYS) if about.is_file() else None
    last = len(PAPERS_TASKS)  # tasks that the paper lacks, by name
    found_keys = set(curves[TASK_KEYS].itertuples(index=False, name=None))
    keys = sorted(found_keys, key=lambda key: (PAPERS_TASKS.index(key[0]) if key[0] in PAPERS_TASKS else last, key))
    others = [key for key in keys if key != masked] or keys
    picture = stem.with_name(f"{stem.name}_a.png")
    draw_tasks(pd.concat([of_task(curves, key) for key in others]), events, picture, strips=True)
    words = f"{say('moments.task', shift=found.study.config.explain.hrf_shift)} {CAPTIONS['strips']}"
    yield f"![(a) {found.title}]({picture.name})\n\n(a) {words}{found.remark}"
    if masked is None:
        return
    picture = stem.with_name(f"{stem.name}_b.png")
    series, product = np.load(found.folder / "tasks_series.npy", allow_pickle=False)
    rois = read_table(found.study.layout.cache(found.entry.atlas) / "rois.tsv", text=ROI_TEXT)
    curve, shown, tr = of_task(curves, masked), of_task(events, masked), read_json(about)["RepetitionTime"]
    draw_masked(curve, shown, series, product, rois, tr, picture)
    words = say("moments.masked", title=task_titles([masked])[masked])
    yield f"![(b) {found.title}]({picture.name})\n\n(b) {words}{found.remark}"


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
        if not (entry.explanations and holds_something(entry.explanations[0] / name)):
            continue
        seeds, scope = studies[entry.dataset].config.seeds, tested(entry)
        remark = CAPTIONS["one_seed"].format(seed=seeds[0]) if len(seeds) > 1 else ""
        remark += f" {scope}." if scope else ""
        title = f"{titles[entry.dataset]}, {entry.atlas}, {entry.row}"
        stem = "_".join([entry.dataset, entry.atlas, entry.model.run_name])
        where = {"dataset": entry.dataset, "atlas": entry.atlas, "row": entry.row, "seed": seeds[0]}
        study, folder = studies[entry.dataset], entry.explanations[0]
        found.append(Explained(entry, title, study, folder, stem, where, remark))
    if not found:
        raise _nothing(experiment)
    return found


def _read(path: Path, *text: str) -> pd.DataFrame:
    """Read a table of tasks, in which a scan without task or run has empty ones."""
    return read_table(path, text=text).fillna(dict.fromkeys(TASK_KEYS, ""))


def _write(
    experiment: Experiment, parts: Sequence[str], table: pd.DataFrame, columns: Mapping[str, Any], out: Path
) -> None:
    """Write ``<name>.md`` and ``<name>.tsv``."""
    shows = f"{experiment.paper.shows} of the paper. " if experiment.paper else ""
    head = f"# {experiment.title}\n\n{shows}{experiment.description}\n\n"
    write_text(head + "\n".join(parts), out / f"{experiment.name}.md")
    write_table(table[list(columns)], out / f"{experiment.name}.tsv", columns)
