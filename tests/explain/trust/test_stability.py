"""Agreement over folds and seeds, and what chance gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bolt.config.layout import ModelRun
from bolt.explain.trust.stability import (
    STABILITY_COLUMNS,
    _mean,
    chance_overlap,
    compare_maps,
    curve_pairs,
    write_stability,
)
from bolt.explain.weights import write_importance
from bolt.io.errors import DataError
from bolt.io.files import read_table, write_status

RANDOM = np.random.default_rng(5)
CLASSES = ["control", "patient"]


@pytest.mark.parametrize(("one", "other", "total"), [(4, 4, 200), (10, 3, 40), (20, 20, 25)])
def test_chance_overlap_is_what_random_sets_have(one: int, other: int, total: int) -> None:
    dice, jaccard = [], []
    for _ in range(4000):
        a, b = (set(RANDOM.choice(total, n, replace=False)) for n in (one, other))
        dice.append(2 * len(a & b) / (one + other))
        jaccard.append(len(a & b) / len(a | b))
    expected = chance_overlap(one, other, total)
    for values, due in zip((dice, jaccard), expected, strict=True):
        assert np.mean(values) == pytest.approx(due, abs=4 * np.std(values) / 4000**0.5 + 1e-12)


def test_chance_overlap_at_its_ends() -> None:
    assert chance_overlap(5, 5, 5) == (1, 1)
    assert chance_overlap(0, 3, 10) == (0, 0)
    assert np.isnan(chance_overlap(0, 0, 10)).all()


def test_equal_maps_agree_wholly_and_independent_ones_by_chance() -> None:
    one = RANDOM.standard_normal(500)
    same = compare_maps(one, 3 * one, 0.02)
    assert same["pearson"] == pytest.approx(1) and same["spearman"] == pytest.approx(1)
    assert same["dice"] == same["jaccard"] == 1
    found = [compare_maps(one, RANDOM.standard_normal(500), 0.1) for _ in range(60)]
    table = pd.DataFrame(found)
    assert table[["pearson", "spearman"]].abs().mean().max() < 0.08
    assert table["dice"].mean() == pytest.approx(table["dice_chance"].mean(), abs=0.04)
    assert compare_maps(one, -one, 0.02)["dice"] == 0


def test_flat_maps_have_no_correlation() -> None:
    found = compare_maps(np.zeros(20), RANDOM.standard_normal(20), 0.1)
    assert np.isnan(found["pearson"]) and found["dice"] == 0
    assert np.isnan(compare_maps(np.zeros(20), np.zeros(20), 0.1)["dice"])


def explained(curves: list[np.ndarray], predicted: str = "patient") -> tuple:
    table = pd.DataFrame({"scan_id": [f"s{i:02d}" for i in range(len(curves))], "predicted": predicted})
    return table, curves


def test_curves_agree_where_they_are_the_scans_own() -> None:
    own = [RANDOM.random(60) for _ in range(20)]
    edge = np.linspace(0, 5, 60)
    row = curve_pairs({"0": explained(own), "1": explained([2 * x for x in own], "control")})[0]
    assert row["spearman"] == pytest.approx(1) and row["same_class"] == 0 and row["n"] == 20
    apart = {str(k): explained([edge + RANDOM.random(60) for _ in own]) for k in range(3)}
    rows = curve_pairs(apart)
    assert len(rows) == 3
    for row in rows:
        assert abs(row["spearman"]) < 0.1 and row["spearman_raw"] > 0.8


def test_only_scans_of_both_are_compared() -> None:
    own = [RANDOM.random(30) for _ in range(8)]
    fewer = explained(own)[0].iloc[:6], own[:6]
    assert curve_pairs({"0": explained(own), "1": fewer})[0]["n"] == 6


def make_seed(run: ModelRun, coefficients: np.ndarray, curves: list[np.ndarray]) -> ModelRun:
    table = explained(curves)[0].assign(role="test")
    for fold in range(len(coefficients)):
        write_importance(table, curves, run.fold(fold))
        write_status(run.fold(fold) / "status.json", "ok", "train")
    run.explanation.mkdir(parents=True)
    np.save(run.explanation / "coefficients.npy", coefficients.astype(np.float32))
    return run


def test_the_table_has_every_pair_of_folds_and_this_seed_beside_the_others(tmp_path: Path) -> None:
    curves = [RANDOM.random(30) for _ in range(8)]
    weights = RANDOM.standard_normal((3, 1, 50)) * np.array([[-1], [1]])
    run = ModelRun(tmp_path, "x", "v", "m", 1)
    for seed in (0, 1):
        make_seed(run.with_seed(seed), weights + seed, curves)
    write_stability(run, [0, 1, 2], range(5), CLASSES, fraction=0.1)
    table = read_table(run.explanation / "stability.tsv", text=("class", "one", "other"))
    assert list(table) == list(STABILITY_COLUMNS)
    pairs = table[table["other"].notna()]
    assert pairs.groupby(["between", "what"]).size().to_dict() == {
        ("folds", "importance"): 3, ("folds", "regions"): 6, ("seeds", "importance"): 1, ("seeds", "regions"): 2,
    }  # fmt: skip
    seeds = pairs[pairs["between"] == "seeds"]
    assert (seeds["one"] == "1").all() and (seeds["other"] == "0").all()
    np.testing.assert_allclose(seeds["spearman"], 1)
    folds = table[(table["between"] == "folds") & (table["class"] == "patient")].set_index("one")
    values = pairs[(pairs["between"] == "folds") & (pairs["class"] == "patient")]["pearson"]
    assert folds.at["mean", "pearson"] == pytest.approx(values.mean())
    assert folds.at["lowest", "pearson"] == values.min() and folds.at["highest", "pearson"] == values.max()


def test_one_fold_has_nothing_to_compare(tmp_path: Path) -> None:
    run = ModelRun(tmp_path, "x", "v", "m", 0)
    make_seed(run, RANDOM.standard_normal((1, 2, 50)), [RANDOM.random(30) for _ in range(8)])
    write_stability(run, [0], range(5), CLASSES, fraction=0.1)
    assert read_table(run.explanation / "stability.tsv").empty


def test_weights_of_other_folds_are_refused(tmp_path: Path) -> None:
    run = ModelRun(tmp_path, "x", "v", "m", 0)
    make_seed(run, RANDOM.standard_normal((2, 2, 50)), [RANDOM.random(30) for _ in range(8)])
    np.save(run.explanation / "coefficients.npy", np.zeros((3, 2, 50), np.float32))
    with pytest.raises(DataError, match="3 folds, but 2 are explained"):
        write_stability(run, [0], range(5), CLASSES, fraction=0.1)
    (run.explanation / "coefficients.npy").unlink()
    with pytest.raises(DataError, match="Make the regions first"):
        write_stability(run, [0], range(5), CLASSES, fraction=0.1)


def test_a_mean_needs_half_of_its_values() -> None:
    for values, expected in (([1.0, 3.0, np.nan, np.nan], 2.0), ([1.0, np.nan, np.nan], np.nan), ([], np.nan)):
        np.testing.assert_equal(_mean(np.array(values)), expected)
