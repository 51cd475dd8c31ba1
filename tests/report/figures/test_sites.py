"""Sites in a figure: every value stands where its site and model are, and what has no interval says so."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from bolt.report.figures.performance import MOST, _panel, draw_sites, has_sites

SIZES = {"york": 12, "london": 80, "leeds": 3}


def table(rows=("BolT", "SVM"), metric="auc"):
    lines = []
    for r, row in enumerate(rows):
        for s, (site, n) in enumerate(SIZES.items()):
            value = 0.5 + 0.1 * s - 0.05 * r
            interval = {"low": value - 0.1, "high": value + 0.1} if n > 5 else {"low": np.nan, "high": np.nan}
            about = {"dataset": "toy", "atlas": "cc200", "row": row, "site": site, "n_scans": n, "metric": metric}
            lines.append(about | {"pooled": value} | interval)
    return pd.DataFrame(lines)


def marks(part, rows):
    axis = Figure().subplots()
    _panel(axis, part, rows)
    diamonds = [line for line in axis.lines if line.get_marker() == "D"]
    return axis, [(line.get_xdata()[0], line.get_ydata()[0], line.get_markerfacecolor()) for line in diamonds]


def test_each_value_is_drawn_once_beside_its_site():
    part = table()
    axis, drawn = marks(part, ["BolT", "SVM"])
    assert [label.get_text() for label in axis.get_yticklabels()] == [
        "london (80 scans)",
        "york (12 scans)",
        "leeds (3 scans)",
    ]
    place = {"london": 0, "york": 1, "leeds": 2}
    assert len(drawn) == len(part)
    for value, (x, y, _) in zip(part.itertuples(), drawn, strict=True):
        assert x == value.pooled and round(y) == place[value.site]
    assert len({y for _, y, _ in drawn}) == len(part)


def test_too_few_scans_are_hollow():
    part = table()
    _, drawn = marks(part, ["BolT", "SVM"])
    hollow = [face == "white" for _, _, face in drawn]
    assert hollow == part["low"].isna().tolist() and any(hollow)


@pytest.mark.parametrize(("metric", "label"), [("auc", "AUC"), ("r", "r")])
def test_more_rows_than_can_be_told_apart(tmp_path, metric, label):
    rows = [f"model {i}" for i in range(MOST + 2)]
    draw_sites(table(rows, metric), tmp_path / "sites.png")
    text = (tmp_path / "sites.svg").read_text()
    assert all((f"model {i}<" in text) == (i < MOST) for i in range(MOST + 2)) and f">{label}<" in text


def test_the_reference_is_drawn_whatever_its_place_and_reconstructed_rows_are_marked(tmp_path):
    rows = [*(f"model {i}" for i in range(MOST)), "BolT"]
    draw_sites(table(rows), tmp_path / "sites.png", reference="BolT", unknown=["model 1", f"model {MOST - 1}"])
    text = (tmp_path / "sites.svg").read_text()
    assert ">BolT<" in text and ">model 0<" in text and ">model 1 †<" in text and f"model {MOST - 1}" not in text
    assert "† reconstructed" in text


def test_a_table_without_sites_or_values_is_not_drawn():
    assert has_sites(table()) and not has_sites(table().iloc[:0])
    assert not has_sites(table().assign(pooled=np.nan)) and not has_sites(table(metric="accuracy"))
