"""Preprocess a small head and save its ROI series: `python -m tests.preprocess.reproduce FOLDER OUT`.

It runs in a separate process, because the number of threads is fixed when a process starts.
"""

from __future__ import annotations

import sys
from pathlib import Path

import nibabel as nib
import numpy as np

from bolt.config import load_registration
from bolt.preprocess.anatomical import init_anatomical_wf
from bolt.preprocess.functional import workflow as functional
from bolt.preprocess.functional.workflow import init_functional_wf
from bolt.preprocess.steps import run

SETTINGS = load_registration("testing").model_copy(
    update={
        "working_resolution": 4.0,
        "mask_resolution": 4.0,
        "tissue_resolution": 4.0,
        "affine_iterations": [100, 50, 20],
        "syn_iterations": [20, 10],
    }
)
VOLUMES = 8
BLOCK = 5
"""Edge of the cubes that serve as ROIs, voxels."""


def roi_series(folder: Path, work: Path) -> np.ndarray:
    """Return the (T, R) series of cubes in the template's brain for the head that tests write into `folder`."""
    image = nib.load(folder / "sub-01_task-rest_bold.nii.gz")
    bold = work / "sub-01_task-rest_bold.nii.gz"
    work.mkdir(parents=True)
    nib.save(image.slicer[..., :VOLUMES], bold)
    template = folder / "template"
    given = {"raw": folder / "sub-01_T1w.nii.gz", "template": template / "T1w.nii.gz"}
    given["template_mask"] = template / "brain_mask.nii.gz"
    given = {port: str(path) for port, path in given.items()}
    made = run(init_anatomical_wf(SETTINGS), work / "anat", folder, **given)
    ports = {"mask": "t1w_mask", "forward": "t1w_to_space"}
    given = {ports.get(port, port): path for port, path in made.items()}
    given |= {"bold": str(bold), "template": str(template / "T1w.nii.gz")}
    given = {port: given[port] for port in functional.INPUTS}
    made = run(init_functional_wf(SETTINGS, 4.0, 2.0), work / "func", bold, **given)
    return block_means(nib.load(made["bold"]), nib.load(template / "brain_mask.nii.gz"))


def block_means(bold: nib.Nifti1Image, brain: nib.Nifti1Image) -> np.ndarray:
    """Return (T, R) means over the cubes that are entirely brain."""
    voxels = np.argwhere(brain.get_fdata() > 0)
    cubes, where, sizes = np.unique(voxels // BLOCK, axis=0, return_inverse=True, return_counts=True)
    values = bold.get_fdata()[tuple(voxels.T)]
    means = np.stack([np.bincount(where.ravel(), volume, len(cubes)) / sizes for volume in values.T])
    return means[:, sizes == BLOCK**3]


if __name__ == "__main__":
    np.save(sys.argv[2], roi_series(Path(sys.argv[1]), Path(sys.argv[2]).with_suffix("")))
