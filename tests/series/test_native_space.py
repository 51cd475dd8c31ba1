"""Native series by hand: an image whose voxels are numbered, transforms that move it by whole voxels."""

from __future__ import annotations

import json
from pathlib import Path

import nibabel as nib
import numpy as np
import pandas as pd
import pytest

from bolt.atlases.image import Atlas
from bolt.config import Denoise, load_denoise
from bolt.io.errors import DataError
from bolt.io.volumes import BoldInfo
from bolt.preprocess import images
from bolt.preprocess.functional.confounds import write_motion
from bolt.series.native_space import Transforms, _followed, parcellate_native

SPACE = "MNI152NLin6Asym"
SHAPE, T, SIZE = (9, 8, 7), 6, 3.0
AFFINE = np.diag([SIZE, SIZE, SIZE, 1.0])
RANDOM = np.random.default_rng(0)
DATA = RANDOM.uniform(100, 200, (*SHAPE, T)).astype(np.float32)
ROI = (slice(4, 6), slice(3, 5), slice(2, 4))
"""Voxels of the ROI in the BOLD."""


def translation(x: float, y: float, z: float) -> np.ndarray:
    matrix = np.eye(4)
    matrix[:3, 3] = x, y, z
    return matrix


def atlas() -> Atlas:
    """One ROI; a point p of the T1w is at p + 3 mm (x) in the template, and at p - 6 mm (y) in the BOLD."""
    labels = np.zeros((12, 12, 12), np.int32)
    # BOLD voxels 4:6, 3:5, 2:4 are T1w voxels 4:6, 5:7, 2:4 and template voxels 5:7, 5:7, 2:4
    labels[5:7, 5:7, 2:4] = 31
    labels[0, 11, 11] = 77  # beyond the field of view
    table = pd.DataFrame({"value": [31, 77], "name": ["a", "b"], "network": "n", "hemisphere": "L"})
    return Atlas("made", [SPACE], table, nib.Nifti1Image(labels, AFFINE), "0" * 64)


@pytest.fixture
def known(tmp_path: Path) -> Transforms:
    image = nib.Nifti1Image(DATA, AFFINE)
    image.header.set_xyzt_units("mm", "sec")
    image.header.set_zooms((SIZE, SIZE, SIZE, 2.0))
    nib.save(image, tmp_path / "sub-01_bold.nii.gz")
    # ITK's names: the file that brings an image onto a grid maps points of the grid to points of the image
    for name, matrix in {
        "inverse": translation(SIZE, 0, 0),
        "forward": translation(-SIZE, 0, 0),
        "bold_to_t1w": translation(0, -2 * SIZE, 0),
    }.items():
        images.write_matrix(matrix, tmp_path / f"{name}.txt")
    write_motion(np.repeat(np.eye(4)[None], T, axis=0), np.zeros(3), tmp_path / "motion.tsv")
    images.save(np.ones(SHAPE), AFFINE, tmp_path / "mask.nii.gz", "uint8")
    pd.DataFrame({"csf": RANDOM.standard_normal(T)}).to_csv(tmp_path / "confounds.tsv", sep="\t", index=False)
    return Transforms(
        *(tmp_path / f"{name}.txt" for name in ("forward", "inverse", "bold_to_t1w")),
        *(tmp_path / name for name in ("motion.tsv", "mask.nii.gz", "confounds.tsv")),
    )


def series(known: Transforms, denoise: Denoise | None = None, **keys: object) -> tuple[np.ndarray, pd.DataFrame, dict]:
    given = {"space": SPACE, "denoise": denoise or load_denoise("none"), "tr": 2.0, "threshold": 0.5}
    given |= {"slice_timing": False} | keys
    image = known.mask.with_name("sub-01_bold.nii.gz")
    result = parcellate_native(image, [atlas()], known, **given)["made"]  # type: ignore[arg-type]
    return result.series, result.coverage.set_index("value"), result.metadata


