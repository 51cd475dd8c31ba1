"""Names and content of HCP's files."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from bolt.config import Dataset
from bolt.datasets.participants import read_csv, read_timing, refuse_duplicates
from bolt.io.errors import ConfigError, DataError
from bolt.io.files import write_table

VOLUMES = {
    "REST": 1200,
    "EMOTION": 176,
    "GAMBLING": 253,
    "LANGUAGE": 316,
    "MOTOR": 284,
    "RELATIONAL": 232,
    "SOCIAL": 274,
    "WM": 405,
}
"""Volumes of a complete scan."""
SPACE = "MNI152NLin6Asym"
SEX = {"F": "female", "M": "male"}
MASK = "brainmask_fs.2.nii.gz"
MOVEMENT = "Movement_RelativeRMS_mean.txt"
HEADER_BYTES = 1 << 14
"""Bytes at the start of a compressed image that certainly contain its header."""
EVENT_COLUMNS = {
    "onset": "Seconds after the first volume",
    "duration": "Seconds",
    "trial_type": "Name of HCP's file of onsets (EVs/<name>.txt)",
}


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
        raise ConfigError(
            "HCP needs 'subjects_table'",
            where=f"dataset '{dataset.name}'",
            hint="Set it to the unrestricted table (CSV) from https://db.humanconnectome.org: Subject, Gender, Age, …",
        )
    return dataset.subjects_table


def _read_people(path: Path) -> pd.DataFrame:
    """Read one of HCP's tables, with all columns as text, indexed by subject."""
    people = read_csv(path).dropna(how="all")
    if "Subject" not in people:
        raise DataError("column 'Subject' is missing", where=path, hint="Use a table (CSV) from ConnectomeDB")
    if people.Subject.isna().any():
        row = int(people.Subject.isna().to_numpy().argmax())
        raise DataError("no subject", where=f"{path}, row {row + 2}", hint="Complete or remove the row")
    invalid = people.Subject[~people.Subject.map(str.isalnum).astype(bool)]
    if len(invalid):
        what = f"subject {invalid.iloc[0]!r} has more than letters and digits"
        raise DataError(what, where=path, hint="Download the table again")
    refuse_duplicates(people.Subject, path)
    return people.set_index("sub-" + people.Subject)


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
                raise DataError(
                    f"line {number} is not three numbers", where=file, hint="Download the file again"
                ) from None
            if len(values) == 3 and values[2] != 0:  # Sync.txt only has the start of the scan
                rows.append((values[0], values[1], file.stem))
    if not rows:
        return None
    table = pd.DataFrame(sorted(rows), columns=list(EVENT_COLUMNS))
    write_table(table, path, EVENT_COLUMNS)
    return str(path)
