"""Scans are excluded by quality cut-offs, and never silently."""

import numpy as np
import pandas as pd
import pytest

from bolt.cohort.quality import QUALITY_COLUMNS, excluded_by_eye, failed_cutoffs, gather_quality
from bolt.config import Config, Quality, parse
from bolt.config.layout import Layout
from bolt.datasets import COLUMNS
from bolt.io.errors import ConfigError, DataError
from bolt.io.files import read_json, read_table, write_json, write_status, write_table
from bolt.preprocess.quality.measures import MEASURES

T1W = {"template_mask_dice": 0.97, "template_correlation": 0.8, "brain_ml": 1400.0}
BOLD = {"n_volumes": 100, "mean_fd": 0.2, "median_tsnr": 60.0, "coregistration_mask_dice": 0.93}


def raw_scans(folder, n=4, **quality):
    """Write `n` preprocessed and parcellated scans with increasing head motion."""
    paths = {"results": str(folder / "results"), "work": str(folder / "work")}
    config = Config(dataset="own", atlases=["dosenbach160"], paths=paths, quality=quality)
    layout, rows = Layout(config), []
    for i in range(n):
        subject = f"sub-{i}"
        scan = f"{subject}_task-rest"
        rows.append({"scan_id": scan, "subject": subject, "kind": "raw", "t1w": f"/raw/{subject}_T1w.nii.gz"})
        write_json(T1W, layout.anatomical(subject) / f"{subject}_desc-quality.json")
        write_json(BOLD | {"mean_fd": 0.1 + 0.2 * i}, layout.functional(subject) / f"{scan}_desc-quality.json")
        covered = pd.DataFrame({"covered": [1, 1, 1, 0]})
        write_table(covered, layout.coverage(scan, "dosenbach160"), {"covered": "1 or 0"})
        write_status(layout.series_status(scan), "ok", "parcellate")
    return pd.DataFrame(rows, columns=list(COLUMNS)), config, layout


def test_a_scan_beyond_a_cutoff_is_excluded_with_its_reason(tmp_path):
    scans, config, layout = raw_scans(tmp_path, max_mean_fd=0.5)
    table = gather_quality(scans, config, layout).set_index("scan_id")
    assert table.state.tolist() == ["ok", "ok", "ok", "excluded"]
    status = read_json(layout.quality_status("sub-3_task-rest"))
    assert (status["state"], status["stage"]) == ("excluded", "quality")
    assert status["reason"] == "mean FD 0.7 mm is above the cut-off 0.5."
    assert read_json(layout.quality_status("sub-0_task-rest"))["state"] == "ok"
    written = read_table(layout.quality)
    assert written.columns.tolist() == list(QUALITY_COLUMNS)
    assert written.coverage.tolist() == [0.75] * 4
    assert set(read_json(layout.quality.with_suffix(".json"))) == set(QUALITY_COLUMNS)


def test_the_t1w_of_a_subject_counts_for_its_scans(tmp_path):
    scans, config, layout = raw_scans(tmp_path, n=2)
    write_json(T1W | {"template_correlation": 0.1}, layout.anatomical("sub-1") / "sub-1_desc-quality.json")
    table = gather_quality(scans, config, layout)
    assert table.reason.tolist() == ["", "correlation with template 0.1 is below the cut-off 0.3"]


RATINGS = """scan_id	rating	note
sub-0_task-rest	keep	n/a
sub-1_task-rest	exclude	ringing
sub-2_task-rest	exclude	n/a
sub-3_task-rest	n/a	look again
"""


def test_a_scan_that_failed_before_keeps_its_reason_and_an_old_verdict_does_not_outlive_its_cutoff(tmp_path):
    scans, config, layout = raw_scans(tmp_path, max_mean_fd=0.5)
    write_status(layout.series_status("sub-1_task-rest"), "failed", "functional", DataError("no brain"))
    table = gather_quality(scans, config, layout).set_index("scan_id")
    assert table.loc["sub-1_task-rest", ["state", "reason"]].tolist() == ["failed", "functional: no brain."]
    assert not layout.quality_status("sub-1_task-rest").exists()
    loose = config.model_copy(update={"quality": Quality()})
    gather_quality(scans.iloc[1:], loose, layout)
    assert read_json(layout.quality_status("sub-3_task-rest"))["state"] == "ok"
    assert not layout.quality_status("sub-0_task-rest").exists()


