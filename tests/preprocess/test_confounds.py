"""Confound time series against definitions and against nipype."""

from __future__ import annotations

import nibabel as nib
import numpy as np
import pytest
from nipype.algorithms import confounds as nipype_confounds

from bolt.config import known, load_denoise
from bolt.denoise import choose_confounds
from bolt.files import read_json, read_table
from bolt.preprocess import confounds, images


def test_framewise_displacement_is_powers():
    motion = np.zeros((3, 6))
    motion[1] = [0.1, -0.2, 0.3, 0.01, 0, -0.02]
    motion[2] = motion[1]
    found = confounds.framewise_displacement(motion)
    assert np.isnan(found[0])
    np.testing.assert_allclose(found[1:], [0.6 + 50 * 0.03, 0])


@pytest.fixture
def brain() -> np.ndarray:
    """(N, T) autocorrelated voxels."""
    rng = np.random.default_rng(3)
    noise = rng.standard_normal((300, 60))
    for t in range(1, 60):
        noise[:, t] += 0.4 * noise[:, t - 1]
    return (rng.uniform(400, 900, (300, 1)) + 8 * noise).astype(np.float32)


def fed(brain: np.ndarray) -> confounds.BrainStatistics:
    statistics = confounds.BrainStatistics(len(brain))
    for volume in brain.T:
        statistics.add(volume)
    return statistics


def test_dvars_agree_with_nipype(brain, tmp_path, monkeypatch):
    """nipype takes the autocorrelation from a package that is not a dependency; its definition is put there."""
    monkeypatch.setattr(nipype_confounds, "_AR_est_YW", lambda x, order: (x[1:] * x[:-1]).sum() / (x * x).sum())
    shape = (10, 10, 3)
    nib.save(nib.Nifti1Image(brain.reshape(*shape, 60), np.eye(4)), tmp_path / "bold.nii.gz")
    nib.save(nib.Nifti1Image(np.ones(shape, np.uint8), np.eye(4)), tmp_path / "mask.nii.gz")
    paths = [str(tmp_path / name) for name in ("bold.nii.gz", "mask.nii.gz")]
    theirs_std, theirs, _ = nipype_confounds.compute_dvars(*paths)
    ours, ours_std = fed(brain).dvars()
    assert np.isnan(ours[0]) and np.isnan(ours_std[0])
    np.testing.assert_allclose(ours[1:], theirs, rtol=1e-4)
    np.testing.assert_allclose(ours_std[1:], theirs_std, rtol=1e-3)


def test_a_sample_of_voxels_stands_for_the_brain(brain, monkeypatch):
    whole = fed(brain).dvars()[1]
    monkeypatch.setattr(confounds, "SAMPLE", 100)
    np.testing.assert_allclose(fed(brain).dvars()[1][1:], whole[1:], rtol=0.03)


def test_global_signal_and_tsnr(brain):
    statistics = fed(brain)
    np.testing.assert_allclose(statistics.global_signal, brain.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(statistics.tsnr, brain.mean(axis=1) / brain.std(axis=1, ddof=1), rtol=1e-3)


def test_a_constant_brain_has_no_standardised_dvars():
    statistics = fed(np.full((10, 5), 7, dtype=np.float32))
    assert np.isnan(statistics.dvars()[1]).all()
    assert (statistics.tsnr == 0).all()


def test_tables_are_written_and_read_back(brain, tmp_path):
    rng = np.random.default_rng(1)
    centre = np.array([1.0, -20, 15])
    rows = rng.normal(0, [0.5] * 3 + [0.01] * 3, (60, 6))
    matrices = np.stack([images.rigid_matrix(row, centre) for row in rows])
    confounds.write_motion(matrices, centre, tmp_path / "motion.tsv")
    np.testing.assert_allclose(confounds.read_motion(tmp_path / "motion.tsv"), matrices, atol=1e-9)
    confounds.write_confounds(tmp_path / "motion.tsv", fed(brain), tmp_path / "confounds.tsv")
    table = read_table(tmp_path / "confounds.tsv")
    assert list(table.columns[:6]) == list(confounds.MOTION)
    np.testing.assert_allclose(table[list(confounds.MOTION)], rows, atol=1e-9)
    assert (tmp_path / "confounds.tsv").read_text().splitlines()[1].count("n/a") == 3 + 2 * 6
    np.testing.assert_allclose(table.rot_y_derivative1_power2[1:], np.diff(rows[:, 4]) ** 2, atol=1e-9)


@pytest.mark.parametrize("strategy", [name for name in known("denoising") if load_denoise(name).strategy is None])
def test_every_shipped_strategy_finds_its_columns(brain, tmp_path, strategy):
    matrices = np.tile(np.eye(4), (60, 1, 1))
    matrices[:, 0, 3] = np.random.default_rng(2).normal(size=60)
    confounds.write_motion(matrices, np.zeros(3), tmp_path / "motion.tsv")
    confounds.write_confounds(tmp_path / "motion.tsv", fed(brain), tmp_path / "confounds.tsv")
    table, denoise = read_table(tmp_path / "confounds.tsv"), load_denoise(strategy)
    chosen = choose_confounds(table, denoise, 60, "scan.nii.gz")
    assert (0 if chosen.regressors is None else chosen.regressors.shape[1]) >= len(denoise.confounds)
    assert set(read_json(tmp_path / "confounds.json")) == set(table.columns)
