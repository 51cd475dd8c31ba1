"""Curves of deletion and insertion, on a model whose decisive volumes are known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch.nn.functional import cross_entropy

from bolt.config import Faithfulness
from bolt.config.layout import ModelRun
from bolt.explain.relevance import importance, integrated_gradients, volume_weights
from bolt.explain.trust.faithfulness import (
    CONTROLS,
    DIRECTIONS,
    ORDERS,
    REPLACEMENTS,
    areas,
    better,
    read_folds,
    summarise,
    write_faithfulness,
)
from bolt.explain.trust.perturb import (
    block_ranks,
    chosen_scans,
    perturb_fold,
    position_of,
    random_ranks,
    replaced,
    scan_curves,
    shifted,
)
from bolt.explain.trust.similarity import position_curves
from bolt.explain.weights import write_importance
from bolt.io.errors import DataError
from bolt.io.files import read_table, write_status
from bolt.models.bolt import BolT
from bolt.training.checkpoint import save_checkpoint

HYPER = {"hidden": 16, "n_blocks": 1, "n_heads": 2, "head_dim": 8, "window": 8, "dropout": 0.0}
ROIS, VOLUMES = 6, 44
SETTINGS = Faithfulness(scans=4, steps=4, random_draws=4, surrogates=1, block=2, gradient_steps=16)


def scan(label: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """A series whose class shows in two short stretches alone, and which volumes these are."""
    series = 0.5 * random.standard_normal((VOLUMES, ROIS)).astype(np.float32)
    marks = np.zeros(VOLUMES)
    for start in random.choice(np.arange(0, VOLUMES, 4), 2, replace=False):
        marks[start : start + 2] = 1
    series[marks == 1, 0] += 5 if label else -5
    return series, marks


@pytest.fixture(scope="module")
def trained() -> BolT:
    random = np.random.default_rng(0)
    torch.manual_seed(0)
    model = BolT(ROIS, 2, **HYPER)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(80):
        labels = random.integers(0, 2, 16)
        x = torch.from_numpy(np.stack([scan(label, random)[0] for label in labels]))
        optimizer.zero_grad()
        cross_entropy(model(x).logits, torch.from_numpy(labels)).backward()
        optimizer.step()
    return model.eval()


def areas_of(model, scans, weights) -> np.ndarray:
    """(orders, replacements, directions), mean over scans."""
    found = [
        scan_curves(model, series, own, others, SETTINGS, np.random.default_rng(i))
        for i, (series, own, others) in enumerate(zip(scans, weights, position_curves(weights), strict=True))
    ]
    return areas(np.stack(found)).mean(0)


@pytest.fixture(scope="module")
def held_out():
    random = np.random.default_rng(1)
    return zip(*(scan(i % 2, random) for i in range(8)), strict=True)


@pytest.fixture
def held_out_again() -> list[np.ndarray]:
    random = np.random.default_rng(1)
    return [scan(i % 2, random)[0] for i in range(4)]


@pytest.fixture(scope="module")
def judged(trained, held_out) -> dict[str, np.ndarray]:
    scans, marks = held_out
    with torch.no_grad():
        assert all(int(trained(torch.from_numpy(x)[None]).logits.argmax()) == i % 2 for i, x in enumerate(scans))
    algorithm_1 = [importance(trained, torch.from_numpy(x)[None])[0].numpy() for x in scans]
    return {
        "known": areas_of(trained, scans, marks),
        "reversed": areas_of(trained, scans, [-m for m in marks]),
        "algorithm 1": areas_of(trained, scans, algorithm_1),
    }


RANDOM = ORDERS.index("random")


@pytest.mark.parametrize("r", range(2), ids=REPLACEMENTS)
def test_decisive_volumes_beat_random_ones_and_the_reverse_loses(judged, r):
    for name in ("known", "algorithm 1"):
        deletion, insertion = judged[name][0, r] - judged[name][RANDOM, r]
        assert deletion < -0.1 and insertion > 0.02, name
    deletion, insertion = judged["reversed"][0, r] - judged["reversed"][RANDOM, r]
    assert deletion > 0.02 and insertion < -0.1


def test_gradients_that_are_integrated_beat_random_too(judged):
    deletion, insertion = judged["known"][ORDERS.index("integrated_gradients"), 0] - judged["known"][RANDOM, 0]
    assert deletion < -0.1 and insertion > 0.02


@pytest.mark.parametrize("r", range(2), ids=REPLACEMENTS)
def test_decisive_volumes_beat_position_and_shifted_importance(judged, r):
    for control in ("position", "shifted"):
        deletion, insertion = judged["known"][0, r] - judged["known"][ORDERS.index(control), r]
        assert deletion < -0.1 and insertion > 0.02, control


def test_importance_that_is_position_does_not_beat_it(trained, held_out_again):
    ramp = np.linspace(1, 2, VOLUMES)
    found = areas_of(trained, held_out_again, [ramp] * len(held_out_again))
    np.testing.assert_array_equal(found[0], found[ORDERS.index("position")])


def test_importance_is_shifted_by_a_tenth_at_least():
    importance_of_one = np.eye(50)[20]
    draws = shifted(importance_of_one, 200, np.random.default_rng(0))
    moved = {(int(draw.argmax()) - 20) % 50 for draw in draws}
    assert all(draw.sum() == 1 for draw in draws) and min(moved) == 5 and max(moved) == 45 and len(moved) > 30
    assert [len(draw) for n in (1, 2, 3) for draw in shifted(np.arange(n), 1, np.random.default_rng(0))] == [1, 2, 3]


def test_position_is_the_mean_of_the_other_test_scans():
    weights = [np.full(6, 7.0), *np.random.default_rng(0).uniform(1, 2, (6, 6))]
    tests = np.arange(1, 7)
    others = position_of(weights, tests)
    scaled = [w / w.mean() for w in weights]
    np.testing.assert_allclose(others[1], np.mean(scaled[2:], axis=0))
    alone = position_of(weights, np.array([3]))  # the only test scan: training scans are used
    np.testing.assert_allclose(alone[3], np.mean([scaled[i] for i in (0, 1, 2, 4, 5, 6)], axis=0))


def test_other_orders_do_not_see_the_importance(judged):
    for order in (ORDERS.index("rollout"), ORDERS.index("integrated_gradients")):
        np.testing.assert_allclose(judged["known"][order], judged["reversed"][order], atol=1e-6)


def test_ends_of_the_curves(trained):
    series, marks = scan(1, np.random.default_rng(5))
    curves = scan_curves(trained, series, marks, np.ones(VOLUMES), SETTINGS, np.random.default_rng(0))
    assert curves.shape == (len(ORDERS), len(REPLACEMENTS), len(DIRECTIONS), SETTINGS.steps + 1)
    with torch.no_grad():
        intact, gone = trained(torch.from_numpy(np.stack([series, np.tile(series.mean(0), (len(series), 1))]))).logits
    k = int(intact.argmax())
    np.testing.assert_allclose(curves[:, :, 0, 0], float(intact.softmax(-1)[k]), atol=1e-5)
    np.testing.assert_allclose(curves[:, :, 1, -1], float(intact.softmax(-1)[k]), atol=1e-5)
    np.testing.assert_allclose(curves[:, 0, 0, -1], float(gone.softmax(-1)[k]), atol=1e-5)
    np.testing.assert_allclose(curves[:, 0, 1, 0], float(gone.softmax(-1)[k]), atol=1e-5)


def test_a_model_that_always_says_the_same_has_equal_areas():
    torch.manual_seed(0)
    model = BolT(ROIS, 7, **HYPER).eval()
    torch.nn.init.zeros_(model.classifier.weight)
    series, marks = scan(0, np.random.default_rng(0))
    curves = scan_curves(model, series, marks, np.ones(VOLUMES), SETTINGS, np.random.default_rng(0))
    np.testing.assert_allclose(curves, curves.flat[0], rtol=1e-5)
    _, table = summarise([f"s{i}" for i in range(8)], np.stack([curves] * 8))
    assert (table["better_than_random"].dropna() == "no").all()


def test_attributions_sum_to_what_they_explain(trained):
    x = torch.from_numpy(np.stack([scan(i, np.random.default_rng(i))[0] for i in (0, 1)]))
    target = torch.tensor([0, 1])
    found = integrated_gradients(trained, x, target, SETTINGS.gradient_steps)
    with torch.no_grad():
        gain = (trained(x).logits - trained(torch.zeros_like(x)).logits).gather(1, target[:, None])[:, 0]
    torch.testing.assert_close(found.sum((1, 2)), gain, rtol=0.02, atol=0.01)
    assert volume_weights(found).shape == (2, VOLUMES) and (volume_weights(found) >= 0).all()


def test_blocks_are_ranked_by_their_mean():
    assert block_ranks(np.array([0, 1, 5, 0, 2.0]), 1).tolist() == [3, 2, 0, 4, 1]
    assert block_ranks(np.array([0, 1, 5, 0, 2.0]), 2).tolist() == [2, 2, 0, 0, 1]
    assert block_ranks(np.zeros(4), 2).tolist() == [0, 0, 1, 1]  # of equals the earlier
    drawn = random_ranks(11, 3, np.random.default_rng(0))
    assert sorted(set(drawn)) == [0, 1, 2, 3] and (np.diff(drawn)[[0, 1, 3, 4, 6, 7, 9]] == 0).all()


@pytest.mark.parametrize(("n", "steps"), [(10, 10), (13, 4), (1, 3), (7, 10)])
def test_insertion_is_deletion_in_reverse_read_backwards(n, steps):
    ranks = np.random.default_rng(0).permutation(n)
    deletion, insertion = replaced(ranks, steps)
    assert np.array_equal(insertion, replaced(n - 1 - ranks, steps)[0][::-1])
    assert not deletion[0].any() and deletion[-1].all() and insertion[0].all() and not insertion[-1].any()
    assert deletion[1:][ranks[None].repeat(steps, 0) == 0].all() or n < steps  # the most important goes first


@pytest.mark.parametrize(
    "labels", [["a"] * 9, list("abcdefg") * 3, ["a"] * 12 + ["b"] * 4], ids=["one", "seven", "two"]
)
def test_scans_are_chosen_by_class(labels):
    labels = np.array(labels)
    chosen = chosen_scans(labels, 7 if len(set(labels)) == 7 else 8, seed=3)
    assert len(set(chosen)) == len(chosen) and (np.diff(chosen) > 0).all()
    share = {label: (labels == label).mean() * len(chosen) for label in set(labels)}
    assert all(abs((labels[chosen] == label).sum() - share[label]) < 1 for label in share)
    assert np.array_equal(chosen, chosen_scans(labels, len(chosen), seed=3))
    assert len(chosen_scans(labels, 100, 0)) == len(labels)


# ---- over scans and folds ------------------------------------------------------------------------


def made_up(n: int = 12, gain: float = 0.2, seed: int = 0) -> np.ndarray:
    """Curves of which importance is better than random by `gain`, the others not."""
    random = np.random.default_rng(seed)
    line = np.linspace(1, 0, 5)
    curves = np.empty((n, len(ORDERS), 2, 2, 5))
    curves[..., 0, :], curves[..., 1, :] = line, line[::-1]
    curves += random.normal(0, 0.02, (n, len(ORDERS), 2, 2, 1))
    curves[:, 0, :, 0] -= gain
    curves[:, 0, :, 1] += gain
    return curves


@pytest.mark.parametrize(("gain", "word"), [(0.2, "yes"), (0.0, "no"), (-0.2, "worse")])
def test_the_interval_of_the_difference_says_what_is_better(gain, word):
    lines, table = summarise([f"s{i}" for i in range(12)], made_up(gain=gain, seed=1))
    own = table[table["order"] == "importance"]
    for control in CONTROLS:
        assert (own[f"better_than_{control}"] == word).all()
    assert len(table) == 24 and len(lines) == 24 * 5
    first = own[own["direction"] == "deletion"].iloc[0]
    assert first["area"] == pytest.approx(0.5 - gain, abs=0.03)
    assert first["difference_low"] < first["difference"] < first["difference_high"]
    assert table.loc[table["order"] == "random", "difference"].isna().all()
    controls = table[table["order"].isin(CONTROLS)]
    assert controls["better_than_position"].isna().all() and controls["better_than_shifted"].isna().all()
    assert controls.groupby("order")["better_than_random"].count().to_dict() == {
        "position": 4,
        "random": 0,
        "shifted": 4,
    }


def test_differences_are_those_from_each_control():
    curves = made_up(gain=0.2)
    curves[:, ORDERS.index("position")] = curves[:, 0]  # importance is position alone
    row = summarise([f"s{i}" for i in range(12)], curves)[1].iloc[0]
    assert (row["better_than_random"], row["better_than_position"], row["better_than_shifted"]) == ("yes", "no", "yes")
    assert row["position_difference"] == 0 and row["shifted_difference"] == pytest.approx(-0.2, abs=0.03)


def test_scans_of_a_person_are_not_counted_as_persons():
    curves = made_up(gain=0.0)
    apart = summarise([f"s{i}" for i in range(12)], curves)[1]
    together = summarise([f"s{i // 6}" for i in range(12)], np.repeat(curves[::6], 6, axis=0))[1]
    assert apart["n_groups"].iloc[0] == 12 and together["n_groups"].iloc[0] == 2
    assert together["better_than_random"].isna().all()


def test_words_of_an_interval():
    assert [better("deletion", *ends) for ends in ((-2, -1), (-1, 1), (1, 2))] == ["yes", "no", "worse"]
    assert [better("insertion", *ends) for ends in ((-2, -1), (-1, 1), (1, 2))] == ["worse", "no", "yes"]


class Cache:
    """As much of a series cache as is asked for."""

    def __init__(self, series: list[np.ndarray]) -> None:
        self.index = pd.DataFrame({"scan_id": [f"scan-{i}" for i in range(len(series))]})
        self._series = series

    def finite_series(self, i: int) -> np.ndarray:
        return self._series[i]


def fold(folder: Path, model: BolT, n_classes: int = 2) -> Cache:
    """A finished fold with importance weights: six test scans, and two of training."""
    random = np.random.default_rng(0)
    series = [scan(i % 2, random)[0][: VOLUMES - i % 3] for i in range(8)]
    cache = Cache(series)
    classes = [f"class{k}" for k in range(n_classes)]
    save_checkpoint(folder, model, {"model": {"model": "bolt", "hyper": HYPER}, "n_rois": ROIS, "classes": classes})
    table = pd.DataFrame({"scan_id": cache.index["scan_id"], "role": ["train"] * 2 + ["test"] * 6})
    table = table.assign(predicted="class0", label=[classes[i % n_classes] for i in range(8)], group=range(8))
    table.to_csv(folder / "predictions.tsv", sep="\t", index=False)
    write_importance(table, [random.random(len(x)) for x in series], folder)
    write_status(folder / "faithfulness_status.json", "ok", "faithfulness_fold")
    return cache


def test_folds_are_gathered_and_what_is_missing_is_said(tmp_path, trained):
    run = ModelRun(tmp_path, "x", "v", "m", 0)
    for k in (0, 2):
        run.fold(k).mkdir(parents=True)
        cache = fold(run.fold(k), trained)
        perturb_fold(cache, run.fold(k), SETTINGS, seed=0, device="cpu")
    index, curves = read_folds(run.folder, [0, 2])
    assert len(index) == len(curves) == 8 and not set(index["scan_id"]) & {"scan-0", "scan-1"}  # four per fold
    write_faithfulness(run, [0, 1, 2])
    table = read_table(run.explanation / "faithfulness_areas.tsv", text=("folds", "missing_folds"))
    assert set(table["folds"]) == {"0, 2"} and set(table["missing_folds"]) == {"1"}
    lines = read_table(run.explanation / "faithfulness.tsv")
    assert len(lines) == 24 * (SETTINGS.steps + 1) and lines["probability"].between(0, 1).all()


def test_curves_of_another_version_are_refused(tmp_path, trained):
    run = ModelRun(tmp_path, "x", "v", "m", 0)
    run.fold(0).mkdir(parents=True)
    perturb_fold(fold(run.fold(0), trained), run.fold(0), SETTINGS, seed=0, device="cpu")
    file = run.fold(0) / "faithfulness_curves.npy"
    np.save(file, np.load(file)[:, [0, 1, 2, 5]])
    with pytest.raises(DataError, match="curves of 4 orders of the volumes, but 6 are compared"):
        write_faithfulness(run, [0])


def test_seven_classes_and_the_same_numbers_again(tmp_path):
    torch.manual_seed(0)
    cache = fold(tmp_path, BolT(ROIS, 7, **HYPER).eval(), 7)
    written = []
    for seed in (0, 0, 1):
        perturb_fold(cache, tmp_path, SETTINGS, seed=seed, device="cpu")
        written.append((tmp_path / "faithfulness_curves.npy").read_bytes())
    assert written[0] == written[1] != written[2]


def test_nothing_to_gather_is_said(tmp_path):
    with pytest.raises(DataError, match="no fold of this run has curves"):
        write_faithfulness(ModelRun(tmp_path, "x", "v", "m", 0), [0, 1])


def test_weights_of_other_series_are_refused(tmp_path, trained):
    cache = fold(tmp_path, trained)
    cache._series[4] = cache._series[4][:-3]
    with pytest.raises(DataError, match=r"scan 'scan-4' has series of shape \(40, 6\), but 43 importance weights"):
        perturb_fold(cache, tmp_path, SETTINGS.model_copy(update={"scans": 6}), seed=0, device="cpu")


def test_a_number_has_no_predicted_class(tmp_path, trained):
    cache = fold(tmp_path, trained)
    info = {"model": {"model": "bolt", "hyper": HYPER}, "n_rois": ROIS, "classes": None}
    save_checkpoint(tmp_path, BolT(ROIS, 1, **HYPER), info)
    with pytest.raises(DataError, match="a predicted class"):
        perturb_fold(cache, tmp_path, SETTINGS, seed=0, device="cpu")
