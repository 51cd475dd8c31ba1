"""The cohort's section: who was scanned, and whether the label goes with anything but the brain."""

from __future__ import annotations

import pandas as pd

from bolt.cohort.confounding import LEVEL, TEST_COLUMNS, compare
from bolt.config import Dataset
from bolt.config.layout import Layout, folder_of
from bolt.datasets import TEXT_COLUMNS
from bolt.folds.splits import quarters
from bolt.io.files import read_json, read_table, write_table
from bolt.report.figures import plots
from bolt.report.html import Block, Picture, Table, Text, figure_folder
from bolt.report.tables import readable

UNIT = "A person counts once a label, with the mean of the scans."


def cohort_section(dataset: Dataset, layout: Layout, used: pd.DataFrame) -> list[Block]:
    """Table, picture and tests of the scans that were used; the tests are written to ``cohort_tests.tsv`` as well."""
    if used.empty:
        return [Text("No scan could be used: see the reasons below.", warning=True)]
    tests = compare(used, dataset.classes)
    file = layout.tables / "cohort_tests.tsv"
    write_table(tests, file, TEST_COLUMNS)
    shown, classes = used, dataset.classes
    if classes is None:  # quarters of the label stand where classes would
        by_label = used.assign(number=used["label"].astype(float)).sort_values("number")
        shown = by_label.assign(label=quarters(by_label["label"]))
        classes = shown["label"].unique().tolist()
    picture = figure_folder(layout) / "cohort.png"
    plots.cohort(shown, classes, picture)
    groups = "classes" if dataset.classes else "quarters of the label"
    return [
        Table(readable.cohort(shown, classes), "Scans that were used. Spread is the standard deviation.", layout.scans),
        *_beside_the_paper(layout),
        Picture(picture, f"Scans that were used, by {groups}; bars mark medians."),
        Text("What differs between classes beside the brain is what a classifier finds first:")
        if dataset.classes
        else Text("What goes with the label beside the brain is what a model finds first:"),
        *[Text(row.words, warning=row.p_holm < LEVEL) for row in tests.itertuples()],
        Table(readable.cohort_tests(tests), f"The label against site, sex, age and head motion. {UNIT}", file),
        *_odd(layout),
    ]


def _beside_the_paper(layout: Layout) -> list[Block]:
    """The cohort that was indexed beside the published one, where the dataset's file says what that is."""
    if not layout.cohort.is_file():
        return []
    found = read_table(layout.cohort)
    shown = pd.DataFrame(
        {
            "": found["measure"],
            "here": found["found"].astype(str),
            "published": found["paper"].astype(str),
            "difference": [f"{n:+d}" if n else "–" for n in found["found"] - found["paper"]],
        }
    )
    return [Table(shown, "Scans and subjects that the index found usable, beside the published cohort.", layout.cohort)]


def _odd(layout: Layout) -> list[Block]:
    """What is odd about scans that are used all the same."""
    odd = read_table(layout.warnings, text=("scan_id",)) if layout.warnings.is_file() else pd.DataFrame()
    if odd.empty:
        return []
    n = odd["scan_id"].nunique()
    text = f"{n} scan{'s are' if n > 1 else ' is'} used although something about {'them' if n > 1 else 'it'} is odd:"
    table = Table(odd.rename(columns={"scan_id": "scan", "warning": "what is odd"}), "Used, and odd.", layout.warnings)
    return [Text(text, warning=True), table]


def with_lengths(used: pd.DataFrame, layout: Layout, atlas: str) -> pd.DataFrame:
    """The scans with the number of volumes that a cache has, where the source knew none before a scan was fetched."""
    index = layout.cache(atlas) / "index.tsv"
    if not index.is_file():
        return used
    lengths = read_table(index, text=TEXT_COLUMNS).set_index("scan_id")["length"]
    return used.assign(n_volumes=used["n_volumes"].astype(float).fillna(used["scan_id"].map(lengths)))


def with_motion(used: pd.DataFrame, layout: Layout) -> pd.DataFrame:
    """The scans with the mean displacement that preprocessing measured, where the source knew none."""
    measured = {}
    for scan in used["scan_id"][used["mean_fd"].isna()]:
        file = layout.functional(folder_of(scan)) / f"{scan}_desc-quality.json"
        if file.is_file():
            measured[scan] = read_json(file).get("mean_fd")
    return used.assign(mean_fd=used["mean_fd"].fillna(used["scan_id"].map(measured).astype(float)))
