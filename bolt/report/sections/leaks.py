"""Whether anything is on two sides of a split: the audit of the folds, repeated on the tables that were used."""

from __future__ import annotations

import pandas as pd

from bolt.config.study import Study
from bolt.folds.audit import find_leaks
from bolt.folds.check import SAME, series_contents
from bolt.io.files import read_table
from bolt.report.html import Block, Chapter, Table, Text
from bolt.series.cache import SeriesCache

TITLE = "Are training and test scans apart?"
UNITS = {"scan_id": "scans", "subject": "subjects", "group": "families", "site": "sites"}
APART = (
    "Nothing that was compared is on two sides of a split. Recordings are the same if their series correlate "
    f"above {SAME}."
)
CAPTION = (
    "What must be in one part only, training, validation or test, of each fold. The folds of all models were compared "
    "again for this page."
)


def leaks_section(study: Study) -> Chapter | None:
    """Count what is on two sides of a split; None if there are no folds."""
    layout = study.layout
    if not layout.folds.is_file():
        return None
    text = tuple(UNITS)
    folds = read_table(layout.folds, text=text)
    scans = read_table(layout.scans, text=text)
    scans = scans[scans["scan_id"].isin(folds["scan_id"])]
    kinds = ["scan_id", "subject"]
    if not (scans["group"] == scans["subject"]).all():
        kinds.append("group")
    if study.config.folds.scheme == "leave-site-out":
        kinds.append("site")
    caches = {atlas: layout.cache(atlas) for atlas in study.config.atlas_places}
    contents = {
        f"recordings ({atlas})": series_contents(SeriesCache(cache))
        for atlas, cache in caches.items()
        if (cache / "manifest.json").is_file()
    }
    leaks = {leak.kind: leak for leak in find_leaks(folds, scans, kinds, contents)}
    compared = {kind: scans[kind].nunique() for kind in kinds} | {name: len(known) for name, known in contents.items()}
    rows = pd.DataFrame(
        {
            "unit": UNITS.get(kind, kind),
            "compared": str(number),
            "folds": str(folds["fold"].nunique()),
            "on two sides": str(leaks[kind].cases if kind in leaks else 0),
        }
        for kind, number in compared.items()
    )
    found: list[Block] = [Text(f"{leak}.", warning=True) for leak in leaks.values()]
    return Chapter(TITLE, [*(found or [Text(APART)]), Table(rows, CAPTION, layout.folds)])
