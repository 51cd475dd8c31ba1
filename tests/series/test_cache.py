"""Z-scoring, a cache that drops nothing silently, and correlations of whole scans, which are never NaN."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from bolt.datasets import COLUMNS
from bolt.io.errors import ConfigError, DataError
from bolt.io.files import read_json, read_table, sha256, write_json, write_status
from bolt.series import cache as module
from bolt.series.cache import SeriesCache, connectivity, connectivity_of, n_pairs, zscore
from bolt.series.gather import build_cache
from tests.caches import reseal

NAMES = ["07", "300", "4001"]  # text, as where an atlas has values alone
ROIS = pd.DataFrame({"value": [7, 300, 4001], "name": NAMES, "network": ["1", None, "2"], "hemisphere": "L"})


def numbers(n=5, r=3, seed=0):
    return np.random.default_rng(seed).normal(100, 10, (n, r)).astype(np.float32)


def test_zscore():
    series = numbers(50, 4)
    series[:, 1] = 7.3
    series[:, 2] = np.nan
    z = zscore(series)
    assert z.dtype == np.float32
    np.testing.assert_allclose(z[:, [0, 3]].mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(z[:, [0, 3]].std(axis=0), 1, rtol=1e-6)  # ddof 0
    assert (z[:, [1, 2]] == 0).all()
    wave = np.sin(np.arange(200))  # a large offset costs no precision
    np.testing.assert_allclose(zscore(1e4 + wave[:, None])[:, 0], (wave - wave.mean()) / wave.std(), atol=1e-5)


@pytest.fixture
def made(tmp_path):
    """Write four parcellated scans of different length; the third was excluded."""
    rows = []
    for k, name in enumerate(["001", "002", "003", "004"]):
        folder = tmp_path / "series" / name
        folder.mkdir(parents=True)
        np.save(folder / "a.npy", numbers(10 + k, seed=k))
        error = DataError("cut off") if name == "003" else None
        write_status(folder / "status.json", "excluded" if error else "ok", "parcellate", error)
        write_json({"Atlas": "cubes"}, folder / "a.json")
        rows.append({"scan_id": name, "subject": name, "group": name, "label": "1", "tr": 2.0})
    rows.append({"scan_id": "005", "subject": "005", "exclude_reason": "no label"})
    scans = pd.DataFrame(rows).reindex(columns=list(COLUMNS))

    def build(**options):
        return build_cache(scans, "cubes", ROIS, lambda row: build.series / row.scan_id / "a.npy", build.out, **options)

    build.scans, build.series, build.out = scans, tmp_path / "series", tmp_path / "cache"
    return build


def test_cache_holds_every_usable_scan(made):
    excluded = made(expected={"Atlas": "cubes"})
    cache = SeriesCache(made.out)
    index = cache.index[["scan_id", "label", "length", "offset"]].T.to_numpy().tolist()
    assert index == [["001", "002", "004"], ["1"] * 3, [10, 11, 13], [0, 10, 21]]  # text keeps leading zeros
    assert (len(cache), cache.n_rois, cache.rois.name.tolist()) == (3, 3, NAMES)
    assert cache.rois.network.dropna().tolist() == ["1", "2"]
    for i, seed in enumerate((0, 1, 3)):
        assert isinstance(cache.series(i), np.memmap)
        np.testing.assert_array_equal(cache.series(i), zscore(numbers(10 + seed, seed=seed)))
    assert excluded.to_numpy().tolist() == [["003", "parcellate", "cut off."], ["005", "index", "no label"]]
    assert (cache.manifest["policy"], cache.manifest["settings"]) == ("zero", {"Atlas": "cubes"})
    tables = {f"{name}{end}" for name in ("coverage", "index", "rois", "warnings") for end in (".json", ".tsv")}
    assert {path.name for path in made.out.iterdir()} == tables | {"manifest.json", "series.npy"}


def uncover(made, name, column, value=np.nan):
    path = made.series / name / "a.npy"
    series = np.load(path)
    series[:, column] = value
    np.save(path, series)


def reasons(excluded):
    return excluded.set_index("scan_id").reason.to_dict()


def kept(made):
    return SeriesCache(made.out).index.scan_id.tolist()


def test_policy_zero(made):
    uncover(made, "002", 1)
    uncover(made, "004", 0, 5.0)
    made()
    cache = SeriesCache(made.out)
    assert (cache.series(1)[:, 1] == 0).all() and (cache.series(2)[:, 0] == 0).all()
    assert np.isfinite(np.load(made.out / "series.npy")).all()
    coverage = read_table(made.out / "coverage.tsv")
    assert coverage[["n_uncovered", "n_constant", "kept"]].T.to_numpy().tolist() == [[0, 1, 0], [1, 0, 0], [1, 1, 1]]


@pytest.mark.parametrize("policy", ["zero", "drop-scan", "drop-dead-scan", "drop-roi-everywhere"])
def test_policies_are_blind_to_labels(made, policy):
    uncover(made, "002", 1)
    made.scans["label"] = ["1", "1", "2", "2", None]
    excluded = made(policy=policy)
    first = SeriesCache(made.out).manifest["sha256"]["series.npy"]
    made.scans["label"] = ["2", "2", "1", "1", None]
    pd.testing.assert_frame_equal(made(policy=policy), excluded)
    assert SeriesCache(made.out).manifest["sha256"]["series.npy"] == first


def test_policies_drop_scans_with_uncovered_or_dead_rois(made):
    """Dead ones are those of the published code; a constant series that is not zero stays, as it does there."""
    uncover(made, "002", 1, 0.0)
    uncover(made, "004", 1, 5.0)
    assert list(reasons(made(policy="drop-scan"))) == ["003", "005"]
    assert reasons(made(policy="drop-dead-scan"))["002"] == "1 ROIs not covered or all zero: 300"
    assert kept(made) == ["001", "004"]
    uncover(made, "004", 1)
    assert reasons(made(policy="drop-dead-scan"))["004"] == "1 ROIs not covered or all zero: 300"
    assert reasons(made(policy="drop-scan"))["004"] == "1 ROIs not covered: 300"
    assert kept(made) == ["001", "002"]


def test_policy_drop_roi_everywhere(made):
    uncover(made, "002", 1)
    made(policy="drop-roi-everywhere")
    cache = SeriesCache(made.out)
    assert cache.rois.value.tolist() == [7, 4001]
    np.testing.assert_array_equal(cache.series(0), zscore(numbers(10))[:, [0, 2]])
    assert read_table(made.out / "coverage.tsv").kept.tolist() == [1, 0, 1]


def test_a_scan_that_scrubbing_left_too_short_is_left_out(made):
    reason = reasons(made(minimum_volumes=11))["001"]
    assert reason == "10 volumes are left, fewer than the 11 that a model needs"
    assert kept(made) == ["002", "004"]


def test_verdicts_of_quality_are_respected(made, tmp_path):
    write_status(tmp_path / "001.json", "ok", "quality")
    write_status(tmp_path / "002.json", "excluded", "quality", DataError("mean FD 0.9 is above 0.5"))
    excluded = made(verdict_of=lambda name: tmp_path / f"{name}.json").set_index("scan_id")
    assert excluded.loc["002"].tolist() == ["quality", "mean FD 0.9 is above 0.5."]
    assert kept(made) == ["001", "004"]


def test_series_made_with_other_settings_are_refused_unless_they_say_nothing(made):
    with pytest.raises(DataError, match="made with Atlas 'cubes', but expected 'schaefer400'"):
        made(expected={"Atlas": "schaefer400"})
    made(expected={"Denoising": {"name": "none"}})


def test_series_that_were_altered_after_they_were_made_stop_the_run(made):
    file = made.series / "002/a.npy"
    write_json({"outputs": {"a.npy": sha256(file)}}, file.with_name("provenance.json"))
    made()
    uncover(made, "002", 1)
    with pytest.raises(ConfigError, match="002/a.npy: it is damaged, or was changed"):
        made()


def test_nothing_usable(made):
    for name in ("001", "002", "004"):
        write_status(made.series / name / "status.json", "failed", "parcellate", DataError("killed"))
    with pytest.raises(DataError, match=r"no usable scan.*killed"):
        made()


def test_killed_while_writing_leaves_no_cache_that_looks_whole_and_equal_input_gives_equal_bytes(made, monkeypatch):
    made()
    first = read_json(made.out / "manifest.json")
    monkeypatch.setattr(module, "write_table", lambda *a, **k: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        made()
    with pytest.raises(DataError, match="file not found"):
        SeriesCache(made.out)
    monkeypatch.undo()
    made()
    assert SeriesCache(made.out).manifest == first


def test_a_cache_that_disagrees_with_its_index_is_refused(made):
    made()
    np.save(made.out / "series.npy", numbers(4))
    reseal(made.out)
    with pytest.raises(DataError, match=r"shape \(4, 3\), but the index implies \(34, 3\)"):
        SeriesCache(made.out)


# ---- connectivity --------------------------------------------------------------------------------
def test_pearson_in_the_order_of_the_upper_triangle():
    series = np.random.default_rng(0).standard_normal((60, 5)) + 7
    expected = np.corrcoef(series.T)
    values = connectivity(series)
    assert values.dtype == np.float32 and len(values) == n_pairs(5) == 10
    np.testing.assert_allclose(values, [expected[i, j] for i in range(5) for j in range(i + 1, 5)], atol=1e-6)


def test_fishers_z():
    series = np.random.default_rng(0).standard_normal((60, 5))
    np.testing.assert_allclose(connectivity(series, fisher_z=True), np.arctanh(connectivity(series)), rtol=1e-5)


@pytest.mark.parametrize("fisher_z", [False, True])
@pytest.mark.filterwarnings("error")
def test_constant_rois_give_zeros_and_equal_ones_stay_finite(fisher_z):
    series = np.random.default_rng(0).standard_normal((30, 6)).astype(np.float32)
    series[:, 1], series[:, 3], series[:, 5] = 0, 2.5, series[:, 4]
    matrix = np.zeros((6, 6))
    matrix[np.triu_indices(6, 1)] = connectivity(series, fisher_z=fisher_z)
    assert np.isfinite(matrix).all()
    assert not (matrix + matrix.T)[[1, 3]].any()
    assert matrix[4, 5] > 0.999


def some_scans(*lengths):
    """Scans of two ROIs whose correlation changes from volume to volume."""
    scans = [numbers(n, 2, seed) for seed, n in enumerate(lengths)]
    return SimpleNamespace(n_rois=2, scans=scans, finite_series=scans.__getitem__)


def test_scans_are_taken_in_the_order_asked_for():
    cache = some_scans(30, 20, 25)
    expected = [np.corrcoef(cache.scans[i].T)[0, 1] for i in (2, 0)]
    np.testing.assert_allclose(connectivity_of(cache, [2, 0])[:, 0], expected, atol=1e-6)
    np.testing.assert_allclose(connectivity_of(cache, [2, 0], fisher_z=True)[:, 0], np.arctanh(expected), rtol=1e-5)


def test_crops_have_their_length_and_begin_anywhere():
    cache = some_scans(12, 5)
    parts = [np.corrcoef(cache.scans[0][start : start + 8].T)[0, 1] for start in range(5)]
    found = [connectivity_of(cache, [0], crop=(8, np.random.default_rng(seed)))[0, 0] for seed in range(60)]
    nearest = [int(np.argmin(np.abs(value - np.array(parts)))) for value in found]
    np.testing.assert_allclose(found, [parts[i] for i in nearest], atol=1e-6)
    assert set(nearest) == {0, 1, 2, 3, 4}
    whole = connectivity_of(cache, [1], fisher_z=True, crop=(8, np.random.default_rng(0)))
    np.testing.assert_allclose(whole, connectivity_of(cache, [1], fisher_z=True))
