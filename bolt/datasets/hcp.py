"""HCP S1200: minimally preprocessed volumes in MNI space, from the project's S3 bucket or a local copy of its layout.

``<subject>/MNINonLinear/Results/rfMRI_REST1_LR/`` holds the image of the same name, its mask, its movement and, for
tasks, the onsets (``EVs/*.txt``). From S3, `download_table` lists the bucket, reads the header of each image (its first
kilobytes), so that incomplete scans are known before anything large is fetched, and fetches the small files; then one
job a scan fetches the image.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from bolt.config import ROOT, Bucket, Config, Dataset, load_denoise, nearest
from bolt.config.layout import Layout
from bolt.datasets.hcp_files import (
    FIRST,
    MASK,
    MOVEMENT,
    SPACE,
    VOLUMES,
    Scan,
    header_of,
    read_movement,
    read_subjects,
    subjects_table,
    write_events,
)
from bolt.datasets.participants import chosen, describe, timing
from bolt.download.fetch import fetch
from bolt.io.errors import ConfigError, DataError
from bolt.io.files import atomic, read_table, read_yaml, write_table
from bolt.io.names import NAME

log = logging.getLogger("bolt")
LISTING_COLUMNS = {
    "scan_id": "Name of the scan",
    "key": "Object in the bucket",
    "bytes": "Its size",
    "n_volumes": "Volumes, by its header",
    "tr": "Seconds between them, by its header",
    "problem": "Why the header cannot be used",
}


def scans(dataset: Dataset, config: Config) -> pd.DataFrame:
    """One row a subject of the table and scan asked for, as in `bolt.datasets.COLUMNS`; writes the events of tasks."""
    where = subjects_table(dataset)
    people = read_subjects(dataset)
    listing = _read_listing(dataset, config) if dataset.downloaded else None
    rows = [_row(scan, dataset, config, listing) for scan in _wanted(dataset, people)]
    if dataset.group is None:
        log.warning("families are not known: relatives may be on two sides of a split (key 'restricted_table')")
    table = pd.DataFrame(rows)
    if dataset.label != "task":
        return describe(table, people, dataset, where)
    table = describe(table, people, dataset.model_copy(update={"label": "Subject"}), where)
    return table.assign(label=table.task)


def check(dataset: Dataset, config: Config) -> None:
    """Refuse settings that do not fit together, before anything is fetched.

    Raises
    ------
    ConfigError
        An unknown task or direction, another space, denoising by confounds, or no such folder or table.
    """
    where = f"dataset '{dataset.name}'"
    for key, found, known in (
        ("tasks", dataset.tasks or [""], list(VOLUMES)),
        ("runs", dataset.runs or [""], ["LR", "RL"]),
        ("sessions", dataset.sessions or ["1"], ["1", "2"]),
    ):
        for value in found:
            if value not in known:
                raise ConfigError(
                    f"'{key}' names '{value}'", where=where, hint=f"Known: {', '.join(known)}{nearest(value, known)}"
                )
    if config.preprocess.space != SPACE:
        raise ConfigError(
            f"HCP's volumes are in {SPACE}, but 'preprocess: space' is {config.preprocess.space}",
            where=where,
            hint=f"Set it to {SPACE}",
        )
    denoise = load_denoise(config.denoise)
    if denoise.confounds or denoise.strategy:
        raise ConfigError(
            f"denoising '{denoise.name}' needs a table of confounds, and HCP has none in fMRIPrep's names",
            where=where,
            hint="Set 'denoise' to none, or to a file that only filters or detrends",
        )
    if not dataset.downloaded and not dataset.path.is_dir():
        raise ConfigError(f"no such folder: {dataset.path}", where=where, hint="Set 'path' to the folder of subjects")
    for table in (subjects_table(dataset), dataset.hcp.restricted_table):
        if table is not None and not table.is_file():
            raise ConfigError(f"no such table: {table}", where=where, hint="Download it from ConnectomeDB")


# ---- from the bucket ---------------------------------------------------------------------------
def table_path(dataset: Dataset, config: Config) -> Path:
    """What the bucket holds of the scans asked for: `LISTING_COLUMNS`."""
    return Layout(config).downloads / "listing.tsv"


def scan_path(scan_id: str, dataset: Dataset, config: Config) -> Path:
    """Where a scan's image lies once it is fetched."""
    return _root(dataset, config) / _by_name(scan_id, dataset).bold


def download_table(dataset: Dataset, config: Config) -> None:
    """List the scans in the bucket, read the headers of their images, and fetch all small files.

    Raises
    ------
    ConfigError
        The bucket refuses the credentials.
    DataError
        It cannot be reached.
    """
    from bolt.download.s3 import CONNECTIONS, connect

    bucket = _bucket(dataset)
    wanted = list(_asked(dataset))
    ask = partial(_ask, connect(bucket), dataset, _root(dataset, config))
    rows = [ask(scan) for scan in wanted[:1]]  # alone, so that refused credentials are refused once
    with ThreadPoolExecutor(CONNECTIONS) as threads:
        rows += threads.map(ask, wanted[1:])
    table = pd.DataFrame([row for row in rows if row], columns=list(LISTING_COLUMNS))
    log.info("%d of %d scans are in s3://%s/%s", len(table), len(wanted), bucket.name, bucket.prefix)
    write_table(table.sort_values("scan_id"), table_path(dataset, config), LISTING_COLUMNS)


