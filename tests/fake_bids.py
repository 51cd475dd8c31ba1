"""A tiny raw BIDS dataset, valid until a test breaks it."""

from __future__ import annotations

import json
from pathlib import Path

import nibabel as nib
import numpy as np

AFFINE = np.diag([4.0, 4.0, 4.0, 1.0])


def write_bids(root: Path, n_subjects: int = 8, n_volumes: int = 30, tr: float = 2.0) -> Path:
    """Write `n_subjects` with one T1w and one BOLD run each, half of them patients."""
    rows = ["participant_id\tdiagnosis\tsite\tage\tsex"]
    for i in range(n_subjects):
        subject = f"sub-{i + 1:02d}"
        rows.append(f"{subject}\t{'patient' if i % 2 else 'control'}\tA\t{20 + i}\tF")
        write_subject(root, subject, n_volumes, tr)
    (root / "participants.tsv").write_text("\n".join(rows) + "\n")
    (root / "dataset_description.json").write_text(json.dumps({"Name": "fake", "BIDSVersion": "1.10.0"}))
    return root


def write_subject(root: Path, subject: str, n_volumes: int = 30, tr: float = 2.0) -> None:
    anat, func = root / subject / "anat", root / subject / "func"
    anat.mkdir(parents=True)
    func.mkdir(parents=True)
    nib.save(nib.Nifti1Image(np.ones((6, 6, 6), np.int16), AFFINE), anat / f"{subject}_T1w.nii.gz")
    save_bold(bold_path(root, subject), np.ones((4, 4, 4, n_volumes), np.int16), tr)
    sidecar = {"RepetitionTime": tr, "TaskName": "rest"}
    (func / f"{subject}_task-rest_bold.json").write_text(json.dumps(sidecar))


def save_bold(path: Path, data: np.ndarray, tr: float = 2.0) -> None:
    image = nib.Nifti1Image(data, AFFINE)
    image.header.set_xyzt_units("mm", "sec")
    if data.ndim == 4:
        image.header.set_zooms((4, 4, 4, tr))
    nib.save(image, path)


def bold_path(root: Path, subject: str) -> Path:
    return root / subject / "func" / f"{subject}_task-rest_bold.nii.gz"
