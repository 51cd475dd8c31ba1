"""`bolt atlases`: what there is, and where each image is or how to get it."""

import re
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


def entries(capsys, *words):
    """Return what is printed of each atlas, on one line: the first, and the place of its image."""
    assert main(["atlases", *words]) == 0
    text, _, advice = capsys.readouterr().out.partition("\n\n")
    assert FETCH in " ".join(advice.split()) and "BOLT_ATLAS_DIR" in advice and FETCH[:8] not in text  # once
    found = [" ".join(block.split()).split(": ", 1) for block in re.split(r"\n(?=\S)", text)]
    return {name: rest.partition(" Image: ")[::2] for name, rest in found}


def test_every_atlas_has_its_entry(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    main(["atlases"])
    too_wide = [line for line in capsys.readouterr().out.splitlines() if len(line) > 80]
    assert all(len(line.split()) == 1 for line in too_wide)  # paths alone
    atlases = entries(capsys)
    assert list(atlases) == known_atlases()
    assert atlases["dosenbach160"][0].startswith("160 ROIs; ")
    assert atlases["dosenbach160"][1] == "drawn from coordinates"
    assert atlases["aal116"][0].startswith("116 ROIs; MNI152NLin6Asym, MNI152NLin2009cAsym (carried over) ")
    assert atlases["schaefer200_17"][0].startswith("200 ROIs")  # its labels are not fetched yet


def test_where_an_image_is_and_how_to_get_one(capsys, tmp_path, monkeypatch):
    """Both of the configuration's folder and of the variable's."""
    images = tmp_path / "images"
    images.mkdir()
    (images / "PCP_CC200_3mm.nii.gz").write_bytes(b"image")
    write_yaml({"dataset": "phantom", "paths": {"atlas_dir": str(images)}}, tmp_path / "config.yaml")
    table = entries(capsys, "--config", str(tmp_path / "config.yaml"))
    assert table["cc200"][1] == str(images / "PCP_CC200_3mm.nii.gz")
    missing = table["schaefer200"][1]
    assert missing.startswith("not found: Schaefer2018_200Parcels_7Networks_order")
    assert "https://github.com/ThomasYeoLab/CBIG" in missing
    monkeypatch.setenv("BOLT_ATLAS_DIR", str(images))
    assert entries(capsys)["cc200"][1] == str(images / "PCP_CC200_3mm.nii.gz")


def test_an_image_counts_only_with_its_table_of_labels(capsys, tmp_path, monkeypatch):
    image = "Schaefer2018_200Parcels_7Networks_order_FSLMNI152_2mm.nii.gz"
    (tmp_path / image).write_bytes(b"image")
    monkeypatch.setenv("BOLT_ATLAS_DIR", str(tmp_path))
    assert entries(capsys)["schaefer200"][1].startswith("not found")
    labels = tmp_path / "Schaefer2018_200Parcels_7Networks_order.txt"
    labels.write_text("1\t7Networks_LH_Vis_1\t120\t18\t131\t0\n2\t7Networks_RH_Vis_1\t120\t18\t131\t0\n")
    row = entries(capsys)["schaefer200"]
    assert row[0].startswith("2 ROIs; MNI152NLin6Asym, MNI152NLin2009cAsym ")
    assert row[1].startswith(
        f"MNI152NLin6Asym: {tmp_path / image}; MNI152NLin2009cAsym: not found: tpl-MNI152NLin2009cAsym"
    )
