"""Importance over the course of a task: times of the acquisition, events, and whether importance lies there."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from bolt.config import Explain
from bolt.explain import tasks
from bolt.explain.tasks import alignment, event_mask, event_masks, kinds_of, read_events, transitions, write_tasks
from bolt.explain.weights import UNTRAINED, read_importance, write_importance
from bolt.io.errors import DataError
from bolt.io.files import read_json, read_table

TR = 2.0
N = 40
TEXT = ("class", "task", "run", "trial_type")


def events(*rows):
    return pd.DataFrame(rows, columns=["onset", "duration", "trial_type"])


def test_tables_of_events(tmp_path):
    path = tmp_path / "events.tsv"
    path.write_text("onset\tduration\ttrial_type\tx\n9\tn/a\tgo\t1\n3.5\t2\t007\t1\n5\t1\tn/a\t1\n")
    expected = {"onset": [3.5, 9], "duration": [2, 0], "trial_type": ["007", "go"]}
    assert read_events(path).to_dict("list") == expected
    path.write_text("onset\n1\n")
    assert read_events(path).to_dict("records") == [{"onset": 1, "duration": 0, "trial_type": "event"}]
    for text, said in (("time\n1\n", "'onset' is missing"), ("onset\tduration\nnow\t1\n", "not numbers")):
        path.write_text(text)
        with pytest.raises(DataError, match=said):
            read_events(path)


def test_a_volume_is_in_the_event_in_which_its_middle_lies():
    table = events((4, 6, "a"), (20, 0, "a"), (0, 4, "b"))
    assert np.flatnonzero(event_mask(table, "a", 15, TR)).tolist() == [2, 3, 4, 10]  # at least one TR
    assert np.flatnonzero(event_mask(table, "a", 15, TR, shift=5)).tolist() == [4, 5, 6, 12]
    assert np.flatnonzero(event_mask(table, "a", 3, TR)).tolist() == [2]
    assert np.flatnonzero(transitions(events((4, 20, "a")), 20, TR)).tolist() == [4, 5, 14, 15]


def test_kinds_within_longer_ones_and_rare_ones_say_nothing_new():
    common = (0, 20, "block"), (30, 4, "cue")
    scans = [
        events(*common, (4, 2, "trial"), (12, 2, "trial")),
        events(*common, (6, 2, "trial")),
        events(*common, (40, 9, "error")),
    ]
    masks = {k: np.stack([event_mask(one, k, N, TR) for one in scans]) for k in ("block", "trial", "cue", "error")}
    assert kinds_of(scans, masks) == ["block", "cue"]


class Cache:
    """As much of a cache as tasks ask for: four scans of 'move' (two volumes dropped), two of 'rest'."""

    n_rois = 3

    def __init__(self, folder):
        paths = [str(folder / f"s{i}_events.tsv") for i in range(4)]
        for i, path in enumerate(paths):  # 'own' comes at another time in each scan
            table = events((8, 10, "block"), (30 + 8 * i, 4, "own"), (60, 10, "block"))
            table.to_csv(path, sep="\t", index=False)
        names = [f"s{i}" for i in range(6)]
        self.index = pd.DataFrame({"scan_id": names, "label": ["move"] * 4 + ["rest"] * 2, "task": ["move"] * 6})
        self.index = self.index.assign(run=np.nan, tr=TR, events=[*paths, np.nan, np.nan])

    def series(self, i):
        return np.full((N - 2, 3), i, np.float32) + np.arange(N - 2)[:, None]


@pytest.fixture
def made(tmp_path):
    """A cache and two folds; the weights of a scan where it is not tested are nonsense that must not be read."""
    cache, run = Cache(tmp_path), tmp_path / "run"
    for fold in (0, 1):
        roles = ["test" if i % 2 == fold else "train" for i in range(6)]
        weights = np.full((6, N - 2), 99.0)
        for i in range(fold, 6, 2):
            weights[i] = 1 + i
            weights[i, [2, 3]] *= 3  # volumes 4 and 5 of the acquisition: 8 to 12 s
        table = pd.DataFrame({"scan_id": cache.index["scan_id"], "role": roles, "predicted": "move"})
        write_importance(table, list(weights), run / f"fold-{fold}")
        write_importance(table[table["role"] == "test"], [np.full(N - 2, 0.7)] * 3, run / f"fold-{fold}", UNTRAINED)
    return cache, run


def write(made, out, folds=(0, 1), **settings):
    write_tasks(*made, folds, out, Explain(**settings), lambda scan, rows: np.arange(2, rows + 2))


def test_tables_of_a_task(made, tmp_path):
    out = tmp_path / "out"
    write(made, out)
    curve = read_table(out / "tasks.tsv", text=TEXT)
    assert set(curve["class"]) == {"move"} and curve["n_scans"].tolist() == [4] * (N - 2)
    assert curve[["volume", "time"]].iloc[0].tolist() == [2, 4]
    mean = (N - 2 + 4) / (N - 2)
    assert curve.set_index("volume")["mean"][[4, 5]].tolist() == pytest.approx([3 / mean] * 2)
    np.testing.assert_allclose(curve["low"], curve["high"], atol=1e-6)
    assert curve["sd"].max() == pytest.approx(0, abs=1e-6)  # scans count alike, whatever the size of their weights
    np.testing.assert_allclose(curve["untrained"], 1, atol=1e-6)
    blocks = read_table(out / "tasks_blocks.tsv", text=TEXT).set_index("trial_type")
    assert blocks.loc["block", "share"].unique().tolist() == [1] and blocks.loc["own", "share"].max() == 0.25
    assert blocks.loc["block", "volume"].tolist() == [*range(4, 9), *range(30, 35)]
    aligned = read_table(out / "tasks_alignment.tsv", text=TEXT).set_index("trial_type")
    assert aligned.index.tolist() == ["block", "own", "4 to 8 s after a start or end"]
    assert aligned.loc["block", "ratio"] == pytest.approx((2 * 3 + 8) / 10 / mean)
    assert aligned["p_holm"].min() == pytest.approx(3 * aligned["p"].min())
    series, masked = np.load(out / "tasks_series.npy")
    assert np.isnan(series[:2]).all() and series[2].tolist() == [1.5] * 3
    np.testing.assert_allclose(masked[4], series[4])  # where importance is highest
    np.testing.assert_allclose(masked[6], 0)  # where it is lowest
    assert read_json(out / "tasks_series.json")["class"] == "move"


def test_the_interval_is_that_of_the_mean(made, tmp_path):
    cache, run = made
    table, weights = read_importance(run / "fold-0")
    weights[0][:] = np.random.default_rng(0).uniform(1, 2, N - 2)
    write_importance(table, weights, run / "fold-0")
    write(made, tmp_path)
    row = read_table(tmp_path / "tasks.tsv").iloc[10]
    relative = [own[10] / own.mean() for own in (weights[0], *[read_importance(run / "fold-1")[1][1]] * 3)]
    low, high = stats.t.interval(0.95, 3, np.mean(relative), stats.sem(relative))
    assert (row["low"], row["high"]) == pytest.approx((low, high), rel=1e-4)
    cache.index.loc[2, "events"] = np.nan
    write(made, tmp_path, [0])
    assert read_table(tmp_path / "tasks.tsv")["low"].isna().all()  # one scan has no interval


def test_events_are_moved_and_chosen(made, tmp_path, caplog):
    write(made, tmp_path, [0], hrf_shift=5, trial_types=["block"])
    blocks = read_table(tmp_path / "tasks_blocks.tsv", text=TEXT)
    assert set(blocks["trial_type"]) == {"block"} and blocks["volume"].iloc[0] == 6
    assert len(list(tmp_path.glob("tasks_series.*"))) == 2
    write(made, tmp_path, [0], masked_task="WM")
    assert "'WM' (move)" in caplog.text and not list(tmp_path.glob("tasks_series.*"))  # the earlier call's


def test_odd_scans_are_left_out_and_rest_leaves_empty_tables(made, tmp_path, caplog):
    cache, run = made
    cache.index.loc[3, "tr"] = 3.0
    Path(cache.index["events"][2]).write_text("nonsense\n")
    write(made, tmp_path)
    assert set(read_table(tmp_path / "tasks.tsv")["n_scans"]) == {2}
    assert "1 scans with another repetition time" in caplog.text and "s2 is used without its events" in caplog.text
    for path in run.glob(f"fold-*/{UNTRAINED}.*"):
        path.unlink()
    with pytest.raises(DataError, match="s0 under untrained models is missing"):
        write(made, tmp_path)
    cache.index["events"] = np.nan
    write(made, tmp_path)  # rest needs none
    for name in ("tasks", "tasks_blocks", "tasks_alignment"):
        assert read_table(tmp_path / f"{name}.tsv").empty
    assert not (tmp_path / "tasks_series.npy").exists()


def test_the_alignment_is_that_of_every_shift_computed_one_by_one():
    """Scans of several lengths: at some shifts, all events of a scan are at volumes that it lacks."""
    weights = np.random.default_rng(3).uniform(0.5, 1.5, (3, 12))
    weights[1, 7:] = weights[2, 4:] = np.nan
    weights /= np.nanmean(weights, axis=1, keepdims=True)
    mask = np.zeros((3, 12), bool)
    mask[0, 2:5] = mask[1, 3:5] = mask[2, 0:2] = True
    ratios = []
    for shift in range(12):
        moved = np.roll(mask, shift, axis=1) & np.isfinite(weights)
        ratios.append(np.mean([w[m].mean() for w, m in zip(weights, moved, strict=True) if m.any()]))
    assert not (np.roll(mask, 5, axis=1)[2] & np.isfinite(weights[2])).any()
    found = alignment(weights, mask)
    assert found["ratio"] == pytest.approx(ratios[0]) and found["n_scans"] == 3
    assert found["p"] == pytest.approx(np.mean(np.abs(np.array(ratios) - 1) >= abs(ratios[0] - 1) - 1e-9))
    shares = np.array([3 / 12, 2 / 7, 2 / 4])
    inside = [weights[i][mask[i]].mean() for i in range(3)]
    assert found["share_of_time"] == pytest.approx(shares.mean())
    assert found["share_of_importance"] == pytest.approx((shares * inside).mean())


def test_events_of_which_no_scan_has_a_volume_have_no_mask():
    weights = np.ones((2, 12))
    weights[:, 8:] = np.nan  # dropped
    course = tasks.Course({}, ["a", "b"], TR, weights, [events((2, 4, "early"), (18, 4, "late"))] * 2)
    assert list(event_masks(course, 0.0, ["early", "late"])) == ["early"]
    found = event_masks(course, -4.0, ["early", "late"])  # four seconds earlier, the late one is seen
    assert {kind: np.flatnonzero(mask[0]).tolist() for kind, mask in found.items()} == {"early": [0], "late": [7, 8]}


def test_position_in_the_scan_is_no_effect_of_a_task_that_rests_at_both_ends(made, tmp_path):
    """The shape of untrained models is divided out; what the task adds to it is found."""
    cache, run = made
    for path in cache.index["events"].dropna():
        events((12, 56, "block")).to_csv(path, sep="\t", index=False)
    random, during, place = np.random.default_rng(0), np.zeros(N - 2), np.arange(N - 2)
    shape = 1 - 0.6 * np.exp(-place / 8) - 0.6 * np.exp(-place[::-1] / 8)  # falls at both ends, as of any model
    during[4:32] = 0.5

    def aligned(effect):
        for fold in (0, 1):
            table, _ = read_importance(run / f"fold-{fold}")
            noisy = [shape * random.uniform(0.8, 1.2, N - 2) * (1 + effect * during) for _ in range(6)]
            write_importance(table, noisy, run / f"fold-{fold}")
            write_importance(table[table["role"] == "test"], [3 * shape] * 3, run / f"fold-{fold}", UNTRAINED)
        write(made, tmp_path)
        return read_table(tmp_path / "tasks_alignment.tsv", text=TEXT).set_index("trial_type").loc["block"]

    nothing, something = aligned(0), aligned(1)
    assert nothing["ratio"] == pytest.approx(1, abs=0.03) and nothing["p"] > 0.05
    assert something["ratio"] > 1.05 and something["p"] < 0.05
    curve, usual = read_table(tmp_path / "tasks.tsv", text=TEXT), shape / shape.mean()
    assert something["ratio_untrained"] == pytest.approx(usual[4:32].mean(), rel=1e-5)
    np.testing.assert_allclose(curve["untrained"], usual, rtol=1e-5)
    assert curve["raw"].mean() == pytest.approx(1) and np.corrcoef(curve["raw"] / curve["mean"], usual)[0, 1] > 0.9
