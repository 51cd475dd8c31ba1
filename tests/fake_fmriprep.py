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
    about = {"Name": "fMRIPrep", "BIDSVersion": "1.4.0", "DatasetType": "derivative"}
    about["GeneratedBy"] = [{"Name": "fMRIPrep", "Version": "23.2.0"}]
    (derivatives / "dataset_description.json").write_text(json.dumps(about))
    return derivatives


def write_scan(derivatives: Path, subject: str, n_volumes: int, seed: int) -> None:
    """Write image, mask, sidecar and confounds of one scan."""
    func = derivatives / subject / "func"
    func.mkdir(parents=True)
    random = np.random.default_rng(seed)
    values = (1000 + 20 * random.standard_normal((*SHAPE, n_volumes))).astype(np.int16)
    image = nib.Nifti1Image(values, AFFINE)
    image.header.set_zooms((6, 6, 6, 2.0))
    image.header.set_xyzt_units("mm", "sec")
    stem = f"{subject}_task-rest_space-{SPACE}"
    nib.save(image, func / f"{stem}_desc-preproc_bold.nii.gz")
    (func / f"{stem}_desc-preproc_bold.json").write_text(json.dumps({"RepetitionTime": 2.0, "TaskName": "rest"}))
    nib.save(nib.Nifti1Image(np.ones(SHAPE, np.uint8), AFFINE), func / f"{stem}_desc-brain_mask.nii.gz")
    confounds = pd.DataFrame({"framewise_displacement": np.r_[np.nan, random.random(n_volumes - 1) / 5]})
    confounds.to_csv(func / f"{subject}_task-rest_desc-confounds_timeseries.tsv", sep="\t", index=False, na_rep="n/a")