def download_scan(scan_id: str, dataset: Dataset, config: Config) -> None:
    """Fetch one scan's image."""
    entry = _read_listing(dataset, config).loc[scan_id]
    fetch(entry.key, scan_path(scan_id, dataset, config), size=int(entry.bytes), bucket=_bucket(dataset))


def download_folder(dataset: Dataset, config: Config) -> Path:
    """Folder that holds the status of each scan's download, and the images in HCP's layout."""
    return Layout(config).downloads


def scan_count(dataset: Dataset, config: Config) -> int:
    """Scans that are asked for."""
    return sum(1 for _ in _asked(dataset))


def download_bytes(dataset: Dataset, config: Config) -> float:
    """Bytes that are still to be fetched; until the bucket is listed, an estimate from `config/costs.yaml`."""
    if not table_path(dataset, config).is_file():
        each = 1e6 * read_yaml(ROOT / "config/costs.yaml")["hcp_megabytes_per_volume"]
        return sum(each * VOLUMES[scan.task] for scan in _asked(dataset))
    listing = _read_listing(dataset, config)
    asked = listing.index.intersection([scan.scan_id for scan in _asked(dataset)])
    return float(sum(listing.bytes[name] for name in asked if not scan_path(name, dataset, config).is_file()))


def _ask(client: Any, dataset: Dataset, root: Path, scan: Scan) -> dict[str, Any] | None:
    """A row of the listing, or None where the bucket does not have the scan; fetches its small files."""
    from bolt.download.s3 import read, sizes

    bucket = _bucket(dataset)
    start = f"{bucket.prefix}/" if bucket.prefix else ""
    found = {key.removeprefix(start): n for key, n in sizes(client, bucket, f"{start}{scan.folder}/").items()}
    if scan.bold not in found:
        return None
    for name, size in found.items():
        small = name in (f"{scan.folder}/{MASK}", f"{scan.folder}/{MOVEMENT}")
        if (small or _is_onsets(name, scan)) and not _is_there(root / name, size):
            content = read(client, bucket, start + name)
            with atomic(root / name) as temporary:
                temporary.write_bytes(content)
    row = {"scan_id": scan.scan_id, "key": start + scan.bold, "bytes": found[scan.bold]}
    return row | header_of(read(client, bucket, start + scan.bold, FIRST), scan, dataset)


# ---- one scan ------------------------------------------------------------------------------------
def _row(scan: Scan, dataset: Dataset, config: Config, listing: pd.DataFrame | None) -> dict[str, Any]:
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
        row |= _timing(scan, root, dataset, listing)
        row["mean_fd"] = read_movement(root / scan.folder / MOVEMENT)
        if scan.task != "REST":
            row["events"] = write_events(root / scan.folder / "EVs", Layout(config).events(scan.scan_id))
    except DataError as error:
        row["exclude_reason"] = str(error) if error.where else error.what
        return row
    if row["n_volumes"] < VOLUMES[scan.task]:
        row["exclude_reason"] = f"incomplete: {row['n_volumes']} of {VOLUMES[scan.task]} volumes"
    return row


def _timing(scan: Scan, root: Path, dataset: Dataset, listing: pd.DataFrame | None) -> dict[str, Any]:
    if listing is None:
        if not (root / scan.bold).is_file():
            raise DataError(f"the subject has no {scan.name}")
        return timing(root / scan.bold, dataset.tr, dataset)
    if scan.scan_id not in listing.index:
        raise DataError(f"the subject has no {scan.name}")
    entry = listing.loc[scan.scan_id]
    if isinstance(entry.problem, str):
        raise DataError(entry.problem, where=entry.key, hint="Ask the bucket's owner")
    return {"n_volumes": int(entry.n_volumes), "tr": float(entry.tr)}


def _asked(dataset: Dataset) -> Iterator[Scan]:
    """The scans that `include` and `exclude` leave."""
    people = chosen(read_subjects(dataset), dataset, subjects_table(dataset))
    included, excluded = (getattr(dataset, key).get("scan_id") for key in ("include", "exclude"))
    for scan in _wanted(dataset, people):
        if (included is None or scan.scan_id in included) and scan.scan_id not in (excluded or ()):
            yield scan


def _wanted(dataset: Dataset, people: pd.DataFrame) -> Iterator[Scan]:
    for subject in sorted(people.index):
        for task in dataset.tasks or []:
            for session in (dataset.sessions or ["1"]) if task == "REST" else [None]:
                for direction in dataset.runs or []:
                    yield Scan(subject.removeprefix("sub-"), task, session, direction)


def _by_name(scan_id: str, dataset: Dataset) -> Scan:
    about = dict(part.split("-", 1) for part in scan_id.split("_"))
    return Scan(about["sub"], about["task"], about.get("ses"), about["dir"])


def _root(dataset: Dataset, config: Config) -> Path:
    """The folder that holds one folder a subject."""
    return Layout(config).downloads if dataset.downloaded else dataset.path


def _bucket(dataset: Dataset) -> Bucket:
    assert dataset.hcp.bucket is not None
    return dataset.hcp.bucket


def _is_onsets(name: str, scan: Scan) -> bool:
    """Names come from the bucket's listing: one that would leave the folder is none."""
    return re.fullmatch(rf"{re.escape(scan.folder)}/EVs/{NAME}\.txt", name) is not None


def _is_there(path: Path, size: int) -> bool:
    return path.is_file() and path.stat().st_size == size


def _read_listing(dataset: Dataset, config: Config) -> pd.DataFrame:
    return read_table(table_path(dataset, config), text=("scan_id", "key", "problem")).set_index("scan_id")
