"""nilearn's strategies on real confounds tables with fMRIPrep's old and new names."""

import shutil

import nibabel as nib
import numpy as np
import pandas as pd
import pytest
from nilearn import signal
from nilearn.interfaces.fmriprep import load_confounds_strategy
from nilearn.interfaces.fmriprep.load_confounds_strategy import preset_strategies
from nilearn.maskers import NiftiLabelsMasker

from bolt.atlases.image import Atlas
from bolt.config import STRATEGY_PARAMETERS, Denoise, known, load_denoise, parse
from bolt.io.errors import ConfigError, DataError
from bolt.io.files import read_json, read_table
from bolt.series.denoise import ChosenConfounds, choose_confounds, clean
from bolt.series.parcellate import parcellate, write_parcellated
from tests.series.test_parcellate import save
from tests.shared import shared_data

OLD, NEW = "nilearn_test_desc-confounds_regressors", "nilearn_test-v21_desc-confounds_timeseries"
FULL = "sub-0001_task-anticipation_acq-seq_desc-confounds_regressors.tsv"
STEM = "sub-01_task-rest"
SPACE = "space-MNI152NLin6Asym"
RELAXED = {"fd_threshold": 5.0, "std_dvars_threshold": 5.0, "scrub": 2}
AFFINE = np.diag([4.0, 4, 4, 1])


def derivative(folder, name):
    """Copy a real sidecar to a derivatives folder, and its table as a link, as DataLad does; return its path."""
    source = shared_data("fmriprep")
    path = folder / f"{STEM}_desc-{name.split('_desc-')[1]}.tsv"
    (folder / "annex").mkdir(exist_ok=True)
    path.symlink_to(shutil.copy(source / f"{name}.tsv", folder / "annex/key"))
    shutil.copy(source / f"{name}.json", path.with_suffix(".json"))
    return path


def theirs(folder, strategy, **parameters):
    """Return what nilearn itself selects in a derivatives folder."""
    kind = "smoothAROMAnonaggr" if strategy == "ica_aroma" else "preproc"
    return load_confounds_strategy(str(folder / f"{STEM}_{SPACE}_desc-{kind}_bold.nii.gz"), strategy, **parameters)


@pytest.mark.parametrize("generation", [OLD, NEW])
@pytest.mark.parametrize("strategy", ["simple", "scrubbing", "compcor", "ica_aroma"])
def test_chooses_what_nilearn_chooses(tmp_path, generation, strategy):
    path = derivative(tmp_path, generation)
    parameters = RELAXED if strategy == "scrubbing" else {}
    table, kept = theirs(tmp_path, strategy, **parameters)
    chosen = choose_confounds(path, Denoise(name="x", strategy=strategy, parameters=parameters), 30, "x")
    np.testing.assert_array_equal(chosen.kept, kept)
    changes = [column for column in table if "_derivative1" in column]
    table.loc[kept[0], changes] = table.loc[kept[1], changes]  # as `choose_confounds` does
    np.testing.assert_allclose(chosen.regressors, table.to_numpy())
    assert kept is not None and 2 <= len(kept) < 30  # each table has non-steady-state volumes


def test_series_equal_nilearns_masker_with_its_sample_mask(tmp_path):
    confounds = derivative(tmp_path, OLD)
    rng = np.random.default_rng(0)
    labels = np.zeros((6, 6, 6), np.int32)
    labels[1:3], labels[3:5] = 1, 2
    path = tmp_path / f"{STEM}_{SPACE}_desc-preproc_bold.nii.gz"
    save(path, rng.normal(1000, 40, (6, 6, 6, 30)).astype(np.float32), AFFINE)
    table = pd.DataFrame({"value": [1, 2], "name": ["a", "b"], "network": "n", "hemisphere": "L"})
    atlas = Atlas("two", ["MNI152NLin6Asym"], table, nib.Nifti1Image(labels, AFFINE), "0" * 64)
    parameters = {**RELAXED, "motion": "basic", "wm_csf": "basic"}
    strategy = Denoise(name="scrub", strategy="scrubbing", parameters=parameters)
    results = parcellate(path, [atlas], denoise=strategy, confounds=confounds)
    chosen, kept = theirs(tmp_path, "scrubbing", **parameters)
    masker = NiftiLabelsMasker(nib.Nifti1Image(labels, AFFINE), standardize=None, t_r=2.0)
    expected = masker.fit_transform(path, confounds=chosen, sample_mask=kept)
    np.testing.assert_allclose(results["two"].series, expected, rtol=1e-5)
    write_parcellated(results, tmp_path / "out", "sub-01")
    sidecar = read_json(tmp_path / "out/sub-01_atlas-two_timeseries.json")
    assert (sidecar["NumberOfVolumes"], sidecar["NumberOfVolumesKept"]) == (30, len(kept))
    assert sidecar["KeptVolumes"] == kept.tolist()
    assert len(np.load(tmp_path / "out/sub-01_atlas-two_timeseries.npy")) == len(kept)


