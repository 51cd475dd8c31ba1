"""The real labelled ABIDE-I series of `../shared` in the form of ready series."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

LABELS = {1: "autism", 2: "control"}  # DX_GROUP


def write_series(source: Path, folder: Path, n_scans: int | None = None) -> Path:
    """Write one .npy a scan and the table of scans into `folder`; returns the table.

    Parameters
    ----------
    source : Path
        The folder `abide1` of the real data.
    n_scans : int, optional
        Every site keeps its share of about this many scans; default: all.
    """
    packed = dict(np.load(source / "cc200_nofilt_noglobal_871.npz"))  # each access to the archive unpacks it anew
    phenotypes = pd.read_csv(source / "Phenotypic_V1_0b_preprocessed1.csv").set_index("FILE_ID")
    names = [str(name) for name in packed["file_id"]]
    step = 1 if n_scans is None else max(1, len(names) // n_scans)
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for i in range(0, len(names), step):
        about = phenotypes.loc[names[i]]
        series = packed["data"][packed["offsets"][i] : packed["offsets"][i + 1]].astype(np.float32)
        np.save(folder / f"{names[i]}.npy", series)
        rows.append(
            {
                "scan_id": names[i],
                "subject": str(about.SUB_ID),
                "file": f"{names[i]}.npy",
                "diagnosis": LABELS[about.DX_GROUP],
                "site": about.SITE_ID,
                "age": about.AGE_AT_SCAN,
                "sex": {1: "M", 2: "F"}[about.SEX],
                "mean_fd": about.func_mean_fd,
            }
        )
    pd.DataFrame(rows).to_csv(folder / "scans.tsv", sep="\t", index=False)
    return folder / "scans.tsv"
