"""Landmarks: the choice of volumes, the regression, its controls and tests over folds, and the subset-index curve."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.linear_model import LogisticRegression

from bolt.evaluate.scores import METRICS
from bolt.explain import landmarks
from bolt.explain.landmarks import FoldScans, _relative, landmark_regression, landmark_tests, subset_offsets, top_tokens
from bolt.explain.weights import IMPORTANCE_COLUMNS, explained_folds, read_importance, write_controls, write_importance
from bolt.io.errors import DataError
from bolt.io.files import read_table, write_status, write_table
from tests.explain.runs import INFORMATIVE, N_ROIS, MemoryCache, make_run

CLASSES = ["control", "patient"]


@pytest.fixture
def made(tmp_path):
    return make_run(tmp_path, CLASSES), tmp_path


def row(table, fold, tokens, level):
    return table[(table["fold"] == fold) & (table["tokens"] == tokens) & (table["level"] == level)].iloc[0]


def test_top_tokens_are_the_largest_and_ties_go_to_the_earlier():
    assert top_tokens(np.array([0.0, 3, 1, 3, 2]), 3).tolist() == [1, 3, 4]
    assert len(top_tokens(np.ones(2), 5)) == 2


def test_volumes_are_drawn_without_replacement_and_places_of_the_curve_are_spread_over_the_shortest_scan():
    for draw in landmarks.random_volumes({"a": 6, "b": 3}, 5, 4, [0, 1]):
        assert len(set(draw["a"])) == 5 and max(draw["a"]) < 6 and sorted(draw["b"]) == [0, 1, 2]
    many = subset_offsets(1200, 5, 60)
    assert len(many) == 60 and many[0] == 0 and many[-1] == 1195 and set(np.diff(many)) <= {20, 21}
    for shortest, n, expected in ((8, 60, [0, 1, 2, 3]), (5, 60, [0]), (4, 60, []), (100, 0, [])):
        assert subset_offsets(shortest, 5, n).tolist() == expected


def test_important_volumes_classify_and_random_ones_do_so_less(made, monkeypatch):
    read, series = [], made[0].series
    monkeypatch.setattr(made[0], "series", lambda i: read.append(i) or series(i))
    found, again = (landmark_regression(*made, [0, 1], CLASSES, random_draws=3, offsets=4) for _ in range(2))
    assert sorted(read) == sorted([*range(24)] * 4)  # every scan is read once a fold
    pd.testing.assert_frame_equal(found.table, again.table)
    table, coefficients = found.table, found.coefficients
    assert len(table[table["fold"] == "1"]) == 15  # five choices of volumes, three levels
    assert table["n_test"].dtype.kind == "i"  # also of the mean over draws
    important = row(table, "mean", "important", "scan")
    assert important["accuracy"] == 1.0 and important["auc"] == 1.0
    assert row(table, "mean", "random", "scan")["accuracy"] < 0.8
    assert row(table, "mean", "important", "token")["accuracy"] > 0.85
    assert coefficients.shape == (2, 2, 30)
    np.testing.assert_allclose(coefficients[:, 0], -coefficients[:, 1])
    # a high value of the informative ROI speaks for the second class
    assert (coefficients[:, 1].argmax(axis=1) == INFORMATIVE[0]).all()
    other = landmark_regression(*made, [0, 1], CLASSES[::-1], random_draws=1).coefficients
    np.testing.assert_allclose(coefficients, other[:, ::-1], atol=1e-3)


def test_only_finished_folds_are_used_of_any_number_of_classes(tmp_path):
    classes = ["rest", "motor", "language"]
    cache = make_run(tmp_path, classes)
    write_status(tmp_path / "fold-1" / "status.json", "failed", "train", DataError("loss is NaN"))
    assert explained_folds(tmp_path, range(3)) == [0]
    landmarks.write_landmarks(landmark_regression(cache, tmp_path, [0], classes, random_draws=1), tmp_path / "out")
    assert np.load(tmp_path / "out" / "coefficients.npy").shape == (1, 3, 30)
    important = row(read_table(tmp_path / "out" / "landmarks.tsv", text=("fold",)), "mean", "important", "scan")
    assert important["n_test"] == 1 and important["accuracy"] > 0.9
    with pytest.raises(DataError, match="class has no training scan"):
        landmark_regression(cache, tmp_path, [0], [*classes, "fourth"], random_draws=1)


def test_a_subject_votes_with_the_volumes_of_all_its_scans(made):
    """Two scans of a subject, one of them hard: alone it is judged wrong, with the other right."""
    cache, run = made
    cache.index["subject"] = [f"sub-{i // 4 * 2 + i % 2:02d}" for i in range(24)]  # pairs of one label and fold
    _, weights = read_importance(run / "fold-1")
    for i in (2, 3):  # of two test scans of fold 1 most landmarks speak for the other class
        chosen = top_tokens(weights[i], 5)[:3]
        cache.series(i)[chosen] = 0
        cache.series(i)[chosen, INFORMATIVE[0]] = -1.0 if i == 3 else 1.0
    cache.index.loc[[2, 3, 6, 7], "subject"] = ["sub-02", "sub-03"] * 2
    table, *_ = landmark_regression(cache, run, [1], CLASSES, random_draws=1)
    assert row(table, "1", "important", "scan")["accuracy"] == pytest.approx(1 - 2 / 12)
    assert row(table, "1", "important", "subject")["accuracy"] == 1.0
    cache.index["subject"] = "one"  # scans of different labels do not vote together
    table, *_ = landmark_regression(cache, run, [0], CLASSES, random_draws=1)
    assert row(table, "0", "important", "subject")["accuracy"] == 1.0


def test_labels_of_test_scans_do_not_change_the_regression(made):
    cache, run = made
    before, one, *_ = landmark_regression(*made, [0], CLASSES, random_draws=1)
    table, _ = read_importance(run / "fold-0")
    test = cache.index["scan_id"].isin(table.loc[table["role"] == "test", "scan_id"])
    swap = dict(zip(CLASSES, CLASSES[::-1], strict=True))
    cache.index["label"] = cache.index["label"].where(~test, cache.index["label"].map(swap))
    after, other, *_ = landmark_regression(*made, [0], CLASSES, random_draws=1)
    assert other.tobytes() == one.tobytes()
    assert row(before, "0", "important", "scan")["accuracy"] == 1.0
    assert row(after, "0", "important", "scan")["accuracy"] == 0.0


def test_volumes_side_by_side_are_one_sample(made):
    cache, run = made
    together = landmark_regression(*made, [0, 1], CLASSES, tokens=3, random_draws=2, offsets=2, side_by_side=True)
    token, scan = (together.table[together.table["level"] == level][[*METRICS]] for level in ("token", "scan"))
    np.testing.assert_array_equal(token, scan)
    table, importance = read_importance(run / "fold-0")
    weights = dict(zip(table["scan_id"], importance, strict=True))
    position = {scan: i for i, scan in enumerate(cache.index["scan_id"])}

    def samples(role):
        scans = table.loc[table["role"] == role, "scan_id"]
        x = [cache.series(position[scan])[top_tokens(weights[scan], 3)].ravel() for scan in scans]
        return np.array(x, float), (cache.index["label"].iloc[[position[s] for s in scans]] == CLASSES[1]).to_numpy()

    by_hand = LogisticRegression(max_iter=1000).fit(*samples("train"))
    x, truth = samples("test")
    assert row(together.table, "0", "important", "scan")["accuracy"] == by_hand.score(x, truth)
    np.testing.assert_allclose(together.coefficients[0, 1], by_hand.coef_.reshape(3, -1).mean(axis=0), rtol=1e-6)
    with pytest.raises(DataError, match="fewer than the 999"):
        landmark_regression(*made, [0], CLASSES, tokens=999, side_by_side=True)


# ---- controls: what the choice of volumes alone carries ----------------------------------------------

N, T = 80, 40


def noise(run, strength=0.0):
    """Six folds of a model that is right for 80 % of the scans.

    Single volumes are noise, and importance is unrelated to the class; or four volumes of each scan hold a pattern of
    the class, and importance finds it.
    """
    random = np.random.default_rng(0)
    labels, direction = np.arange(N) % 2, random.standard_normal(N_ROIS)
    series = random.standard_normal((N, T, N_ROIS))
    if strength:
        direction = np.repeat([1.0, 0.0], [3, N_ROIS - 3])
        for i, label in enumerate(labels):
            series[i, i % (T - 4) : i % (T - 4) + 4, :3] += strength if label else -strength
    cache = MemoryCache(list(series), np.array(CLASSES)[labels])
    along = series @ direction + 100
    predicted = np.where(np.arange(N) // 2 % 5 == 0, 1 - labels, labels)
    curves = {1: along, 0: 200 - along}
    for fold in range(6):
        table = cache.index[["scan_id"]].assign(role=np.where(np.arange(N) // 2 % 6 == fold, "test", "train"))
        table = table.assign(predicted=np.array(CLASSES)[predicted], wrong=np.array(CLASSES)[1 - predicted])
        write_importance(table, [curves[p][i] for i, p in enumerate(predicted)], run / f"fold-{fold}")
        controls = [np.stack([curves[1 - p][i], curves[1][i]]) for i, p in enumerate(predicted)]
        write_controls(controls, run / f"fold-{fold}")
    return cache


def test_the_choice_of_volumes_carries_the_prediction(tmp_path):
    found = landmark_regression(noise(tmp_path), tmp_path, range(6), CLASSES, random_draws=3)
    means = found.table[(found.table["fold"] == "mean") & (found.table["level"] == "scan")].set_index("tokens")["auc"]
    assert (means[["important", "wrong class", "random direction"]] > 0.7).all()
    assert means["random"] == pytest.approx(0.5, abs=0.1) and means["fixed class"] == pytest.approx(0.5, abs=0.12)
    tests = landmark_tests(found.table, found.curve, found.ratio).set_index("second")
    assert tests.at["random", "p"] < 0.01 and tests.at["random", "difference"] > 0.15
    for name in ("wrong class", "random direction"):
        assert tests.at[name, "p"] > 0.05 and abs(tests.at[name, "difference"]) < 0.1
    assert found.controls.shape == (3, 6, 2, N_ROIS)  # the wrong class turns every weight
    important, wrong = found.coefficients[:, 1].mean(axis=0), found.controls[1, :, 1].mean(axis=0)
    assert np.corrcoef(important, wrong)[0, 1] < -0.3


def test_planted_moments_do_better_than_the_choice_alone(tmp_path):
    found = landmark_regression(noise(tmp_path, 3.0), tmp_path, range(6), CLASSES, random_draws=3)
    tests = landmark_tests(found.table, found.curve, found.ratio).set_index("second")
    beaten = tests.loc[["random", "wrong class", "random direction"]]
    assert (beaten["p"] < 0.05).all() and (beaten["difference"] > 0.05).all()
    assert tests.at["fixed class", "auc_second"] > 0.9  # not chosen by the prediction, it finds the planted moments
    planted, unbiased = found.coefficients[:, 1, :3].mean(axis=0), found.controls[[0, 2], :, 1, :3].mean(axis=1)
    assert (planted > 0).all() and (unbiased > 0).all()


def test_directions_are_those_of_the_predicted_class(tmp_path):
    """With two classes the directions are opposite: a scan gets its highest or its lowest volumes."""
    cache = make_run(tmp_path, CLASSES)
    names = cache.index["scan_id"].tolist()
    data = FoldScans(cache, cache.index[["scan_id"]].assign(role=["test"] * 2 + ["train"] * 22), CLASSES, tmp_path)
    one, other, again = (
        landmarks.along_directions(data, dict.fromkeys(names, name) | {names[0]: first}, 5, 2, [3])
        for name, first in (("patient", "control"), ("control", "patient"), ("patient", "control"))
    )
    assert len(one) == 2 and set(one[0]) == set(names)
    for draw in range(2):
        for scan in names[:3]:
            assert len(set(one[draw][scan])) == 5 and not set(one[draw][scan]) & set(other[draw][scan])
    assert not np.array_equal(one[0][names[1]], one[1][names[1]])
    assert all(np.array_equal(one[0][scan], again[0][scan]) for scan in names)


def test_a_region_that_was_not_imaged_is_no_region_at_its_mean(tmp_path):
    """It lacks in half of the patients, and at landmarks all regions are above their means, alike in both classes."""
    random, n = np.random.default_rng(0), 100
    series = 1 + random.standard_normal((n, 5, 20)) + 0.8 * random.standard_normal((n, 5, 1))
    series[1::4, :, 0] = 0
    index = pd.DataFrame({"scan_id": [f"s{i}" for i in range(n)], "label": CLASSES * (n // 2), "group": "f"})
    cache = SimpleNamespace(index=index.assign(subject=index["scan_id"]), series=lambda i: series[i])
    data = FoldScans(
        cache, index.assign(role=["train", "train", "train", "train", "test"] * (n // 5)), CLASSES, tmp_path
    )
    weights = np.abs(data.regress(dict.fromkeys(index["scan_id"], np.arange(5)))[1][1])
    assert weights[0] < 2 * np.median(weights)


def test_groups_not_scans_are_counted(tmp_path):
    cache = make_run(tmp_path, CLASSES)
    ratio = landmark_regression(cache, tmp_path, [0, 1], CLASSES, random_draws=1).ratio
    assert ratio.to_dict() == pytest.approx({"0": 1, "1": 1})
    table = pd.DataFrame({"scan_id": cache.index["scan_id"], "role": ["test"] * 8 + ["train"] * 16})
    cache.index["group"] = [f"family {i // 4}" for i in range(24)]
    assert FoldScans(cache, table, CLASSES, tmp_path).ratio == pytest.approx(2 / 4)


# ---- tests over folds ------------------------------------------------------------------------------

NO_CURVE = pd.DataFrame(columns=list(landmarks.SUBSET_COLUMNS))
RATIO = pd.Series(0.2, list("012345"))


def regressions(**values):
    """``landmarks.tsv`` from the AUC of each fold; `inner` is the importance, with its own wrong class."""
    rows = []
    for name, aucs in values.items():
        tokens = name.removeprefix("inner_").replace("_", " ")
        importance = "inner" if name.startswith("inner_") else "none" if tokens == "random" else "fitted"
        for fold, level, auc in [
            *((str(fold), "token", auc - 1) for fold, auc in enumerate(aucs)),
            *((str(fold), "scan", auc) for fold, auc in enumerate(aucs)),
            ("mean", "scan", 9.0),
        ]:
            rows.append({"fold": fold, "importance": importance, "tokens": tokens, "level": level, "auc": auc})
    return pd.DataFrame(rows).reindex(columns=list(landmarks.LANDMARK_COLUMNS))


def test_p_by_hand():
    important, random = np.array([0.7, 0.8, 0.6, 0.7, 0.9, 0.7]), np.array([0.5, 0.6, 0.55, 0.5, 0.6, 0.5])
    found = landmark_tests(regressions(important=important, random=random), NO_CURVE, RATIO)
    assert list(found) == list(landmarks.TEST_COLUMNS) and len(found) == 1
    difference, row = important - random, found.iloc[0]
    t = difference.mean() / np.sqrt((1 / 6 + 0.2) * difference.var(ddof=1))
    assert row["p"] == pytest.approx(2 * stats.t.sf(t, 5)) and row["difference"] == pytest.approx(difference.mean())
    assert (row["auc_first"], row["auc_second"], row["n_folds"]) == pytest.approx((important.mean(), random.mean(), 6))
    assert row["note"] == ""


def test_each_control_is_compared_with_the_importance_it_belongs_to():
    aucs = {name: np.full(6, 0.5) for name in ("important", "wrong_class", "fixed_class", "random")}
    aucs |= {"inner_important": np.full(6, 0.7), "inner_wrong_class": np.linspace(0.5, 0.6, 6)}
    found = landmark_tests(regressions(**aucs), NO_CURVE, RATIO).set_index(["importance", "second"])
    of_fitted = [("fitted", name) for name in ("random", "wrong class", "fixed class")]
    assert found.index.tolist() == [*of_fitted, ("inner", "random"), ("inner", "wrong class")]
    assert found.at[("inner", "wrong class"), "difference"] == pytest.approx(0.15)
    assert found.at[("fitted", "wrong class"), "p"] == 1 and np.isnan(found.at[("inner", "random"), "p"])
    assert found.at[("inner", "random"), "note"] == "the difference is the same in all folds"


def test_fewer_than_six_folds_are_not_tested():
    aucs = {"important": [0.9, 0.9, 0.8, 0.9, 0.9, 0.9], "random": [0.5, 0.6, 0.4, 0.5, 0.6, np.nan]}
    row = landmark_tests(regressions(**aucs), NO_CURVE, RATIO).iloc[0]
    assert np.isnan(row["p"]) and row["n_folds"] == 5 and row["note"] == "5 of at least 6 folds"


def test_folds_without_an_auc_do_not_change_the_test():
    important, random = [0.7, 0.8, 0.6, 0.7, 0.9, 0.7], [0.5, 0.6, 0.55, 0.5, 0.6, 0.5]
    alone = landmark_tests(regressions(important=important, random=random), NO_CURVE, RATIO)
    small = {name: [*aucs, np.nan, np.nan] for name, aucs in (("important", important), ("random", random))}
    found = landmark_tests(regressions(**small), NO_CURVE, pd.concat([RATIO, pd.Series(0.01, list("67"))]))
    pd.testing.assert_frame_equal(found, alone)


def test_quarters_of_the_curve_are_compared():
    fold, offset = np.repeat(range(6), 8), np.tile(range(0, 80, 10), 6)
    curve = pd.DataFrame({"fold": fold.astype(str), "offset": offset, "level": "scan"})
    curve["auc"] = 0.8 - 0.004 * offset + 0.01 * fold * (offset < 20)
    equal = regressions(important=[0.5] * 6, random=[0.5] * 6)
    order = landmark_tests(equal, curve, RATIO).query("question == 'order'").set_index("second")
    assert order["auc_first"].tolist() == pytest.approx([0.78 + 0.025] * 3) and (order["p"] < 0.001).all()
    expected = {"second quarter": 0.7, "third quarter": 0.62, "last quarter": 0.54}
    assert order["auc_second"].to_dict() == pytest.approx(expected)
    assert "order" not in set(landmark_tests(equal, curve[offset < 30], RATIO)["question"])


# ---- the curve over subset indices -----------------------------------------------------------------


def test_accuracy_falls_down_the_list_and_begins_with_the_landmarks(tmp_path):
    cache = make_run(tmp_path, CLASSES)
    table, _, _, curve, _ = landmark_regression(cache, tmp_path, [0, 1], CLASSES, random_draws=1, offsets=12)
    chosen = table[(table["tokens"] == "important") & (table["fold"] == "0")].set_index("level")
    first = curve[(curve["offset"] == 0) & (curve["fold"] == "0")].set_index("level")
    for level in ("token", "scan", "subject"):  # six volumes of each scan hold the class
        assert first.at[level, "accuracy"] == chosen.at[level, "accuracy"]
    mean = curve[(curve["fold"] == "mean") & (curve["level"] == "scan")].set_index("offset")
    assert mean["accuracy"].iloc[0] == 1 and mean.loc[mean.index > 10, "accuracy"].mean() < 0.7
    assert mean.index[-1] == 55 and (mean["score"].diff().dropna() <= 0).all() and (mean["n_test"] == 2).all()


def test_scores_are_multiples_of_the_smallest_weight(tmp_path):
    cache = make_run(tmp_path, CLASSES)
    table, values = read_importance(tmp_path / "fold-0")
    weights = dict(zip(table["scan_id"], values, strict=True))
    data = FoldScans(cache, table, CLASSES, tmp_path)
    tested = [weights[s.name] for s in data.parts["test"]]
    assert min(w.min() / w.mean() for w in tested) > 1e-3  # no scan's score is bounded
    expected = np.mean([np.sort(w)[::-1][2:7].mean() / w.min() for w in tested])
    assert landmarks.subset_rows(data, weights, np.array([2]), 5)[0]["score"] == pytest.approx(expected, rel=1e-5)


def test_volumes_without_any_weight_do_not_make_scores_infinite():
    assert _relative(np.array([0.0, 2.0, 4.0])).tolist() == [0, 1, 2]
    assert _relative(np.zeros(3)).tolist() == [1, 1, 1]
    assert _relative(np.array([1e-12, 1.0]), published=True)[1] == 1e12
    assert np.isnan(_relative(np.array([0.0, 2.0]), published=True)).all()
    assert _relative(np.array([1e-12, 1.0, 2.0]))[2] == pytest.approx(2000)  # over 1/1000 of the mean, which is 1


def test_scans_of_different_lengths_have_the_places_of_the_shortest(tmp_path):
    cache, file = make_run(tmp_path, CLASSES), tmp_path / "fold-1/importance.tsv"
    table = read_table(file, text=("scan_id", "role", "predicted"))
    table.loc[3, "length"] = 20  # one scan of 20 volumes
    write_table(table, file, IMPORTANCE_COLUMNS)
    curve = landmark_regression(cache, tmp_path, [0, 1], CLASSES, random_draws=1, offsets=60).curve
    assert sorted(curve["offset"].unique()) == list(range(16))
    assert set(curve.loc[curve["offset"] == 15, "fold"]) == {"0", "1", "mean", "sd"}
