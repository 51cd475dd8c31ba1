"""What the choice of volumes alone carries: on noise, volumes chosen by the predicted class repeat the prediction."""

import numpy as np
import pandas as pd
import pytest

from bolt.explain.landmarks import along_directions, landmark_regression, landmark_tests, random_volumes
from bolt.explain.token_regression import FoldScans
from bolt.explain.weights import write_controls, write_importance
from tests.explain.runs import N_ROIS, MemoryCache, make_run

CLASSES = ["control", "patient"]
N, T = 80, 40


def made(run, strength=0.0):
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
    found = landmark_regression(made(tmp_path), tmp_path, range(6), CLASSES, random_draws=3)
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
    found = landmark_regression(made(tmp_path, 3.0), tmp_path, range(6), CLASSES, random_draws=3)
    tests = landmark_tests(found.table, found.curve, found.ratio).set_index("second")
    for name in ("random", "wrong class", "random direction"):
        assert tests.at[name, "p"] < 0.05 and tests.at[name, "difference"] > 0.05
    assert tests.at["fixed class", "auc_second"] > 0.9  # not chosen by the prediction, it finds the planted moments
    planted, unbiased = found.coefficients[:, 1, :3].mean(axis=0), found.controls[[0, 2], :, 1, :3].mean(axis=1)
    assert (planted > 0).all() and (unbiased > 0).all()


def test_directions_are_those_of_the_predicted_class(tmp_path):
    """With two classes the directions are opposite: a scan gets its highest or its lowest volumes."""
    cache = make_run(tmp_path, CLASSES)
    names = cache.index["scan_id"].tolist()
    data = FoldScans(cache, cache.index[["scan_id"]].assign(role=["test"] * 2 + ["train"] * 22), CLASSES, tmp_path)
    one, other, again = (
        along_directions(data, dict.fromkeys(names, name) | {names[0]: first}, 5, 2, [3])
        for name, first in (("patient", "control"), ("control", "patient"), ("patient", "control"))
    )
    assert len(one) == 2 and set(one[0]) == set(names)
    for draw in range(2):
        for scan in names[:3]:
            assert len(set(one[draw][scan])) == 5 and not set(one[draw][scan]) & set(other[draw][scan])
    assert not np.array_equal(one[0][names[1]], one[1][names[1]])
    assert all(np.array_equal(one[0][scan], again[0][scan]) for scan in names)


def test_random_volumes_are_drawn_without_replacement_from_each_scan():
    draws = list(random_volumes({"a": 6, "b": 3}, 5, 4, [0, 1]))
    assert len(draws) == 4
    for draw in draws:
        assert len(set(draw["a"])) == 5 and max(draw["a"]) < 6 and sorted(draw["b"]) == [0, 1, 2]


def test_groups_not_scans_are_counted(tmp_path):
    cache = make_run(tmp_path, CLASSES)
    assert landmark_regression(cache, tmp_path, [0, 1], CLASSES, random_draws=1).ratio == pytest.approx(1)
    table = pd.DataFrame({"scan_id": cache.index["scan_id"], "role": ["test"] * 8 + ["train"] * 16})
    cache.index["group"] = [f"family {i // 4}" for i in range(24)]
    assert FoldScans(cache, table, CLASSES, tmp_path).ratio == pytest.approx(2 / 4)