@pytest.mark.parametrize("tr", [0.72, 1.5, 2.0])
def test_a_band_is_in_hertz_whatever_the_repetition_time(tr):
    seconds = tr * np.arange(600)
    inside, outside = (np.sin(2 * np.pi * hertz * seconds) for hertz in (0.05, 0.2))
    series, band = np.c_[inside, outside], {"high_pass": 0.01, "low_pass": 0.1}
    cleaned = clean(series, ChosenConfounds(), Denoise(name="band", detrend=True, **band), tr, "x")
    np.testing.assert_allclose(cleaned, signal.clean(series, detrend=True, standardize=None, t_r=tr, **band), atol=1e-9)
    middle = slice(100, -100)
    assert np.corrcoef(cleaned[middle, 0], inside[middle])[0, 1] > 0.99 and cleaned[middle, 0].std() > 0.6
    assert cleaned[middle, 1].std() < 0.05


@pytest.mark.parametrize("dropped", [[0, 1, 98, 99], [40, 41, 58, 59]])
def test_a_filter_sees_nothing_of_dropped_volumes(dropped):
    """Nor where those as far from the other end are dropped, too."""
    rng, band = np.random.default_rng(3), Denoise(name="band", confounds=["*"], high_pass=0.01, low_pass=0.1)
    series, regressors = rng.normal(100, 1, (100, 3)), rng.normal(size=(100, 2))
    series[30] += 30
    kept = np.setdiff1d(np.arange(100), dropped)
    cleaned = clean(series, ChosenConfounds(regressors, kept), band, 2.0, "x")
    assert len(cleaned) == len(kept) and (kept[cleaned.argmax(axis=0)] == 30).all()
    series[dropped] *= 5
    regressors[dropped] *= 5
    np.testing.assert_allclose(clean(series, ChosenConfounds(regressors, kept), band, 2.0, "x"), cleaned)


def test_full_length_table_and_wider_global_signal(tmp_path):
    path = shutil.copy(shared_data("fmriprep") / FULL, tmp_path / FULL)
    simple = choose_confounds(path, load_denoise("simple"), 200, "x")
    assert simple.regressors.shape == (200, 24 + 2 + 5) and simple.kept is None
    strategy = Denoise(name="g", strategy="simple", parameters={"global_signal": "full", "motion": "basic"})
    assert choose_confounds(path, strategy, 200, "x").regressors.shape == (200, 6 + 2 + 5 + 4)
    scrubbed = choose_confounds(path, load_denoise("scrubbing"), 200, "x")
    high = read_table(path).framewise_displacement.to_numpy() > 0.5
    assert high.any() and not high[scrubbed.kept].any()
    with pytest.raises(DataError, match=r"strategy 'compcor' does not fit this table.*json"):
        choose_confounds(path, load_denoise("compcor"), 200, "x")


def test_a_scan_that_cannot_be_cleaned_says_why(tmp_path):
    path = derivative(tmp_path, NEW)
    with pytest.raises(DataError, match="leaves [01] of 30 volumes"):
        choose_confounds(path, load_denoise("scrubbing"), 30, "x")
    for words in (["x"] * 30, ["1,2"] * 30):  # a table with commas has one column of words
        with pytest.raises(DataError, match="confounds that are not numbers: a"):
            choose_confounds(pd.DataFrame({"a": words}), Denoise(name="all", confounds=["*"]), 30, "bold.nii.gz")
    with pytest.raises(DataError, match="30 rows of confounds for 31 volumes"):
        choose_confounds(path, load_denoise("simple"), 31, "x")
    simple = choose_confounds(path, load_denoise("simple"), 30, "x")
    with pytest.raises(DataError, match="would regress 27 confounds on 27 volumes"):
        clean(np.ones((30, 2)), simple, load_denoise("simple"), 2.0, "x")
    series = np.random.default_rng(0).normal(size=(40, 40))
    for keys, most in (({}, 36), ({"detrend": True}, 35), ({"high_pass": 0.01, "low_pass": 0.1}, 11)):
        denoise = Denoise(name="few", confounds=["*"], **keys)  # that band is 36 % of the frequencies at TR = 2 s
        clean(series[:, :4], ChosenConfounds(series[:, :most]), denoise, 2.0, "x")
        with pytest.raises(DataError, match="on 40 volumes, which leaves 2 degrees of freedom, fewer than 3"):
            clean(series[:, :4], ChosenConfounds(series[:, : most + 1]), denoise, 2.0, "x")
    read_table(path).drop(columns="csf").to_csv(path, sep="\t", index=False, na_rep="n/a")
    with pytest.raises(DataError, match=r"does not fit this table \(.*csf"):
        choose_confounds(path, load_denoise("simple"), 30, "x")
    with pytest.raises(DataError, match="file not found"):
        choose_confounds(tmp_path / "none.tsv", load_denoise("simple"), 30, "x")


