"""The cohort: who was scanned, and whether the label is confounded with site, sex, age or head motion.

The ROI series of an atlas: an example, coverage of ROIs, and warnings.

Template against native output: how similar the ROI series are, if both were computed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from bolt.cohort.confounding import DIFFERS, MAY_DIFFER, TEST_COLUMNS, compare
from bolt.cohort.exclusions import DUPLICATES
from bolt.config.layout import Layout, folder_of
from bolt.config.study import Study
from bolt.datasets import TEXT_COLUMNS
from bolt.folds.splits import quarters
from bolt.io.files import holds_something, read_columns, read_json, read_table, to_numbers, write_table
from bolt.io.series_files import kept_volumes
from bolt.jobs.provenance import provenance_path
from bolt.report.figures import performance
from bolt.report.figures import series as figures
from bolt.report.html import Block, Picture, Table, Text
from bolt.report.runs import figure_folder
from bolt.report.tables import readable
from bolt.report.tables.numbers import number, percent
from bolt.series.cache import SeriesCache
from bolt.series.joining import volumes_of

TESTS = (
    "Association of the label with site, sex, age and head motion, averaged over scans. Relatives count as one family, "
    "and participants who have all labels are compared with themselves. 'Similar': the effect is less than small, and "
    "its 95 % interval excludes medium effects (Cohen's conventions)."
)


def cohort_section(study: Study, used: pd.DataFrame) -> list[Block]:
    """Describe and test the included scans; the tests are also written to ``cohort_tests.tsv``."""
    if used.empty:
        return [Text("No scan could be used; the reasons are listed below.", warning=True)]
    layout, classes = study.layout, study.dataset.classes
    tests = compare(used, classes)
    file = layout.tables / "cohort_tests.tsv"
    write_table(tests, file, TEST_COLUMNS)
    groups = "classes"
    if classes is None:
        groups = "quarters of the label"
        used = used.assign(number=used["label"].astype(float)).sort_values("number")
        used = used.assign(label=quarters(used["label"]))
        classes = used["label"].unique().tolist()
    picture = figure_folder(layout) / "cohort.png"
    performance.cohort(used, study.dataset.coloured or classes, picture)
    return [
        Table(
            readable.cohort(used, classes), f"Included scans; mean ± standard deviation.{_source(layout)}", layout.scans
        ),
        *_published(layout),
        *_duplicates(layout),
        Picture(picture, f"Included scans by {groups}; bars mark medians."),
        Text("A model can exploit anything that varies with the label, not only the brain:"),
        *[Text(row.words, warning=row.verdict in (DIFFERS, MAY_DIFFER)) for row in tests.itertuples()],
        Table(readable.cohort_tests(tests), TESTS, file),
        *_warnings(layout),
    ]


def _source(layout: Layout) -> str:
    """Name the tables of people that the index read."""
    file = provenance_path(layout.scans)
    tables = [path for path in read_json(file)["inputs"] if path != str(layout.config)] if file.is_file() else []
    return f" Labels and people: {', '.join(tables)}." if tables else ""


def _published(layout: Layout) -> list[Block]:
    """Compare the indexed cohort with the published one, if the dataset's file describes it."""
    if not layout.cohort.is_file():
        return []
    table = read_table(layout.cohort)
    shown = pd.DataFrame(
        {
            "": table["measure"],
            "here": table["found"].astype(str),
            "published": table["paper"].astype(str),
            "difference": [f"{n:+d}" if n else "–" for n in table["found"] - table["paper"]],
        }
    )
    return [Table(shown, "Usable scans and subjects in the index, compared with the published cohort.", layout.cohort)]


def _duplicates(layout: Layout) -> list[Block]:
    """State what was done about scans that hold the same recording, if there are any."""
    n = []
    for table in (layout.exclusions, layout.warnings):
        stages = read_table(table, text=("scan_id",))["stage"] if table.is_file() else pd.Series(dtype=object)
        n.append(int((stages == DUPLICATES).sum()))
    excluded, included = n
    if not excluded + included:
        return []
    done = f"{excluded} are excluded" if excluded else "copies are on the same side of every split"
    text = f"{excluded + included} scans hold the same series as another scan ('folds: duplicates'): {done}."
    return [Text(text, warning=True)]


def _warnings(layout: Layout) -> list[Block]:
    """List warnings about included scans."""
    table = read_table(layout.warnings, text=("scan_id",)) if layout.warnings.is_file() else pd.DataFrame()
    if table.empty:
        return []
    n = table["scan_id"].nunique()
    text = f"{n} included scan{'s have' if n > 1 else ' has'} warnings:"
    shown = table.rename(columns={"scan_id": "scan"})
    return [Text(text, warning=True), Table(shown, "Warnings about included scans.", layout.warnings)]


def with_lengths(used: pd.DataFrame, layout: Layout, atlas: str) -> pd.DataFrame:
    """Fill in missing numbers of volumes from the cache of an atlas, and what joined scans have in all."""
    index = layout.cache(atlas) / "index.tsv"
    if not index.is_file():
        return used
    cached = read_table(index, text=TEXT_COLUMNS).set_index("scan_id")
    if "joined" in cached:
        joined = cached[cached["joined"].notna()]
        for fact in ("n_volumes", "mean_fd"):
            used = used.assign(**{fact: used["scan_id"].map(joined[fact]).fillna(used[fact]).astype(float)})
    return used.assign(n_volumes=used["n_volumes"].astype(float).fillna(used["scan_id"].map(cached["length"])))


def with_motion(used: pd.DataFrame, layout: Layout, atlas: str) -> pd.DataFrame:
    """Fill in missing mean framewise displacements: from preprocessing, else from the index of an atlas's cache."""
    index, measured = layout.cache(atlas) / "index.tsv", {}
    if index.is_file():
        known = read_table(index, text=("scan_id",)).set_index("scan_id")["mean_fd"].dropna()
        measured = dict(known.astype(float))
    for scan in used["scan_id"][used["mean_fd"].isna()]:
        file = layout.functional(folder_of(scan)) / f"{scan}_desc-quality.json"
        if file.is_file():
            measured[scan] = read_json(file).get("mean_fd")
    return used.assign(mean_fd=used["mean_fd"].fillna(used["scan_id"].map(measured).astype(float)))


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
        *_series_warnings(atlas, int(cache_coverage["n_constant"].sum()), coverage),
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


def _series_warnings(atlas: str, n_constant: int, coverage: Mapping[str, Coverage]) -> list[Block]:
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
