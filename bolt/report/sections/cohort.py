"""The cohort: who was scanned, and whether the label is confounded with site, sex, age or head motion."""

from __future__ import annotations

import pandas as pd

from bolt.cohort.confounding import DIFFERS, MAY_DIFFER, TEST_COLUMNS, compare
from bolt.cohort.exclusions import DUPLICATES
from bolt.config.layout import Layout, folder_of
from bolt.config.study import Study
from bolt.datasets import TEXT_COLUMNS
from bolt.folds.splits import quarters
from bolt.io.files import read_json, read_table, write_table
from bolt.jobs.provenance import provenance_path
from bolt.report.figures import cohort as figure
from bolt.report.html import Block, Picture, Table, Text
from bolt.report.runs import figure_folder
from bolt.report.tables import readable

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
    figure.cohort(used, study.dataset.coloured or classes, picture)
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
