"""Kept predictions of tuned models: pools, the ratio of the corrected t-test, and what the tables say."""

import pandas as pd
import pytest

from benchmarks.abide_tuned import LINEAR, POOLS, TABLE, Pairs, difference, kept, overlap, with_pools, with_published
from benchmarks.abide_tuning import EQUAL, pool
from bolt.io.files import read_table


@pytest.fixture(scope="module")
def folds():
    return with_pools(with_published(kept()).query("scheme == 'folds'"))


def test_the_ratio_counts_scans_that_are_learned_from(folds):
    assert overlap(folds, "Ridge") == pytest.approx(1 / 8, rel=1e-3)  # not 1/9: validation scans are not learned from
    assert overlap(folds, "BolT + linear models, 100%", "Ridge, 60%") == pytest.approx(1 / 8 / 0.8, rel=1e-3)


def test_a_pool_is_the_mean_logit(folds):
    one = pd.DataFrame({"Ridge, seed 0": [0.9, 0.0], "Tangent, seed 0": [0.1, 0.5]})
    pooled = with_pools(one)[f"{LINEAR}, seed 0"]
    assert pooled[0] == pytest.approx(0.5) and 0 < pooled[1] < 0.01
    assert {name.rsplit(", seed ", 1)[0] for name in folds} >= set(POOLS)


def test_the_table_states_the_pools_as_post_hoc(folds):
    table = read_table(TABLE)
    assert set(table.loc[table["post_hoc"] == "yes", "row"]) == set(POOLS)
    line = table.set_index(["scheme", "row"]).loc[("folds", LINEAR)]
    rows = [Pairs(folds, [f"{row}, seed {seed}" for seed in range(3)]) for row in ("BolT + linear models", LINEAR)]
    ahead = difference(*rows, overlap(folds, LINEAR))
    assert line["auc"] == pytest.approx(rows[1].auc(), abs=1e-4)
    assert line["difference"] == pytest.approx(ahead["difference"], abs=1e-4)
    assert line["p"] == pytest.approx(ahead["p"], abs=1e-4) and line["p"] > 0.05
    assert line["difference_low"] < 0 < line["difference_high"]


def test_inner_pools_with_equal_weights_need_no_order():
    table = pd.DataFrame({"fold": 0, "scan_id": list("abcd"), "role": ["validation"] * 2 + ["test"] * 2})
    table = table.assign(label=["autism", "control"] * 2)
    first, second = table.assign(p_autism=[0.8, 0.3, 0.6, 0.5]), table.assign(p_autism=[0.7, 0.4, 0.2, 0.5])
    forward, backward = pool([first, second], EQUAL), pool([second.iloc[::-1], first], EQUAL)
    merged = forward.merge(backward, on=["scan_id"])
    assert merged["p_autism_x"].to_numpy() == pytest.approx(merged["p_autism_y"].to_numpy(), abs=1e-6)
    assert forward["p_autism"][3] == pytest.approx(0.5)
