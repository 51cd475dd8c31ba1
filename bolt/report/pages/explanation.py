"""The pages of the explanation: what a model looked at, and whether that can be believed.

Moments of scans and of tasks, regions, connections, and all of it in one picture; each part is omitted if its files are
missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import nibabel as nib
import numpy as np
import pandas as pd

from bolt.atlases.image import atlas_of
from bolt.config.layout import ModelRun
from bolt.config.study import Study
from bolt.evaluate.metrics import read_predictions
from bolt.explain.connections import ALPHA, SHUFFLES
from bolt.explain.explainable import has_importance, sees_brain
from bolt.explain.landmarks import top_tokens
from bolt.explain.weights import explained_folds, read_importance
from bolt.io.errors import BoltError, DataError
from bolt.io.files import holds_something, read_json
from bolt.report.figures.brains import centres, plot_connectome, plot_networks, plot_overview, plot_regions, write_views
from bolt.report.figures.series import TimeCourse, draw_masked, draw_tasks, of_task, time_course
from bolt.report.figures.trust import plot_network_matrices, plot_roi_matrices
from bolt.report.html import Block, Chapter, Picture, Table, Text, View, drawn, filled, say, write_report_page
from bolt.report.pages import trust
from bolt.report.pages.verdicts import MARKS, believed, counted, verdicts_of
from bolt.report.runs import figure_folder, run_anchor, run_figure, run_scope, run_title
from bolt.report.tables import TASK_KEYS, alignment_table, read_result, selected_rois, sign_counts, task_titles
from bolt.series.cache import SeriesCache, volumes_of

EXAMPLES = 1  # scans per class
DRAWN = 50
"""Connections of each class on the brain."""
SHOWN = 15
"""Connections of each class in the table of the page."""


def unexplained(study: Study) -> dict[str, list[str]]:
    """Return the titles of runs that are not explained, or by connections alone, by reason."""
    titles: dict[str, list[str]] = {}
    for run in study.runs:
        model = study.models[run.model]
        if not sees_brain(model):
            reason = "blind"
        elif (run.explanation / "connections.tsv").is_file() and not verdicts_of(study, run):
            reason = "untrained"
        elif study.dataset.classes is None:
            reason = "number"
        elif model.covariates:
            reason = "covariates"
        elif not has_importance(model):
            reason = "no_tokens"
        else:
            continue
        titles.setdefault(say(f"unexplained.{reason}"), []).append(run_title(study, run))
    return titles


# ---- moments


def examples(study: Study, run: ModelRun) -> list[dict[str, Any]]:
    """Return some explained test scans of each class: rows of ``predictions.tsv``, correctly predicted ones first."""
    folds = explained_folds(run.folder, study.folds_of(run))
    if not folds:
        return []
    found = pd.concat(read_predictions(run.fold(fold) / "predictions.tsv") for fold in folds).query("role == 'test'")
    found = found.assign(wrong=found["predicted"] != found["label"])
    first = found.sort_values(["wrong", "scan_id"]).groupby("label").head(EXAMPLES)
    classes = study.dataset.classes or []
    return [row for name in classes for row in first[first["label"] == name].to_dict("records")]


def _course(study: Study, run: ModelRun, scan: dict[str, Any], cache: SeriesCache) -> tuple[int, TimeCourse]:
    """Return the row of the cache of an example, and its importance."""
    row = cache.index["scan_id"].tolist().index(scan["scan_id"])
    table, weights = read_importance(run.fold(scan["fold"]))
    importance = weights[int(np.flatnonzero(table["scan_id"] == scan["scan_id"])[0])]
    tokens, tr = top_tokens(importance, study.config.explain.tokens), float(cache.index["tr"].iloc[row])
    volumes = volumes_of(cache.index.iloc[row], study.layout.series_file(scan["scan_id"], run.atlas))
    return row, TimeCourse(importance, tokens, tr, volumes)


def moments_blocks(study: Study, run: ModelRun) -> list[Block]:
    """Draw importance over time for the first test scans of each class; [] without importance weights."""
    scans = examples(study, run)
    if not scans:
        return []
    cache = SeriesCache(run.cache)
    events = read_result(study.layout.tables / "true_landmarks.tsv")
    blocks: list[Block] = []
    for scan in scans:
        name, predicted = scan["scan_id"], scan["predicted"]
        row, course = _course(study, run, scan, cache)
        title = f"{name} · true: {scan['label']} · predicted: {predicted} ({scan[f'p_{predicted}']:.2f})"
        planted = None if events.empty else events.loc[events["scan_id"] == name, "volume"].to_numpy(int)
        caption = say("moments.example", name=name, wrong=scan["wrong"], planted=planted is not None)
        shown: Any = {"title": title, "landmarks": planted}
        picture = run_figure(study, run, f"{name}_importance")
        blocks.append(drawn(picture, caption, time_course, course, cache.series(row), cache.rois, **shown))
    return blocks


def tasks_blocks(study: Study, run: ModelRun) -> list[Block]:
    """Show importance over each task, its relation to events, and one task's masked series; [] without events."""
    out, files = run.explanation, ("tasks.tsv", "tasks_blocks.tsv", "tasks_alignment.tsv")
    curves, events, aligned = (read_result(out / file).fillna(dict.fromkeys(TASK_KEYS, "")) for file in files)
    if curves.empty:
        return []
    caption = say("moments.task", shift=study.config.explain.hrf_shift)
    blocks: list[Block] = [
        drawn(run_figure(study, run, "tasks"), caption, draw_tasks, curves, events),
        Table(alignment_table(aligned), say("moments.alignment"), out / "tasks_alignment.tsv"),
    ]
    if (out / "tasks_series.npy").is_file():
        about = read_json(out / "tasks_series.json")
        key = (about["class"], about["task"], about["run"])
        series, masked = np.load(out / "tasks_series.npy", allow_pickle=False)
        rois = read_result(run.cache / "rois.tsv")
        shown = of_task(curves, key), of_task(events, key), series, masked, rois, about["RepetitionTime"]
        caption = say("moments.masked", title=task_titles([key])[key])
        blocks.append(drawn(run_figure(study, run, "masked_task"), caption, draw_masked, *shown))
    return blocks


