"""Files of an earlier job are removed before the next, but only those of the same image."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from bolt.config import load_config
from bolt.config.derivatives import T1W_PICTURES, anatomical_names, pictures_of
from bolt.config.layout import Layout
from bolt.datasets import COLUMNS
from bolt.io.files import read_json, write_status, write_table
from bolt.preprocess.functional.workflow import functional_names
from tests.snake import write_yaml
from tests.stages import stage

SPACE = "MNI152NLin2009aSym"
SCANS = ("sub-01_task-rest", "sub-01_task-rest_run-2")


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write outputs of a T1w and two scans whose raw files are no longer images."""
    monkeypatch.chdir(tmp_path)
    write_yaml(tmp_path / "own.yaml", {"source": "bids", "path": "bids", "label": "sex", "classes": ["F", "M"]})
    keys = {"dataset": "own.yaml", "atlases": ["dosenbach160"], "preprocess": {"space": SPACE}}
    path = write_yaml(tmp_path / "config.yaml", keys)
    layout = Layout(load_config(path))
    t1w = tmp_path / "bids/sub-01/anat/sub-01_T1w.nii.gz"
    rows = []
    for scan in SCANS:
        bold = tmp_path / f"bids/sub-01/func/{scan}_bold.nii.gz"
        rows.append({"scan_id": scan, "subject": "sub-01", "kind": "raw", "t1w": t1w, "bold": bold, "tr": 2.0})
        touch(*(layout.functional("sub-01") / name for name in functional_names(scan, SPACE).values()))
        touch(layout.functional("sub-01") / f"{scan}_space-{SPACE}_boldref.json")
        touch(layout.functional("sub-01") / f"{scan}_desc-quality.json", bold)
        for name in (f"{scan}_desc-carpetplot_bold.webp", f"{scan}_space-Old_desc-tsnr_boldmap.webp"):
            touch(layout.derivatives / "sub-01/figures" / name)
    touch(*(layout.anatomical("sub-01") / name for name in anatomical_names("sub-01_", SPACE).values()))
    touch(layout.anatomical("sub-01") / "sub-01_desc-quality.json", t1w)
    touch(layout.derivatives / "sub-01/figures/sub-01_desc-tissues_T1w.webp")
    touch(layout.derivatives / "sub-01/figures/sub-01_space-Old_desc-normalisation_T1w.svg")
    write_table(pd.DataFrame(rows, columns=list(COLUMNS)), layout.scans, COLUMNS)
    return path


def touch(*paths: Path) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("old")


def left(layout: Layout) -> set[str]:
    """Return the names of files with content below the derivatives."""
    files = (path for path in layout.derivatives.rglob("sub-*") if path.is_file() and path.stat().st_size)
    return {path.name for path in files}


@pytest.mark.parametrize(
    ("name", "options", "t1w"),
    [
        ("anatomical", {"prefix": "sub-01"}, None),
        ("functional", {"scan": SCANS[0]}, "ok"),
        ("functional", {"scan": SCANS[0]}, "failed"),
    ],
)
def test_an_image_that_fails_loses_its_files_and_others_keep_theirs(config: Path, name: str, options, t1w) -> None:
    layout, (own,) = Layout(load_config(config)), options.values()
    if t1w is not None:
        write_status(layout.anatomical_status("sub-01"), t1w, "anatomical")
    before = left(layout)
    made = {one for one in before if one.startswith(f"{own}_") and ("task" in one) == ("task" in own)}
    made -= {one for one in made if one.startswith(SCANS[1])}
    assert len(made) > 5 and stage(config, name, folder="sub-01", **options) == 0
    after, status = left(layout), next(layout.derivatives.rglob(f"{own}_status.json"))
    assert read_json(status)["state"] == "failed" and before - made == before & after
    assert after - before <= {status.name, f"{own}_crash.txt"}


def test_pictures_of_another_space_are_skipped(config: Path) -> None:
    figures = Layout(load_config(config)).derivatives / "sub-01/figures"
    assert list(pictures_of(figures, "sub-01_", T1W_PICTURES).values()) == ["tissues_T1w", "normalisation_T1w"]
    assert list(pictures_of(figures, "sub-01_", T1W_PICTURES, SPACE).values()) == ["tissues_T1w"]
    (figures / "sub-01_space-MNIInfant_cohort-1_desc-normalisation_T1w.svg").touch()
    assert len(pictures_of(figures, "sub-01_", T1W_PICTURES, "MNIInfant_cohort-1")) == 2
