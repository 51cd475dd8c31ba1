"""`bolt atlases`: what there is, and where each image is or how to get it."""

import shutil

import pytest

from bolt.atlases import description
from bolt.atlases.description import ATLASES, FETCH, known_atlases
from bolt.cli.main import main
from bolt.io.files import write_yaml


@pytest.fixture(autouse=True)
def nothing_around(monkeypatch, tmp_path):
    """The shipped atlases without any image, also where the clone has some."""
    fetched = shutil.ignore_patterns("*.nii*", "*_order.txt")
    monkeypatch.setattr(description, "ATLASES", shutil.copytree(ATLASES, tmp_path / "atlases", ignore=fetched))
    monkeypatch.delenv("BOLT_ATLAS_DIR", raising=False)
    monkeypatch.setenv("TEMPLATEFLOW_HOME", str(tmp_path / "empty-home"))
    description._members.cache_clear()
    yield
    description._members.cache_clear()


def rows(capsys, *words):
    assert main(["atlases", *words]) == 0
    lines = capsys.readouterr().out.splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    assert cells[0] == ["atlas", "ROIs", "spaces", "description", "image"]
    return {row[0].strip("` "): row[1:] for row in cells[2:]}


def test_every_atlas_has_its_row(capsys):
    table = rows(capsys)
    assert list(table) == known_atlases() and all(len(row) == 4 for row in table.values())
    assert table["dosenbach160"][0] == "160" and table["dosenbach160"][3] == "drawn from coordinates"
    assert table["aal116"][:2] == ["116", "MNI152NLin6Asym, MNI152NLin2009cAsym (carried over)"]
    assert table["schaefer200_17"][0] == "200"  # its labels are not fetched yet


def test_where_an_image_is_and_how_to_get_one(capsys, tmp_path, monkeypatch):
    """Both of the configuration's folder and of the variable's."""
    images = tmp_path / "images"
    images.mkdir()
    (images / "PCP_CC200_3mm.nii.gz").write_bytes(b"image")
    write_yaml({"dataset": "phantom", "paths": {"atlas_dir": str(images)}}, tmp_path / "config.yaml")
    table = rows(capsys, "--config", str(tmp_path / "config.yaml"))
    assert table["cc200"][3] == str(images / "PCP_CC200_3mm.nii.gz")
    missing = table["schaefer200"][3]
    assert missing.startswith(f"not found: {FETCH}, or put Schaefer2018_200Parcels_7Networks_order")
    assert "BOLT_ATLAS_DIR" in missing and "https://github.com/ThomasYeoLab/CBIG" in missing
    monkeypatch.setenv("BOLT_ATLAS_DIR", str(images))
    assert rows(capsys)["cc200"][3] == str(images / "PCP_CC200_3mm.nii.gz")


def test_an_image_counts_only_with_its_table_of_labels(capsys, tmp_path, monkeypatch):
    image = "Schaefer2018_200Parcels_7Networks_order_FSLMNI152_2mm.nii.gz"
    (tmp_path / image).write_bytes(b"image")
    monkeypatch.setenv("BOLT_ATLAS_DIR", str(tmp_path))
    assert rows(capsys)["schaefer200"][3].startswith("not found")
    labels = tmp_path / "Schaefer2018_200Parcels_7Networks_order.txt"
    labels.write_text("1\t7Networks_LH_Vis_1\t120\t18\t131\t0\n2\t7Networks_RH_Vis_1\t120\t18\t131\t0\n")
    row = rows(capsys)["schaefer200"]
    assert row[:2] == ["2", "MNI152NLin6Asym, MNI152NLin2009cAsym"]
    assert row[3].startswith(f"MNI152NLin6Asym: {tmp_path / image}; MNI152NLin2009cAsym: not found: {FETCH[:8]}")
