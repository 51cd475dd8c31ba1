"""Ready ROI series: a table with one row per scan, and a file of ROI series for each.

The table (TSV or CSV) needs the columns `subject` (or `participant_id`) and `file` (path relative to the table) and the
label column that the dataset's file names; `scan_id`, `session`, `run`, `task`, `tr` and `mean_fd` are optional.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from bolt.atlases.description import known_sha256
from bolt.atlases.labels import load_labels
from bolt.config import Config, Dataset
from bolt.datasets.bids_series import series_tr
from bolt.datasets.participants import as_numbers, exclude_unselected, join_subjects, read_series_table
from bolt.io.errors import DataError
from bolt.io.people import known_values, people
from bolt.io.series_files import check_atlas, check_rois, in_atlas_order, read_named_series
from bolt.io.volumes import require_tr


def scans(dataset: Dataset, config: Config) -> pd.DataFrame:
    """List the scans of the table, as in `bolt.datasets.COLUMNS`."""
    needed = ["subject", "file", *([] if dataset.label is None else [dataset.label])]
    table = read_series_table(dataset.path, needed)
    places, atlas_dir = config.atlas_places, config.paths.atlas_dir
    rois = {name: load_labels(place, atlas_dir=atlas_dir) for name, place in places.items()}
    known = [known_sha256(place) for place in places.values()]
    checksums = set[str]().union(*known) if all(known) else set[str]()
    lines = enumerate(table.to_dict("records"), start=2)
    rows = pd.DataFrame([_row(line, n, dataset, rois, checksums) for n, line in lines])
    rows["mean_fd"] = as_numbers(rows["mean_fd"], f"{dataset.path}: mean_fd", 0)
    exclude_unselected(rows, dataset)
    for column in [column for column in (dataset.group, dataset.sex) if column in table]:
        for subject, values in known_values(table[column]).dropna().groupby(table.subject).unique().items():
            if len(values) > 1:
                what = f"subject {subject} has several values of '{column}' ({', '.join(sorted(values))})"
                raise DataError(what, where=dataset.path, hint="Correct the rows: a subject has only one")
    by_row = table.set_index(rows.index.astype(str), drop=False)
    # joined by row, not by subject: scans of a subject may differ in label, age and site
    scans = join_subjects(rows.assign(subject=by_row.index), by_row, dataset, dataset.path)
    scans["subject"] = table.subject.to_numpy()
    groups = table.subject if dataset.group is None else known_values(table[dataset.group])
    scans["group"] = groups.groupby(table.subject).transform("first").to_numpy()  # known in one row: in all
    scans["group"] = people(scans)
    return scans


def _row(
    line: dict[str, Any], n: int, dataset: Dataset, rois: dict[str, pd.DataFrame], checksums: set[str]
) -> dict[str, Any]:
    """Return the row of the scan table for line `n` of the user's; `rois` and `checksums` are those of the atlases."""
    named = isinstance(line["file"], str)
    file = Path(dataset.path).parent / str(line["file"])
    scan_id, default = line.get("scan_id"), file.name.split(".")[0] if named else f"{line['subject']}_row-{n}"
    row: dict[str, Any] = {
        "scan_id": scan_id if isinstance(scan_id, str) else default,
        "subject": line["subject"],
        "kind": "series",
        "bold": str(file),
        "tr": None,
        "mean_fd": line.get("mean_fd"),
        "exclude_reason": None,
    }
    row |= {name: line.get(name) for name in ("session", "run", "task")}
    try:
        if not named:
            raise DataError("no file in this row of the table", hint="Name it, or remove the row")
        if not pd.isna(stated := line.get("tr")):
            number = pd.to_numeric(stated, errors="coerce")
            row["tr"] = require_tr(str(stated) if pd.isna(number) else float(number), file)
        row["tr"] = series_tr(file, row["tr"], dataset)
        series, columns = read_named_series(file, *(table["value"].tolist() for table in rois.values()))
        if len(rois) == 1:
            (only,) = rois.values()
            in_atlas_order(series, columns, file, only["value"].tolist(), only["name"].tolist())
        if series.shape[1] not in map(len, rois.values()):
            for atlas, table in rois.items():
                check_rois(series, atlas, len(table), file)
        if not any(set(table["name"]) == set(columns or ()) for table in rois.values()):  # or it is of this atlas
            check_atlas(file, rois, checksums)
        row["n_volumes"] = len(series)
    except DataError as error:
        row["exclude_reason"] = str(error)
    return row
