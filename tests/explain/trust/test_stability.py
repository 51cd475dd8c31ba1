"""Agreement over folds and seeds: with permuted labels, between disjoint halves, and the regressions behind both."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr
from sklearn.linear_model import LogisticRegression

from bolt.config.layout import ModelRun
from bolt.explain.trust import similarity, stability
from bolt.explain.trust.similarity import correlations, mean_and_interval, ranked, without_position
from bolt.explain.trust.stability import SPLITS, compare_maps, null_columns, regression_maps, write_stability
from bolt.explain.weights import write_importance
from bolt.io.errors import DataError
from bolt.io.files import read_table, write_status
from tests.explain.runs import MemoryCache

RANDOM = np.random.default_rng(5)
MEASURES = ("pearson", "spearman", "dice", "jaccard")
CLASSES = ["control", "patient"]
VOLUMES, ROIS = 30, 20


def test_equal_maps_agree_wholly_and_independent_ones_do_not():
    one = RANDOM.standard_normal(500)
    assert compare_maps(one, 3 * one, 0.02) == pytest.approx(dict.fromkeys(MEASURES, 1) | {"n": 500})
    assert compare_maps(one, -one, 0.02)["dice"] == 0
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
    row = stability.curve_pairs({"0": explained(own), "1": explained([2 * x for x in own], "control")})[0]
    assert row["spearman"] == pytest.approx(1) and row["same_class"] == 0 and row["n"] == 20
    few = [*own[:5], *[np.ones(60)] * 6]  # scans of both; a mean needs half of its values
    found = [stability.curve_pairs({"0": explained(own), "1": explained(few[:n])})[0] for n in (6, 10, 11)]
    assert [row["n"] for row in found] == [5, 5, 5] and np.isnan(found[2]["spearman"]) and found[1]["spearman"] > 0.9
    rows = stability.curve_pairs({str(k): explained([edge + RANDOM.random(60) for _ in own]) for k in range(3)})
    assert len(rows) == 3
    for row in rows:
        assert abs(row["spearman"]) < 0.1 and row["spearman_raw"] > 0.8


N_SCANS = 24
SETTINGS = {"fraction": 0.1, "tokens": 3, "permutations": 40}


@pytest.fixture
def made(tmp_path):
    """A cache of noise, a run, and importance of its scans."""
    random = np.random.default_rng(1)
    series = [random.standard_normal((VOLUMES, ROIS)).astype(np.float32) for _ in range(N_SCANS)]
    curves = [RANDOM.random(VOLUMES) for _ in range(N_SCANS)]
    return MemoryCache(series, CLASSES * (N_SCANS // 2)), ModelRun(tmp_path, "x", "v", "m", 1), curves


def families(scans):
    return scans.set_index("scan_id")["group"]


def make_seed(run, cache, curves, n_folds=3):
    """Write importance of every fold, and the weights of its landmark regression."""
    refits = stability.Refits(cache, families(cache.index), CLASSES, tokens=3, permutations=0)
    for fold in range(n_folds):
        test = np.arange(N_SCANS) // 2 % 3 == fold
        table = cache.index.assign(role=np.where(test, "test", "train"), predicted="patient")
        write_importance(table, curves, run.fold(fold))
        table.to_csv(run.fold(fold) / "predictions.tsv", sep="\t", index=False)
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
    assert list(table) == list(stability.STABILITY_COLUMNS)
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
    others = table[(table["one"] != "mean") | (table["what"] == "importance")]
    assert others[list(stability.NULL_COLUMNS)].isna().all(axis=None)


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


# ---- landmark regressions with permuted labels ------------------------------------------------------

FOLDS, N = 4, 48
SAME = list(np.random.default_rng(7).random((N, VOLUMES)))
"""Importance that is the same in all folds."""


def people(seed=2):
    """A cache of noise: two scans per person, two people per family, one label per family."""
    random = np.random.default_rng(seed)
    series = [random.standard_normal((VOLUMES, ROIS)).astype(np.float32) for _ in range(N)]
    cache = MemoryCache(series, [CLASSES[i // 4 % 2] for i in range(N)])
    cache.index["subject"], cache.index["group"] = [f"p{i // 2}" for i in range(N)], [f"f{i // 4}" for i in range(N)]
    return cache


def compared(cache, run, importance=lambda train: SAME):
    """Write folds whose test scans are every fourth family; return pairs of maps of the folds, and of halves."""
    for fold in range(FOLDS):
        test = (np.arange(N) // 4 % (2 * FOLDS)) // 2 == fold
        table = cache.index.assign(role=np.where(test, "test", "train"), predicted=CLASSES[0])
        write_importance(table, importance(~test), run / f"fold-{fold}")
    made = stability.Refits(cache, families(cache.index), CLASSES, tokens=3, permutations=60)
    maps = made.fold_maps(run, range(FOLDS))
    return [(maps[i], maps[j]) for i in maps for j in range(i)], made.half_maps(run, range(FOLDS))


def test_halves_share_no_family_and_have_the_same_labels():
    scans = people().index
    halves = [stability.half_of_people(scans, np.random.default_rng(seed)) for seed in range(10)]
    for first in halves:
        assert not set(scans["group"][first]) & set(scans["group"][~first])
        assert (scans["label"][first] == "patient").sum() == 12 and first.sum() == 24
    assert len({tuple(first) for first in halves}) > 5


def test_people_whose_recordings_are_copies_stay_together(made, monkeypatch):
    cache, run, curves = made
    make_seed(run, cache, curves)
    copies = cache.index["scan_id"].isin(["sub-00_task-rest", "sub-02_task-rest"])
    for fold in range(3):  # as with 'duplicates: group'
        table = cache.index.assign(group=cache.index["group"].mask(copies, "sub-00 + sub-02"))
        table.to_csv(run.fold(fold) / "predictions.tsv", sep="\t", index=False)
    seen, halve = [], stability.half_of_people
    monkeypatch.setattr(stability, "half_of_people", lambda scans, *how: seen.append(scans) or halve(scans, *how))
    write_stability(cache, run, [1], range(5), CLASSES, **SETTINGS)
    assert len(seen) == SPLITS
    assert all(scans["group"].tolist()[:3] == ["sub-00 + sub-02", "sub-01", "sub-00 + sub-02"] for scans in seen)


def test_maps_of_noise_agree_no_more_than_those_of_permuted_labels(tmp_path):
    pairs, halves = compared(people(), tmp_path)
    found, (correlation, dice) = null_columns(pairs, 0.1), stability.compare(pairs, 0.1)
    assert correlation.shape == dice.shape == (61, 2) and correlation[0, 1] > 0.5  # on noise
    assert found[1]["pearson_null"] > 0.5 and found[1]["pearson_null_high"] > correlation[0, 1]
    assert found[0]["p"] == found[1]["p"] > 0.1 and found[1]["dice_null"] > 0.3
    null = null_columns(halves, 0.1)[1]
    assert len(halves) == SPLITS and null["p"] > 0.1 and abs(null["pearson_null"]) < 0.1


def test_planted_regions_are_found_in_both_halves(tmp_path):
    cache = people()
    for scan, label, weights in zip(cache.arrays, cache.index["label"], SAME, strict=True):
        scan[np.argsort(-weights)[:3], :2] += 1.0 if label == "patient" else -1.0
    pairs, halves = compared(cache, tmp_path)
    assert null_columns(pairs, 0.1)[1]["p"] < 0.05 and null_columns(halves, 0.1)[1]["p"] < 0.05
    assert stability.compare(halves, 0.1)[0][0, 1] > 0.5


def test_memorised_labels_agree_between_folds_but_not_between_people(tmp_path):
    """A model that memorised its training scans chooses their volumes by the label, even if labels are noise."""
    cache = people(0)
    x, y = np.stack(cache.arrays).astype(float), np.where(cache.index["label"] == "patient", 1.0, -1.0)

    def memorised(train):
        skewness = (x**3).mean(1)
        direction = np.linalg.lstsq(skewness[train], y[train], rcond=1e-3)[0]
        sign = np.sign(skewness @ direction)
        return list(np.exp(sign[:, None] * (x @ direction) / np.linalg.norm(direction)))

    folds, halves = (null_columns(pairs, 0.1)[1]["p"] for pairs in compared(cache, tmp_path, memorised))
    assert folds < 0.05 < 0.1 < halves


def test_an_undefined_correlation_is_not_beaten():
    flat, map_ = np.zeros((1, 2, 6)), np.random.default_rng(0).standard_normal((1, 2, 6))
    maps = np.concatenate([map_, flat, 0.5 * map_[:, :, ::-1]])
    assert null_columns([(maps, np.concatenate([map_] * 3))], 0.2)[0]["p"] == pytest.approx(2 / 3)


def test_a_map_of_zeros_is_no_pair():
    one, other, third = np.random.default_rng(0).standard_normal((3, 20, 1, 30)) + np.linspace(0, 5, 30)
    constant = np.zeros((20, 1, 30))
    pairs = [(one, other), (one, third), (other, third)]
    (alone,), (found,) = (null_columns(given, 0.1) for given in (pairs, [*pairs, (one, constant), (other, constant)]))
    for name in ("pearson_null", "pearson_null_high", "p"):
        assert found[name] == alone[name] and np.isfinite(alone[name])
        assert np.isnan(null_columns([(one, constant)], 0.1)[0][name])


def test_halves_without_a_class_are_not_compared(tmp_path):
    cache = people()
    cache.index["label"] = ["patient"] * 4 + ["control"] * 44  # one family
    assert compared(cache, tmp_path)[1] == []


@pytest.mark.parametrize("n_classes", [2, 3])
def test_weights_are_those_of_a_logistic_regression(n_classes):
    random = np.random.default_rng(0)
    x = random.standard_normal((120, 15)) + random.standard_normal((120, 1))  # correlated regions
    x[:, 3] = 0  # one that is not covered
    labels = np.stack([random.permutation(np.arange(120) % n_classes) for _ in range(4)])
    labels[0] = np.digitize(x[:, 0] + x[:, 1], [0, 2][: n_classes - 1])  # nearly separable
    found = regression_maps(x, labels, n_classes)
    assert found.shape == (4, n_classes, 15)
    for fitted, y in zip(found, labels, strict=True):
        expected = LogisticRegression(C=1.0, tol=1e-8, max_iter=5000).fit(x, y).coef_
        expected = np.concatenate([-expected, expected]) if n_classes == 2 else expected
        np.testing.assert_allclose(fitted, expected, atol=0.02 * np.abs(expected).max())
        assert np.abs(fitted[:, 3]).max() < 1e-9


def test_what_is_fitted_in_parts_is_the_same(monkeypatch):
    random = np.random.default_rng(1)
    x, labels = random.standard_normal((40, 5)), random.integers(0, 3, (7, 40))
    together = regression_maps(x, labels, 3)
    sizes, fit = [], stability._fit
    monkeypatch.setattr(stability, "_fit", lambda *given: sizes.append(given[-1].shape[1]) or fit(*given))
    monkeypatch.setattr(stability, "TOGETHER", 40 * 3 * 2)
    np.testing.assert_allclose(regression_maps(x, labels, 3), together, rtol=1e-9, atol=1e-12)
    assert sizes == [2, 2, 2, 1]


# ---- importance curves once position is taken away: rank correlations, intervals, and the division by untrained models
DRAWS = np.random.default_rng(7)


def shape(length):
    """Less importance at both ends, as windows overlap less there, whatever the length."""
    return 1 - 0.8 * np.exp(-np.minimum(np.arange(length), np.arange(length)[::-1]) / 6)


def agreement(one, other):
    rest = correlations(ranked(without_position(one)), ranked(without_position(other)))
    return float(np.nanmean(rest)), float(np.nanmean(correlations(ranked(one), ranked(other))))


@pytest.mark.parametrize("lengths", [[80] * 30, [60, 75, 90, 120] * 8, [*range(60, 90)]])
def test_what_position_alone_makes_alike_is_taken_away_and_what_belongs_to_the_scan_stays(lengths):
    one, other = ([shape(n) * (0.5 + DRAWS.random()) + 0.1 * DRAWS.random(n) for n in lengths] for _ in range(2))
    rest, raw = agreement(one, other)
    assert raw > 0.5 and abs(rest) < 0.08
    own = [shape(n) + 0.3 * DRAWS.random(n) for n in lengths]
    one, other = ([x + 0.03 * DRAWS.random(len(x)) for x in own] for _ in range(2))
    assert agreement(one, other)[0] > 0.9
    assert agreement(one, one)[0] == pytest.approx(1)
    a, b = one[0].round(1), other[0]  # with ties
    assert correlations(ranked([a]), ranked([b]))[0] == pytest.approx(spearmanr(a, b).statistic)


@pytest.mark.parametrize("lengths", [[80] * 8, [50, 61, 72, 83, 94, 105]])
def test_a_curve_that_says_position_alone_leaves_nothing(lengths):
    """Of equal scans exactly; scans of several lengths can be told apart by the curve's end alone."""
    curves = [(3 * np.ones(n) if len(set(lengths)) > 1 else shape(n) * (1 + i)) for i, n in enumerate(lengths)]
    rest = without_position([curve.astype(np.float32) for curve in curves])
    assert all(np.isnan(one).all() for one in rest)
    assert np.isnan(correlations(ranked(rest), ranked(rest))).all()
    alone = [DRAWS.random(40), np.zeros(40)]  # one scan cannot tell position
    assert all(np.isnan(without_position(alone[:n])[0]).all() for n in (1, 2)) and without_position([]) == []


