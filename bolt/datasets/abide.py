"""ABIDE-I as published by the Preprocessed Connectomes Project (PCP): ready ROI series, or 4D images in MNI space.

The index is made from the project's table of subjects before any scan is downloaded, so the number of volumes is not
known before the cache. Addresses: http://preprocessed-connectomes-project.org/abide/download.html
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from bolt.atlases.description import atlas_folder
from bolt.config import ROOT, Config, Dataset
from bolt.config.layout import Layout
from bolt.datasets.participants import SELECTION, join_subjects, read_csv, require_subjects, select_subjects
from bolt.datasets.spaces import refuse_confounds
from bolt.io.download import fetch, is_remote, join, local_path
from bolt.io.errors import ConfigError, DataError
from bolt.io.files import read_table, read_yaml
from bolt.io.series_files import check_rois, read_series

NO_FILE = "no_filename"
RATERS = ("qc_anat_rater_2", "qc_func_rater_2", "qc_anat_rater_3", "qc_func_rater_3")
COLUMNS = ("SUB_ID", "SITE_ID", "FILE_ID", "func_mean_fd", "qc_rater_1", *RATERS)
WORDS = {"DX_GROUP": {"1": "autism", "2": "control"}, "SEX": {"1": "M", "2": "F"}}
"""Meaning of codes in the table (ABIDE's phenotypic data legend)."""
ATLASES = {"rois_cc200": "cc200", "rois_aal": "aal116", "rois_dosenbach160": "dosenbach160"}
"""PCP's series that were made with an atlas of BolT."""
SPACES = {"cpac": "MNI152NLin6Asym", "ccs": "MNI152NLin6Asym"}
"""Pipelines that register to FSL's MNI152."""
N_SELECTED = 871
"""Scans in the paper's selection; for estimates before the table is downloaded."""


def scans(dataset: Dataset, config: Config) -> pd.DataFrame:
    """List one scan per subject, as in `bolt.datasets.COLUMNS`; exclude those not in the paper's selection."""
    where = table_path(dataset, config)
    people = read_people(where)
    rows = pd.DataFrame(
        {
            "scan_id": people.FILE_ID,
            "subject": people.SUB_ID,
            "task": "rest",
            "mean_fd": pd.to_numeric(people.func_mean_fd, errors="coerce"),
            "tr": people.SITE_ID.map(read_yaml(Path(__file__).with_suffix(".yaml"))),
            "kind": "series" if dataset.ready_series else "preprocessed",
            "space": None if dataset.ready_series else SPACES.get(dataset.abide.pipeline),
            "bold": [str(scan_path(name, dataset, config)) for name in people.FILE_ID],
            "exclude_reason": [reason or None for reason in people.unusable],
            "exclude_stage": [SELECTION if reason else None for reason in people.unusable],
        }
    )
    return join_subjects(rows, people.set_index("SUB_ID", drop=False), dataset, where)


def read_people(path: Path) -> pd.DataFrame:
    """Read the table of subjects.

    Parameters
    ----------
    path : Path
        The project's ``Phenotypic_V1_0b_preprocessed1.csv``.

    Returns
    -------
    DataFrame
        All columns as text, codes of `WORDS` as words; `FILE_ID` is filled for subjects without a file. A further
        column, `unusable`, is the reason why a scan is not in the paper's selection, or "". Selected are scans with a
        file, that the first rater marked 'OK' and no other rater 'fail'.

    Raises
    ------
    DataError
        It is another table, or a subject has several rows.
    """
    people = read_csv(path)
    require_subjects(people, COLUMNS, path, "Give PCP's Phenotypic_V1_0b_preprocessed1.csv (commas between cells)")
    for column, words in WORDS.items():
        if column in people:
            people[column] = people[column].replace(words)
    reasons = []
    for person in people.to_dict("records"):
        failed = [rater for rater in RATERS if person[rater] == "fail"]
        if pd.isna(person["FILE_ID"]) or person["FILE_ID"] == NO_FILE:
            reasons.append("the project published no file for this subject")
        elif person["qc_rater_1"] != "OK":
            reasons.append(f"quality: the first rater marked '{person['qc_rater_1']}', not 'OK'")
        else:
            reasons.append(f"quality: 'fail' in {', '.join(failed)}" if failed else "")
    people["unusable"] = reasons
    default_id = people.SITE_ID.str.cat(people.SUB_ID.str.zfill(7), sep="_")
    people["FILE_ID"] = people.FILE_ID.mask(people.FILE_ID.fillna(NO_FILE) == NO_FILE, default_id)
    return people


def check(dataset: Dataset, config: Config) -> None:
    """Refuse settings that do not fit together, before anything is downloaded.

    Raises
    ------
    ConfigError
        Series of another atlas than the configured one; images in another space, or denoising that they cannot have; a
        missing folder.
    """
    about, where = dataset.abide, f"dataset '{dataset.name}'"
    names = list(config.atlas_places)
    if dataset.ready_series:
        atlas = ATLASES.get(about.derivative)
        if len(names) > 1 or (atlas and names != [atlas]):
            what = f"'{about.derivative}' are series of one atlas, but 'atlases' lists {', '.join(names)}"
            hint = f"Set 'atlases: [{atlas or 'the folder of that atlas'}]', or choose another 'derivative'"
            raise ConfigError(what, where=where, hint=hint)
    elif config.preprocess.space != SPACES.get(about.pipeline):
        raise ConfigError(
            f"images of pipeline '{about.pipeline}' are in {SPACES.get(about.pipeline, 'an unsupported space')}, "
            f"but 'preprocess: space' is {config.preprocess.space}",
            where=where,
            hint=f"Set it to {SPACES['cpac']}, with pipeline {' or '.join(SPACES)}; or choose ready series",
        )
    if not dataset.ready_series:
        lack = f"images of pipeline '{about.pipeline}' do not have: the project removed nuisance signals from them"
        refuse_confounds(config, where, lack, ". 'abide: strategy' chooses among the variants that it published")
    if not is_remote(about.base) and not local_path(about.base).is_dir():
        raise ConfigError(f"no such folder: {about.base}", where=where, hint="Correct 'abide: base'")


def download_folder(dataset: Dataset, config: Config) -> Path:
    """Return the folder with a folder per scan, which depends on derivative, pipeline and strategy."""
    about = dataset.abide
    return Layout(config).downloads / about.pipeline / about.strategy / about.derivative


def table_path(dataset: Dataset, config: Config) -> Path:
    """Return the table of subjects: the user's own, or the downloaded one."""
    return dataset.subjects_table or Layout(config).downloads / dataset.abide.phenotypes


def scan_path(scan_id: str, dataset: Dataset, config: Config) -> Path:
    """Return the path of a scan's downloaded file."""
    return download_folder(dataset, config) / scan_id / _file_name(scan_id, dataset)


def download_table(dataset: Dataset, config: Config) -> None:
    """Download the table of subjects."""
    about = dataset.abide
    fetch(join(about.base, about.phenotypes), table_path(dataset, config))


def download_scan(scan_id: str, dataset: Dataset, config: Config) -> None:
    """Download one scan's file, and check that series are those of the configured atlas."""
    about, path = dataset.abide, scan_path(scan_id, dataset, config)
    folder = ("Outputs", about.pipeline, about.strategy, about.derivative)
    fetch(join(about.base, *folder, _file_name(scan_id, dataset)), path)
    if dataset.ready_series:
        try:
            _check_series(path, config)
        except DataError:
            path.unlink()  # so that another attempt downloads it again
            raise


def _check_series(path: Path, config: Config) -> None:
    (atlas, place), *_ = config.atlas_places.items()
    labels = atlas_folder(place) / "labels.tsv"
    values = read_table(labels)["value"].tolist() if labels.is_file() else None
    series = read_series(path, values)
    if values is not None:
        check_rois(series, atlas, len(values), path)


def scan_count(dataset: Dataset, config: Config) -> int:
    """Return the number of selected scans, for estimates before the index."""
    where = table_path(dataset, config)
    return len(_selected(dataset, where)) if where.is_file() else N_SELECTED


def download_bytes(dataset: Dataset, config: Config) -> float:
    """Estimate the bytes still to be downloaded, from the sizes in `config/costs.yaml`."""
    kind = "series" if dataset.ready_series else "images"
    bytes_per_scan = 1e6 * read_yaml(ROOT / "config/costs.yaml")["abide_megabytes"][kind]
    where = table_path(dataset, config)
    if not where.is_file():
        return N_SELECTED * bytes_per_scan
    names = _selected(dataset, where)
    return bytes_per_scan * sum(not scan_path(name, dataset, config).is_file() for name in names)


def _selected(dataset: Dataset, where: Path) -> list[str]:
    """Return the scans selected by the paper, `include` and `exclude`."""
    people = select_subjects(read_people(where), dataset, where)
    return people.FILE_ID[people.unusable == ""].tolist()


def _file_name(scan_id: str, dataset: Dataset) -> str:
    return f"{scan_id}_{dataset.abide.derivative}.{'1D' if dataset.ready_series else 'nii.gz'}"
