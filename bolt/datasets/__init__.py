"""Sources of scans. Each module has `scans(dataset, config) -> DataFrame` with the columns below.

A source that is downloaded (`Dataset.downloaded`) also has, each called with `(dataset, config)`: `check` (settings
that do not fit), `table_path` and `download_table` (what the index needs), `scan_count` (before the index),
`download_folder` (it holds a folder a scan, named by its scan_id, with its `status.json`), `download_scan` (with the
scan_id first) and `download_bytes` (still to be fetched).
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from types import ModuleType

import pandas as pd

from bolt.config import Config, Dataset
from bolt.config.layout import folder_of
from bolt.datasets.participants import INDEX, check_labels, exclude
from bolt.io.errors import DataError
from bolt.io.names import FOLDER, RULE, is_name

COLUMNS = {
    "scan_id": "Name of the scan, unique in the dataset; the start of every file made from it",
    "subject": "Person scanned",
    "session": "Session, where the dataset has them",
    "run": "Run, where the dataset has them",
    "task": "Task (BIDS entity)",
    "group": "Unit that never straddles a split: the family where it is known, else the subject",
    "site": "Place or scanner",
    "label": "Class or number to predict",
    "age": "Age in years",
    "sex": "Sex as the source records it",
    "mean_fd": "Mean framewise displacement in mm, where the source knows it",
    "tr": "Repetition time in seconds",
    "n_volumes": "Number of volumes",
    "kind": "raw, preprocessed (in template space) or series (ready ROI series)",
    "space": "Space of a preprocessed image",
    "bold": "4D image, or file with ROI series",
    "mask": "Brain mask in the space of `bold`",
    "confounds": "Table of confounds",
    "t1w": "T1-weighted image of the subject",
    "events": "Table of task events",
    "exclude_reason": "Why the scan is not used (known at indexing); n/a: it is used",
    "exclude_stage": "selection: not asked for; index: something is wrong with the scan",
}
TEXT_COLUMNS = tuple(c for c in COLUMNS if c not in ("age", "mean_fd", "tr", "n_volumes"))


def source_of(dataset: Dataset) -> ModuleType:
    """The module that knows a dataset's source."""
    return importlib.import_module(f"bolt.datasets.{'bids' if dataset.source == 'phantom' else dataset.source}")


def subjects_table(dataset: Dataset, config: Config) -> Path:
    """Return the table of subjects that a dataset's index reads."""
    if dataset.downloaded:
        return Path(source_of(dataset).table_path(dataset, config))
    inside = dataset.path if dataset.source == "series" else dataset.path / "participants.tsv"
    return dataset.subjects_table or inside


def own_tables(dataset: Dataset) -> list[Path]:
    """Return the tables of subjects that the user has named."""
    tables = [dataset.subjects_table, dataset.hcp.restricted_table]
    return [table for table in tables if table is not None]


def index(config: Config, dataset: Dataset, minimum_volumes: int = 2) -> pd.DataFrame:
    """List the scans of a dataset, with the reason for each that cannot be used.

    Parameters
    ----------
    config : Config
    dataset : Dataset
    minimum_volumes : int
        Volumes that every model can read; shorter scans are excluded for all models, so that
        all are judged on the same scans.

    Returns
    -------
    DataFrame
        Columns of `COLUMNS`, one row a scan, sorted by `scan_id`.

    Raises
    ------
    DataError
        Where nothing could be analysed: no scans, no label column, one class only.
    """
    table = source_of(dataset).scans(dataset, config).reindex(columns=list(COLUMNS))
    if table.empty:
        raise DataError(
            "no scans found", where=dataset.where, hint="Check 'path' and the filters of the dataset's file"
        )
    repeated = table.scan_id[table.scan_id.duplicated()].unique()
    if len(repeated):
        raise DataError(f"scan names stand twice: {', '.join(repeated[:5])}", where=dataset.where, hint="Rename one")
    table = table.sort_values("scan_id", ignore_index=True).astype({"exclude_reason": object, "exclude_stage": object})
    _exclude_unfit_names(table)
    short = table.exclude_reason.isna() & (table.n_volumes < minimum_volumes)
    for row in table.index[short]:
        exclude(table, row, f"{table.n_volumes[row]:.0f} volumes, fewer than the {minimum_volumes} that a model needs")
    check_labels(table, dataset)
    without = table.exclude_reason.notna() & table.exclude_stage.isna()
    table["exclude_stage"] = table.exclude_stage.mask(without, INDEX)
    return table


def _exclude_unfit_names(table: pd.DataFrame) -> None:
    """Exclude scans whose names, or those of their folders, cannot be parts of paths and commands."""
    for row, scan in table[["scan_id", "kind", "t1w"]].iterrows():
        folders = [folder_of(str(scan.scan_id)), folder_of(str(scan.t1w))] if scan.kind == "raw" else []
        folders = folders[: 1 + isinstance(scan.t1w, str)]
        if not is_name(scan.scan_id):
            exclude(table, row, f"the name {scan.scan_id!r} is not fit for files and commands. {RULE}")
        elif not all(re.fullmatch(FOLDER, folder) for folder in folders):
            exclude(
                table, row, "labels of subjects and sessions in BIDS names are letters and digits. Rename the files"
            )
