"""Files of the scans of a run, as the rules of downloading, preprocessing and caching ask for them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from bolt.cohort.quality import is_judged
from bolt.config import Config, Dataset
from bolt.config.layout import Layout, folder_of
from bolt.datasets import TEXT_COLUMNS, own_tables, source_of, subjects_table, t1w_images
from bolt.io.bids import metadata_of
from bolt.io.files import read_table
from bolt.workflow.snakemake import joined

BATCH = 20
"""Ready series that one job downloads."""


def batches(n_scans: int) -> int:
    """Return the number of jobs that download ready series."""
    return -(-n_scans // BATCH)


def _stamp(file: Any) -> tuple[int, int] | None:
    """Return size and time of a file, or of where a link leads, if it is there."""
    try:
        found = os.stat(file)
    except (OSError, TypeError):
        return None
    return found.st_size, int(found.st_mtime)  # not every copy keeps parts of seconds


class ScanTable:
    """One version of the scan table; looked up thousands of times."""

    def __init__(self, path: Path) -> None:
        table = read_table(path, text=TEXT_COLUMNS).set_index("scan_id", drop=False)
        self.scans = table[table.exclude_reason.isna()]
        self.settings: dict[str, str] = {}

    @cached_property
    def t1w_of(self) -> dict[str, list[str]]:
        """Return the T1w images of each folder: all at once, because one search per subject takes minutes."""
        scans = self.scans.dropna(subset="t1w")[["t1w", "more_t1w"]].itertuples()
        return {folder_of(str(scan.t1w)): t1w_images(scan) for scan in reversed(list(scans))}

    @cached_property
    def subjects(self) -> dict[str, int]:
        """Return the position of every subject."""
        names = sorted({scan_id.split("_")[0] for scan_id in self.scans.index})
        return {name: position for position, name in enumerate(names)}

    @cached_property
    def facts(self) -> dict[str, Any]:
        """Return what preprocessing reads of every scan, as text: all at once, because row by row takes seconds."""
        table = self.scans[["kind", "tr", "bold", "t1w", "sbref", "mask", "confounds"]].astype(str)
        return dict(zip(table.index, table.itertuples(index=False), strict=True))

    @cached_property
    def series_stamps(self) -> str:
        """Return a hash of size and time of all ready series."""
        series = self.scans.loc[self.scans["kind"] == "series", "bold"]
        return hashlib.sha256(repr([_stamp(file) for file in series]).encode()).hexdigest()


class ScanFiles:
    """The half of `bolt.workflow.run.Run` that knows scans."""

    config: Config
    dataset: Dataset
    layout: Layout
    index: Any = None
    """Snakemake's checkpoint that writes the scan table: who asks for scans before waits for it."""
    _read: tuple[int, ScanTable] | None = None

    @property
    def _table(self) -> ScanTable:
        """Return the scan table, read again after the index has been written anew during a run."""
        if self.index is not None and not self.layout.scans.is_file():
            self.index.get()
        written = self.layout.scans.stat().st_mtime_ns if self.layout.scans.is_file() else 0
        if self._read is None or self._read[0] != written:
            self._read = written, ScanTable(self.layout.scans)
        return self._read[1]

    @property
    def scans(self) -> pd.DataFrame:
        """Return the scans to process; readable once the index is written."""
        return self._table.scans

    def events(self) -> list[str]:
        """Return the existing tables of events."""
        return [path for path in self.scans["events"].dropna().unique() if os.path.isfile(path)]

    def t1w(self, folder: str) -> list[str]:
        """Return the T1w images of an anatomical folder; several are averaged."""
        return self._table.t1w_of[folder]

    def sbref(self, scan_id: str) -> list[str]:
        """Return the single-band reference of a scan, if it has one."""
        return [path for path in [self.scans.sbref[scan_id]] if isinstance(path, str)]

    def anatomical_outputs(self, scan_id: str) -> list[Path]:
        """Return what preprocessing has made of the T1w of a scan."""
        folder = folder_of(self.scans.t1w[scan_id])
        return [self.layout.anatomical_status(folder), *self.layout.anatomical_files(folder).values()]

    @property
    def own_tables(self) -> list[Path]:
        """Return the user's own tables of subjects."""
        return own_tables(self.dataset)

    def download_status(self, scan_id: str) -> Path:
        """Return the status file of a scan's download; the downloaded files are beside it."""
        return self._downloads / scan_id / "status.json"

    @property
    def _downloads(self) -> Path:
        folder: Path = source_of(self.dataset).download_folder(self.dataset, self.config)
        return folder

    def series_batch(self, batch: str) -> Path:
        """Return the file that is written once a batch of ready series has been downloaded."""
        return self._downloads / f"batch-{batch}.json"

    def scans_of_batch(self, batch: str) -> list[str]:
        """Return the scans of a batch: one job a scan would take three seconds for a file that takes half of one."""
        return self.scans.index[int(batch) * BATCH :][:BATCH].tolist()

    def parcellate_inputs(self, scan_id: str) -> dict[str, Path | str | list[Path]]:
        """Return the input files of a scan's parcellation."""
        if self.dataset.downloaded:
            return {"status": self.download_status(scan_id)}
        scan = self.scans.loc[scan_id]
        if scan.kind == "raw":
            layout = self.layout
            bold = scan.bold if layout.native else layout.bold(scan_id)
            files: dict[str, Path | str | list[Path]] = {"bold": bold, "mask": layout.mask(scan_id)}
            if layout.native:  # its transforms carry atlases to the scan
                files["anatomical"] = self.anatomical_outputs(scan_id)
            return files | {"confounds": layout.confounds(scan_id), "status": layout.functional_status(scan_id)}
        return {name: scan[name] for name in ("bold", "mask", "confounds") if isinstance(scan[name], str)}

    @property
    def judged(self) -> bool:
        """Return whether scans are judged by their quality."""
        return is_judged(self.config, self.dataset)

    def subject_group(self, workflow: Any, subject: str) -> str:
        """Return the group of a subject's jobs (``sub-01``), which a cluster runs as one job; it may join subjects."""
        return joined(workflow, "subject", "", self._table.subjects[subject])

    def parcellate_group(self, workflow: Any, scan_id: str) -> str:
        """Return the group of a scan's parcellation: its subject's preprocessing, or other parcellations."""
        if self.scans.kind[scan_id] == "raw":
            return self.subject_group(workflow, scan_id.split("_")[0])
        return joined(workflow, "parcellations", "", int(self.scans.index.get_loc(scan_id)))

    def scan_series(self, atlas: str | None = None) -> list[Path | str]:
        """Return what quality waits for and, with its atlas, a cache: status and file of each series, or ready ones."""
        if self.dataset.downloaded and self.dataset.ready_series:
            return [self.series_batch(str(batch)) for batch in range(batches(len(self.scans)))]
        scans = self.scans.itertuples()
        layout, waits = self.layout, list[Path | str]()
        for scan in scans:
            if scan.kind == "series":
                waits.append(scan.bold)
                continue
            waits.append(layout.series_status(str(scan.scan_id)))
            if atlas is not None:
                waits.append(layout.series_file(str(scan.scan_id), atlas))
        return waits

    def scan_settings(self, scan_id: str) -> str:
        """Return what preprocessing reads of a scan in the index and, about slices, in the sidecar; and its `stamps`.

        Those of its T1w are left to the anatomical job, whose outputs it waits for.
        """
        kept = self._table.settings  # because Snakemake asks whenever it chooses jobs
        if scan_id not in kept:
            scan = self._table.facts[scan_id]
            facts: list[Any] = list(scan)
            if scan.kind == "raw" and self.config.preprocess.slice_timing == "auto":
                about = metadata_of(scan.bold)
                facts += [about.get("SliceTiming"), about.get("SliceEncodingDirection")]
            kept[scan_id] = repr(facts) + self.stamps([scan.bold, scan.sbref, scan.mask, scan.confounds])
        return kept[scan_id]

    def stamps(self, files: Iterable[Any]) -> str:
        """Return size and time of files that are no downloads: Snakemake alone misses one replaced by an older one."""
        if self.dataset.downloaded:  # which are not there when their jobs are planned
            return ""
        return repr([_stamp(file) for file in files])

    @property
    def series_stamps(self) -> str:
        """Return a hash of the `stamps` of ready series, which their cache has read."""
        return "" if self.dataset.downloaded else self._table.series_stamps

    @property
    def subjects_table(self) -> Path:
        """Return the table whose change runs the index again."""
        return subjects_table(self.dataset, self.config)

    @property
    def tables_of_index(self) -> list[Path]:
        """Return the table of subjects that the index reads; a dataset without labels may have none."""
        return [] if self.dataset.without_table else [self.subjects_table]

    @property
    def listed(self) -> str:
        """Return what the listing of a bucket depends on; it is made anew when that changes.

        A table of subjects contains everybody.
        """
        dataset = self.dataset
        if dataset.source != "hcp":
            return ""
        subjects = [dataset.include, dataset.exclude]
        return repr([dataset.tasks, dataset.sessions, dataset.runs, dataset.hcp.bucket, *subjects, dataset.tr])
