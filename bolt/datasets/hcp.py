"""HCP S1200: minimally preprocessed volumes in MNI space, from the project's S3 bucket or a local copy of its layout.

``<subject>/MNINonLinear/Results/rfMRI_REST1_LR/`` holds the image of the same name, its mask, its movement and, for
tasks, the onsets (``EVs/*.txt``). From S3, `download_table` lists the bucket, downloads the small files and reads the
header of each image (its first kilobytes), so that incomplete scans are known in advance; then one job per scan
downloads the image.
"""

from __future__ import annotations

import logging
import re
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from bolt.config import ROOT, Bucket, Config, Dataset, nearest
from bolt.config.layout import Layout
from bolt.datasets.participants import join_subjects, read_csv, read_timing, require_subjects, select_subjects
from bolt.datasets.spaces import refuse_confounds
from bolt.io.download import fetch
from bolt.io.errors import ConfigError, DataError
from bolt.io.files import columns, read_table, read_yaml, write_bytes, write_table
from bolt.io.names import NAME

log = logging.getLogger("bolt")
VOLUMES = read_yaml(Path(__file__).with_suffix(".yaml"))
"""Volumes of a complete scan, by task."""
SPACE = "MNI152NLin6Asym"
SEX = {"F": "female", "M": "male"}
MASK = "brainmask_fs.2.nii.gz"
MOVEMENT = "Movement_RelativeRMS_mean.txt"
HEADER_BYTES = 1 << 14
"""Bytes at the start of a compressed image that certainly contain its header."""
LISTING_COLUMNS, EVENT_COLUMNS = columns("datasets", "listing"), columns("datasets", "events")


@dataclass(frozen=True)
class HcpScan:
    """A scan and the paths of its files, relative to the folder of all subjects."""

    number: str
    task: str
    session: str | None
    direction: str

    @property
    def scan_id(self) -> str:
        """Return the scan's name in BolT."""
        session = f"_ses-{self.session}" if self.session else ""
        return f"sub-{self.number}{session}_task-{self.task}_dir-{self.direction}"

    @property
    def name(self) -> str:
        """Return the scan's name in HCP."""
        return f"{'r' if self.task == 'REST' else 't'}fMRI_{self.task}{self.session or ''}_{self.direction}"

    @property
    def folder(self) -> str:
        """Return the scan's folder."""
        return f"{self.number}/MNINonLinear/Results/{self.name}"

    @property
    def bold(self) -> str:
        """Return the scan's image."""
        return f"{self.folder}/{self.name}.nii.gz"


def scans(dataset: Dataset, config: Config) -> pd.DataFrame:
    """List the configured scans of all subjects, as in `bolt.datasets.COLUMNS`, and write the events of tasks."""
    where = subjects_table(dataset)
    people = read_subjects(dataset)
    listing = _read_listing(dataset, config) if dataset.downloaded else None
    rows = [_row(scan, dataset, config, listing) for scan in _configured(dataset, people)]
    if dataset.group is None:
        log.warning("families are unknown: relatives may be on both sides of a split (key 'restricted_table')")
    table = pd.DataFrame(rows)
    if dataset.label != "task":
        return join_subjects(table, people, dataset, where)
    table = join_subjects(table, people, dataset.model_copy(update={"label": "Subject"}), where)
    return table.assign(label=table.task)


