"""Confound time series agree with their definitions and with nipype, and tissue masks are pure."""

from __future__ import annotations

from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from nilearn.interfaces.fmriprep import load_confounds_strategy
from nipype.algorithms import confounds as nipype_confounds

from bolt.config import known, load_denoise
from bolt.io.files import read_json, read_table
from bolt.preprocess import images
from bolt.preprocess.functional import confounds
from bolt.preprocess.functional.confounds import TissueSignals
from bolt.series.denoise import choose_confounds


def test_framewise_displacement_is_powers():
    motion = np.zeros((3, 6))
    motion[1] = [0.1, -0.2, 0.3, 0.01, 0, -0.02]
    motion[2] = motion[1]
    displacement = confounds.framewise_displacement(motion)
    assert np.isnan(displacement[0])
    np.testing.assert_allclose(displacement[1:], [0.6 + 50 * 0.03, 0])


@pytest.fixture
def brain() -> np.ndarray:
    """Return (N, T) autocorrelated voxels."""
    rng = np.random.default_rng(3)
    noise = rng.standard_normal((300, 60))
    for t in range(1, 60):
        noise[:, t] += 0.4 * noise[:, t - 1]
    return (rng.uniform(400, 900, (300, 1)) + 8 * noise).astype(np.float32)


def fed(brain: np.ndarray, *unsteady: int) -> confounds.BrainStatistics:
    statistics = confounds.BrainStatistics(len(brain), *unsteady)
    for volume in brain.T:
        statistics.add(volume)
    return statistics


def tissues(brain: np.ndarray) -> TissueSignals:
    """Take the first third of the voxels as white matter, the second as CSF."""
    place = np.arange(len(brain))
    return signals(brain, {"white_matter": place < 100, "csf": (place >= 100) & (place < 200)})


def signals(voxels: np.ndarray, masks: dict[str, np.ndarray]) -> TissueSignals:
    tissues = TissueSignals(masks)
    for volume in voxels.T:
        tissues.add(volume)
    return tissues


def written(brain: np.ndarray, rows: np.ndarray, folder: Path, unsteady: int = 0) -> Path:
    """Write the table of a scan whose head moves by `rows` (T, 6)."""
    matrices = np.stack([images.rigid_matrix(row, np.zeros(3)) for row in rows])
    confounds.write_motion(matrices, np.zeros(3), folder / "motion.tsv")
    path = folder / "sub-01_task-rest_desc-confounds_timeseries.tsv"
    confounds.write_confounds(folder / "motion.tsv", fed(brain, unsteady), tissues(brain), 2.0, path)
    return path


@pytest.fixture
def quiet() -> np.ndarray:
    """Return the (T, 6) motion of a head that hardly moves."""
    return np.random.default_rng(2).normal(0, [0.02] * 3 + [0.0003] * 3, (60, 6))


