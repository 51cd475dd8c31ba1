"""Ready ROI series: a table with one row a scan, and one file of ROI series for each.

The table (TSV) needs the columns `subject` and `file` (path relative to the table) and the label column that
the dataset's file names; `scan_id`, `session`, `run`, `task`, `tr` and `mean_fd` are taken where present.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from bolt.config import Config, Dataset
from bolt.datasets._participants import describe
from bolt.errors import DataError
from bolt.files import read_table
from bolt.series_files import read_series

TAKEN = ("session", "run", "task")


def scans(dataset: Dataset, config: Config) -> pd.DataFrame:
    """One row a scan, as in `bolt.datasets.COLUMNS`."""
    header = list(read_table(dataset.path).columns)
    missing = [c for c in ("subject", "file", dataset.label) if c not in header]
    if missing:
        raise DataError(
            f"columns missing: {', '.join(missing)}; found {', '.join(header)}",
            where=dataset.path,
            mend="Add them, or set 'label' in the dataset's file",
        )
    table = read_table(dataset.path, text=tuple(header))
    rows = [_row(line, dataset) for line in table.to_dict("records")]
    subjects = table.drop_duplicates("subject").set_index("subject", drop=False)
    scans = describe(pd.DataFrame(rows), subjects, dataset, dataset.path)
    scans["label"] = table[dataset.label].to_numpy()  # a subject's scans may differ in label (task decoding)
    return scans


def _row(line: dict[str, Any], dataset: Dataset) -> dict[str, Any]:
    file = Path(dataset.path).parent / str(line["file"])
    named = line.get("scan_id")
    row: dict[str, Any] = {
        "scan_id": named if isinstance(named, str) else file.name.split(".")[0],
        "subject": line["subject"],
        "kind": "series",
        "bold": str(file),
        "tr": _number(line.get("tr")) or dataset.tr,
        "mean_fd": _number(line.get("mean_fd")),
        "exclude_reason": None,
    }
    row |= {name: line.get(name) for name in TAKEN}
    try:
        row["n_volumes"] = len(read_series(file))
    except DataError as error:
        row["exclude_reason"] = str(error)
    return row


def _number(value: Any) -> float | None:
    number = pd.to_numeric(value, errors="coerce")
    return None if pd.isna(number) else float(number)
