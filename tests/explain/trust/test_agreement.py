"""Maps are compared with those of permuted labels, and between disjoint halves of the people."""

import numpy as np
import pytest

from bolt.explain.trust.agreement import SPLITS, Refits, compare, half_of_people, null_columns
from bolt.explain.weights import write_importance
from tests.explain.runs import MemoryCache

CLASSES = ["control", "patient"]
VOLUMES, ROIS, FOLDS, N = 30, 20, 4, 48
SAME = list(np.random.default_rng(7).random((N, VOLUMES)))
"""Importance that is the same in all folds."""


def people(seed=2):
    """A cache of noise: two scans per person, two people per family, one label per family."""
    random = np.random.default_rng(seed)
    series = [random.standard_normal((VOLUMES, ROIS)).astype(np.float32) for _ in range(N)]
    cache = MemoryCache(series, [CLASSES[i // 4 % 2] for i in range(N)])
    cache.index["subject"], cache.index["group"] = [f"p{i // 2}" for i in range(N)], [f"f{i // 4}" for i in range(N)]
    return cache


def refits(cache, n=60):
    return Refits(cache, cache.index["scan_id"].tolist(), CLASSES, tokens=3, permutations=n)


def compared(cache, run, importance=lambda train: SAME):
    """Write folds whose test scans are every fourth family; return pairs of maps of the folds, and of halves."""
    for fold in range(FOLDS):
        test = (np.arange(N) // 4 % (2 * FOLDS)) // 2 == fold
        table = cache.index.assign(role=np.where(test, "test", "train"), predicted=CLASSES[0])
        write_importance(table, importance(~test), run / f"fold-{fold}")
    made = refits(cache)
    maps = made.fold_maps(run, range(FOLDS))
    return [(maps[i], maps[j]) for i in maps for j in range(i)], made.half_maps(run, range(FOLDS))


def test_labels_are_permuted_between_families():
    cache = people()
    labels = refits(cache, 20).labels
    assert labels.shape == (21, N) and [CLASSES[label] for label in labels[0]] == cache.index["label"].tolist()
    assert (labels.reshape(21, 12, 4) == labels.reshape(21, 12, 4)[..., :1]).all()
    assert (labels.sum(1) == 24).all() and len(np.unique(labels, axis=0)) > 15


def test_halves_share_no_family_and_have_the_same_labels():
    scans = people().index
    halves = [half_of_people(scans, np.random.default_rng(seed)) for seed in range(10)]
    for first in halves:
        assert not set(scans["group"][first]) & set(scans["group"][~first])
        assert (scans["label"][first] == "patient").sum() == 12 and first.sum() == 24
    assert len({tuple(first) for first in halves}) > 5


def test_maps_of_noise_agree_no_more_than_those_of_permuted_labels(tmp_path):
    pairs, halves = compared(people(), tmp_path)
    found, (correlation, dice) = null_columns(pairs, 0.1), compare(pairs, 0.1)
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
    assert compare(halves, 0.1)[0][0, 1] > 0.5


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


def test_halves_without_a_class_are_not_compared(tmp_path):
    cache = people()
    cache.index["label"] = ["patient"] * 4 + ["control"] * 44  # one family
    assert compared(cache, tmp_path)[1] == []