def check(dataset: Dataset, config: Config) -> None:
    """Refuse settings that do not fit together, before anything is downloaded.

    Raises
    ------
    ConfigError
        An unknown task or direction, another space, denoising by confounds, or a missing folder or table.
    """
    where = f"dataset '{dataset.name}'"
    for key, values, known in (
        ("tasks", dataset.tasks or [""], list(VOLUMES)),
        ("runs", dataset.runs or [""], ["LR", "RL"]),
        ("sessions", dataset.sessions or ["1"], ["1", "2"]),
    ):
        for value in values:
            if value not in known:
                what = f"'{key}' names '{value}'"
                raise ConfigError(what, where=where, hint=f"Known: {', '.join(known)}{nearest(value, known)}")
    if config.preprocess.space != SPACE:
        what = f"HCP's volumes are in {SPACE}, but 'preprocess: space' is {config.preprocess.space}"
        raise ConfigError(what, where=where, hint=f"Set it to {SPACE}")
    refuse_confounds(config, where, "HCP does not have")
    if not dataset.downloaded and not dataset.path.is_dir():
        raise ConfigError(f"no such folder: {dataset.path}", where=where, hint="Set 'path' to the folder of subjects")
    for table in (subjects_table(dataset), dataset.hcp.restricted_table):
        if table is not None and not table.is_file():
            raise ConfigError(f"no such table: {table}", where=where, hint="Download it from ConnectomeDB")


# ---- tables of subjects -----------------------------------------------------------------------
def read_subjects(dataset: Dataset) -> pd.DataFrame:
    """Read and join the tables of subjects; all columns as text, indexed by ``sub-<number>``.

    Gender becomes ``female`` or ``male``; a range of ages becomes its middle (``22-25``: 23.5, ``36+``: 36).

    Raises
    ------
    DataError
        It is another table, or a subject has several rows.
    """
    people = _read_people(subjects_table(dataset))
    if dataset.hcp.restricted_table is not None:
        restricted = _read_people(dataset.hcp.restricted_table)
        people = people.join(restricted[[c for c in restricted.columns if c not in people.columns]])
    if "Gender" in people:
        people["Gender"] = people.Gender.replace(SEX)
    if "Age" in people:
        ranges = people.Age.str.extract(r"^(?P<low>\d+)(?:-(?P<high>\d+)|\+)?$").astype(float)
        people["Age"] = ranges.mean(axis=1)
    return people


def subjects_table(dataset: Dataset) -> Path:
    """Return the path of the unrestricted table of subjects, which must be configured."""
    if dataset.subjects_table is None:
        what = "HCP needs 'subjects_table'"
        hint = "Set it to the unrestricted table (CSV) from https://db.humanconnectome.org: Subject, Gender, Age, …"
        raise ConfigError(what, where=f"dataset '{dataset.name}'", hint=hint)
    return dataset.subjects_table


def _read_people(path: Path) -> pd.DataFrame:
    """Read one of HCP's tables, with all columns as text, indexed by subject."""
    people = read_csv(path).dropna(how="all")
    require_subjects(people, ["Subject"], path, hint="Use a table (CSV) from ConnectomeDB")
    invalid = people.Subject[~people.Subject.map(str.isalnum).astype(bool)]
    if len(invalid):
        what = f"subject {invalid.iloc[0]!r} has more than letters and digits"
        raise DataError(what, where=path, hint="Download the table again")
    return people.set_index("sub-" + people.Subject)


# ---- from the bucket ---------------------------------------------------------------------------
def table_path(dataset: Dataset, config: Config) -> Path:
    """Return the listing of the bucket's scans, with `LISTING_COLUMNS`."""
    return Layout(config).downloads / "listing.tsv"


def scan_path(scan_id: str, dataset: Dataset, config: Config) -> Path:
    """Return the path of a scan's downloaded image."""
    entities = dict(part.split("-", 1) for part in scan_id.split("_"))
    scan = HcpScan(entities["sub"], entities["task"], entities.get("ses"), entities["dir"])
    return _root(dataset, config) / scan.bold


def download_table(dataset: Dataset, config: Config) -> None:
    """List the scans in the bucket, read the headers of their images, and download all small files.

    Raises
    ------
    ConfigError
        The bucket refuses the credentials.
    DataError
        The bucket cannot be reached.
    """
    from bolt.io.s3 import CONNECTIONS, connect

    bucket = _bucket(dataset)
    selected = list(_selected(dataset))
    list_scan = partial(_list_scan, connect(bucket), dataset, _root(dataset, config))
    rows = [list_scan(scan) for scan in selected[:1]]  # alone, so that wrong credentials are reported only once
    with ThreadPoolExecutor(CONNECTIONS) as threads:
        rows += threads.map(list_scan, selected[1:])
    table = pd.DataFrame([row for row in rows if row], columns=list(LISTING_COLUMNS))
    log.info("%d of %d scans are in s3://%s/%s", len(table), len(selected), bucket.name, bucket.prefix)
    write_table(table.sort_values("scan_id"), table_path(dataset, config), LISTING_COLUMNS)


