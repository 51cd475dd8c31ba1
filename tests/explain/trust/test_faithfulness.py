"""Curves of deletion and insertion, on a model whose decisive volumes are known."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch.nn.functional import cross_entropy

from bolt.config import Faithfulness
from bolt.config.layout import ModelRun
from bolt.explain.relevance import importance, integrated_gradients
from bolt.explain.trust import faithfulness, perturb
from bolt.explain.trust.faithfulness import CONTROLS, DIRECTIONS, ORDERS, REPLACEMENTS, summarise
from bolt.explain.trust.perturb import perturb_fold, replaced, scan_curves
from bolt.explain.trust.similarity import position_curves
from bolt.explain.weights import write_importance
from bolt.io.errors import DataError
from bolt.io.files import read_table, write_status
from bolt.models.bolt import BolT
from tests.explain.runs import MemoryCache, save_bolt

HYPER = {"hidden": 16, "n_blocks": 1, "n_heads": 2, "head_dim": 8, "window": 8, "dropout": 0.0}
ROIS, VOLUMES = 6, 44
SETTINGS = Faithfulness(scans=4, steps=4, random_draws=4, surrogates=1, block=2, gradient_steps=16)
RANDOM, GRADIENTS = ORDERS.index("random"), ORDERS.index("integrated_gradients")


def scan(label, random):
    """A series whose class shows in two short stretches alone, and which volumes these are."""
    series = 0.5 * random.standard_normal((VOLUMES, ROIS)).astype(np.float32)
    marks = np.zeros(VOLUMES)
    for start in random.choice(np.arange(0, VOLUMES, 4), 2, replace=False):
        marks[start : start + 2] = 1
    series[marks == 1, 0] += 5 if label else -5
    return series, marks


@pytest.fixture(scope="module")
def trained():
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


def areas_of(model, scans, weights):
    """(orders, replacements, directions), mean over scans."""
    found = [
        scan_curves(model, series, own, others, SETTINGS, np.random.default_rng(i))
        for i, (series, own, others) in enumerate(zip(scans, weights, position_curves(weights), strict=True))
    ]
    return faithfulness.areas(np.stack(found)).mean(0)


@pytest.fixture(scope="module")
def judged(trained):
    random = np.random.default_rng(1)
    scans, marks = zip(*(scan(i % 2, random) for i in range(4)), strict=True)
    with torch.no_grad():
        assert all(int(trained(torch.from_numpy(x)[None]).logits.argmax()) == i % 2 for i, x in enumerate(scans))
    weights = {"known": marks, "reversed": [-m for m in marks]}
    weights["algorithm 1"] = [importance(trained, torch.from_numpy(x)[None])[0].numpy() for x in scans]
    ramp = [np.linspace(1, 2, VOLUMES)] * 4
    found = {name: areas_of(trained, scans, given) for name, given in weights.items()}
    return found | {"position": areas_of(trained, scans, ramp)}


@pytest.mark.parametrize("r", range(2), ids=REPLACEMENTS)
def test_decisive_volumes_beat_every_control_and_the_reverse_loses(judged, r):
    pairs = [("known", 0, control) for control in CONTROLS] + [("algorithm 1", 0, "random")]
    for name, order, control in pairs + [("known", GRADIENTS, "random")] * (r == 0):
        deletion, insertion = judged[name][order, r] - judged[name][ORDERS.index(control), r]
        assert deletion < -0.1 and insertion > 0.02, (name, order, control)
    deletion, insertion = judged["reversed"][0, r] - judged["reversed"][RANDOM, r]
    assert deletion > 0.02 and insertion < -0.1


def test_importance_that_is_position_does_not_beat_it_and_other_orders_do_not_see_it(judged):
    np.testing.assert_array_equal(judged["position"][0], judged["position"][ORDERS.index("position")])
    for order in (ORDERS.index("rollout"), GRADIENTS):
        np.testing.assert_allclose(judged["known"][order], judged["reversed"][order], atol=1e-6)


def test_importance_is_shifted_by_a_tenth_at_least():
    draws = perturb.shifted(np.eye(50)[20], 200, np.random.default_rng(0))
    moved = {(int(draw.argmax()) - 20) % 50 for draw in draws}
    assert all(draw.sum() == 1 for draw in draws) and min(moved) == 5 and max(moved) == 45 and len(moved) > 30
    short = [perturb.shifted(np.arange(n), 1, np.random.default_rng(0))[0] for n in (1, 2, 3)]
    assert [len(draw) for draw in short] == [1, 2, 3]


def test_position_is_the_mean_of_the_other_test_scans():
    weights = [np.full(6, 7.0), *np.random.default_rng(0).uniform(1, 2, (6, 6))]
    scaled = [w / w.mean() for w in weights]
    others = perturb.position_of(weights, np.arange(1, 7))
    np.testing.assert_allclose(others[1], np.mean(scaled[2:], axis=0))
    alone = perturb.position_of(weights, np.array([3]))  # the only test scan: training scans are used
    np.testing.assert_allclose(alone[3], np.mean([scaled[i] for i in (0, 1, 2, 4, 5, 6)], axis=0))


def test_ends_of_the_curves(trained):
    series, marks = scan(1, np.random.default_rng(5))
    curves = scan_curves(trained, series, marks, np.ones(VOLUMES), SETTINGS, np.random.default_rng(0))
    assert curves.shape == (len(ORDERS), len(REPLACEMENTS), len(DIRECTIONS), SETTINGS.steps + 1)
    with torch.no_grad():
        logits = trained(torch.from_numpy(np.stack([series, np.tile(series.mean(0), (len(series), 1))]))).logits
    intact, gone = logits.softmax(-1)[:, int(logits[0].argmax())].tolist()
    np.testing.assert_allclose(curves[:, :, [0, 1], [0, -1]], intact, atol=1e-5)
    np.testing.assert_allclose(curves[:, 0, [0, 1], [-1, 0]], gone, atol=1e-5)


def test_attributions_sum_to_what_they_explain(trained):
    x = torch.from_numpy(np.stack([scan(i, np.random.default_rng(i))[0] for i in (0, 1)]))
    target = torch.tensor([0, 1])
    found = integrated_gradients(trained, x, target, SETTINGS.gradient_steps)
    with torch.no_grad():
        gain = (trained(x).logits - trained(torch.zeros_like(x)).logits).gather(1, target[:, None])[:, 0]
    torch.testing.assert_close(found.sum((1, 2)), gain, rtol=0.02, atol=0.01)


def test_blocks_are_ranked_by_their_mean():
    for scores, block, ranks in (
        ([0, 1, 5, 0, 2], 1, [3, 2, 0, 4, 1]),
        ([0, 1, 5, 0, 2], 2, [2, 2, 0, 0, 1]),
        ([0, 0, 0, 0], 2, [0, 0, 1, 1]),  # of equals the earlier
    ):
        assert perturb.block_ranks(np.array(scores, float), block).tolist() == ranks
    drawn = perturb.random_ranks(11, 3, np.random.default_rng(0))
    assert sorted(set(drawn)) == [0, 1, 2, 3] and (np.diff(drawn)[[0, 1, 3, 4, 6, 7, 9]] == 0).all()


@pytest.mark.parametrize(("n", "steps"), [(10, 10), (13, 4), (1, 3), (7, 10)])
def test_insertion_is_deletion_in_reverse_read_backwards(n, steps):
    ranks = np.random.default_rng(0).permutation(n)
    deletion, insertion = replaced(ranks, steps)
    assert np.array_equal(insertion, replaced(n - 1 - ranks, steps)[0][::-1])
    assert not deletion[0].any() and deletion[-1].all()
    assert deletion[1:][ranks[None].repeat(steps, 0) == 0].all() or n < steps  # the most important goes first


@pytest.mark.parametrize(("labels", "n"), [("a" * 9, 8), ("abcdefg" * 3, 7), ("a" * 12 + "b" * 4, 8)])
def test_scans_are_chosen_by_class(labels, n):
    labels = np.array(list(labels))
    chosen = perturb.chosen_scans(labels, n, seed=3)
    assert len(chosen) == n and (np.diff(chosen) > 0).all()
    for label in set(labels):
        assert abs((labels[chosen] == label).sum() - (labels == label).mean() * n) < 1
    assert len(perturb.chosen_scans(labels, 100, 0)) == len(labels)


@pytest.mark.parametrize("volumes", [40, 41])
def test_phase_randomised_copies_keep_spectra_and_covariance_but_not_the_time_of_things(volumes):
    series = np.cumsum(np.random.default_rng(0).standard_normal((volumes, 5)), axis=0)
    series[:, 1] += 2 * series[:, 0]
    series[:, 4] = 3.0
    copies = [perturb.phase_randomised(series, np.random.default_rng(seed)) for seed in range(30)]
    before, after = np.fft.rfft(series, axis=0), np.fft.rfft(copies[1], axis=0)
    np.testing.assert_allclose(np.abs(after), np.abs(before), atol=1e-9)
    np.testing.assert_allclose(after[:, 0] * after[:, 1].conj(), before[:, 0] * before[:, 1].conj(), atol=1e-7)
    np.testing.assert_allclose(np.cov(copies[1].T), np.cov(series.T), atol=1e-9)
    np.testing.assert_allclose(copies[1].mean(0), series.mean(0), atol=1e-9)
    correlation = [np.corrcoef(copy[:, 0], series[:, 0])[0, 1] for copy in copies]
    assert abs(np.mean(correlation)) < 0.3 and np.std(correlation) > 0.1
    assert perturb.phase_randomised(series.astype(np.float32), np.random.default_rng(1)).dtype == np.float32


# ---- over scans and folds ------------------------------------------------------------------------


def made_up(n=12, gain=0.2, seed=0):
    """Curves of which importance is better than random by `gain`, the others not."""
    random = np.random.default_rng(seed)
    line = np.linspace(1, 0, 5)
    curves = np.empty((n, len(ORDERS), 2, 2, 5))
    curves[..., 0, :], curves[..., 1, :] = line, line[::-1]
    curves += random.normal(0, 0.02, (n, len(ORDERS), 2, 2, 1))
    curves[:, 0, :, 0] -= gain
    curves[:, 0, :, 1] += gain
    return curves


TWELVE, YES_NO_YES = [f"s{i}" for i in range(12)], ["yes", "no", "yes"]


@pytest.mark.parametrize(("gain", "word"), [(0.2, "yes"), (0.0, "no"), (-0.2, "worse")])
def test_the_interval_of_the_difference_says_what_is_better(gain, word):
    lines, table = summarise(TWELVE, made_up(gain=gain, seed=1))
    own = table[table["order"] == "importance"]
    assert (own[[f"better_than_{control}" for control in CONTROLS]] == word).all(axis=None)
    assert len(table) == 24 and len(lines) == 24 * 5
    first = own[own["direction"] == "deletion"].iloc[0]
    assert first["area"] == pytest.approx(0.5 - gain, abs=0.03)
    assert first["difference_low"] < first["difference"] < first["difference_high"]
    controls = table[table["order"].isin(CONTROLS)].groupby("order")
    assert controls["difference"].count().to_dict() == {"position": 4, "random": 0, "shifted": 4}
    assert controls["better_than_random"].count().to_dict() == {"position": 4, "random": 0, "shifted": 4}
    assert not controls[["better_than_position", "better_than_shifted"]].count().any(axis=None)


def test_differences_are_those_from_each_control_and_of_persons():
    curves = made_up(gain=0.2)
    curves[:, ORDERS.index("position")] = curves[:, 0]  # importance is position alone
    row = summarise(TWELVE, curves)[1].iloc[0]
    assert row[[f"better_than_{control}" for control in ("random", "position", "shifted")]].tolist() == YES_NO_YES
    assert row["position_difference"] == 0 and row["shifted_difference"] == pytest.approx(-0.2, abs=0.03)
    together = summarise([f"s{i // 6}" for i in range(12)], curves)[1]  # six scans each of two
    assert (together["n_groups"] == 2).all() and together["better_than_random"].isna().all()


def fold(folder, model, n_classes=2):
    """A finished fold with importance weights: six test scans, and two of training."""
    random = np.random.default_rng(0)
    series = [scan(i % 2, random)[0][: VOLUMES - i % 3] for i in range(8)]
    classes = [f"class{k}" for k in range(n_classes)]
    cache = MemoryCache(series, [classes[i % n_classes] for i in range(8)])
    save_bolt(folder, model, classes, HYPER, ROIS)
    table = cache.index.assign(role=["train"] * 2 + ["test"] * 6, predicted="class0")
    table.to_csv(folder / "predictions.tsv", sep="\t", index=False)
    write_importance(table, [random.random(len(x)) for x in series], folder)
    write_status(folder / "faithfulness_status.json", "ok", "faithfulness_fold")
    return cache


def test_folds_are_gathered_and_what_is_missing_is_said(tmp_path, trained):
    run = ModelRun(tmp_path, "x", "v", "m", 0)
    for k in (0, 2):
        run.fold(k).mkdir(parents=True)
        perturb_fold(fold(run.fold(k), trained), run.fold(k), SETTINGS, seed=0, device="cpu")
    tested = [read_table(run.fold(k) / "faithfulness_curves.tsv")["scan_id"] for k in (0, 2)]
    assert [len(scans) for scans in tested] == [4, 4] and not set(pd.concat(tested).str[:6]) & {"sub-00", "sub-01"}
    faithfulness.write_faithfulness(run, [0, 1, 2])
    table = read_table(run.explanation / "faithfulness_areas.tsv", text=("folds", "missing_folds"))
    assert set(table["folds"]) == {"0, 2"} and set(table["missing_folds"]) == {"1"}
    lines = read_table(run.explanation / "faithfulness.tsv")
    assert len(lines) == 24 * (SETTINGS.steps + 1) and lines["probability"].between(0, 1).all()
    file = run.fold(2) / "faithfulness_curves.npy"
    for change, said in ((np.s_[:, [0, 1, 2, 5]], "curves of 4 orders of the volumes, but 6"), (np.s_[1:], "index")):
        before = np.load(file)
        np.save(file, before[change])
        with pytest.raises(DataError, match=said):
            faithfulness.write_faithfulness(run, [0, 2])
        np.save(file, before)


def test_curves_follow_the_explained_class_also_where_bolt_alone_predicts_another(tmp_path, trained):
    cache = fold(tmp_path, trained)  # class0 for all, as an ensemble may say
    perturb_fold(cache, tmp_path, SETTINGS.model_copy(update={"scans": 6}), seed=0, device="cpu")
    with torch.no_grad():
        alone = [trained(torch.from_numpy(x)[None]).logits.softmax(-1)[0, 0].item() for x in cache.arrays[2:]]
    assert min(alone) < 0.1 and max(alone) > 0.9
    intact = np.load(tmp_path / "faithfulness_curves.npy")[:, 0, 0, 0, 0]
    np.testing.assert_allclose(intact, alone, atol=1e-5)


def test_seven_classes_the_same_numbers_again_and_weights_of_other_series(tmp_path):
    torch.manual_seed(0)
    cache = fold(tmp_path, BolT(ROIS, 7, **HYPER).eval(), 7)
    written = []
    for seed in (0, 0, 1):
        perturb_fold(cache, tmp_path, SETTINGS, seed=seed, device="cpu")
        written.append((tmp_path / "faithfulness_curves.npy").read_bytes())
    assert written[0] == written[1] != written[2]
    cache.arrays[4] = cache.arrays[4][:-3]
    with pytest.raises(DataError, match=r"sub-04.* has series of shape \(40, 6\), but 43 importance weights"):
        perturb_fold(cache, tmp_path, SETTINGS.model_copy(update={"scans": 6}), seed=0, device="cpu")
