"""The ROI series of an atlas: an example, coverage of ROIs, and warnings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from bolt.config.layout import Layout
from bolt.config.study import Study
from bolt.io.files import holds_something, read_columns, read_table, to_numbers
from bolt.report.figures import series as figures
from bolt.report.html import Block, Picture, Table, Text
from bolt.report.runs import figure_folder
from bolt.series.cache import SeriesCache
from bolt.series.joining import volumes_of


@dataclass(frozen=True)
class Coverage:
    """Coverage of each ROI in one scan, by its value, and the number of damaged voxels of all of them."""

    shares: pd.Series
    n_nonfinite: int


def series_section(study: Study, atlas: str) -> list[Block]:
    """Show the series of one scan, how well ROIs are covered, and what is wrong with some of them."""
    layout = study.layout
    if not (layout.cache(atlas) / "manifest.json").is_file():
        return [Text(f"{atlas}: no series were made.", warning=True)]
    cache_coverage = read_table(layout.cache(atlas) / "coverage.tsv", text=("name",))
    coverage = _read_coverage(layout, atlas)
    return [
        _example(layout, atlas),
        *_coverage(study, atlas, coverage),
        _uncovered(layout, atlas, cache_coverage),
        *_warnings(atlas, int(cache_coverage["n_constant"].sum()), coverage),
    ]


def _example(layout: Layout, atlas: str) -> Picture:
    cache, picture = SeriesCache(layout.cache(atlas)), figure_folder(layout) / f"{atlas}_series.png"
    scan, series = cache.index.iloc[0], cache.series(0)
    volumes = volumes_of(scan, layout.series_file(scan["scan_id"], atlas))
    title = f"{scan['scan_id']} · {atlas}"
    figures.example_series(series, cache.rois, float(scan["tr"]), picture, title=title, volumes=volumes)
    counts = f"{atlas}: {cache.n_rois} ROIs, {len(cache)} scans."
    grouped = ", ROIs grouped by network" if cache.rois["network"].notna().any() else ""
    return Picture(picture, f"{counts} The z-scored series of one scan{grouped}.")


def _read_coverage(layout: Layout, atlas: str) -> dict[str, Coverage]:
    """Read the coverage of an atlas's ROIs in every scan, by scan."""
    coverage = {}
    for file in sorted(layout.series("*").parent.glob(f"*/*_atlas-{atlas}_coverage.tsv")):
        if holds_something(file):
            values, shares, n_nonfinite = read_columns(file, ["value", "coverage", "n_nonfinite"])
            n_damaged = int(np.nansum(to_numbers(n_nonfinite)))
            coverage[file.parent.name] = Coverage(pd.Series(to_numbers(shares), values), n_damaged)
    return coverage


def _coverage(study: Study, atlas: str, coverage: Mapping[str, Coverage]) -> list[Block]:
    if not coverage:
        return []
    shares = pd.concat([scan.shares for scan in coverage.values()], axis=1)
    picture = figure_folder(study.layout) / f"{atlas}_coverage.png"
    spread = {"median": shares.median(axis=1), "minimum": shares.min(axis=1), "maximum": shares.max(axis=1)}
    figures.coverage(pd.DataFrame(spread), study.config.parcellate.coverage, picture)
    caption = (
        f"{atlas}: share of each ROI within the acquired field of view and the T1w-derived brain mask. In each scan, "
        "ROIs below the threshold are not used."
    )
    return [Picture(picture, caption)]


def _uncovered(layout: Layout, atlas: str, coverage: pd.DataFrame) -> Block:
    lost = coverage[(coverage["n_uncovered"] > 0) | (coverage["n_constant"] > 0)]
    if lost.empty:
        return Text(f"{atlas}: every ROI is covered in every scan.")
    columns = {"n_uncovered": "scans without coverage", "n_constant": "scans with a constant series"}
    counts = {
        name: [f"{n} of {of}" for n, of in zip(lost[column], lost["n_scans"], strict=True)]
        for column, name in columns.items()
    }
    frame = pd.DataFrame({"ROI": lost["name"], **counts})
    return Table(frame, f"{atlas}: ROIs missing in some scans.", layout.cache(atlas) / "coverage.tsv")


def _warnings(atlas: str, n_constant: int, coverage: Mapping[str, Coverage]) -> list[Block]:
    """Warn of constant series, and of voxels without finite values."""
    texts = []
    if n_constant:
        constant = "1 series is constant" if n_constant == 1 else f"{n_constant} series are constant"
        texts.append(f"{constant} over time and thus zero after z-scoring, without information.")
    damaged = {name: scan.n_nonfinite for name, scan in coverage.items() if scan.n_nonfinite}
    if damaged:
        worst = sorted(damaged, key=lambda scan: -damaged[scan])[:5]
        listed = ", ".join(f"{scan} ({damaged[scan]})" for scan in worst)
        scans = "1 scan has" if len(damaged) == 1 else f"{len(damaged)} scans have"
        texts.append(
            f"{scans} ROI voxels with NaN or infinite values, which are excluded from the mean: {listed}"
            f"{' and others' if len(damaged) > 5 else ''}."
        )
    return [Text(f"{atlas}: {text}", warning=True) for text in texts]