def test_the_middle_of_the_longest_scan_goes_on_flat():
    curves = [shape(n) + 0.01 * DRAWS.random(n) for n in (40, 44, 48, 52, 200)]
    longest = without_position(curves)[-1]
    assert np.isfinite(longest).all() and np.abs(longest[60:140]).max() < 0.2


def test_a_mean_of_mostly_nothing_is_nothing():
    names = list("abcdefghijkl")
    values = np.array([1.0] * 5 + [np.nan] * 7)
    assert np.isnan(mean_and_interval(values, names)).all()
    values[5] = 1
    assert mean_and_interval(values, names) == (1, 1, 1)
    assert np.isnan(mean_and_interval(np.array([]), [])).all()
    mean, *ends = mean_and_interval(np.arange(12.0), list("abcdee") * 2)  # fewer than six families: no interval
    assert mean == 5.5 and np.isnan(ends).all()
    assert np.isfinite(mean_and_interval(np.arange(12.0), list("abcdef") * 2)).all()


def test_the_interval_of_few_scans_is_wide_enough():
    """Plain percentiles of eight values cover the truth in nine samples of ten."""
    random, names = np.random.default_rng(0), [str(i) for i in range(8)]
    ends = np.array([mean_and_interval(random.standard_normal(8), names)[1:] for _ in range(400)])
    assert 0.925 < np.mean((ends[:, 0] < 0) & (ends[:, 1] > 0)) < 0.985


