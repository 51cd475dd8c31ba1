"""The ROI series of an atlas: an example, coverage of ROIs, and warnings."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from bolt.config.layout import Layout
from bolt.config.study import Study
from bolt.io.files import holds_something, read_table
from bolt.io.series_files import kept_volumes
from bolt.report.figures import series as figures
from bolt.report.html import Block, Picture, Table, Text
from bolt.report.runs import figure_folder
from bolt.series.cache import SeriesCache


def series_section(study: Study, atlas: str) -> list[Block]:
    """Show the series of one scan, how well ROIs are covered, and what is wrong with some of them."""
    layout = study.layout
    if not (layout.cache(atlas) / "manifest.json").is_file():
        return [Text(f"{atlas}: no series were made.", warning=True)]
    cache_coverage = read_table(layout.cache(atlas) / "coverage.tsv", text=("name",))
    files = sorted(layout.series("*").parent.glob(f"*/*_atlas-{atlas}_coverage.tsv"))
    coverage = {file: read_table(file) for file in files if holds_something(file)}
    return [
        _example(layout, atlas),
        *_coverage(study, atlas, list(coverage.values())),
        _uncovered(layout, atlas, cache_coverage),
        *_warnings(atlas, int(cache_coverage["n_constant"].sum()), coverage),
    ]


def _example(layout: Layout, atlas: str) -> Picture:
    cache, picture = SeriesCache(layout.cache(atlas)), figure_folder(layout) / f"{atlas}_series.png"
    scan, series = cache.index.iloc[0], cache.series(0)
    volumes = kept_volumes(layout.series_file(scan["scan_id"], atlas), len(series))
    title = f"{scan['scan_id']} · {atlas}"
    figures.example_series(series, cache.rois, float(scan["tr"]), picture, title=title, volumes=volumes)
    counts = f"{atlas}: {cache.n_rois} ROIs, {len(cache)} scans."
    return Picture(picture, f"{counts} The z-scored series of one scan, ROIs grouped by network.")


def _coverage(study: Study, atlas: str, tables: list[pd.DataFrame]) -> list[Block]:
    if not tables:
        return []
    shares = pd.concat([table.set_index("value")["coverage"] for table in tables], axis=1)
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


def _warnings(atlas: str, n_constant: int, coverage: dict[Path, pd.DataFrame]) -> list[Block]:
    """Warn of constant series, and of voxels without finite values."""
    texts = []
    if n_constant:
        constant = "1 series is constant" if n_constant == 1 else f"{n_constant} series are constant"
        texts.append(f"{constant} over time and thus zero after z-scoring, without information.")
    damaged = {file.parent.name: int(table["n_nonfinite"].sum()) for file, table in coverage.items()}
    damaged = {scan: n for scan, n in damaged.items() if n}
    if damaged:
        worst = sorted(damaged, key=lambda scan: -damaged[scan])[:5]
        listed = ", ".join(f"{scan} ({damaged[scan]})" for scan in worst)
        scans = "1 scan has" if len(damaged) == 1 else f"{len(damaged)} scans have"
        texts.append(
            f"{scans} ROI voxels with NaN or infinite values, which are excluded from the mean: {listed}"
            f"{' and others' if len(damaged) > 5 else ''}."
        )
    return [Text(f"{atlas}: {text}", warning=True) for text in texts]
