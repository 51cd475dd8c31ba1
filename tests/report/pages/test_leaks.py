"""The audit of the folds on the report's pages."""

import pytest

from bolt.atlases.labels import load_labels
from bolt.datasets import COLUMNS
from bolt.io.files import read_table, write_table
from bolt.report.pages.trust import leaks_section
from bolt.series.gather import build_cache
from tests.report.results import ATLAS, make_results


def audited(chapter):
    *texts, table = chapter.blocks
    return texts, {row[0]: row[1:] for row in table.frame.to_numpy().tolist()}


def test_folds_without_leaks(tmp_path):
    study = make_results(tmp_path, n=8)
    [text], rows = audited(leaks_section(study))
    assert not text.warning
    assert rows["scans"] == rows["subjects"] and rows["scans"][0] == "7" and rows["scans"][2] == "0"
    assert any(name.startswith("recordings (") and row[2] == "0" for name, row in rows.items())
    study.layout.folds.unlink()
    assert leaks_section(study) is None


@pytest.mark.parametrize("kind", ["subjects", "families", "recordings"])
def test_what_is_on_two_sides_is_named(tmp_path, kind):
    study = make_results(tmp_path, n=8)
    folds = read_table(study.layout.folds)
    first = folds[folds["fold"] == folds["fold"].iloc[0]]
    trained, tested = (first.loc[first["role"] == role, "scan_id"].iloc[0] for role in ("train", "test"))
    scans = read_table(study.layout.scans)
    if kind == "recordings":
        series = {scan: study.layout.series_file(scan, ATLAS) for scan in scans["scan_id"]}
        series[tested].write_bytes(series[trained].read_bytes())
        used = scans[scans["scan_id"].isin(folds["scan_id"])]
        build_cache(used, ATLAS, load_labels(ATLAS), lambda scan: series[scan.scan_id], study.layout.cache(ATLAS))
    else:
        column = {"subjects": "subject", "families": "group"}[kind]
        scans.loc[scans["scan_id"].isin([trained, tested]), column] = "the same"
        write_table(scans, study.layout.scans, COLUMNS)
    texts, rows = audited(leaks_section(study))
    assert texts[0].warning and any(name.startswith(kind) and int(row[2]) > 0 for name, row in rows.items())