def test_the_atlas_is_brought_to_the_scan_through_both_transforms(known: Transforms) -> None:
    found, coverage, metadata = series(known)
    np.testing.assert_allclose(found[:, 0], DATA[ROI].mean((0, 1, 2)), rtol=1e-6)
    assert np.isnan(found[:, 1]).all()
    assert coverage["n_voxels"].tolist() == [8, 0] and coverage["inside"].tolist() == [1, 0]
    assert coverage["covered"].tolist() == [1, 0] and coverage["coverage"].tolist() == [1, 0]
    assert metadata["Space"] == "native" and metadata["Atlas"] == "made"
    assert metadata["RepetitionTime"] == 2 and metadata["CoverageThreshold"] == 0.5


def test_voxels_without_a_brain_do_not_count(known: Transforms) -> None:
    mask = np.ones(SHAPE)
    mask[4, 3:5, 2:4] = 0
    images.save(mask, AFFINE, known.mask, "uint8")
    found, coverage, _ = series(known)
    np.testing.assert_allclose(found[:, 0], DATA[5, 3:5, 2:4].mean((0, 1)), rtol=1e-6)
    assert coverage["n_masked"].tolist() == [4, 0] and coverage.at[31, "coverage"] == 0.5
    with pytest.raises(DataError, match="no ROI of atlas 'made' is covered"):
        series(known, threshold=0.51)


def test_a_head_that_moves_is_followed(known: Transforms) -> None:
    """By one voxel (x) in the last three volumes, and by less than half a voxel besides, which changes no voxel."""
    matrices = np.stack([translation(SIZE * (t >= 3) + 1.4 * (t % 3 - 1), 1.4, -1.4) for t in range(T)])
    write_motion(matrices, np.zeros(3), known.motion)
    found, _, _ = series(known)
    expected = [DATA[4 + (t >= 3) : 6 + (t >= 3), 3:5, 2:4, t].mean() for t in range(T)]
    np.testing.assert_allclose(found[:, 0], expected, rtol=1e-6)


def test_volumes_before_the_steady_state_are_dropped_and_confounds_regressed(known: Transforms) -> None:
    table = pd.read_csv(known.confounds, sep="\t").assign(non_steady_state_outlier00=[1, 0, 0, 0, 0, 0])
    table.to_csv(known.confounds, sep="\t", index=False)
    found, _, metadata = series(known, Denoise(name="x", confounds=["csf"]))
    means, regressor = DATA[ROI].mean((0, 1, 2))[1:].astype(float), table["csf"].to_numpy()[1:]
    regressor = regressor - regressor.mean()
    rest = means - means.mean()
    expected = means.mean() + rest - regressor * (rest @ regressor) / (regressor @ regressor)
    np.testing.assert_allclose(found[:, 0], expected, rtol=1e-5)
    assert list(metadata["KeptVolumes"]) == [1, 2, 3, 4, 5] and metadata["NumberOfVolumes"] == 6


def test_slices_are_corrected_only_if_asked_for(known: Transforms) -> None:
    """Slice 2 at once, slice 3 half a repetition later: all are brought to the middle of the volume."""
    times = [0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0]
    about = {"RepetitionTime": 2.0, "SliceTiming": times}
    known.mask.with_name("sub-01_bold.json").write_text(json.dumps(about))
    plain, corrected = (series(known, slice_timing=asked)[0][:, 0] for asked in (False, True))
    np.testing.assert_allclose(plain, DATA[ROI].mean((0, 1, 2)), rtol=1e-6)
    assert np.abs(corrected - plain).max() > 1


def test_what_leaves_the_field_of_view_takes_the_edge() -> None:
    info = BoldInfo(SHAPE, AFFINE, (SIZE, SIZE, SIZE), 2, 2.0, 2.0)
    voxels = np.array([0, int(np.prod(SHAPE)) - 1])  # the first and the last voxel
    motion = np.stack([translation(-10 * SIZE, 0, 0), translation(2 * SIZE, 3 * SIZE, 4 * SIZE)])
    first, second = _followed(iter([DATA[..., 0], DATA[..., 1]]), voxels, motion, info)
    assert first.tolist() == [DATA[0, 0, 0, 0], DATA[0, 7, 6, 0]]
    assert second.tolist() == [DATA[2, 3, 4, 1], DATA[8, 7, 6, 1]]
