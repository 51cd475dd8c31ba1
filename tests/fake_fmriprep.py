"""A tiny folder of fMRIPrep derivatives in template space, and the participants of its study."""

from __future__ import annotations

import json
from pathlib import Path

import nibabel as nib
import numpy as np
import pandas as pd

SPACE = "MNI152NLin6Asym"
AFFINE = nib.affines.from_matvec(np.diag([6.0, 6, 6]), [-90, -126, -72])  # covers the brain
SHAPE = (31, 37, 31)


def write_fmriprep(root: Path, n_subjects: int = 10, n_volumes: int = 30, seed: int = 0) -> Path:
    """Write derivatives below a study with a table of participants; returns their folder."""
    derivatives = root / "derivatives" / "fmriprep"
    rows = []
    for i in range(n_subjects):
        subject = f"sub-{i + 1:02d}"
        write_scan(derivatives, subject, n_volumes, seed + i)
        rows.append((subject, ["control", "patient"][i % 2], ["A", "B"][i // 2 % 2], 20 + i, "FM"[i // 2 % 2]))
    table = pd.DataFrame(rows, columns=["participant_id", "diagnosis", "site", "age", "sex"])
    table.to_csv(root / "participants.tsv", sep="\t", index=False)
    describe(derivatives)
    return derivatives


def describe(derivatives: Path) -> None:
    """Write what says that fMRIPrep made a folder."""
    about = {"Name": "fMRIPrep", "BIDSVersion": "1.4.0", "DatasetType": "derivative"}
    about["GeneratedBy"] = [{"Name": "fMRIPrep", "Version": "23.2.0"}]
    (derivatives / "dataset_description.json").write_text(json.dumps(about))


def write_scan(derivatives: Path, subject: str, n_volumes: int, seed: int) -> None:
    """Write image, mask, sidecar and confounds of one scan of noise."""
    random = np.random.default_rng(seed)
    values = (1000 + 20 * random.standard_normal((*SHAPE, n_volumes))).astype(np.int16)
    displacement = random.random(n_volumes - 1) / 5
    save_scan(derivatives / subject / "func" / f"{subject}_task-rest", values, displacement)


def save_scan(
    start: Path,
    values: np.ndarray,
    displacement: np.ndarray,
    entities: str = f"space-{SPACE}",
    affine: np.ndarray = AFFINE,
    mask: np.ndarray | None = None,
    tr: float = 2.0,
) -> None:
    """Write a 4D array as fMRIPrep does.

    Parameters
    ----------
    start : Path
        Folder and entities of the acquisition.
    values : (X, Y, Z, T) array
    displacement : (T - 1,) array
        Framewise, in mm.
    entities : str
        Those of the derivative: space, res.
    affine : (4, 4) array
    mask : (X, Y, Z) array, optional
        Default: all voxels.
    tr : float
        Seconds.
    """
    start.parent.mkdir(parents=True, exist_ok=True)
    image = nib.Nifti1Image(values, affine)
    image.header.set_zooms((*image.header.get_zooms()[:3], tr))
    image.header.set_xyzt_units("mm", "sec")
    stem = f"{start}_{entities}"
    nib.save(image, f"{stem}_desc-preproc_bold.nii.gz")
    task = start.name.split("task-")[1].split("_")[0]
    Path(f"{stem}_desc-preproc_bold.json").write_text(json.dumps({"RepetitionTime": tr, "TaskName": task}))
    inside = np.ones(values.shape[:3], np.uint8) if mask is None else mask.astype(np.uint8)
    nib.save(nib.Nifti1Image(inside, affine), f"{stem}_desc-brain_mask.nii.gz")
    confounds = pd.DataFrame({"framewise_displacement": np.r_[np.nan, displacement]})
    confounds.to_csv(f"{start}_desc-confounds_timeseries.tsv", sep="\t", index=False, na_rep="n/a")
