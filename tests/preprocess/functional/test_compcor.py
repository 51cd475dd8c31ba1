"""aCompCor agrees with nipype, and tissue masks are pure."""

from __future__ import annotations

import nibabel as nib
import numpy as np
import pytest
from nipype.algorithms import confounds as nipype_confounds

from bolt.preprocess.functional import confounds

TR = 2.0


def noise() -> np.ndarray:
    """Return (N, T) voxels: two shared fluctuations, a drift, and independent noise."""
    rng = np.random.default_rng(4)
    shared = rng.standard_normal((2, 80))
    mixed = rng.standard_normal((240, 2)) @ (shared * [[3], [1.5]])
    return (1000 + mixed + np.linspace(-20, 20, 80) + rng.standard_normal((240, 80))).astype(np.float32)


def signals(noise: np.ndarray, masks: dict[str, np.ndarray]) -> confounds.TissueSignals:
    tissues = confounds.TissueSignals(masks)
    for volume in noise.T:
        tissues.add(volume)
    return tissues


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


@pytest.mark.parametrize(
    ("tr", "period", "kept"), [(0.8, 80, True), (0.8, 300, False), (3.0, 80, True), (3.0, 150, False)]
)
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