def test_the_contrast_is_with_the_size_of_the_other_mean_and_paired():
    scan, names = np.random.default_rng(0).standard_normal(40), [str(i) for i in range(40)]
    control, check = 0.5 + scan, -0.3 + scan  # as different between scans as they like, but alike
    value, low, high = similarity.contrast_and_interval(control, check, names)
    assert value == pytest.approx(control.mean() - abs(check.mean())) and low < value < high
    assert similarity.contrast_and_interval(control + 2, scan + 2, names) == pytest.approx((0.5, 0.5, 0.5))
    half = np.where(np.arange(40) < 19, control, np.nan)
    assert np.isnan(similarity.contrast_and_interval(half, check, names)).all()


def test_the_shape_that_all_models_give_is_divided_out_at_every_length():
    lengths = [60, 60, 60, 60, 60, 64, 80]
    effect = [1 + 0.5 * (np.arange(n) == 30) for n in lengths]
    weights = [5 * shape(n) * own for n, own in zip(lengths, effect, strict=True)]
    relative, expected = similarity.relative_to_untrained(weights, [2 * shape(n) for n in lengths])
    for curve, own, usual in zip(relative, effect, expected, strict=True):
        np.testing.assert_allclose(curve, own / own.mean(), rtol=0.02)
        assert usual.mean() == pytest.approx(1, abs=0.05)


def test_volumes_that_hardly_a_window_has_are_ignored_and_a_single_scan_has_its_own_shape():
    untrained = shape(50)
    untrained[-3:] = [0, 0.01, similarity.LEAST * untrained.mean() / 2]
    (relative,), _ = similarity.relative_to_untrained([np.ones(50)], [untrained])
    assert np.isnan(relative[-3:]).all() and np.isfinite(relative[:-3]).all()
    assert np.nanmean(relative) == pytest.approx(1)
    np.testing.assert_allclose(relative[:-3] * untrained[:-3], relative[20] * untrained[20])
