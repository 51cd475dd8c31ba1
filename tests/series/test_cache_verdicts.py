"""Scans whose quality was refused are not in the cache, and their reason is kept."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from bolt.datasets import COLUMNS
from bolt.io.errors import DataError
from bolt.io.files import read_table, write_status
from bolt.series.gather import build_cache

ROIS = pd.DataFrame({"value": [1, 2], "name": ["a", "b"], "network": "n", "hemisphere": "L"})


def test_verdicts_of_quality_are_respected(tmp_path: Path) -> None:
    names = ["good", "moved", "unjudged"]
    for i, name in enumerate(names):
        np.save(tmp_path / f"{name}.npy", np.random.default_rng(i).standard_normal((9, 2)))
    write_status(tmp_path / "good_quality.json", "ok", "quality")
    write_status(tmp_path / "moved_quality.json", "excluded", "quality", DataError("mean FD 0.9 is above 0.5"))
    scans = pd.DataFrame({"scan_id": names, "subject": names, "group": names, "label": "x", "kind": "series"})
    scans = scans.reindex(columns=list(COLUMNS))
    excluded = build_cache(
        scans,
        "made",
        ROIS,
        lambda scan: tmp_path / f"{scan.scan_id}.npy",
        tmp_path / "cache",
        verdict_of=lambda name: tmp_path / f"{name}_quality.json",
    )
    assert excluded.to_numpy().tolist() == [["moved", "quality", "mean FD 0.9 is above 0.5."]]
    assert read_table(tmp_path / "cache/index.tsv")["scan_id"].tolist() == ["good", "unjudged"]
