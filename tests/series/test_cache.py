"""Reading of ready series, z-scoring, and a cache that drops nothing silently."""

import numpy as np
import pandas as pd
import pytest
from scipy.io import savemat

from bolt.datasets import COLUMNS
from bolt.io.errors import DataError
from bolt.io.files import read_json, read_table, write_json, write_status
from bolt.io.series_files import kept_volumes, read_series
from bolt.series.cache import SeriesCache, zscore
from bolt.series.gather import build_cache
from tests.caches import reseal
from tests.shared import shared_data

ROIS = pd.DataFrame({"value": [7, 300, 4001], "name": ["a", "b", "c"], "network": ["N", None, "M"], "hemisphere": "L"})


def numbers(n=5, r=3, seed=0):
    return np.random.default_rng(seed).normal(100, 10, (n, r)).astype(np.float32)


# ---- reading -----------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".npy", ".csv", ".tsv", ".txt", ".1D", ".mat"])
def test_every_format_gives_the_same(tmp_path, suffix):
    series, path = numbers(), tmp_path / f"a{suffix}"
    if suffix == ".npy":
        np.save(path, series)
    elif suffix == ".mat":
        savemat(path, {"ts": series})
    else:
        np.savetxt(path, series, delimiter="," if suffix == ".csv" else "\t", fmt="%.9g")
    result = read_series(path)
    assert result.dtype == np.float32
    np.testing.assert_array_equal(result, series)


@pytest.mark.parametrize("header", ["a,b,c", "# made by hand\na,b,c", "#1,#2,#3", '"ROI 1","ROI 2","ROI 3"'])
def test_a_row_of_names_is_skipped(tmp_path, header):
    path = tmp_path / "a.csv"
    path.write_text(header + "\n1.5,2,3\n4,5,6\n\n")
    np.testing.assert_array_equal(read_series(path), [[1.5, 2, 3], [4, 5, 6]])


def test_volumes_that_are_not_the_rows_of_a_series_are_refused(tmp_path):
    write_json({"KeptVolumes": [2, 3, 5]}, tmp_path / "a.json")
    assert kept_volumes(tmp_path / "a.npy", 3).tolist() == [2, 3, 5]
    assert kept_volumes(tmp_path / "b.npy", 3).tolist() == [0, 1, 2]
    with pytest.raises(DataError, match=r"a\.json: KeptVolumes lists 3 volumes, but the series has 4\. Remove the key"):
        kept_volumes(tmp_path / "a.npy", 4)


def test_real_1d_files():
    files = sorted(shared_data("abide1/example_1D").glob("*.1D"))
    for path in files:
        series = read_series(path)
        assert series.shape[1] == 200
        assert len(series) == sum(1 for line in path.open() if not line.startswith("#"))
    assert len(files) == 3


def test_columns_follow_the_values_in_the_first_line(tmp_path):
    (tmp_path / "a.1D").write_text("#30\t#10\t#20\n3\t1\t2\n6\t4\t5\n")
    np.testing.assert_array_equal(read_series(tmp_path / "a.1D", [10, 20, 30]), [[1, 2, 3], [4, 5, 6]])
    np.testing.assert_array_equal(read_series(tmp_path / "a.1D"), [[3, 1, 2], [6, 4, 5]])
    (tmp_path / "b.1D").write_text("# made by hand\n3\t1\t2\n6\t4\t5\n")
    np.testing.assert_array_equal(read_series(tmp_path / "b.1D", [10, 20, 30]), [[3, 1, 2], [6, 4, 5]])


@pytest.mark.parametrize("first", ["#30\t#10\t#40", "#10\t#20", "#10\t#20\t#20"])
def test_columns_of_other_rois_are_refused(tmp_path, first):
    (tmp_path / "a.1D").write_text(f"{first}\n3\t1\t2\n6\t4\t5\n")
    with pytest.raises(DataError, match="a.1D: its first line names . ROIs for 3 columns, but the atlas has 3 ROIs"):
        read_series(tmp_path / "a.1D", [10, 20, 30])