def download_scan(scan_id: str, dataset: Dataset, config: Config) -> None:
    """Download one scan's image."""
    entry = _read_listing(dataset, config).loc[scan_id]
    fetch(entry.key, scan_path(scan_id, dataset, config), size=int(entry.bytes), bucket=_bucket(dataset))


def download_folder(dataset: Dataset, config: Config) -> Path:
    """Return the folder with the status of each scan's download, and the images in HCP's layout."""
    return Layout(config).downloads


def scan_count(dataset: Dataset, config: Config) -> int:
    """Return the number of selected scans."""
    return sum(1 for _ in _selected(dataset))


def download_bytes(dataset: Dataset, config: Config) -> float:
    """Return the bytes still to be downloaded; before the listing, an estimate from `config/costs.yaml`."""
    if not table_path(dataset, config).is_file():
        bytes_per_volume = 1e6 * read_yaml(ROOT / "config/costs.yaml")["hcp_megabytes_per_volume"]
        return sum(bytes_per_volume * VOLUMES[scan.task] for scan in _selected(dataset))
    listing = _read_listing(dataset, config)
    selected = listing.index.intersection([scan.scan_id for scan in _selected(dataset)])
    return float(sum(listing.bytes[name] for name in selected if not scan_path(name, dataset, config).is_file()))


def _list_scan(client: Any, dataset: Dataset, root: Path, scan: HcpScan) -> dict[str, Any] | None:
    """Download a scan's small files; return its row of the listing, or None if the bucket does not have the scan."""
    from bolt.io.s3 import list_sizes, read

    bucket = _bucket(dataset)
    start = f"{bucket.prefix}/" if bucket.prefix else ""
    sizes = {key.removeprefix(start): n for key, n in list_sizes(client, bucket, f"{start}{scan.folder}/").items()}
    if scan.bold not in sizes:
        return None
    for name, size in sizes.items():
        small = name in (f"{scan.folder}/{MASK}", f"{scan.folder}/{MOVEMENT}") or _is_onsets(name, scan)
        if small and not ((root / name).is_file() and (root / name).stat().st_size == size):
            write_bytes(read(client, bucket, start + name), root / name)
    row = {"scan_id": scan.scan_id, "key": start + scan.bold, "bytes": sizes[scan.bold]}
    return row | read_header(read(client, bucket, start + scan.bold, HEADER_BYTES), scan, dataset)


# ---- one scan ------------------------------------------------------------------------------------
def _row(scan: HcpScan, dataset: Dataset, config: Config, listing: pd.DataFrame | None) -> dict[str, Any]:
    root = _root(dataset, config)
    row: dict[str, Any] = {
        "scan_id": scan.scan_id,
        "subject": f"sub-{scan.number}",
        "session": scan.session,
        "run": scan.direction,
        "task": scan.task,
        "kind": "preprocessed",
        "space": SPACE,
        "bold": str(root / scan.bold),
        "mask": str(root / scan.folder / MASK) if (root / scan.folder / MASK).is_file() else None,
        "exclude_reason": None,
    }
    try:
        if scan.scan_id not in listing.index if listing is not None else not (root / scan.bold).is_file():
            raise DataError(f"the subject has no {scan.name}")
        if listing is None:
            row |= read_timing(root / scan.bold, dataset.tr, dataset)
        else:
            entry = listing.loc[scan.scan_id]
            if isinstance(entry.problem, str):
                raise DataError(entry.problem, where=entry.key, hint="Ask the bucket's owner")
            row |= {"n_volumes": int(entry.n_volumes), "tr": float(entry.tr)}
        row["mean_fd"] = read_movement(root / scan.folder / MOVEMENT)
        if scan.task != "REST":
            row["events"] = write_events(root / scan.folder / "EVs", Layout(config).events(scan.scan_id))
    except DataError as error:
        row["exclude_reason"] = str(error) if error.where else error.what
        return row
    if row["n_volumes"] < VOLUMES[scan.task]:
        row["exclude_reason"] = f"incomplete: {row['n_volumes']} of {VOLUMES[scan.task]} volumes"
    return row


