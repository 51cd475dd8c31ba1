"""The paper's figures of explanations: brains in its colours, tasks in its order, and a table of both."""

import re

import numpy as np
import pandas as pd
import pytest

from bolt.atlases.image import load_atlas
from bolt.atlases.labels import load_labels
from bolt.config import Config, load_experiment
from bolt.config.study import Study
from bolt.experiments.entries import entries
from bolt.experiments.explained import write_brain_maps, write_task_timing
from bolt.explain.regions import write_regions
from bolt.explain.tasks import BLOCK_COLUMNS, TASK_COLUMNS
from bolt.io.errors import DataError
from bolt.io.files import read_table, write_json, write_table
from bolt.report.figures.style import TWO
from tests.evaluate.test_paired import made_up
from tests.experiments.test_results import write_run
from tests.report.figures.test_plots import has_colour
from tests.report.pages.test_moments import TR, block, curve
from tests.report.results import words_only

ATLAS = "dosenbach160"


def explained(folder, name, *datasets, **keys):
    """Rows of an experiment and their studies."""
    found, studies = [], {}
    for dataset in datasets:
        config = Config(dataset=dataset, atlases=[ATLAS], paths={"results": folder / "results"}, **keys)
        found += entries(config, load_experiment(name))
        studies[dataset] = Study.of(config)
    return found, studies


def make_regions(entry, strongest):
    """Two folds in which one ROI speaks for the second class, and the next for the first."""
    out = entry.explanations[0]
    out.mkdir(parents=True)
    coefficients = np.random.default_rng(0).normal(0, 0.01, (2, 1, 160))
    coefficients[:, :, strongest], coefficients[:, :, strongest + 1] = 1.0, -1.0
    coefficients = np.concatenate([-coefficients, coefficients], axis=1)
    np.save(out / "coefficients.npy", coefficients)
    np.save(out / "coefficients_controls.npy", np.stack([coefficients] * 3))
    rois, image = load_labels(ATLAS), load_atlas(ATLAS).image
    write_regions(out / "coefficients.npy", rois, entry.classes, image, out, fraction=0.01)


@pytest.mark.slow
def test_brains_of_all_datasets_are_drawn_in_the_papers_colours(tmp_path):
    found, studies = explained(tmp_path, "brain_maps", "abide1", "hcp_rest", "hcp_task", seeds=[3, 4])
    for entry, strongest in zip(found[:2], (10, 40), strict=True):
        make_regions(entry, strongest)
    write_brain_maps(load_experiment("brain_maps"), found, studies, tmp_path)
    table = read_table(tmp_path / "brain_maps.tsv", text=("dataset", "class", "name"))
    assert list(dict.fromkeys(table["dataset"])) == ["hcp_rest", "abide1"]  # the paper's order; one is not explained
    assert set(table["seed"]) == {3} and set(table["selected"].astype(str)) <= {"1", "True", "true"}
    text = (tmp_path / "brain_maps.md").read_text()
    assert re.findall("## (.*)\n", text)[0] == "HCP-Rest, dosenbach160, BolT" and "Figures 5 to 7 of the paper" in text
    assert "by regression weight, mean over folds" in text
    assert "this is seed 3. 0 of 10 folds, 0 of 0 scans tested." in text
    pictures = {name: next(tmp_path.glob(f"brain_maps_{name}_*.png")) for name in ("abide1", "hcp_rest")}
    assert all(has_colour(picture, colour, 100) for picture in pictures.values() for colour in TWO)
    for name, order in (("abide1", ["autism", "control"]), ("hcp_rest", ["female", "male"])):
        drawing = pictures[name].with_suffix(".svg").read_text()
        assert re.findall("favours (\\w+)", drawing.split("</metadata>")[-1])[:2] == order  # red, then blue
        assert f"({pictures[name].name})" in text


@words_only()
def test_the_published_ranking_is_by_odds_ratio(tmp_path):
    found, studies = explained(tmp_path, "brain_maps", "abide1", explain={"odds_ratio": "published"})
    make_regions(found[0], 10)
    write_brain_maps(load_experiment("brain_maps"), found, studies, tmp_path)
    text = (tmp_path / "brain_maps.md").read_text()
    assert "dosenbach160, BolT: networks of the selected ROIs" in text and "| autism |" in text.split("networks of")[1]
    assert "by odds ratio, mean over folds" in text and "regression weight," not in text


def test_nothing_explained_is_said(tmp_path):
    for name, write in (("brain_maps", write_brain_maps), ("task_timing", write_task_timing)):
        found, studies = explained(tmp_path, name, "hcp_task")
        with pytest.raises(DataError, match=f"'{name}' has been explained.*the target '{name}'"):
            write(load_experiment(name), found, studies, tmp_path)


def make_tasks(entry, cache, tasks, masked):
    """Importance over tasks as a run leaves it, the ROI series of one of them, and the names of the ROIs."""
    out = entry.explanations[0]
    curves = pd.concat([curve(task, 40) for task in tasks]).assign(untrained=1.0, raw=1.0)
    write_table(curves, out / "tasks.tsv", TASK_COLUMNS)
    write_table(pd.concat([block(task, "on", 5, 20) for task in tasks]), out / "tasks_blocks.tsv", BLOCK_COLUMNS)
    np.save(out / "tasks_series.npy", np.random.default_rng(0).normal(size=(2, 40, 160)))
    about = {"class": masked, "task": masked, "run": "LR", "RepetitionTime": TR}
    write_json(about, out / "tasks_series.json")
    rois = load_labels(ATLAS)
    write_table(rois, cache / "rois.tsv", dict.fromkeys(rois.columns, "Test"))


def test_tasks_have_the_papers_panels(tmp_path):
    found, studies = explained(tmp_path, "task_timing", "hcp_task")
    tasks = ["EMOTION", "GAMBLING", "LANGUAGE", "MOTOR", "RELATIONAL", "SOCIAL", "WM"]
    make_tasks(found[0], studies["hcp_task"].layout.cache(ATLAS), tasks, masked="WM")
    tested = made_up(1.0, 0)
    write_run(found[0].folders[0].parent, tested[tested["fold"] < 3])
    write_task_timing(load_experiment("task_timing"), found, studies, tmp_path)
    (first,), (second,) = (list(tmp_path.glob(f"task_timing_hcp_task_*_{part}.svg")) for part in "ab")
    panels = re.findall(r">([A-Z]{2,}) \(7 scans\)<", first.read_text())
    assert panels == ["EMOTION", "RELATIONAL", "GAMBLING", "LANGUAGE", "SOCIAL", "MOTOR"]
    assert "ROI series × importance" in second.read_text()
    text = (tmp_path / "task_timing.md").read_text()
    assert f"]({first.with_suffix('.png').name})" in text and "Figure 3 of the paper" in text and "(b) WM" in text
    assert "3 of 10 folds, 36 of 120 scans tested." in text
    assert len(read_table(tmp_path / "task_timing.tsv")) == 7 * 40


def test_scans_without_events_are_said(tmp_path):
    found, studies = explained(tmp_path, "task_timing", "hcp_task")
    write_table(pd.DataFrame(columns=list(TASK_COLUMNS)), found[0].explanations[0] / "tasks.tsv", TASK_COLUMNS)
    write_task_timing(load_experiment("task_timing"), found, studies, tmp_path)
    assert "No scan has events." in (tmp_path / "task_timing.md").read_text()
    assert not list(tmp_path.glob("*.png"))