def test_one_roi_and_whole_nan_columns_are_allowed(tmp_path):
    (tmp_path / "a.1D").write_text("1\n2\n4\n")
    assert read_series(tmp_path / "a.1D").shape == (3, 1)
    (tmp_path / "b.csv").write_text("1,nan\n2,nan\n")
    assert np.isnan(read_series(tmp_path / "b.csv")[:, 1]).all()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "4,2\n3,x\n", "'x' in row 1, column 1 .* is not a number"),
        ("a.csv", "4,2\n3\n", "rows of unequal length"),
        ("a.csv", "4,2\nn/a,3\n", "nan in row 1, column 0"),
        ("a.csv", "n/a,2\n1,3\n", "nan in row 0, column 0"),
        ("a.csv", "4,2\n3,nan\n4,5\n", "nan in row 1, column 1"),
        ("a.csv", "4,2\n3,4\ninf,5\n", "inf in row 2, column 0"),
        ("a.csv", "a,b\n", "0 time points"),
        ("a.csv", "", "0 time points"),
        ("a.csv", "4,2\n", "1 time points"),
        ("a.tsv", "<html>\n<body>404</body>\n", "is not a number|0 time points"),
        ("a.npy", "junk", "not a readable array"),
        ("a.mat", "junk", "not a readable .mat"),
        ("a.xlsx", "junk", "unknown file format '.xlsx'"),
    ],
)
def test_bad_files_are_refused(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=message) as caught:
        read_series(tmp_path / name)
    assert str(tmp_path / name) in str(caught.value)
    assert caught.value.hint


def test_bad_arrays_are_refused(tmp_path):
    path = tmp_path / "a.npy"
    for array, message in (
        (np.zeros((2, 3, 4)), r"shape \(2, 3, 4\)"),
        (np.zeros(5), r"shape \(5,\)"),
        (np.zeros((0, 3), np.float32), "0 time points"),
        (np.zeros((5, 3), complex), "complex"),
        (np.array([["a"], ["b"]]), "not numbers"),
    ):
        np.save(path, array)
        with pytest.raises(DataError, match=message):
            read_series(path)
    np.save(path, np.array([{}]), allow_pickle=True)
    with pytest.raises(DataError, match="not a readable array"):
        read_series(path)
    savemat(tmp_path / "a.mat", {"x": numbers(), "y": numbers()})
    with pytest.raises(DataError, match="2 variables: x, y"):
        read_series(tmp_path / "a.mat")
    with pytest.raises(DataError, match="not found"):
        read_series(tmp_path / "none.npy")


# ---- z-scoring ---------------------------------------------------------------------------------