def _selected(dataset: Dataset) -> Iterator[HcpScan]:
    """Yield the scans that `include` and `exclude` select."""
    people = select_subjects(read_subjects(dataset), dataset, subjects_table(dataset))
    included, excluded = (getattr(dataset, key).get("scan_id") for key in ("include", "exclude"))
    for scan in _configured(dataset, people):
        if (included is None or scan.scan_id in included) and scan.scan_id not in (excluded or ()):
            yield scan


def _configured(dataset: Dataset, people: pd.DataFrame) -> Iterator[HcpScan]:
    """Yield the scans of the configured tasks, sessions and runs, for all subjects."""
    for subject in sorted(people.index):
        for task in dataset.tasks or []:
            for session in (dataset.sessions or ["1"]) if task == "REST" else [None]:
                for direction in dataset.runs or []:
                    yield HcpScan(subject.removeprefix("sub-"), task, session, direction)


def _root(dataset: Dataset, config: Config) -> Path:
    """Return the folder with a folder per subject."""
    return Layout(config).downloads if dataset.downloaded else dataset.path


def _bucket(dataset: Dataset) -> Bucket:
    assert dataset.hcp.bucket is not None
    return dataset.hcp.bucket


def _is_onsets(name: str, scan: HcpScan) -> bool:
    """Return whether a name from the bucket's listing is a file of onsets; names must not leave the scan's folder."""
    return re.fullmatch(rf"{re.escape(scan.folder)}/EVs/{NAME}\.txt", name) is not None


def _read_listing(dataset: Dataset, config: Config) -> pd.DataFrame:
    return read_table(table_path(dataset, config), text=("scan_id", "key", "problem")).set_index("scan_id")


def read_header(start: bytes, scan: HcpScan, dataset: Dataset) -> dict[str, Any]:
    """Return `n_volumes` and `tr` (seconds) from the first bytes of an image, or the `problem`."""
    with tempfile.TemporaryDirectory() as folder:
        image = Path(folder) / f"{scan.name}.nii.gz"
        image.write_bytes(start)
        try:
            return read_timing(image, dataset.tr, dataset)
        except DataError as error:
            return {"problem": error.what.replace(f"{folder}/", "")}


def read_movement(path: Path) -> float | None:
    """Read the mean relative movement in mm (FSL's, after Jenkinson); None if the file is missing or not a number."""
    try:
        return float(path.read_text())
    except (OSError, ValueError):
        return None


def write_events(folder: Path, path: Path) -> str | None:
    """Write a table of events from HCP's files of onsets; return its path, or None without events.

    The files have onset, duration and amplitude per event; a condition without events has no row, or amplitude 0.
    """
    rows = []
    for file in sorted(folder.glob("*.txt")):
        for number, line in enumerate(file.read_text().splitlines(), start=1):
            try:
                values = [float(cell) for cell in line.split()]
            except ValueError:
                what = f"line {number} is not three numbers"
                raise DataError(what, where=file, hint="Download the file again") from None
            if len(values) == 3 and values[2] != 0:  # Sync.txt only has the start of the scan
                rows.append((values[0], values[1], file.stem))
    if not rows:
        return None
    table = pd.DataFrame(sorted(rows), columns=list(EVENT_COLUMNS))
    write_table(table, path, EVENT_COLUMNS)
    return str(path)