def test_other_sources_are_judged_by_what_is_known(tmp_path, caplog):
    """fMRIPrep's confounds provide displacement and DVARS; unknown measures exclude no scan."""
    scans, config, layout = raw_scans(tmp_path, n=2, max_share_moved=0.4)
    moved = np.array([np.nan, 0.1, 0.9, 0.8])
    write_table(pd.DataFrame({"framewise_displacement": moved}), tmp_path / "c.tsv", {"framewise_displacement": "mm"})
    scans = scans.assign(kind="preprocessed", confounds=[str(tmp_path / "c.tsv"), None], mean_fd=[None, 0.3])
    with caplog.at_level("INFO"):
        table = gather_quality(scans, config, layout)
    assert table.reason.tolist() == ["share of moved volumes 0.67 is above the cut-off 0.4", ""]
    assert table.mean_fd.tolist() == pytest.approx([0.6, 0.3])
    assert "share_moved is unknown for 1 of the scans" in caplog.text


def test_the_length_of_downloaded_scans_is_known_by_what_was_made_of_them(tmp_path):
    """The scan table is written before files are downloaded."""
    scans, config, layout = raw_scans(tmp_path, n=2, min_n_volumes=100)
    scans = scans.assign(kind="preprocessed")
    for scan, n in zip(scans.scan_id, (99, 100), strict=True):
        write_json({"NumberOfVolumes": n}, layout.series_file(scan, "dosenbach160").with_suffix(".json"))
    table = gather_quality(scans, config, layout)
    assert table.n_volumes.tolist() == [99, 100]
    assert table.reason.tolist() == ["volumes 99 is below the cut-off 100", ""]


def test_downloaded_series_are_judged_by_their_length_and_their_download(tmp_path):
    scans, config, layout = raw_scans(tmp_path, n=4, min_n_volumes=100)
    files = [tmp_path / scan / "series.npy" for scan in scans.scan_id]
    for file, n in zip(files, (99, 100), strict=False):
        file.parent.mkdir()
        np.save(file, np.random.default_rng(0).standard_normal((n, 160)))
    write_status(files[1].parent / "status.json", "ok", "download")
    write_status(files[2].parent / "status.json", "failed", "download", DataError("404 Not Found"))
    scans = scans.assign(kind="series", bold=list(map(str, files)))
    table = gather_quality(scans, config, layout)
    assert table.state.tolist() == ["excluded", "ok", "failed", "ok"]  # the last file is missing
    assert table.reason.tolist()[:3] == ["volumes 99 is below the cut-off 100", "", "download: 404 Not Found."]
    assert not layout.quality_status(scans.scan_id[2]).exists()


@pytest.mark.parametrize(
    ("numbers", "reasons"),
    [
        ({"mean_fd": 0.5}, []),
        ({"mean_fd": 0.5004}, ["mean FD 0.5004 mm is above the cut-off 0.5"]),
        ({"mean_fd": np.nan, "coverage": 0.49}, ["share of ROIs covered 0.49 is below the cut-off 0.5"]),
        ({}, []),
    ],
)
def test_failed_cutoffs(numbers, reasons):
    assert failed_cutoffs(numbers, Quality(max_mean_fd=0.5, min_coverage=0.5)) == reasons


def test_every_cutoff_is_of_a_measure():
    keys = [name.partition("_") for name in Quality.model_fields if name != "ratings"]
    assert all(bound in ("min", "max") and name in MEASURES for bound, _, name in keys)
    assert all((bound == "min") == (MEASURES[name].better == "high") for bound, _, name in keys)
    with pytest.raises(ConfigError, match="max_men_fd.*max_mean_fd"):
        parse(Config, {"dataset": "own", "quality": {"max_men_fd": 1}}, "here")


def test_scans_rated_by_eye_are_excluded_with_their_note(tmp_path):
    (tmp_path / "ratings.tsv").write_text(RATINGS)
    scans, config, layout = raw_scans(tmp_path, ratings=tmp_path / "ratings.tsv")
    table = gather_quality(scans, config, layout)
    assert table.state.tolist() == ["ok", "excluded", "excluded", "ok"]
    assert table.reason.tolist()[1:3] == ["rated 'exclude': ringing", "rated 'exclude'"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("scan\trating\na\tkeep\n", "column 'scan_id' is missing"),
        ("scan_id\trating\na\tbad\n", "unknown rating 'bad'.*keep, unsure, exclude"),
        ("scan_id\trating\na\tkeep\na\texclude\n", "a has several ratings"),
    ],
)
def test_a_table_of_ratings_that_cannot_be_read_is_refused(tmp_path, text, problem):
    (tmp_path / "ratings.tsv").write_text(text)
    with pytest.raises(DataError, match=problem):
        excluded_by_eye(tmp_path / "ratings.tsv")
