"""The real labelled ABIDE-I series of `../shared`, as ready series and as their publisher serves them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from bolt.datasets.abide import RATERS

LABELS = {1: "autism", 2: "control"}  # DX_GROUP


def published(source: Path, n_scans: int | None) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Series by scan, of every site its share of about this many (None: all), and the values of the ROIs."""
    packed = dict(np.load(source / "cc200_nofilt_noglobal_871.npz"))  # each access to the archive unpacks it anew
    names, ends = [str(name) for name in packed["file_id"]], packed["offsets"]
    chosen = range(0, len(names), 1 if n_scans is None else max(1, len(names) // n_scans))
    return {names[i]: packed["data"][ends[i] : ends[i + 1]] for i in chosen}, packed["roi_labels"]


def write_series(source: Path, folder: Path, n_scans: int | None = None) -> Path:
    """Write one .npy a scan and the table of scans into `folder`; returns the table.

    Parameters
    ----------
    source : Path
        The folder `abide1` of the real data.
    n_scans : int, optional
        Every site keeps its share of about this many scans; default: all.
    """
    phenotypes = pd.read_csv(source / "Phenotypic_V1_0b_preprocessed1.csv").set_index("FILE_ID")
    folder.mkdir(parents=True, exist_ok=True)
    scans = published(source, n_scans)[0]
    for name, series in scans.items():
        np.save(folder / f"{name}.npy", series.astype(np.float32))
    about = phenotypes.loc[list(scans)].reset_index()
    facts = {"scan_id": about.FILE_ID, "subject": about.SUB_ID, "file": about.FILE_ID + ".npy"}
    facts |= {"diagnosis": about.DX_GROUP.map(LABELS), "site": about.SITE_ID, "age": about.AGE_AT_SCAN}
    facts |= {"sex": about.SEX.map({1: "M", 2: "F"}), "mean_fd": about.func_mean_fd}
    pd.DataFrame(facts).to_csv(folder / "scans.tsv", sep="\t", index=False)
    return folder / "scans.tsv"


def people(n: int) -> pd.DataFrame:
    """A table of subjects like the project's: all at one site and of good quality, autism and control in turns."""
    numbers = [50000 + i for i in range(n)]
    table = pd.DataFrame({"SUB_ID": numbers, "SITE_ID": "NYU", "FILE_ID": [f"NYU_{number:07d}" for number in numbers]})
    facts = {"DX_GROUP": [1 + i % 2 for i in range(n)], "AGE_AT_SCAN": [10.0 + i for i in range(n)], "SEX": 1}
    return table.assign(**facts, func_mean_fd=0.1, **dict.fromkeys(("qc_rater_1", *RATERS), "OK"))


def write_people(table: pd.DataFrame, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    table.to_csv(path, index=False)
    return path


def bucket_path(bucket: Path, scan_id: str, derivative: str = "rois_cc200") -> Path:
    """Where the project's bucket has a scan's file."""
    ending = "1D" if derivative.startswith("rois_") else "nii.gz"
    return bucket / "Outputs/cpac/nofilt_noglobal" / derivative / f"{scan_id}_{derivative}.{ending}"


def write_bucket(source: Path, bucket: Path, n_scans: int | None = None) -> list[str]:
    """Write a folder like the project's bucket from the real series: a ``.1D`` file a scan, and the table of subjects.

    Parameters
    ----------
    source : Path
        The folder `abide1` of the real data.
    bucket : Path
    n_scans : int, optional
        Every site keeps its share of about this many scans, and the table the rows of these; default: all.

    Returns
    -------
    list of str
        Names of the scans, sorted.
    """
    table = pd.read_csv(source / "Phenotypic_V1_0b_preprocessed1.csv", dtype=str)
    scans, values = published(source, n_scans)
    first_line = "\t".join(f"#{value}" for value in values)
    for name, series in scans.items():
        path = bucket_path(bucket, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = ("\t".join(map("{:.6g}".format, row)) for row in series.astype(float))
        path.write_text("\n".join([first_line, *rows]) + "\n")
    if n_scans is not None:
        table = table[table.FILE_ID.isin(list(scans))]
    write_people(table, bucket / "Phenotypic_V1_0b_preprocessed1.csv")
    return sorted(scans)
