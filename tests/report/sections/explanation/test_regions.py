"""Regions in the report: views that load nothing, networks with their bars."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd

from bolt.report.figures.brains.maps import plot_networks
from bolt.report.figures.brains.views import write_views
from bolt.report.figures.style import class_colours
from tests.report.figures.brains.test_regions import IMAGE, weights
from tests.report.figures.test_plots import has_colour


def loaded(page: str) -> list[str]:
    """What a page asks of other files or servers: scripts, styles, pictures, frames with an address."""
    places = re.findall(r"""<(?:script|link|img|iframe)\b[^>]*?(?:src|href)=["']([^"']+)""", page)
    return [place for place in places if not place.startswith("data:")]


def test_views_need_nothing_from_elsewhere(tmp_path: Path) -> None:
    classes = ["female", "male"]
    table = weights(classes, {"female": [5], "male": [10]})
    found = write_views(table, IMAGE, classes, tmp_path / "run")
    assert [path.name for path in found["female and male"]] == ["run_volume.html", "run_cortex.html"]
    for path in found["female and male"]:
        page = path.read_text()
        assert loaded(page) == [] and 100_000 < len(page) < 5_000_000
        assert "red: female, blue: male" in page
    assert loaded('<script src="https://cdn.plot.ly/x.js"></script>') == ["https://cdn.plot.ly/x.js"]


def test_networks_are_bars_in_the_colours_of_classes(tmp_path: Path) -> None:
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
