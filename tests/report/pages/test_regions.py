"""Regions and connections in the report: views that load nothing, networks, matrices and brains."""

import re

import numpy as np
import pandas as pd
import pytest

from bolt.config.study import Study
from bolt.explain.connections import CONNECTION_COLUMNS, NETWORK_COLUMNS, REGION_COLUMNS
from bolt.io.files import write_table
from bolt.report.figures.brains import plot_connectome, plot_networks, write_views
from bolt.report.figures.style import TWO, class_colours
from bolt.report.figures.trust import colour_map, plot_network_matrices
from bolt.report.html import Table
from bolt.report.pages.explanation import story_of
from tests.report.figures.test_brains import IMAGE, weights
from tests.report.figures.test_plots import has_colour
from tests.report.results import first_run, settings, words_only


def loaded(page):
    """What a page asks of other files or servers: scripts, styles, pictures, frames with an address."""
    places = re.findall(r"""<(?:script|link|img|iframe)\b[^>]*?(?:src|href)=["']([^"']+)""", page)
    return [place for place in places if not place.startswith("data:")]


def test_views_need_nothing_from_elsewhere(tmp_path):
    classes = ["female", "male"]
    table = weights(classes, {"female": [5], "male": [10]})
    found = write_views(table, IMAGE, classes, tmp_path / "run")
    assert [path.name for path in found["female and male"]] == ["run_volume.html", "run_cortex.html"]
    for path in found["female and male"]:
        page = path.read_text()
        assert loaded(page) == [] and 100_000 < len(page) < 5_000_000
        assert "red: female, blue: male" in page
    assert loaded('<script src="https://cdn.plot.ly/x.js"></script>') == ["https://cdn.plot.ly/x.js"]


def test_networks_are_bars_in_the_colours_of_classes(tmp_path):
    classes = ["female", "male"]
    table = pd.DataFrame(
        [
            {"class": c, "network": n, "n_rois": 2, "mean_selection_frequency": 0.5, "selection_sd": 0.1}
            | {"mean_importance": 0.3, "importance_sd": 0.2}
            for c in classes
            for n in ("default", "motor")
        ]
    )
    plot_networks(table, classes, tmp_path / "networks.png")
    assert all(has_colour(tmp_path / "networks.png", c, 1000) for c in class_colours(classes).values())
    assert all((tmp_path / f"networks.{ending}").is_file() for ending in ("svg", "pdf"))


def made_up(study, p, networks=("default", "visual")):
    out, about = first_run(study).explanation, {"class": "patient"}
    rows = [
        about | {"rank": i + 1, "value_a": 1, "name_a": f"roi{i}", "value_b": 2 + i, "name_b": "x"} for i in range(20)
    ]
    ends = {"network_a": "default", "network_b": "visual"}
    table = pd.DataFrame(rows).assign(**ends, r=0.4, r_label=0.2, p=p, same_sign=0.9, n_folds=10, n=80)
    write_table(table[list(CONNECTION_COLUMNS)], out / "connections.tsv", CONNECTION_COLUMNS)
    pairs = [(a, b) for a in networks for b in networks if a <= b]
    numbers = about | {"n_connections": 9, "mean_r": -0.2, "n_significant": 3}
    of_networks = pd.DataFrame(pairs, columns=list(ends)).assign(**numbers)
    write_table(of_networks[list(NETWORK_COLUMNS)], out / "connection_networks.tsv", NETWORK_COLUMNS)
    ends = {"value": [1, 2], "name": ["roi0", "x"], "network": "default", "hemisphere": "L", "rank": [1, 2]}
    rows = pd.DataFrame(ends).assign(strength=0.8, n_significant=2, selection_frequency=0.9, n_folds=10, **about)
    both = pd.concat([rows.assign(direction=name, selected=p < 0.05) for name in ("stronger", "weaker")])
    write_table(both[list(REGION_COLUMNS)], out / "connection_regions.tsv", REGION_COLUMNS)
    np.save(out / "connections.npy", np.full((1, 45), 0.3, np.float32))


def test_a_class_has_its_own_colour(tmp_path):
    """Positive correlations with the log odds of the red class are red, and with those of the blue class blue."""
    rows = [{"network_a": "a", "network_b": "a", "mean_r": 1.0, "n_significant": 0}]
    for name, shown in (("red", "#67001f"), ("blue", "#053061")):  # the ends of the scale
        plot_network_matrices(pd.DataFrame(rows).assign(**{"class": name}), ["red", "blue"], tmp_path / "matrix.png")
        assert has_colour(tmp_path / "matrix.png", shown, 1000)
    assert colour_map(["a", "b", "c"], "c") == colour_map(["a", "b"], "a") and len(TWO) == 2


def test_several_classes_have_a_brain_each(tmp_path):
    values = np.unique(np.asanyarray(IMAGE.dataobj))[1:3]
    table = pd.DataFrame({"class": ["rest", "motor"], "value_a": values[0], "value_b": values[1], "r": [0.3, -0.3]})
    plot_connectome(table, IMAGE, ["rest", "motor", "emotion"], tmp_path / "brains.png")
    assert has_colour(tmp_path / "brains.png", "#67001f", 50) and has_colour(tmp_path / "brains.png", "#053061", 50)


@pytest.mark.parametrize(
    ("classes", "shown"),
    [
        (["control", "patient"], {"patient", "control"}),
        (None, {"higher patient", "lower patient"}),  # the label's name is that of the only output
        (["control", "patient", "other"], {"patient"}),
    ],
)
@words_only()
def test_a_model_without_importance_has_connections_and_their_regions(tmp_path, classes, shown):
    study = settings(tmp_path)
    study = Study(study.config, study.dataset.model_copy(update={"classes": classes, "label": "patient"}))
    made_up(study, 0.001)
    story = story_of(study, first_run(study))
    assert [verdict.short for verdict in story["verdicts"]] == ["better than chance"]  # one fold: no agreement
    [chapter] = story["chapters"]["explanation.html"]
    tables = [block.frame for block in chapter.blocks if isinstance(block, Table)]
    assert chapter.title == "Which connections" and set(tables[0]["goes with"]) == shown