def test_zscore():
    series = numbers(50, 4)
    series[:, 1] = 7.3
    series[:, 2] = np.nan
    z = zscore(series)
    assert z.dtype == np.float32
    np.testing.assert_allclose(z[:, [0, 3]].mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(z[:, [0, 3]].std(axis=0), 1, rtol=1e-6)  # ddof 0
    assert (z[:, [1, 2]] == 0).all()


def test_zscore_of_a_large_offset_keeps_its_precision():
    series = 1e4 + np.sin(np.arange(200))[:, None]
    expected = (np.sin(np.arange(200)) - np.sin(np.arange(200)).mean()) / np.sin(np.arange(200)).std()
    np.testing.assert_allclose(zscore(series)[:, 0], expected, atol=1e-5)


# ---- the cache ---------------------------------------------------------------------------------


@pytest.fixture
def made(tmp_path):
    """Write four parcellated scans of different length; the third was excluded."""
    rows = []
    for k, name in enumerate(["001", "002", "003", "004"]):
        folder = tmp_path / "series" / name
        folder.mkdir(parents=True)
        series = numbers(10 + k, seed=k)
        if name == "003":
            np.save(folder / "a.npy", series[:0])
            write_status(folder / "status.json", "excluded", "parcellate", DataError("cut off"))
        else:
            np.save(folder / "a.npy", series)
            write_status(folder / "status.json", "ok", "parcellate")
        write_json({"Atlas": "cubes"}, folder / "a.json")
        rows.append({"scan_id": name, "subject": name, "group": name, "label": "1", "tr": 2.0})
    rows.append({"scan_id": "005", "subject": "005", "exclude_reason": "no label"})
    scans = pd.DataFrame(rows).reindex(columns=list(COLUMNS))

    def build(**options):
        return build_cache(
            scans, "cubes", ROIS, lambda row: tmp_path / "series" / row.scan_id / "a.npy", tmp_path / "cache", **options
        )

    build.scans, build.series, build.out = scans, tmp_path / "series", tmp_path / "cache"
    return build


def test_cache_holds_every_usable_scan(made):
    excluded = made(expected={"Atlas": "cubes"})
    cache = SeriesCache(made.out)
    assert cache.index.scan_id.tolist() == ["001", "002", "004"]  # text keeps leading zeros
    assert cache.index.label.tolist() == ["1"] * 3
    assert cache.index.length.tolist() == [10, 11, 13]
    assert cache.index.offset.tolist() == [0, 10, 21]
    assert (len(cache), cache.n_rois, cache.rois.name.tolist()) == (3, 3, ["a", "b", "c"])
    for i, seed in enumerate((0, 1, 3)):
        assert isinstance(cache.series(i), np.memmap)
        np.testing.assert_array_equal(cache.series(i), zscore(numbers(10 + seed, seed=seed)))
    assert excluded.to_dict("records") == [
        {"scan_id": "003", "stage": "parcellate", "reason": "cut off."},
        {"scan_id": "005", "stage": "index", "reason": "no label"},
    ]
    assert cache.manifest["policy"] == "zero"
    assert cache.manifest["settings"] == {"Atlas": "cubes"}
    assert sorted(p.name for p in made.out.iterdir()) == [
        "coverage.json", "coverage.tsv", "index.json", "index.tsv", "manifest.json", "rois.json", "rois.tsv",
        "series.npy", "warnings.json", "warnings.tsv",
    ]  # fmt: skip


def uncover(made, name, column, value=np.nan):
    path = made.series / name / "a.npy"
    series = np.load(path)
    series[:, column] = value
    np.save(path, series)


def test_policy_zero(made):
    uncover(made, "002", 1)
    uncover(made, "004", 0, 5.0)
    made()
    cache = SeriesCache(made.out)
    assert (cache.series(1)[:, 1] == 0).all()
    assert (cache.series(2)[:, 0] == 0).all()
    assert np.isfinite(np.load(made.out / "series.npy")).all()
    coverage = read_table(made.out / "coverage.tsv")
    assert coverage.n_uncovered.tolist() == [0, 1, 0]
    assert coverage.n_constant.tolist() == [1, 0, 0]
    assert coverage.kept.tolist() == [1, 1, 1]


@pytest.mark.parametrize("policy", ["zero", "drop-scan", "drop-dead-scan", "drop-roi-everywhere"])
def test_policies_are_blind_to_labels(made, policy):
    uncover(made, "002", 1)
    made.scans["label"] = ["1", "1", "2", "2", None]
    excluded = made(policy=policy)
    first = SeriesCache(made.out).manifest["sha256"]["series.npy"]
    made.scans["label"] = ["2", "2", "1", "1", None]
    pd.testing.assert_frame_equal(made(policy=policy), excluded)
    assert SeriesCache(made.out).manifest["sha256"]["series.npy"] == first


def test_policy_drop_scan(made):
    uncover(made, "002", 1)
    excluded = made(policy="drop-scan")
    assert SeriesCache(made.out).index.scan_id.tolist() == ["001", "004"]
    reason = excluded.set_index("scan_id").reason
    assert reason["002"] == "1 ROIs not covered: b"
    assert set(reason.index) == {"002", "003", "005"}


def test_policy_drop_dead_scan_finds_series_of_zeros_too(made):
    """The rule of the published code; a constant series that is not zero stays, as it does there."""
    uncover(made, "002", 1, 0.0)
    uncover(made, "004", 1, 5.0)
    assert made(policy="drop-scan").scan_id.tolist() == ["003", "005"]
    reason = made(policy="drop-dead-scan").set_index("scan_id").reason
    assert reason["002"] == "1 ROIs not covered or all zero: b"
    assert SeriesCache(made.out).index.scan_id.tolist() == ["001", "004"]
    uncover(made, "004", 1)
    assert made(policy="drop-dead-scan").set_index("scan_id").reason["004"] == "1 ROIs not covered or all zero: b"


def test_policy_drop_roi_everywhere(made):
    uncover(made, "002", 1)
    made(policy="drop-roi-everywhere")
    cache = SeriesCache(made.out)
    assert cache.rois.value.tolist() == [7, 4001]
    assert cache.series(0).shape == (10, 2)
    np.testing.assert_array_equal(cache.series(0), zscore(numbers(10))[:, [0, 2]])
    assert read_table(made.out / "coverage.tsv").kept.tolist() == [1, 0, 1]


def test_a_scan_with_another_number_of_rois_is_left_out_and_names_both(made):
    np.save(made.series / "002" / "a.npy", numbers(10, 4))
    excluded = made().set_index("scan_id")
    assert "4 ROIs, but atlas 'cubes' has 3" in excluded.reason["002"]
    assert "002" not in set(SeriesCache(made.out).index.scan_id)


def test_a_transposed_scan_is_left_out_and_says_so(made):
    np.save(made.series / "002" / "a.npy", numbers(10).T)
    assert "these seem to be along rows" in made().set_index("scan_id").reason["002"]


def test_a_scan_that_scrubbing_left_too_short_is_left_out(made):
    excluded = made(minimum_volumes=11).set_index("scan_id")
    assert excluded.reason["001"] == "10 volumes are left, fewer than the 11 that a model needs"
    assert SeriesCache(made.out).index.scan_id.tolist() == ["002", "004"]


def test_series_made_with_other_settings_are_refused(made):
    with pytest.raises(DataError, match="made with Atlas 'cubes', but expected 'schaefer400'"):
        made(expected={"Atlas": "schaefer400"})


def test_sidecars_that_say_nothing_are_no_obstacle(made):
    made(expected={"Denoising": {"name": "none"}})
    assert SeriesCache(made.out).manifest["settings"] == {"Denoising": {"name": "none"}}


def test_an_unreadable_series_costs_one_scan(made):
    (made.series / "002" / "a.npy").write_bytes(b"junk")
    excluded = made().set_index("scan_id")
    assert excluded.stage["002"] == "cache"
    assert "not a readable array" in excluded.reason["002"]
    assert SeriesCache(made.out).index.scan_id.tolist() == ["001", "004"]


def test_nothing_usable(made):
    for name in ("001", "002", "004"):
        write_status(made.series / name / "status.json", "failed", "parcellate", DataError("killed"))
    with pytest.raises(DataError, match=r"no usable scan.*killed"):
        made()


def test_killed_while_writing_leaves_no_cache_that_looks_whole(made, monkeypatch):
    made()
    import bolt.series.cache as module

    monkeypatch.setattr(module, "write_table", lambda *a, **k: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        made()
    with pytest.raises(DataError, match="file not found"):
        SeriesCache(made.out)
    monkeypatch.undo()
    made()
    SeriesCache(made.out)


def test_equal_input_equal_bytes(made):
    made()
    first = read_json(made.out / "manifest.json")
    made()
    assert read_json(made.out / "manifest.json") == first


def test_a_cache_that_disagrees_with_its_index_is_refused(made):
    made()
    np.save(made.out / "series.npy", numbers(4))
    reseal(made.out)
    with pytest.raises(DataError, match=r"shape \(4, 3\), but the index implies \(34, 3\)"):
        SeriesCache(made.out)
