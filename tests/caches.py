"""Caches and folds from series in memory, by the same code as the workflow's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bolt.config import Dataset, Folds
from bolt.folds.splits import FOLD_COLUMNS, make_folds
from bolt.io.files import read_json, sha256, write_json, write_table
from bolt.series.cache import FILES
from bolt.series.gather import build_cache


def scan_table(labels: Sequence[str], **columns: Any) -> pd.DataFrame:
    """A scan a subject: s000, s001, … of p000, p001, …"""
    names = [f"{i:03d}" for i in range(len(labels))]
    people = [f"p{name}" for name in names]
    table = pd.DataFrame({"scan_id": [f"s{name}" for name in names], "subject": people, "group": people})
    return table.assign(label=list(labels), site="a", tr=2.0, mean_fd=np.nan, kind="series", n_volumes=0).assign(
        **columns
    )


def pack(folder: Path, series: Sequence[np.ndarray], scans: pd.DataFrame) -> Path:
    """The cache of some series (time, rois), z-scored; returns its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, values in zip(scans["scan_id"], series, strict=True):
        np.save(folder / f"{name}.npy", values.astype(np.float32))
    n_rois = series[0].shape[1]
    rois = pd.DataFrame({"value": range(1, n_rois + 1), "name": "r", "network": "n", "hemisphere": "L"})
    rois["name"] = [f"r{value}" for value in rois["value"]]
    build_cache(scans, "toy", rois, lambda scan: folder / f"{scan.scan_id}.npy", folder / "cache")
    return folder / "cache"


def reseal(cache: Path) -> None:
    """Write the manifest of a cache anew after its files were changed on purpose."""
    manifest = read_json(cache / "manifest.json")
    write_json(manifest | {"sha256": {name: sha256(cache / name) for name in FILES}}, cache / "manifest.json")


def split(folder: Path, scans: pd.DataFrame, outer: int, seed: int = 0) -> Path:
    """``folds.tsv`` of these scans; returns its path."""
    write_table(make_folds(scans, Folds(outer=outer, seed=seed)), folder / "folds.tsv", FOLD_COLUMNS)
    return folder / "folds.tsv"


def dataset(classes: Sequence[str], crop: int) -> Dataset:
    return Dataset(name="toy", source="series", path=Path("x"), label="label", classes=list(classes), crop=crop)