def draw_overview(study: Study, run: ModelRun) -> None:
    """Draw the first scan that `moments_blocks` shows, and the regions if the atlas has an image."""
    scans = examples(study, run)
    if not scans:
        return
    _, course = _course(study, run, scans[0], SeriesCache(run.cache))
    weights = run.explanation / "roi_weights.tsv"
    image = label_image(study, run.atlas) if weights.is_file() else None
    table = None if image is None else read_result(weights)
    title = f"{scans[0]['scan_id']}, predicted: {scans[0]['predicted']}"
    plot_overview(table, image, study.dataset.coloured, course, run_figure(study, run, "overview"), title)


# ---- regions


def regions_blocks(study: Study, run: ModelRun) -> list[Block]:
    """Show the brain, the selected ROIs and their networks; [] without ``roi_weights.tsv``."""
    out, weights = run.explanation, read_result(run.explanation / "roi_weights.tsv")
    if weights.empty:
        return []
    blocks = _brain_blocks(study, run, weights)
    blocks.append(Table(selected_rois(weights), say("regions.selected"), out / "roi_weights.tsv"))
    if weights["selected"].astype(bool).any():
        blocks.append(Text(say("regions.signs", counts=sign_counts(weights))))
    networks = read_result(out / "networks.tsv").fillna({"network": "n/a"})
    if set(networks["network"]) != {"n/a"}:
        picture = run_figure(study, run, "networks")
        blocks.append(drawn(picture, say("regions.networks"), plot_networks, networks, study.dataset.coloured))
        shown = filled("selected_networks", networks[networks["n_selected"] > 0])
        blocks.append(Table(shown, "Networks of the selected ROIs.", out / "networks.tsv"))
    return blocks


def _brain_blocks(study: Study, run: ModelRun, weights: pd.DataFrame) -> list[Block]:
    classes = study.dataset.coloured
    try:
        atlas = atlas_of(study, run.atlas)
        image = atlas.label_image
    except BoltError as error:
        return [Text(f"No brain map: {error}", warning=True)]
    blocks: list[Block] = [Text(say("regions.strongest"))] if atlas.is_maps else []
    caption = say("regions.brain", explain=study.config.explain)
    blocks.append(drawn(run_figure(study, run, "brain"), caption, plot_regions, weights, image, classes))
    stem = figure_folder(study.layout) / run_anchor(run)
    for shown, (volume, cortex) in write_views(weights, image, classes, stem).items():
        caption = say("regions.interactive", classes=classes)
        blocks.append(View(cortex, f"Interactive cortex: selected regions, {shown}", caption))
        blocks.append(View(volume, f"Interactive slices: weights of all regions, {shown}", caption))
    return blocks


def label_image(study: Study, atlas: str) -> nib.Nifti1Image | None:
    """Return the label image of an atlas; None if it has none, which `regions_blocks` explains."""
    try:
        return atlas_of(study, atlas).label_image
    except BoltError:
        return None


# ---- connections


