"""Preprocess a small head and save its ROI series: `python -m tests.preprocess.reproduce HEAD OUT`.

HEAD is the pickled head that tests write. This runs in a separate process, because the number of threads is fixed when
a process starts.
"""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import nibabel as nib
import numpy as np

from bolt.preprocess.anatomical import preprocess_anatomical
from bolt.preprocess.functional.workflow import functional_names
from tests.preprocess.conftest import SCAN, SETTINGS, SPACE, Head, run_functional

VOLUMES = 8
BLOCK = 5
"""Edge of the cubes that serve as ROIs, voxels."""


def roi_series(head: Head, work: Path) -> np.ndarray:
    """Return the (T, R) series of the cubes that lie in the template's brain."""
    bold, anat = work / head.bold.name, work / "sub-01" / "anat"
    work.mkdir()
    nib.save(nib.load(head.bold).slicer[..., :VOLUMES], bold)
    preprocess_anatomical(head.t1w, head.template, SPACE, SETTINGS, anat, work / "work", prefix="sub-01_")
    image = nib.load(run_functional(head, anat, work, bold) / functional_names(SCAN, SPACE)["bold"])
    voxels = np.argwhere(nib.load(head.template / "brain_mask.nii.gz").get_fdata() > 0)
    cubes, where, sizes = np.unique(voxels // BLOCK, axis=0, return_inverse=True, return_counts=True)
    values = image.get_fdata()[tuple(voxels.T)]
    means = np.stack([np.bincount(where.ravel(), volume, len(cubes)) / sizes for volume in values.T])
    return means[:, sizes == BLOCK**3]


if __name__ == "__main__":
    np.save(sys.argv[2], roi_series(pickle.loads(Path(sys.argv[1]).read_bytes()), Path(sys.argv[2]).with_suffix("")))
