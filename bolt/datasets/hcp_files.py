"""HCP's files: their names, and what is read of them."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from bolt.config import Dataset
from bolt.datasets.participants import timing
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
"""Volumes of a complete scan; a shorter one was broken off."""
SPACE = "MNI152NLin6Asym"
SEX = {"F": "female", "M": "male"}
MASK = "brainmask_fs.2.nii.gz"
MOVEMENT = "Movement_RelativeRMS_mean.txt"
FIRST = 1 << 14
"""Bytes of a compressed image that hold its header with room to spare."""
EVENT_COLUMNS = {
    "onset": "Seconds from the first volume",
    "duration": "Seconds",
    "trial_type": "Name of HCP's file of onsets (EVs/<name>.txt)",
}


@dataclass(frozen=True)
class Scan:
    """A scan that is asked for, and where HCP keeps its files, relative to the folder of all subjects."""

    number: str
    task: str
    session: str | None
    direction: str

    @property
    def scan_id(self) -> str:
        session = f"_ses-{self.session}" if self.session else ""
        return f"sub-{self.number}{session}_task-{self.task}_dir-{self.direction}"

    @property
    def name(self) -> str:
        return f"{'r' if self.task == 'REST' else 't'}fMRI_{self.task}{self.session or ''}_{self.direction}"

    @property
    def folder(self) -> str:
        return f"{self.number}/MNINonLinear/Results/{self.name}"

    @property
    def bold(self) -> str:
        return f"{self.folder}/{self.name}.nii.gz"


def read_subjects(dataset: Dataset) -> pd.DataFrame:
    """The tables of subjects, joined; all columns as text, indexed by ``sub-<number>``.

    Gender becomes `female` or `male`; a band of ages its middle (``22-25``: 23.5, ``36+``: 36).

    Raises
    ------
    DataError
        Not such a table, or a subject stands twice.
    """
    people = _read_people(subjects_table(dataset))
    if dataset.hcp.restricted_table is not None:
        more = _read_people(dataset.hcp.restricted_table)
        people = people.join(more[[c for c in more.columns if c not in people.columns]])
    if "Gender" in people:
        people["Gender"] = people.Gender.replace(SEX)
    if "Age" in people:
        bands = people.Age.str.extract(r"^(?P<low>\d+)(?:-(?P<high>\d+)|\+)?$").astype(float)
        people["Age"] = bands.mean(axis=1)
    return people


def subjects_table(dataset: Dataset) -> Path:
    if dataset.subjects_table is None:
        raise ConfigError(
            "HCP needs 'subjects_table'",
            where=f"dataset '{dataset.name}'",
            hint="Name the unrestricted table (CSV) of https://db.humanconnectome.org: columns Subject, Gender, Age, …",
        )
    return dataset.subjects_table


def _read_people(path: Path) -> pd.DataFrame:
    """One of HCP's tables (commas between cells), all columns as text, indexed by subject."""
    try:
        people = pd.read_csv(path, dtype=str).apply(lambda column: column.str.strip()).dropna(how="all")
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise DataError(f"not a readable table ({error})", where=path, hint="Download it again") from None
    if "Subject" not in people:
        raise DataError("column 'Subject' is missing", where=path, hint="Give a table (CSV) of ConnectomeDB")
    if people.Subject.isna().any():
        row = int(people.Subject.isna().to_numpy().argmax())
        raise DataError("no subject", where=f"{path}, row {row + 2}", hint="Complete or remove the row")
    if not people.Subject.map(str.isalnum).all():
        strange = people.Subject[~people.Subject.map(str.isalnum)].iloc[0]
        raise DataError(
            f"subject {strange!r} has more than letters and digits", where=path, hint="Download the table again"
        )
    twice = people.Subject[people.Subject.duplicated()].unique()
    if len(twice):
        raise DataError(f"subjects stand twice: {', '.join(twice[:5])}", where=path, hint="Keep one row for each")
    return people.set_index("sub-" + people.Subject)


def header_of(start: bytes, scan: Scan, dataset: Dataset) -> dict[str, Any]:
    """What the first bytes of an image tell: `n_volumes` and `tr` (seconds), or the `problem`."""
    with tempfile.TemporaryDirectory() as folder:
        beginning = Path(folder) / f"{scan.name}.nii.gz"
        beginning.write_bytes(start)
        try:
            return timing(beginning, dataset.tr, dataset)
        except DataError as error:
            return {"problem": error.what.replace(f"{folder}/", "")}


def read_movement(path: Path) -> float | None:
    """Mean relative movement in mm (FSL's, after Jenkinson), where HCP says it."""
    try:
        return float(path.read_text())
    except (OSError, ValueError):
        return None


def write_events(folder: Path, path: Path) -> str | None:
    """HCP's files of onsets (onset, duration, amplitude; none or 0 rows where nothing happened) as one table."""
    rows = []
    for file in sorted(folder.glob("*.txt")):
        for number, line in enumerate(file.read_text().splitlines(), start=1):
            try:
                values = [float(cell) for cell in line.split()]
            except ValueError:
                raise DataError(
                    f"line {number} is not three numbers", where=file, hint="Fetch the file again"
                ) from None
            if len(values) == 3 and values[2] != 0:  # Sync.txt has one number, the start of the scan
                rows.append((values[0], values[1], file.stem))
    if not rows:
        return None
    table = pd.DataFrame(sorted(rows), columns=list(EVENT_COLUMNS))
    write_table(table, path, EVENT_COLUMNS)
    return str(path)