def connections_blocks(study: Study, run: ModelRun) -> list[Block]:
    """Show matrices, the brain and a table; [] without ``connections.tsv``."""
    file = run.explanation / "connections.tsv"
    if not holds_something(file):
        return []
    table = read_result(file)
    names, classes = list(table["class"].unique()), study.dataset.coloured
    picture = run_figure(study, run, "connections")
    networks = read_result(run.explanation / "connection_networks.tsv")
    if len(networks):
        plot_network_matrices(networks, classes, picture)
    else:
        values = np.load(run.explanation / "connections.npy", allow_pickle=False)
        plot_roi_matrices(dict(zip(names, values, strict=True)), classes, picture)
    colours = say("connections.colours", classes=classes, label=study.dataset.label)
    output = names[0] if len(names) == 1 else "each class"
    output = f"log odds of {output}" if classes else output
    caption = say("connections.matrix", networks=len(networks), output=output, colours=colours)
    blocks: list[Block] = [Text(say("connections.meaning")), Picture(picture, caption)]
    clear = table[(table["p"] < ALPHA) & (table["rank"] <= DRAWN)]
    shown = table[table["rank"] <= SHOWN]
    image = label_image(study, run.atlas)
    places: dict[int, str] = {}  # centres in mm, for names that do not say where a ROI is
    if clear.empty:
        blocks.append(Text(say("connections.none")))
    elif image is not None:
        picture, caption = run_figure(study, run, "connectome"), say("connections.brain", n=len(clear), colours=colours)
        blocks.append(drawn(picture, caption, plot_connectome, clear, image, classes))
    blocks += _connected_regions(study, run, image)
    if image is not None:
        rois = np.unique(shown[["value_a", "value_b"]].to_numpy(int))
        found = zip(rois, centres(image, rois), strict=True)
        places = {int(value): str(place).replace("-", "−") for value, place in found}
    caption = say("connections.strongest", shuffles=SHUFFLES, n=table["n"].iloc[0], model=study.models[run.model])
    strongest = filled("strongest_connections", shown, several=shown["class"].nunique() > 1, places=places)
    blocks.append(Table(strongest, caption, file))
    return blocks


def _connected_regions(study: Study, run: ModelRun, image: nib.Nifti1Image | None) -> list[Block]:
    """Show the regions of significant connections; [] if there are none."""
    file, classes = run.explanation / "connection_regions.tsv", study.dataset.coloured
    table = read_result(file)
    if classes and len(classes) != 2:
        table, shown = table[table["direction"] == "stronger"], classes
    else:  # of two classes, the other one is predicted where connections are weaker
        name = str(table["class"].iloc[0])
        other = next((each for each in classes if each != name), "")
        favoured = (name, other) if classes else (f"higher {name}", f"lower {name}")
        of_direction = table["direction"].map(dict(zip(("stronger", "weaker"), favoured, strict=True)))
        table, shown = table.assign(**{"class": of_direction}), list(classes or favoured)
    if not table["selected"].astype(bool).any():
        return []
    blocks: list[Block] = []
    if image is not None:
        picture = run_figure(study, run, "connected_regions")
        caption = say("connections.regions", explain=study.config.explain, classes=shown)
        blocks.append(drawn(picture, caption, plot_regions, table, image, shown))
    listed = filled("connected_regions", table[table["selected"].astype(bool)])
    return [*blocks, Table(listed, say("connections.selected"), file)]


Part = Callable[[Study, ModelRun], list[Block]]
CHAPTERS: Mapping[str, Mapping[str, tuple[Part, ...]]] = {
    "explanation.html": {
        "Which moments": (tasks_blocks, moments_blocks),
        "Which regions": (regions_blocks,),
        "Which connections": (connections_blocks,),
    },
    "trust.html": {
        "Is the planted truth found?": (trust.truth_blocks,),
        "Do these moments suffice to predict the class?": (trust.landmarks_blocks,),
        "Is it stable?": (trust.stability_blocks,),
        "Does it depend on what was learned?": (trust.sanity_blocks,),
        "Does the model use these moments?": (trust.faithfulness_blocks,),
    },
}
"""Headings of each page and the parts below them, in reading order."""


def write_explanation(study: Study) -> None:
    """Draw and write the pages of all explained runs.

    Raises
    ------
    DataError
        No run of this configuration was explained.
    """
    stories = [story for run in study.runs if (story := story_of(study, run))]
    files = [run.explanation / name for run in study.runs for name in ("landmarks.tsv", "connections.tsv")]
    if not stories and not any(file.is_file() for file in files):
        hint = "Explain a model first: name one that can be in 'models' (bolt, for example)"
        raise DataError("no run was explained", where=study.layout.results / "explain", hint=hint)
    write_report_page(study, "explanation.html", stories=stories, unexplained=unexplained(study))
    write_report_page(
        study, "trust.html", stories=stories, leaks=trust.leaks_section(study), marks=MARKS, counted=counted
    )


def story_of(study: Study, run: ModelRun) -> dict[str, Any] | None:
    """Return all that is known about one run's predictions; None if it was not explained.

    `note` says what of an ensemble is explained, `chapters` are those of each page, `scope` says how many of all folds
    and scans were tested.
    """
    verdicts = verdicts_of(study, run)
    if not verdicts:
        return None
    draw_overview(study, run)
    chapters = {}
    for page, headings in CHAPTERS.items():
        made = [Chapter(name, [b for part in parts for b in part(study, run)]) for name, parts in headings.items()]
        chapters[page] = [chapter for chapter in made if chapter.blocks]
    return {
        "title": run_title(study, run),
        "anchor": run_anchor(run),
        "verdicts": verdicts,
        "believed": believed(verdicts),
        "note": _note(study, run),
        "chapters": chapters,
        "scope": run_scope(run),
    }


def _note(study: Study, run: ModelRun) -> str:
    """Say which part of an ensemble is explained."""
    model = study.models[run.model]
    if not (model.members and has_importance(model)):
        return ""
    explained = [member.title for member in model.members if has_importance(member)]
    n = len(model.members)
    return say("moments.ensemble", n=n, title=explained[0], others=n - len(explained))
