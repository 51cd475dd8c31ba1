"""Sources of scans, one module each, and the index of a dataset's scans.

Each source has `scans(dataset, config) -> DataFrame` with the columns below. A downloaded source (`Dataset.downloaded`)
also has these functions of `(dataset, config)`: `check` (refuses settings that do not fit together), `table_path` and
`download_table` (what the index needs), `scan_count` (before the index), `download_folder` (with a folder per scan,
named by its scan_id, for its `status.json`), `download_scan` (takes the scan_id first) and `download_bytes` (still to
be downloaded).
"""

from __future__ import annotations

import importlib
import logging
import re
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd

from bolt.config import Config, Dataset
from bolt.config.layout import folder_of
from bolt.datasets.participants import (
    CHOOSE_RECONSTRUCTION,
    INDEX,
    acquisition_of,
    check_labels,
    exclude,
    similar_sites_note,
)
from bolt.io.errors import BoltWarning, DataError, shorten_list
from bolt.io.files import columns
from bolt.io.names import BRACES, FOLDER, RULE, is_name

log = logging.getLogger("bolt")
COLUMNS = columns("datasets", "scans")
TEXT_COLUMNS = tuple(c for c in COLUMNS if c not in ("age", "mean_fd", "tr", "n_volumes"))


def t1w_images(scan: Any) -> list[str]:
    """Return the T1w images of a raw scan's session (a row of the scan table); several are averaged."""
    return [scan.t1w, *(scan.more_t1w.split("|") if isinstance(scan.more_t1w, str) else [])]


def source_of(dataset: Dataset) -> ModuleType:
    """Return the module for a dataset's source."""
    return importlib.import_module(f"bolt.datasets.{'bids' if dataset.source == 'phantom' else dataset.source}")


def subjects_table(dataset: Dataset, config: Config) -> Path:
    """Return the table of subjects that a dataset's index reads."""
    if dataset.downloaded:
        return Path(source_of(dataset).table_path(dataset, config))
    return dataset.subjects_table or (dataset.path if dataset.source == "series" else dataset.participants)


def own_tables(dataset: Dataset) -> list[Path]:
    """Return the tables of subjects that the user has named."""
    tables = [dataset.subjects_table, dataset.hcp.restricted_table]
    return [table for table in tables if table is not None]


def index(config: Config, dataset: Dataset, minimum_volumes: int = 2) -> pd.DataFrame:
    """List the scans of a dataset, with the reason for each exclusion.

    Parameters
    ----------
    config : Config
    dataset : Dataset
    minimum_volumes : int
        Volumes that every model can read. Shorter scans are excluded for all models, so that all are compared on the
        same scans.

    Returns
    -------
    DataFrame
        Columns of `COLUMNS`; one row per scan, sorted by `scan_id`.

    Raises
    ------
    DataError
        Nothing can be analysed: no scans, no label column, no usable scan.
    """
    with warnings.catch_warnings(action="ignore", category=BoltWarning):  # listed by the stages that read the files
        table = source_of(dataset).scans(dataset, config).reindex(columns=list(COLUMNS))
    if table.empty:
        what = "no scans found"
        raise DataError(what, where=dataset.where, hint="Check 'path' and the filters of the dataset's file")
    repeated = table.scan_id[table.scan_id.duplicated()].unique()
    if len(repeated):
        hint = "Rename one of them" + (", or name scans in a column 'scan_id'" if dataset.source == "series" else "")
        raise DataError(f"duplicate scan_id: {', '.join(repeated[:5])}", where=dataset.where, hint=hint)
    table = table.sort_values("scan_id", ignore_index=True).astype({"exclude_reason": object, "exclude_stage": object})
    for row, scan in table[["scan_id", "kind", "bold", "t1w"]].iterrows():
        folders = [folder_of(str(scan.scan_id)), folder_of(str(scan.t1w))] if scan.kind == "raw" else []
        if not is_name(scan.scan_id):
            instead = "; or name scans in a column 'scan_id'" if dataset.source == "series" else ""
            exclude(table, row, f"its name cannot be used in file names and commands. {RULE}{instead}")
        elif not all(re.fullmatch(FOLDER, folder) for folder in folders[: 1 + isinstance(scan.t1w, str)]):
            reason = "labels of subjects and sessions must be letters and digits in BIDS names. Rename the files"
            exclude(table, row, reason)
        elif BRACES.search(f"{scan.bold}{scan.t1w}"):
            exclude(table, row, "braces in the path of a file, which Snakemake takes for wildcards. Rename it")
    short = table.exclude_reason.isna() & (table.n_volumes < minimum_volumes)
    for row in table.index[short]:
        exclude(table, row, f"{table.n_volumes[row]:.0f} volumes, fewer than the {minimum_volumes} that a model needs")
    check_labels(table, dataset)
    without_stage = table.exclude_reason.notna() & table.exclude_stage.isna()
    table["exclude_stage"] = table.exclude_stage.mask(without_stage, INDEX)
    used = table.scan_id[table.exclude_reason.isna()]
    several = used[used.map(acquisition_of).duplicated(keep=False)]
    if len(several):
        what = "%d scans are reconstructions (rec-) of the same acquisitions, such as %s. %s"
        log.warning(what, len(several), shorten_list(several), CHOOSE_RECONSTRUCTION)
    if config.folds.scheme == "leave-site-out":
        used = table.site[table.exclude_reason.isna()]
        if note := similar_sites_note(used, dataset.institutions):
            log.warning("%s", note)
    return table
