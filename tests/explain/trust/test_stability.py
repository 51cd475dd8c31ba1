"""Agreement over folds and seeds, and with permuted labels."""

import numpy as np
import pandas as pd
import pytest

from bolt.config.layout import ModelRun
from bolt.explain.trust.agreement import SPLITS, Refits
from bolt.explain.trust.stability import STABILITY_COLUMNS, _mean, compare_maps, curve_pairs, write_stability
from bolt.explain.weights import write_importance
from bolt.io.errors import DataError
from bolt.io.files import read_table, write_status
from tests.explain.runs import MemoryCache

RANDOM = np.random.default_rng(5)
CLASSES = ["control", "patient"]


def test_equal_maps_agree_wholly_and_independent_ones_do_not():
    one = RANDOM.standard_normal(500)
    same = compare_maps(one, 3 * one, 0.02)
    assert same["pearson"] == pytest.approx(1) and same["spearman"] == pytest.approx(1)
    assert same["dice"] == same["jaccard"] == 1 and compare_maps(one, -one, 0.02)["dice"] == 0
    table = pd.DataFrame([compare_maps(one, RANDOM.standard_normal(500), 0.1) for _ in range(60)])
    assert table[["pearson", "spearman"]].abs().mean().max() < 0.08
    assert table["dice"].mean() == pytest.approx(0.1, abs=0.04)  # random selections of a tenth
    flat = compare_maps(np.zeros(20), RANDOM.standard_normal(20), 0.1)
    assert np.isnan(flat["pearson"]) and flat["dice"] == 0
    assert np.isnan(compare_maps(np.zeros(20), np.zeros(20), 0.1)["dice"])


def explained(curves, predicted="patient"):
    return pd.DataFrame({"scan_id": [f"s{i:02d}" for i in range(len(curves))], "predicted": predicted}), curves


def test_curves_agree_where_they_are_the_scans_own():
    own, edge = [RANDOM.random(60) for _ in range(20)], np.linspace(0, 5, 60)
    row = curve_pairs({"0": explained(own), "1": explained([2 * x for x in own], "control")})[0]
    assert row["spearman"] == pytest.approx(1) and row["same_class"] == 0 and row["n"] == 20
    assert curve_pairs({"0": explained(own), "1": explained(own[:6])})[0]["n"] == 6  # scans of both
    rows = curve_pairs({str(k): explained([edge + RANDOM.random(60) for _ in own]) for k in range(3)})
    assert len(rows) == 3
    for row in rows:
        assert abs(row["spearman"]) < 0.1 and row["spearman_raw"] > 0.8


N_SCANS, VOLUMES, ROIS = 24, 30, 20
SETTINGS = {"fraction": 0.1, "tokens": 3, "permutations": 40}


@pytest.fixture
def made(tmp_path):
    """A cache of noise, a run, and importance of its scans."""
    random = np.random.default_rng(1)
    series = [random.standard_normal((VOLUMES, ROIS)).astype(np.float32) for _ in range(N_SCANS)]
    curves = [RANDOM.random(VOLUMES) for _ in range(N_SCANS)]
    return MemoryCache(series, CLASSES * (N_SCANS // 2)), ModelRun(tmp_path, "x", "v", "m", 1), curves


def make_seed(run, cache, curves, n_folds=3):
    """Write importance of every fold, and the weights of its landmark regression."""
    refits = Refits(cache, cache.index["scan_id"].tolist(), CLASSES, tokens=3, permutations=0)
    for fold in range(n_folds):
        test = np.arange(N_SCANS) // 2 % 3 == fold
        table = cache.index.assign(role=np.where(test, "test", "train"), predicted="patient")
        write_importance(table, curves, run.fold(fold))
        write_status(run.fold(fold) / "status.json", "ok", "train")
    run.explanation.mkdir(parents=True)
    maps = [maps[0] for maps in refits.fold_maps(run.folder, range(n_folds)).values()]
    np.save(run.explanation / "coefficients.npy", np.stack(maps).astype(np.float32))


def test_the_table_has_every_pair_of_folds_and_this_seed_beside_the_others(made):
    cache, run, curves = made
    for seed in (0, 1):
        make_seed(run.with_seed(seed), cache, [curve + seed * RANDOM.uniform(0, 0.2, VOLUMES) for curve in curves])
    write_stability(cache, run, [0, 1, 2], range(5), CLASSES, **SETTINGS)
    table = read_table(run.explanation / "stability.tsv", text=("class", "one", "other"))
    assert list(table) == list(STABILITY_COLUMNS)
    pairs = table[table["other"].notna()]
    sizes = {("folds", "importance"): 3, ("folds", "regions"): 6, ("folds", "halves"): 2 * SPLITS}
    sizes |= {("seeds", "importance"): 1, ("seeds", "regions"): 2, ("seeds", "halves"): 2 * SPLITS}
    assert pairs.groupby(["between", "what"]).size().to_dict() == sizes
    seeds, halves = (
        pairs[(pairs["between"] == "seeds") & ((pairs["what"] == "halves") == is_half)] for is_half in (0, 1)
    )
    assert (seeds["one"] == "1").all() and (seeds["other"] == "0").all()
    assert set(halves["one"]) == {f"1 {k}a" for k in range(1, SPLITS + 1)} and halves["other"].iloc[0] == "0 1b"
    means = table[table["one"] == "mean"].set_index(["between", "what", "class"])
    chosen = table.query("between == 'folds' and `class` == 'patient' and what == 'regions'")
    values, ends = chosen.loc[chosen["other"].notna(), "pearson"], chosen.set_index("one")["pearson"]
    assert ends[["mean", "lowest", "highest"]].tolist() == [pytest.approx(values.mean()), values.min(), values.max()]
    for between in ("folds", "seeds"):
        for what in ("regions", "halves"):
            row = means.loc[(between, what, "patient")]
            assert row["pearson_null"] < row["pearson_null_high"] and row["dice_null"] <= row["dice_null_high"]
            assert 0.0243 < row["p"] <= 1 and row["p"] == means.at[(between, what, "control"), "p"]
    regions, halves = (means.at[("folds", what, "patient"), "pearson_null"] for what in ("regions", "halves"))
    assert regions > 0.3 > 0.15 > abs(halves)  # folds share scans, halves do not
    nulls = ["pearson_null", "pearson_null_high", "dice_null", "dice_null_high", "p"]
    assert table.loc[(table["one"] != "mean") | (table["what"] == "importance"), nulls].isna().all(axis=None)


def test_one_fold_has_halves_only_and_weights_of_other_folds_are_refused(made):
    cache, run, curves = made
    make_seed(run, cache, curves, n_folds=1)
    write_stability(cache, run, [1], range(5), CLASSES, **SETTINGS)
    assert set(read_table(run.explanation / "stability.tsv", text=("one",))["what"]) == {"halves"}
    np.save(run.explanation / "coefficients.npy", np.zeros((3, 2, ROIS), np.float32))
    with pytest.raises(DataError, match="3 folds, but 1 are explained"):
        write_stability(cache, run, [1], range(5), CLASSES, **SETTINGS)
    (run.explanation / "coefficients.npy").unlink()
    with pytest.raises(DataError, match="file not found"):
        write_stability(cache, run, [1], range(5), CLASSES, **SETTINGS)


def test_a_mean_needs_half_of_its_values():
    for values, expected in (([1.0, 3.0, np.nan, np.nan], 2.0), ([1.0, np.nan, np.nan], np.nan), ([], np.nan)):
        np.testing.assert_equal(_mean(np.array(values)), expected)
