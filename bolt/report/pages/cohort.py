"""The page of the cohort: who was scanned, whether the label is confounded, image quality, and the ROI series.

Where both output spaces were computed, how similar their ROI series are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from bolt.cohort.confounding import DIFFERS, MAY_DIFFER, TEST_COLUMNS, compare
from bolt.cohort.exclusions import DUPLICATES
from bolt.config.layout import Layout, folder_of
from bolt.config.study import Study
from bolt.datasets import TEXT_COLUMNS
from bolt.folds.splits import quarters
from bolt.io.files import columns, holds_something, read_columns, read_json, read_table, to_numbers, write_table
from bolt.io.series_files import kept_volumes
from bolt.jobs.provenance import provenance_path
from bolt.report import tables
from bolt.report.figures import performance
from bolt.report.figures import series as figures
from bolt.report.html import Block, Picture, Table, Text, drawn, filled, say, write_report_page
from bolt.report.pages.subjects import Subject
from bolt.report.runs import figure_folder
from bolt.report.tables import read_result
from bolt.series.cache import SeriesCache, volumes_of


def write_cohort(
    study: Study, used: pd.DataFrame, exclusions: pd.DataFrame, subjects: Sequence[Subject], reference: str
) -> None:
    """Write the page; `used` are the included scans, `reference` is the model whose predictions it names."""
    atlases = study.config.atlas_places
    series = [block for atlas in atlases for block in series_section(study, atlas)]
    write_report_page(
        study,
        "cohort.html",
        used=len(used),
        subjects=subjects,
        columns=list(dict.fromkeys(name for subject in subjects for name in subject.facts)),
        reference=reference,
        cohort=cohort_section(study, used),
        exclusions=exclusions,
        quality=quality_section(study),
        series=series + spaces_section(study.layout, used["scan_id"], atlases),
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
    record = provenance_path(layout.scans)
    inputs = read_json(record)["inputs"] if record.is_file() else []
    people = [path for path in inputs if path != str(layout.config)]
    blocks: list[Block] = [Table(tables.cohort(used, classes), say("cohort.included", people=people), layout.scans)]
    if layout.cohort.is_file():
        published = filled("published", read_table(layout.cohort))
        blocks.append(Table(published, say("cohort.published"), layout.cohort))
    exclusions, warnings = read_result(layout.exclusions), read_result(layout.warnings)
    excluded, included = (
        int((table.get("stage", pd.Series(dtype=str)) == DUPLICATES).sum()) for table in (exclusions, warnings)
    )
    if excluded + included:
        blocks.append(Text(say("cohort.duplicates", excluded=excluded, included=included), warning=True))
    blocks += [
        Picture(picture, f"Included scans by {groups}; bars mark medians."),
        Text("A model can exploit anything that varies with the label, not only the brain:"),
        *[Text(row.words, warning=row.verdict in (DIFFERS, MAY_DIFFER)) for row in tests.itertuples()],
        Table(tables.cohort_tests(tests), say("cohort.tests"), file),
    ]
    if len(warnings):
        n = warnings["scan_id"].nunique()
        blocks.append(Text(f"{n} included scan{'s have' if n > 1 else ' has'} warnings:", warning=True))
        shown = warnings.rename(columns={"scan_id": "scan"})
        blocks.append(Table(shown, "Warnings about included scans.", layout.warnings))
    return blocks


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


def quality_section(study: Study) -> list[Block]:
    """Summarise the quality measures and link to the quality page; [] if quality was not assessed."""
    layout, table = study.layout, read_result(study.layout.quality)
    cutoffs = {name: (bound, value) for bound, name, value in study.config.quality.cutoffs()}
    shown = table if table.empty else tables.quality(table, cutoffs)
    if shown.empty:
        return []
    linked = layout.quality_page.is_file()
    link: list[Block] = [Text("All measures of every scan:", link=layout.quality_page.name)] if linked else []
    return [*link, Table(shown, "Quality measures over all preprocessed scans.", layout.quality)]


def series_section(study: Study, atlas: str) -> list[Block]:
    """Show the series of one scan, how well ROIs are covered, and what is wrong with some of them."""
    layout, folder = study.layout, study.layout.cache(atlas)
    if not (folder / "manifest.json").is_file():
        return [Text(f"{atlas}: no series were made.", warning=True)]
    cache = SeriesCache(folder)
    scan = cache.index.iloc[0]
    volumes = volumes_of(scan, layout.series_file(scan["scan_id"], atlas))
    shown: Any = cache.series(0), cache.rois, float(scan["tr"]), volumes
    title, picture = f"{scan['scan_id']} · {atlas}", figure_folder(layout) / f"{atlas}_series.png"
    grouped = cache.rois["network"].notna().any()
    caption = say("series.example", atlas=atlas, n_rois=cache.n_rois, n_scans=len(cache), grouped=grouped)
    blocks: list[Block] = [drawn(picture, caption, figures.example_series, *shown, title=title)]

    shares, damaged = {}, {}
    for file in sorted(layout.series("*").parent.glob(f"*/*_atlas-{atlas}_coverage.tsv")):
        if holds_something(file):
            values, of_scan, n_nonfinite = read_columns(file, ["value", "coverage", "n_nonfinite"])
            shares[file.parent.name] = pd.Series(to_numbers(of_scan), values)
            damaged[file.parent.name] = int(np.nansum(to_numbers(n_nonfinite)))
    if shares:
        of_rois = pd.concat(shares.values(), axis=1)
        spread = {"median": of_rois.median(axis=1), "minimum": of_rois.min(axis=1), "maximum": of_rois.max(axis=1)}
        picture, threshold = figure_folder(layout) / f"{atlas}_coverage.png", study.config.parcellate.coverage
        caption = say("series.coverage", atlas=atlas)
        blocks.append(drawn(picture, caption, figures.coverage, pd.DataFrame(spread), threshold))

    coverage = read_result(folder / "coverage.tsv")
    lost = coverage[(coverage["n_uncovered"] > 0) | (coverage["n_constant"] > 0)]
    if lost.empty:
        blocks.append(Text(f"{atlas}: every ROI is covered in every scan."))
    else:
        shown = filled("lost_rois", lost)
        blocks.append(Table(shown, f"{atlas}: ROIs missing in some scans.", folder / "coverage.tsv"))
    if n_constant := int(coverage["n_constant"].sum()):
        blocks.append(Text(say("series.constant", atlas=atlas, n=n_constant), warning=True))
    worst = [(scan, n) for scan, n in sorted(damaged.items(), key=lambda item: -item[1]) if n]
    if worst:
        blocks.append(Text(say("series.damaged", atlas=atlas, scans=worst), warning=True))
    return blocks


SPACE_COLUMNS = columns("report", "output_spaces")


def spaces_section(layout: Layout, scans: Iterable[str], atlases: Iterable[str]) -> list[Block]:
    """Correlate the series of both output spaces of scans that have both, where some have.

    Numbers per scan are written to ``tables/output_spaces.tsv``; what is returned has medians per atlas.
    """
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
    if not rows:
        return []
    table, file = pd.DataFrame(rows, columns=list(SPACE_COLUMNS)), layout.tables / "output_spaces.tsv"
    write_table(table, file, SPACE_COLUMNS)
    parts = [{"atlas": atlas, "part": part} for atlas, part in table.groupby("atlas", sort=False)]
    return [Table(filled("spaces", parts), say("series.spaces", variants=layout.variants), file)]
