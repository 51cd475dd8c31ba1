"""Template against native output: how similar the ROI series are, if both were computed."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd

from bolt.config.layout import Layout
from bolt.io.files import write_table
from bolt.io.series_files import kept_volumes
from bolt.report.html import Block, Table
from bolt.report.tables.numbers import number, percent

SPACE_COLUMNS = {
    "scan_id": "Scan",
    "atlas": "Atlas",
    "n_rois": "ROIs covered in both",
    "n_volumes": "Volumes kept in both",
    "median": "Median over ROIs of the correlation of the series of template and native output",
    "low": "5th percentile over ROIs",
    "share": "Share of ROIs that correlate above 0.9",
}


def compare_spaces(layout: Layout, scans: Iterable[str], atlases: Iterable[str]) -> pd.DataFrame:
    """Correlate the series of both output spaces (`SPACE_COLUMNS`) of scans that have both."""
    rows = []
    for atlas in atlases:
        for scan in scans:
            places = [layout.series_file(scan, atlas, variant) for variant in layout.variants]
            if not all(place.is_file() and place.stat().st_size for place in places):
                continue
            template, native = (np.load(place) for place in places)
            of_template, of_native = kept_volumes(places[0], len(template)), kept_volumes(places[1], len(native))
            common, in_template, in_native = np.intersect1d(of_template, of_native, return_indices=True)
            template, native = template[in_template], native[in_native]
            covered = np.isfinite(template).all(axis=0) & np.isfinite(native).all(axis=0)
            covered &= (np.ptp(template, axis=0) > 0) & (np.ptp(native, axis=0) > 0)
            if len(common) < 3 or not covered.any():
                continue
            template, native = (s[:, covered].astype(float) for s in (template, native))
            template, native = ((s - s.mean(axis=0)) / s.std(axis=0) for s in (template, native))
            r = (template * native).mean(axis=0)
            share = float((r > 0.9).mean())
            rows.append((scan, atlas, int(covered.sum()), len(common), np.median(r), np.quantile(r, 0.05), share))
    return pd.DataFrame(rows, columns=list(SPACE_COLUMNS))


def spaces_section(layout: Layout, scans: Iterable[str], atlases: Iterable[str]) -> list[Block]:
    """Return a table of medians per atlas; numbers per scan are written to ``tables/output_spaces.tsv``."""
    table = compare_spaces(layout, scans, atlases)
    if table.empty:
        return []
    file = layout.tables / "output_spaces.tsv"
    write_table(table, file, SPACE_COLUMNS)
    shown = pd.DataFrame(
        {
            "atlas": atlas,
            "scans": number(len(part)),
            "median correlation": number(part["median"].median()),
            "lowest scan": number(part["median"].min()),
            "ROIs above 0.9": f"{percent(part['share'].median())} %",
        }
        for atlas, part in table.groupby("atlas", sort=False)
    )
    caption = (
        f"Series in template space compared with those in the scan's own voxels ({' and '.join(layout.variants)}). "
        "Medians over ROIs, then over scans."
    )
    return [Table(shown, caption, file)]