def test_dvars_agree_with_nipype(brain, tmp_path, monkeypatch):
    """nipype takes the autocorrelation from a package that is not installed; its definition replaces it."""
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
    statistics, constant = fed(brain), fed(np.full((10, 5), 7, dtype=np.float32))
    np.testing.assert_allclose(statistics.global_signal, brain.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(statistics.tsnr, brain.mean(axis=1) / brain.std(axis=1, ddof=1), rtol=1e-3)
    assert np.isnan(constant.dvars()[1]).all() and (constant.tsnr == 0).all()


def test_tables_are_written_and_read_back(brain, tmp_path):
    centre = np.array([1.0, -20, 15])
    rows = np.random.default_rng(1).normal(0, [0.5] * 3 + [0.01] * 3, (60, 6))
    matrices = np.stack([images.rigid_matrix(row, centre) for row in rows])
    confounds.write_motion(matrices, centre, tmp_path / "motion.tsv")
    np.testing.assert_allclose(confounds.read_motion(tmp_path / "motion.tsv"), matrices, atol=1e-9)
    path = written(brain, rows, tmp_path)
    table, cells = read_table(path), path.read_text().split()
    assert list(table.columns[:6]) == list(confounds.MOTION)
    np.testing.assert_allclose(table[list(confounds.MOTION)], rows, atol=1e-9)
    # two kinds of displacement, two of DVARS, and two derivatives of six positions and three signals
    assert path.read_text().splitlines()[1].count("n/a") == 4 + 2 * 9
    digits = [cell.lstrip("-0.").split("e")[0].replace(".", "") for cell in cells]
    assert max(len(cell) for cell in digits if cell.isdigit()) == 12
    np.testing.assert_allclose(table.rot_y_derivative1_power2[1:], np.diff(rows[:, 4]) ** 2, atol=1e-9)
    for name, voxels in (("csf", brain[100:200]), ("white_matter", brain[:100]), ("csf_wm", brain[:200])):
        np.testing.assert_allclose(table[name], voxels.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(table.csf_derivative1_power2[1:], np.diff(table.csf) ** 2, rtol=1e-6)
    about = read_json(path.with_suffix(".json"))
    assert set(about) == set(table.columns)
    sizes = {"csf": 100, "white_matter": 100, "csf_wm": 200, "c_comp_cor_00": 100, "a_comp_cor_00": 200}
    assert {name: about[name]["MaskVoxels"] for name in sizes} == sizes


def test_jenkinsons_displacement_is_the_mean_over_a_sphere():
    rng = np.random.default_rng(5)
    centre = np.array([3.0, -20, 12])
    matrices = np.stack([images.rigid_matrix(row, centre) for row in rng.normal(0, [1] * 3 + [0.03] * 3, (2, 6))])
    inside = rng.uniform(-80, 80, (400_000, 3))
    inside = inside[np.linalg.norm(inside, axis=1) < 80] + centre
    before = images.apply(np.linalg.inv(matrices[0]), inside)
    moved = images.apply(matrices[1], before) - inside
    rmsd = confounds.root_mean_square_displacement(matrices, centre)
    assert np.isnan(rmsd[0])
    np.testing.assert_allclose(rmsd[1], np.sqrt((moved**2).sum(axis=1).mean()), rtol=5e-3)


def test_volumes_before_the_steady_state_have_no_say(brain, quiet, tmp_path):
    bright = brain.copy()
    bright[:, :2] *= [1.5, 1.2]
    np.testing.assert_allclose(fed(bright, 2).tsnr, fed(brain[:, 2:]).tsnr, rtol=1e-4)
    path = written(bright, quiet, tmp_path, unsteady=2)
    table, names = read_table(path), [f"non_steady_state_outlier0{i}" for i in (0, 1)]
    assert [c for c in table if c.startswith("non_steady")] == names
    assert "non-steady-state" in read_json(path.with_suffix(".json"))[names[1]]["Description"]
    np.testing.assert_array_equal(table.filter(like="non_steady").iloc[:3], [[1, 0], [0, 1], [0, 0]])
    assert table.std_dvars[:3].isna().all() and table.std_dvars[3:].notna().all()
    np.testing.assert_allclose(table.std_dvars[3:], fed(brain[:, 2:]).dvars()[1][1:], rtol=1e-4)
    assert (table.filter(regex="comp_cor|cosine").iloc[:2] == 0).all(axis=None)
    assert not [c for c in table if c.startswith("motion_outlier")]


def test_motion_outliers_are_volumes_above_the_thresholds(brain, quiet, tmp_path):
    quiet[20:, 0] += 0.7
    brain[:, 40] += 60
    path = written(brain, quiet, tmp_path)
    table, about = read_table(path), read_json(path.with_suffix(".json"))
    assert "above 0.5 mm" in about["motion_outlier00"]["Description"] and set(about) == set(table)
    flags = table.filter(like="motion_outlier").to_numpy()
    np.testing.assert_array_equal(np.flatnonzero(flags.sum(axis=1)), [20, 40, 41])
    assert (flags.sum(axis=0) == 1).all()


def test_nilearn_reads_our_files(brain, quiet, tmp_path):
    brain[:, 0] *= 1.4
    quiet[30:, 1] += 0.9
    written(brain, quiet, tmp_path, unsteady=1)
    image = tmp_path / "sub-01_task-rest_space-MNI152NLin6Asym_desc-preproc_bold.nii.gz"
    wanted = {"simple": {"csf", "white_matter"}, "scrubbing": {"csf_derivative1"}, "compcor": {"a_comp_cor_00"}}
    for strategy, columns in wanted.items():
        table, kept = load_confounds_strategy(str(image), strategy)
        assert {"rot_z_derivative1_power2", "cosine00"} | columns <= set(table), strategy
        assert 0 not in kept and (30 in kept) == (strategy != "scrubbing")


def test_every_shipped_strategy_finds_its_columns(brain, quiet, tmp_path):
    table = read_table(written(brain, quiet, tmp_path))
    for denoise in map(load_denoise, known("denoising")):
        if denoise.strategy is None:
            chosen = choose_confounds(table, denoise, 60, "scan.nii.gz")
            found = 0 if chosen.regressors is None else chosen.regressors.shape[1]
            assert found >= len(denoise.confounds), denoise


TR = 2.0


def noise() -> np.ndarray:
    """Return (N, T) voxels: two shared fluctuations, a drift, and independent noise."""
    rng = np.random.default_rng(4)
    shared = rng.standard_normal((2, 80))
    mixed = rng.standard_normal((240, 2)) @ (shared * [[3], [1.5]])
    return (1000 + mixed + np.linspace(-20, 20, 80) + rng.standard_normal((240, 80))).astype(np.float32)


def test_components_are_nipypes():
    shape, places, voxels = (8, 10, 3), np.arange(240), noise()
    masks = {"white_matter": places < 90, "csf": places >= 150}
    table, metadata = signals(voxels, masks).components(TR, 0)
    both = [masks["white_matter"] | masks["csf"], masks["csf"], masks["white_matter"]]
    theirs, basis, about = nipype_confounds.compute_noise_components(
        voxels.reshape(*shape, 80),
        [nib.Nifti1Image(mask.reshape(shape).astype(np.uint8), np.eye(4)) for mask in both],
        filter_type="cosine",
        period_cut=100,  # nipype counts the constant as a cosine; this gives our two cosines
        repetition_time=TR,
        mask_names=["combined", "CSF", "WM"],
    )
    assert list(table)[:1] == ["a_comp_cor_00"] and table.shape == theirs.shape
    likeness = [abs(np.corrcoef(ours, column)[0, 1]) for ours, column in zip(table.to_numpy().T, theirs.T, strict=True)]
    assert min(likeness) > 0.999
    kept = np.asarray(about["retained"])
    assert [entry["Mask"] for entry in metadata.values()] == list(np.asarray(about["mask"])[kept])
    for key, name in (("VarianceExplained", "variance_explained"), ("SingularValue", "singular_value")):
        np.testing.assert_allclose([entry[key] for entry in metadata.values()], about[name][kept], rtol=1e-3)
    ours = np.linalg.qr(confounds.cosine_drift(80, TR))[0]
    np.testing.assert_allclose(np.abs(ours.T @ basis / np.linalg.norm(basis, axis=0)).max(axis=1), 1, rtol=1e-6)


@pytest.mark.parametrize(("tr", "period", "kept"), [(0.8, 80, True), (0.8, 300, False), (3.0, 150, False)])
def test_only_what_is_slower_than_the_period_in_seconds_is_drift(tr, period, kept):
    """128 s, whatever the repetition time."""
    rng, seconds = np.random.default_rng(1), tr * np.arange(400)
    wave = np.sin(2 * np.pi * seconds / period)
    series = (1000 + 2 * wave + rng.standard_normal((90, 400))).astype(np.float32)
    table, _ = signals(series, {"csf": np.ones(90, dtype=bool)}).components(tr, 0)
    assert not [name for name in table if name.startswith(("a", "w"))]  # no white matter
    likeness = max(abs(np.corrcoef(wave, column)[0, 1]) for column in table.to_numpy().T)
    assert likeness > 0.9 if kept else likeness < 0.3


def test_a_thinned_tissue_weighs_as_much_as_before(monkeypatch):
    rng = np.random.default_rng(0)
    fluid, white = np.linalg.qr(rng.standard_normal((80, 2)))[0].T
    series = np.concatenate([np.tile(fluid, (40, 1)), np.tile(white, (400, 1))]) + 0.05 * rng.standard_normal((440, 80))
    masks = {"csf": np.arange(440) < 40, "white_matter": np.arange(440) >= 40}
    whole, about = signals(series, masks).components(TR, 0)
    monkeypatch.setattr(confounds, "MAX_VOXELS", 40)
    thinned, described = signals(series, masks).components(TR, 0)
    name = "a_comp_cor_00"
    assert abs(np.corrcoef(thinned[name], white)[0, 1]) > 0.95  # not the mean of both
    assert abs(np.corrcoef(thinned[name], whole[name])[0, 1]) > 0.99
    for key in ("SingularValue", "VarianceExplained"):
        assert described[name][key] == pytest.approx(about[name][key], rel=0.05)


def test_only_pure_voxels_are_taken():
    share = np.concatenate([np.full(500, 1.0), np.full(500, 0.9), np.full(500, 0.2)])
    assert confounds.purest(share).sum() == 500
    few = np.concatenate([np.full(20, 1.0), np.linspace(0.9, 0.3, 500)])
    chosen = confounds.purest(few)
    assert chosen.sum() == 100 and chosen[:100].all()  # the purest if few are pure
    assert not confounds.purest(np.full(50, 0.4)).any()


def test_a_voxel_is_as_pure_as_what_it_mixes():
    tissue = np.zeros((20, 20, 20))
    tissue[5:15, 5:15, 5:15] = 1
    share = confounds.voxel_share(tissue, np.ones(3), 3.0)
    assert share[10, 10, 10] == pytest.approx(1) and share[5, 10, 10] == pytest.approx(2 / 3)
    finer = confounds.voxel_share(tissue, np.array([1.0, 2.0, 0.5]), 6.0)  # 6, 3 and 12 voxels, of which tissue has 10
    assert finer[10, 10, 10] == pytest.approx(10 / 12) and finer[10, 5, 10] == pytest.approx(2 / 3 * 10 / 12)


def test_the_mean_of_both_tissues_weighs_them_by_their_voxels():
    series = np.array([[1, 2], [1, 4], [1, 6], [9, 10]], np.float32)  # three voxels of fluid, one of white matter
    fluid = np.array([True, True, True, False])
    means = signals(series, {"csf": fluid, "white_matter": ~fluid}).means()
    assert {name: values.tolist() for name, values in means.items()} == {
        "csf": [1, 4], "white_matter": [9, 10], "csf_wm": [3, 5.5],
    }  # fmt: skip
    assert set(signals(series, {"csf": fluid}).means()) == {"csf"}
