"""Ready ROI series as a source of scans."""

import numpy as np
import pandas as pd
import pytest

from bolt.config import Config, Dataset
from bolt.datasets import index
from bolt.errors import DataError

CONFIG = Config(dataset="mine", atlases=["cc200"])


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    rows = []
    for i in range(6):
        np.save(tmp_path / f"scan{i}.npy", rng.standard_normal((40, 5)))
        rows.append({"subject": f"p{i // 2}", "file": f"scan{i}.npy", "task": ["rest", "nback"][i % 2], "tr": 2.0})
    pd.DataFrame(rows).to_csv(tmp_path / "scans.tsv", sep="\t", index=False)
    return tmp_path / "scans.tsv"


def dataset(path, **keys):
    return Dataset(
        **({"name": "mine", "source": "series", "path": path, "label": "task", "classes": ["rest", "nback"]} | keys)
    )


def test_labels_belong_to_scans_and_groups_to_subjects(table):
    scans = index(CONFIG, dataset(table))
    assert scans.label.tolist() == ["rest", "nback"] * 3
    assert scans.group.tolist() == ["p0", "p0", "p1", "p1", "p2", "p2"]
    assert set(scans.n_volumes) == {40} and set(scans.tr) == {2.0} and set(scans.kind) == {"series"}


def test_bad_series_costs_one_scan(table):
    broken = np.load(table.parent / "scan1.npy")
    broken[3, 2] = np.nan
    np.save(table.parent / "scan1.npy", broken)
    (table.parent / "scan2.npy").unlink()
    scans = index(CONFIG, dataset(table)).set_index("scan_id")
    assert set(scans.index[scans.exclude_reason.notna()]) == {"scan1", "scan2"}
    assert "scan1.npy" in scans.exclude_reason["scan1"]


def test_missing_columns_are_named(table):
    with pytest.raises(DataError, match="columns missing: sex; found subject, file, task, tr"):
        index(CONFIG, dataset(table, label="sex"))


def test_scan_names_must_differ(table):
    frame = pd.read_csv(table, sep="\t").assign(scan_id="same")
    frame.to_csv(table, sep="\t", index=False)
    with pytest.raises(DataError, match="scan names stand twice: same"):
        index(CONFIG, dataset(table))
