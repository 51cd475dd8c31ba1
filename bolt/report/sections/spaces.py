"""Template against native output: how alike the series of one scan are, where both were made."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd

from bolt.config.layout import Layout
from bolt.io.files import write_table
from bolt.io.series_files import kept_volumes
from bolt.report.html import Block, Table
from bolt.report.tables import readable

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
    """Correlations of the series of both output spaces, `SPACE_COLUMNS`; no rows where only one was made."""
    rows = []
    for atlas in atlases:
        for scan in scans:
            places = [layout.series_file(scan, atlas, variant) for variant in layout.variants]
            if not all(place.is_file() and place.stat().st_size for place in places):
                continue
            (one, one_kept), (other, other_kept) = (_series(place) for place in places)
            common, in_one, in_other = np.intersect1d(one_kept, other_kept, return_indices=True)
            one, other = one[in_one], other[in_other]
            whole = np.isfinite(one).all(axis=0) & np.isfinite(other).all(axis=0)
            whole &= (np.ptp(one, axis=0) > 0) & (np.ptp(other, axis=0) > 0)
            if len(common) < 3 or not whole.any():
                continue
            one, other = (s[:, whole].astype(float) for s in (one, other))
            one, other = ((s - s.mean(axis=0)) / s.std(axis=0) for s in (one, other))
            r = (one * other).mean(axis=0)
            share = float((r > 0.9).mean())
            rows.append((scan, atlas, int(whole.sum()), len(common), np.median(r), np.quantile(r, 0.05), share))
    return pd.DataFrame(rows, columns=list(SPACE_COLUMNS))


def _series(place: Path) -> tuple[np.ndarray, np.ndarray]:
    """A scan's series and the volumes they are of."""
    series = np.load(place)
    return series, kept_volumes(place, len(series))


def spaces_section(layout: Layout, scans: Iterable[str], atlases: Iterable[str]) -> list[Block]:
    """A table of medians an atlas; the numbers of each scan are written to ``tables/output_spaces.tsv``."""
    table = compare_spaces(layout, scans, atlases)
    if table.empty:
        return []
    file = layout.tables / "output_spaces.tsv"
    write_table(table, file, SPACE_COLUMNS)
    shown = pd.DataFrame(
        {
            "atlas": atlas,
            "scans": readable.number(len(part)),
            "median correlation": readable.number(part["median"].median()),
            "lowest scan": readable.number(part["median"].min()),
            "ROIs above 0.9": f"{readable.percent(part['share'].median())} %",
        }
        for atlas, part in table.groupby("atlas", sort=False)
    )
    caption = f"Series in template space against those in the scan's own voxels ({' and '.join(layout.variants)})."
    return [Table(shown, f"{caption} Medians over ROIs, then over scans.", file)]
