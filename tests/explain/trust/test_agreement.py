"""Maps are compared with those of permuted labels, and between disjoint halves of the people."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bolt.explain.trust.agreement import SPLITS, Refits, compare, half_of_people, null_columns
from bolt.explain.weights import write_importance
from tests.explain.runs import MemoryCache

CLASSES = ["control", "patient"]
VOLUMES, ROIS, FOLDS = 30, 20, 4


def people(seed: int = 2, n: int = 48) -> MemoryCache:
    """A cache of noise: two scans per person, two people per family, one label per family."""
    random = np.random.default_rng(seed)
    series = [random.standard_normal((VOLUMES, ROIS)).astype(np.float32) for _ in range(n)]
    cache = MemoryCache(series, [CLASSES[i // 4 % 2] for i in range(n)])
    cache.index["scan_id"] = [f"s{i:02d}" for i in range(n)]
    cache.index["subject"] = [f"p{i // 2}" for i in range(n)]
    cache.index["group"] = [f"f{i // 4}" for i in range(n)]
    return cache


def write_folds(cache: MemoryCache, run: Path, importance: Callable[[int, np.ndarray], list[np.ndarray]]) -> None:
    """Write folds whose test scans are every fourth family."""
    for fold in range(FOLDS):
        test = (np.arange(len(cache.index)) // 4 % (2 * FOLDS)) // 2 == fold
        table = cache.index.assign(role=np.where(test, "test", "train"), predicted=CLASSES[0])
        write_importance(table, importance(fold, ~test), run / f"fold-{fold}")


def same_volumes(fold: int, train: np.ndarray) -> list[np.ndarray]:
    return list(np.random.default_rng(7).random((len(train), VOLUMES)))


def refits(cache: MemoryCache, n: int = 60) -> Refits:
    return Refits(cache, cache.index["scan_id"].tolist(), CLASSES, tokens=3, permutations=n)


def pairs_of(maps: dict[int, np.ndarray]) -> list[tuple[np.ndarray, np.ndarray]]:
    return [(maps[i], maps[j]) for i in maps for j in range(i)]


def test_labels_are_permuted_between_families() -> None:
    cache = people()
    made = refits(cache, 20)
    assert made.labels.shape == (21, 48)
    assert [CLASSES[label] for label in made.labels[0]] == cache.index["label"].tolist()
    assert (made.labels.reshape(21, 12, 4) == made.labels.reshape(21, 12, 4)[..., :1]).all()
    assert (made.labels.sum(1) == 24).all() and len(np.unique(made.labels, axis=0)) > 15


def test_halves_share_no_family_and_have_the_same_labels() -> None:
    scans = people().index
    halves = [half_of_people(scans, np.random.default_rng(seed)) for seed in range(10)]
    for first in halves:
        assert not set(scans["group"][first]) & set(scans["group"][~first])
        assert (scans["label"][first] == "patient").sum() == 12 and first.sum() == 24
    assert len({tuple(first) for first in halves}) > 5


def test_maps_of_noise_agree_no_more_than_those_of_permuted_labels(tmp_path: Path) -> None:
    cache = people()
    write_folds(cache, tmp_path, same_volumes)
    made = refits(cache)
    pairs = pairs_of(made.fold_maps(tmp_path, range(FOLDS)))
    found = null_columns(pairs, 0.1)
    correlation, dice = compare(pairs, 0.1)
    assert correlation.shape == dice.shape == (61, 2)
    assert correlation[0, 1] > 0.5  # on noise
    assert found[1]["pearson_null"] > 0.5 and found[1]["pearson_null_high"] > correlation[0, 1]
    assert found[0]["p"] == found[1]["p"] > 0.1 and found[1]["dice_null"] > 0.3
    halves = made.half_maps(tmp_path, range(FOLDS))
    assert len(halves) == SPLITS
    null = null_columns(halves, 0.1)[1]
    assert null["p"] > 0.1 and abs(null["pearson_null"]) < 0.1


def test_planted_regions_are_found_in_both_halves(tmp_path: Path) -> None:
    cache = people()
    write_folds(cache, tmp_path, same_volumes)
    for scan, label, weights in zip(cache._series, cache.index["label"], same_volumes(0, np.ones(48)), strict=True):
        scan[np.argsort(-weights)[:3], :2] += 1.0 if label == "patient" else -1.0
    made = refits(cache)
    found = null_columns(pairs_of(made.fold_maps(tmp_path, range(FOLDS))), 0.1)[1]
    halves = made.half_maps(tmp_path, range(FOLDS))
    assert found["p"] < 0.05 and null_columns(halves, 0.1)[1]["p"] < 0.05
    assert compare(halves, 0.1)[0][0, 1] > 0.5


def test_memorised_labels_agree_between_folds_but_not_between_people(tmp_path: Path) -> None:
    """A model that memorised its training scans chooses their volumes by the label, even if labels are noise."""
    cache = people(0)
    x = np.stack(cache._series).astype(float)
    y = np.where(cache.index["label"] == "patient", 1.0, -1.0)

    def memorised(fold: int, train: np.ndarray) -> list[np.ndarray]:
        skewness = (x**3).mean(1)
        direction = np.linalg.lstsq(skewness[train], y[train], rcond=1e-3)[0]
        sign = np.sign(skewness @ direction)
        return list(np.exp(sign[:, None] * (x @ direction) / np.linalg.norm(direction)))

    write_folds(cache, tmp_path, memorised)
    made = refits(cache)
    folds = null_columns(pairs_of(made.fold_maps(tmp_path, range(FOLDS))), 0.1)[1]
    halves = null_columns(made.half_maps(tmp_path, range(FOLDS)), 0.1)[1]
    assert folds["p"] < 0.05 < 0.1 < halves["p"]


def test_an_undefined_correlation_is_not_beaten() -> None:
    flat, map_ = np.zeros((1, 2, 6)), np.random.default_rng(0).standard_normal((1, 2, 6))
    maps = np.concatenate([map_, flat, 0.5 * map_[:, :, ::-1]])
    (first, _) = null_columns([(maps, np.concatenate([map_] * 3))], 0.2)
    assert first["p"] == pytest.approx(2 / 3)


def test_halves_without_a_class_are_not_compared(tmp_path: Path) -> None:
    cache = people()
    cache.index["label"] = ["patient"] * 4 + ["control"] * 44  # one family
    write_folds(cache, tmp_path, same_volumes)
    assert refits(cache).half_maps(tmp_path, range(FOLDS)) == []
