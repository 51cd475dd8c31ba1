"""ABIDE-I as the Preprocessed Connectomes Project (PCP) published it: ready ROI series, or 4D images in MNI space.

The scan table is made from the project's table of subjects, before a scan is fetched; so the number of volumes is
only known to the cache. Layout of the addresses:
http://preprocessed-connectomes-project.org/abide/download.html
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from bolt.atlases.description import atlas_folder
from bolt.config import ROOT, Config, Dataset
from bolt.config.layout import Layout
from bolt.datasets.participants import SELECTION, chosen, describe
from bolt.download.fetch import fetch, is_remote, join, local_path
from bolt.io.errors import ConfigError, DataError
from bolt.io.files import read_table, read_yaml
from bolt.io.series_files import check_rois, read_series

NO_FILE = "no_filename"
RATERS = ("qc_anat_rater_2", "qc_func_rater_2", "qc_anat_rater_3", "qc_func_rater_3")
COLUMNS = ("SUB_ID", "SITE_ID", "FILE_ID", "func_mean_fd", "qc_rater_1", *RATERS)
WORDS = {"DX_GROUP": {"1": "autism", "2": "control"}, "SEX": {"1": "M", "2": "F"}}
"""What the codes of the table mean (ABIDE's phenotypic data legend)."""
ATLASES = {"rois_cc200": "cc200", "rois_aal": "aal116", "rois_dosenbach160": "dosenbach160"}
"""Atlases of ours that PCP's series were made with."""
SPACES = {"cpac": "MNI152NLin6Asym", "ccs": "MNI152NLin6Asym"}
"""Pipelines that registered to FSL's MNI152."""
PAPER = 871
"""Scans of the paper's selection; taken for the estimate until the table is there."""


def scans(dataset: Dataset, config: Config) -> pd.DataFrame:
    """One row a subject of the table, as in `bolt.datasets.COLUMNS`; those outside the paper's selection with the
    reason in `exclude_reason`."""
    where = table_path(dataset, config)
    people = read_people(where)
    rows = pd.DataFrame(
        {
            "scan_id": people.FILE_ID,
            "subject": people.SUB_ID,
            "task": "rest",
            "mean_fd": pd.to_numeric(people.func_mean_fd, errors="coerce"),
            "tr": people.SITE_ID.map(read_yaml(Path(__file__).with_name("abide_sites.yaml"))),
            "kind": "series" if dataset.ready_series else "preprocessed",
            "space": None if dataset.ready_series else SPACES.get(dataset.abide.pipeline),
            "bold": [str(scan_path(name, dataset, config)) for name in people.FILE_ID],
            "exclude_reason": [reason or None for reason in people.unusable],
            "exclude_stage": [SELECTION if reason else None for reason in people.unusable],
        }
    )
    return describe(rows, people.set_index("SUB_ID", drop=False), dataset, where)


def read_people(path: Path) -> pd.DataFrame:
    """Read the table of subjects.

    Parameters
    ----------
    path : Path
        The project's ``Phenotypic_V1_0b_preprocessed1.csv``.

    Returns
    -------
    DataFrame
        All columns as text, codes of `WORDS` as words; `FILE_ID` is filled for subjects without a file; and
        `unusable`: why a scan is not of the paper's selection (the first rater says OK, no other one 'fail', there
        is a file), or "".

    Raises
    ------
    DataError
        Not that table, or a subject stands twice.
    """
    try:
        people = pd.read_csv(path, dtype=str).apply(lambda column: column.str.strip())
    except FileNotFoundError:
        raise DataError("file not found", where=path, hint="Fetch it, or correct 'subjects_table'") from None
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise DataError(f"not a readable table ({error})", where=path, hint="Fetch it again") from None
    missing = [name for name in COLUMNS if name not in people.columns]
    if missing:
        raise DataError(
            f"columns missing: {', '.join(missing)}",
            where=path,
            hint="Give PCP's Phenotypic_V1_0b_preprocessed1.csv (commas between cells)",
        )
    twice = people.SUB_ID[people.SUB_ID.duplicated()].unique()
    if len(twice) or people.SUB_ID.isna().any():
        what = f"subjects stand twice: {', '.join(twice[:5])}" if len(twice) else "a row has no SUB_ID"
        raise DataError(what, where=path, hint="Keep one row for each")
    for column, words in WORDS.items():
        if column in people:
            people[column] = people[column].replace(words)
    people["unusable"] = _unusable(people)
    named = people.SITE_ID.str.cat(people.SUB_ID.str.zfill(7), sep="_")
    people["FILE_ID"] = people.FILE_ID.mask(people.FILE_ID.fillna(NO_FILE) == NO_FILE, named)
    return people


def check(dataset: Dataset, config: Config) -> None:
    """Refuse settings that do not fit together, before anything is fetched.

    Raises
    ------
    ConfigError
        Series of another atlas than the configured one, images in another space, or no such folder.
    """
    about, where = dataset.abide, f"dataset '{dataset.name}'"
    names = list(config.atlas_places)
    if dataset.ready_series:
        due = ATLASES.get(about.derivative)
        if len(names) > 1 or (due and names != [due]):
            raise ConfigError(
                f"'{about.derivative}' are series of one atlas, but 'atlases' names {', '.join(names)}",
                where=where,
                hint=f"Set 'atlases: [{due or 'the folder of that atlas'}]', or choose another 'derivative'",
            )
    elif config.preprocess.space != SPACES.get(about.pipeline):
        raise ConfigError(
            f"images of pipeline '{about.pipeline}' are in {SPACES.get(about.pipeline, 'a space that is not ours')}, "
            f"but 'preprocess: space' is {config.preprocess.space}",
            where=where,
            hint=f"Set it to {SPACES['cpac']}, with pipeline {' or '.join(SPACES)}; or choose ready series",
        )
    if not is_remote(about.base) and not local_path(about.base).is_dir():
        raise ConfigError(f"no such folder: {about.base}", where=where, hint="Correct 'abide: base'")


def download_folder(dataset: Dataset, config: Config) -> Path:
    """Folder that holds one folder a scan; another derivative, pipeline or strategy has another."""
    about = dataset.abide
    return Layout(config).downloads / about.pipeline / about.strategy / about.derivative


def table_path(dataset: Dataset, config: Config) -> Path:
    """The table of subjects: the user's own, or the one that is fetched."""
    return dataset.subjects_table or Layout(config).downloads / dataset.abide.phenotypes


def scan_path(scan_id: str, dataset: Dataset, config: Config) -> Path:
    """Where a scan's file lies once it is fetched."""
    return download_folder(dataset, config) / scan_id / _file_name(scan_id, dataset)


def download_table(dataset: Dataset, config: Config) -> None:
    """Fetch the table of subjects."""
    about = dataset.abide
    fetch(join(about.base, about.phenotypes), table_path(dataset, config))


def download_scan(scan_id: str, dataset: Dataset, config: Config) -> None:
    """Fetch one scan's file, and look whether it holds the series of the configured atlas."""
    about, path = dataset.abide, scan_path(scan_id, dataset, config)
    folder = ("Outputs", about.pipeline, about.strategy, about.derivative)
    fetch(join(about.base, *folder, _file_name(scan_id, dataset)), path)
    if dataset.ready_series:
        try:
            _check_series(path, config)
        except DataError:
            path.unlink()  # so that another attempt fetches it again
            raise


def _check_series(path: Path, config: Config) -> None:
    (atlas, place), *_ = config.atlas_places.items()
    labels = atlas_folder(place) / "labels.tsv"
    values = read_table(labels)["value"].tolist() if labels.is_file() else None
    series = read_series(path, values)
    if values is not None:
        check_rois(series, atlas, len(values), path)


def scan_count(dataset: Dataset, config: Config) -> int:
    """Scans of the selection, for the estimate before the index."""
    where = table_path(dataset, config)
    return len(_asked(dataset, where)) if where.is_file() else PAPER


def download_bytes(dataset: Dataset, config: Config) -> float:
    """Bytes that are still to be fetched, from the sizes in `config/costs.yaml`."""
    kind = "series" if dataset.ready_series else "images"
    each = 1e6 * read_yaml(ROOT / "config/costs.yaml")["abide_megabytes"][kind]
    where = table_path(dataset, config)
    if not where.is_file():
        return PAPER * each
    return each * sum(not scan_path(name, dataset, config).is_file() for name in _asked(dataset, where))


def _asked(dataset: Dataset, where: Path) -> list[str]:
    """Scans of the paper's selection that `include` and `exclude` leave."""
    people = chosen(read_people(where), dataset, where)
    return people.FILE_ID[people.unusable == ""].tolist()


def _file_name(scan_id: str, dataset: Dataset) -> str:
    return f"{scan_id}_{dataset.abide.derivative}.{'1D' if dataset.ready_series else 'nii.gz'}"


def _unusable(people: pd.DataFrame) -> list[str]:
    """Why each row is not of the paper's selection; "" where it is."""
    reasons = []
    for person in people.to_dict("records"):
        failed = [rater for rater in RATERS if person[rater] == "fail"]
        if pd.isna(person["FILE_ID"]) or person["FILE_ID"] == NO_FILE:
            reasons.append("the project published no file of this subject")
        elif person["qc_rater_1"] != "OK":
            reasons.append(f"quality: the first rater says '{person['qc_rater_1']}', not 'OK'")
        else:
            reasons.append(f"quality: 'fail' in {', '.join(failed)}" if failed else "")
    return reasons