def test_parameters_are_nilearns_and_shipped_files_name_theirs():
    theirs = {name: set(keys) - {"strategy", "ica_aroma"} for name, keys in preset_strategies.items()}
    assert {name: set(keys) for name, keys in STRATEGY_PARAMETERS.items()} == theirs
    for denoise in map(load_denoise, known("denoising")):
        for name, value in denoise.parameters.items():
            assert preset_strategies[denoise.strategy][name] == value, (denoise.name, name)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"strategy": "simple", "parameters": {"scrub": 5}}, "no parameter 'scrub'; it has motion, wm_csf"),
        ({"strategy": "simple", "confounds": ["trans_x"]}, "brings its own confounds"),
        ({"strategy": "simple", "high_pass": 0.01}, "high-pass filter"),
        ({"parameters": {"motion": "full"}}, "belong to a 'strategy'"),
    ],
)
def test_keys_that_do_not_fit_together_are_refused(keys, words):
    with pytest.raises(ConfigError, match=words):
        parse(Denoise, {"name": "x", **keys}, "x.yaml")


@pytest.mark.parametrize(("name", "columns"), [("24p", 24), ("36p", 36), ("24p_acompcor", 24 + 5)])
@pytest.mark.parametrize(
    ("table", "n_volumes", "cosines", "unsteady"),
    [(f"{OLD}.tsv", 30, 4, 1), (f"{NEW}.tsv", 30, 1, 3), (FULL, 200, 5, 0)],
)
def test_own_strategies_fit_fmripreps_tables(table, n_volumes, cosines, unsteady, name, columns):
    chosen = choose_confounds(shared_data("fmriprep") / table, load_denoise(name), n_volumes, "x")
    expected = columns + (cosines if name == "24p_acompcor" else 0)
    assert chosen.regressors.shape == (n_volumes, expected)
    assert chosen.kept is None if unsteady == 0 else chosen.kept.tolist() == list(range(unsteady, n_volumes))


@pytest.mark.parametrize("denoise", [load_denoise("none"), Denoise(name="m", confounds=["trans_*"], detrend=True)])
def test_volumes_before_the_steady_state_are_dropped_whatever_is_regressed(denoise):
    rng = np.random.default_rng(2)
    table = pd.DataFrame({"trans_x": rng.normal(size=20), "trans_x_derivative1": rng.normal(size=20)})
    table.loc[:1, "trans_x_derivative1"] = np.nan  # like derivatives without a previous volume
    table["non_steady_state_outlier00"], table["non_steady_state_outlier01"] = np.eye(20)[:2]
    chosen = choose_confounds(table, denoise, 20, "x")
    assert chosen.kept.tolist() == list(range(2, 20))
    series = rng.normal(1000, 10, (20, 3))
    bright = series.copy()
    bright[:2] *= 5
    cleaned = clean(bright, chosen, denoise, 2.0, "x")
    np.testing.assert_allclose(cleaned, clean(series, chosen, denoise, 2.0, "x"))
    assert len(cleaned) == 18
    whole = choose_confounds(table, Denoise(name="all", confounds=["*"]), 20, "x")
    assert whole.regressors.shape == (20, 2)  # flags are not regressed


@pytest.mark.parametrize("unsteady", [0, 2])
def test_the_first_derivative_in_the_steady_state_is_the_next_one_unless_the_scan_begins_there(unsteady):
    """The difference from a brighter volume would be a spike in the first row that is regressed."""
    table = pd.DataFrame(np.random.default_rng(0).standard_normal((12, 2)), columns=["csf", "csf_derivative1"])
    expected = table.to_numpy().copy()
    if unsteady:
        expected[unsteady, 1] = expected[unsteady + 1, 1]
    table["non_steady_state_outlier00"] = (np.arange(12) < unsteady).astype(int)
    chosen = choose_confounds(table, Denoise(name="x", confounds=["csf", "csf_derivative1"]), 12, "x")
    np.testing.assert_allclose(chosen.regressors[unsteady:], expected[unsteady:])
    assert chosen.kept.tolist() == list(range(unsteady, 12))
