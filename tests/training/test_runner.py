"""Training of folds: its files, bitwise resumption, seeds, and refusals."""

from __future__ import annotations

import errno
import json
import os
from contextlib import nullcontext
from copy import deepcopy
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from bolt.config import Dataset, Model, Training, load_model
from bolt.config.study import Study
from bolt.io.errors import BoltError, ConfigError, DataError
from bolt.io.files import read_json, read_table, read_yaml
from bolt.io.integrity import require_outputs
from bolt.jobs.outcome import Outcome
from bolt.models.bnt import BrainNetworkTransformer
from bolt.models.bolt import BolT
from bolt.models.braingnn import BrainGNN
from bolt.models.compiled import library
from bolt.models.registry import crops_alike, inputs_of
from bolt.series.cache import SeriesCache
from bolt.training import checkpoint, device, loop, prediction, runner
from bolt.training.adam import Adam
from bolt.training.checkpoint import RESUME
from bolt.training.outputs import Classes, fold_table
from bolt.training.prediction import Pool, Scans
from bolt.training.runner import load_checkpoint, predict, train_folds
from bolt.training.schedule import learning_rate
from bolt.training.trainers import train_fold
from tests.models.conformance import TORCH, make, small
from tests.snake import series_dataset
from tests.stages import stage

ROIS = 6
TEXT = ("label", "predicted")
LENGTHS = [30, 24, 30, 18, 30, 30, 24, 30, 30, 18, 24, 30]
ROLES = ["train"] * 8 + ["validation"] * 2 + ["test"] * 2
DATASET = Dataset(name="toy", source="series", path=Path("x"), label="label", classes=["no", "yes"], crop=20)
HYPER = {"hidden": 8, "n_blocks": 2, "n_heads": 2, "head_dim": 4, "window": 6}
FINISHED = {
    "checkpoint.json", "checkpoint.safetensors", "config.yaml", "exclusions.json", "exclusions.tsv", "history.json",
    "history.tsv", "predictions.json", "predictions.tsv", "status.json",
}  # fmt: skip


def toy_model(**training) -> Model:
    settings = {"epochs": 4, "batch_size": 3, "warmup_epochs": 2, "learning_rate": 1e-3, "peak_learning_rate": 1e-2}
    return Model(name="toy", model="bolt", hyper=HYPER, training=Training(**{**settings, **training}))


def write_toy(folder: Path, lengths=LENGTHS, roles=ROLES, labels=None, change=None, more=()) -> tuple[Path, Path]:
    """Write a cache and a folds.tsv; the label determines the sign of the mean of the first two ROIs.

    `roles` are those of fold 1, `more` those of further folds; "" omits a scan.
    """
    cache = folder / "cache"
    cache.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    labels = labels or ["no", "yes"] * (len(lengths) // 2)
    series = [random.standard_normal((n, ROIS)).astype(np.float32) for n in lengths]
    for values, label in zip(series, labels, strict=True):
        values[:, :2] += 1.5 if label == "yes" else -1.5
    if change:
        change(series)
    subjects = [f"sub-{i:02d}" for i in range(len(lengths))]
    people = pd.DataFrame({"scan_id": [f"{name}_task-rest" for name in subjects], "subject": subjects})
    people["group"] = people["subject"]
    parts = [people.assign(fold=fold, role=part) for fold, part in enumerate([roles, *more], start=1)]
    tables = {
        "cache/index": people.assign(site="a", label=labels, offset=np.cumsum([0, *lengths[:-1]]), length=lengths),
        "cache/rois": pd.DataFrame({"value": range(11, 11 + ROIS), "name": "r", "network": "n", "hemisphere": "L"}),
        "folds": pd.concat(parts).query("role != ''"),
    }
    for name, table in tables.items():
        table.to_csv(folder / f"{name}.tsv", sep="\t", index=False)
    np.save(cache / "series.npy", np.concatenate(series))
    (cache / "manifest.json").write_text(json.dumps({"n_rois": ROIS}))
    return cache, folder / "folds.tsv"


def run(toy, out: Path, model: Model | None = None, dataset: Dataset = DATASET, seed: int = 0, **options) -> Path:
    train_fold(*toy, model or toy_model(), dataset, fold=1, seed=seed, out=out, **{"device": "cpu", **options})
    return out


def run_folds(toy, folder: Path, folds, model: Model | None = None, **options) -> list[BoltError | None]:
    """Train several folds side by side."""
    trainings = [runner.Training(fold, 0, folder / str(fold)) for fold in folds]
    return train_folds(*toy, model or toy_model(), DATASET, trainings, **{"device": "cpu", **options})


@pytest.fixture(scope="module")
def finished(toy, tmp_path_factory):
    return run(toy, tmp_path_factory.mktemp("run") / "fold-1")


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "checkpoint.safetensors")


def equal(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


# ---- files of a finished training ------------------------------------------------------------------------------------
def test_files_of_a_finished_run(finished):
    assert {path.name for path in finished.iterdir()} == FINISHED
    assert read_json(finished / "status.json")["state"] == "ok"
    assert read_yaml(finished / "config.yaml")["model"]["training"]["epochs"] == 4
    table = read_table(finished / "predictions.tsv", text=("scan_id", *TEXT))
    assert " ".join(table.columns[:9]) == "scan_id subject group site role fold seed label predicted"
    assert table["role"].tolist() == ROLES
    assert (table["fold"] == 1).all() and (table["seed"] == 0).all()
    np.testing.assert_allclose(table[["p_no", "p_yes"]].sum(axis=1), 1)
    assert (table["predicted"] == np.where(table["p_yes"] > table["p_no"], "yes", "no")).all()
    history = read_table(finished / "history.tsv")
    assert history["epoch"].tolist() == [1, 2, 3, 4] and history.notna().all().all()
    rates = [learning_rate(toy_model().training, epoch) for epoch in (1, 2, 3, 4)]
    assert history["learning_rate"].tolist() == pytest.approx(rates)


def test_checkpoint_is_the_model_that_predicted(finished, toy):
    net, info = load_checkpoint(finished)
    assert not net.training
    assert (info["classes"], info["n_rois"], info["rois"]) == (["no", "yes"], ROIS, list(range(11, 11 + ROIS)))
    table = read_table(finished / "predictions.tsv")
    np.testing.assert_allclose(predict(net, SeriesCache(toy[0]), range(12)), table[["p_no", "p_yes"]], atol=1e-12)


# ---- seeds, and irrelevant influences --------------------------------------------------------------------------------
def test_seed_decides_everything_and_other_draws_and_the_order_of_the_folds_nothing(finished, toy, tmp_path, spied):
    spied(Adam, "step", lambda *_: torch.rand(3))
    pd.read_csv(toy[1], sep="\t").iloc[::-1].to_csv(tmp_path / "folds.tsv", sep="\t", index=False)
    assert equal(weights(finished), weights(run((toy[0], tmp_path / "folds.tsv"), tmp_path / "same")))
    for name in ("predictions.tsv", "history.tsv"):
        assert (finished / name).read_bytes() == (tmp_path / "same" / name).read_bytes()
    assert not equal(weights(finished), weights(run(toy, tmp_path / "other", seed=1)))


def test_scans_held_out_do_not_touch_the_weights(finished, tmp_path):
    def spoil(series):
        for values, its in zip(series, ROLES, strict=True):
            values[:] = values if its == "train" else 7

    labels = ["no" if (i % 2 == 0) == (its == "train") else "yes" for i, its in enumerate(ROLES)]
    toy = write_toy(tmp_path / "toy", change=spoil, labels=labels)
    assert equal(weights(finished), weights(run(toy, tmp_path / "run")))


# ---- precision and the optimiser -------------------------------------------------------------------------------------
def test_bfloat16_learns_and_keeps_float32_weights(finished, toy, tmp_path):
    run(toy, tmp_path, toy_model(precision="bfloat16", epochs=12))
    assert {value.dtype for value in weights(tmp_path).values()} == {torch.float32}
    losses = [read_table(folder / "history.tsv")["train_loss"][0] for folder in (tmp_path, finished)]
    assert losses[0] != losses[1], "computed in another precision"
    table = read_table(tmp_path / "predictions.tsv", text=TEXT)
    assert (table["label"] == table["predicted"]).all()


def test_tf32_is_for_gpus_only(finished, toy, tmp_path, spied):
    seen = []
    spied(loop, "tensor_float", lambda context, enabled: seen.append(enabled))
    assert equal(weights(finished), weights(run(toy, tmp_path, toy_model(precision="tf32"))))
    assert set(seen) == {False}
    assert read_json(tmp_path / "checkpoint.json")["precision"] == "float32", "what was computed, not asked for"


def test_tf32_is_used_by_matrices_convolutions_and_recurrent_layers_within_a_step_alone():
    before = [place.fp32_precision for place in device._FLOAT32]
    precisions = lambda: {place.fp32_precision for place in device._FLOAT32}  # noqa: E731
    try:
        device.compute_exactly()
        assert precisions() == {"ieee"}
        with loop.tensor_float(True):
            assert precisions() == {"tf32"}
        assert precisions() == {"ieee"}
    finally:
        torch.use_deterministic_algorithms(False)
        for place, precision in zip(device._FLOAT32, before, strict=True):
            place.fp32_precision = precision


@pytest.mark.parametrize("hyper", [{}, {"cls_token": "global"}, {"dropout_before_fusion": True}], ids=str)
def test_dropout_is_the_same_without_the_library(chosen, hyper, tmp_path):
    """So a training does not depend on a compiler."""
    chosen("")
    if library.library() is None:
        pytest.skip("no C++ compiler")
    toy, model = write_toy(tmp_path / "toy"), short_model("bolt", learning_rate=1e-4, peak_learning_rate=2e-4)
    dropped = {"dropout": 0.3, "input_dropout": 0.2, "roi_dropout": 0.2}
    model = model.model_copy(update={"hyper": model.hyper | dropped | hyper})
    for level in ("", "0"):
        chosen(level)
        run(toy, tmp_path / f"run{level}", model)
    histories = [read_table(tmp_path / name / "history.tsv") for name in ("run", "run0")]
    for name in ("train_loss", "validation_loss"):
        np.testing.assert_allclose(*(history[name] for history in histories), rtol=1e-4)
    torch.testing.assert_close(*(weights(tmp_path / name) for name in ("run", "run0")), rtol=0, atol=1e-4)


def test_gradients_are_clipped(toy, tmp_path, spied):
    norms = []

    def note(_, optimizer, *rest):
        gradients = [p.grad.flatten() for p in optimizer.weights if p.grad is not None]
        norms.append(float(torch.cat(gradients).norm()))

    spied(Adam, "step", note)
    run(toy, tmp_path / "free")
    assert max(norms) > 0.1
    norms.clear()
    run(toy, tmp_path / "clipped", toy_model(clip_gradient=0.05))
    assert len(norms) == 12 and max(norms) == pytest.approx(0.05, rel=1e-3)


# ---- numbers in place of classes -------------------------------------------------------------------------------------
NUMBERS = DATASET.model_copy(update={"classes": None})


def write_numbers(folder: Path) -> tuple[Path, Path]:
    """Write the toy dataset with labels around 100, which follow the mean of the first two ROIs."""
    steps = np.random.default_rng(3).uniform(-2, 2, len(LENGTHS))

    def change(series):
        for values, step in zip(series, steps, strict=True):
            values[:, :2] += step - np.sign(values[:, :2].mean()) * 1.5

    return write_toy(folder, labels=[str(label) for label in (100 + 20 * steps).round(2)], change=change)


def test_a_number_is_learned_and_predicted_in_its_own_unit(tmp_path):
    toy = write_numbers(tmp_path)
    out = run(toy, tmp_path / "run", toy_model(epochs=25, epoch_choice="best_validation"), NUMBERS)
    table, history = read_table(out / "predictions.tsv"), read_table(out / "history.tsv")
    assert not [column for column in table if column.startswith("p_")]
    error, training = (table["label"] - table["predicted"]).abs(), table["role"] == "train"
    assert error.mean() < 0.3 * (table["label"] - table["label"][training].mean()).abs().mean()
    net, info = load_checkpoint(out)
    labels = table["label"][training]
    assert info["classes"] is None
    assert info["label"] == pytest.approx({"mean": labels.mean(), "sd": labels.std(ddof=0)})
    np.testing.assert_allclose(predict(net, SeriesCache(toy[0]), range(12), info=info), table["predicted"])
    with pytest.raises(ConfigError, match="predicts a number"):
        predict(net, SeriesCache(toy[0]), range(12))
    assert " ".join(history) == "epoch learning_rate train_loss train_r2 validation_loss validation_r2"
    assert info["epoch"] == int(history["validation_loss"].argmin()) + 1 < 25
    part, row = table[table["role"] == "validation"], history.iloc[info["epoch"] - 1]
    squares = ((part["label"] - part["predicted"]) / labels.std(ddof=0)) ** 2
    assert squares.mean() == pytest.approx(row["validation_loss"], rel=1e-4)
    spread = ((part["label"] - part["label"].mean()) ** 2).sum() / labels.std(ddof=0) ** 2
    assert row["validation_r2"] == pytest.approx(1 - squares.sum() / spread, rel=1e-4)


# ---- several folds in one process ------------------------------------------------------------------------------------
def test_side_by_side_by_turns_as_apart(tmp_path, spied):
    seen = []
    spied(loop.Fit, "_step", lambda _, fit, *rest: seen.append((fit.fold, fit.seed)))
    toy, model = write_toy(tmp_path / "toy", more=[ROLES[::-1], ["test", *ROLES[:-1]]]), toy_model(epochs=2)
    trainings = [runner.Training(*which, tmp_path / f"{which}") for which in ((1, 0), (2, 0), (3, 0), (1, 7))]
    assert train_folds(*toy, model, DATASET, trainings, device="cpu") == [None] * 4
    assert seen == [(fold, seed) for fold, seed, _ in trainings] * 6
    for fold, seed, out in trainings:
        alone = tmp_path / "alone" / out.name
        train_fold(*toy, model, DATASET, fold=fold, seed=seed, out=alone, device="cpu")
        assert {path.name for path in out.iterdir()} == FINISHED
        for name in ("checkpoint.safetensors", "predictions.tsv", "history.tsv"):
            assert (alone / name).read_bytes() == (out / name).read_bytes(), (fold, seed, name)


def test_a_training_that_fails_does_not_end_the_others(finished, tmp_path):
    def spoil(series):
        series[8][:] = 3e38  # overflows in the model; in the training scans of fold 2 only

    no_yes = ["train", ""] * 4 + ["validation"] * 2 + ["test"] * 2
    roles = [*ROLES[:8], "", *ROLES[9:]]
    toy = write_toy(tmp_path / "toy", roles=roles, more=[["train"] * 10 + ["test"] * 2, no_yes], change=spoil)
    missing, infinite, none = run_folds(toy, tmp_path, (3, 2, 1))
    assert isinstance(missing, DataError) and "fold 3 has no training scan of class 'yes'" in str(missing)
    assert isinstance(infinite, BoltError) and "not finite: toy, fold 2" in str(infinite)
    assert none is None and equal(weights(finished), weights(tmp_path / "1"))
    assert not (tmp_path / "2" / "status.json").exists()


def test_a_wrong_configuration_stops_all(toy, tmp_path):
    with pytest.raises(ConfigError, match="windwo"):
        run_folds(toy, tmp_path, (1, 2), toy_model().model_copy(update={"hyper": {"windwo": 6}}))


@pytest.fixture
def command(tmp_path, monkeypatch):
    """Make the cache and the folds of a study; return the command that trains, and the folder of its run."""
    monkeypatch.chdir(tmp_path)
    config = series_dataset(tmp_path, n_rois=160)
    for rule in ("index", "rois", "cache", "exclusions", "folds"):
        assert stage(config, rule, atlas="dosenbach160") == 0
    model = load_model(str(tmp_path / "tiny.yaml")).run_name
    train = partial(stage, config, atlas="dosenbach160", model=model, seed=0)
    return train, Study.read(config).layout.run("dosenbach160", model, 0).folder


@pytest.mark.parametrize("attempt", [1, Outcome.ATTEMPTS])
def test_command_with_several_folds(command, attempt):
    train, out = command
    folds = pd.read_csv("results/mine/folds.tsv", sep="\t")
    folds.query("fold != 1 or role != 'test'").to_csv("results/mine/folds.tsv", sep="\t", index=False)
    assert train("train_folds", "--fold", "0", "1", "2", "--attempt", str(attempt)) == 0
    states = [read_json(out / f"fold-{k}/status.json") for k in range(3)]
    assert [status["state"] for status in states] == ["ok", "failed", "ok"]
    assert "no test scan" in states[1]["reason"] and (out / "fold-1/predictions.tsv").read_bytes() == b""
    facts = read_json(out / "fold-2/provenance.json")
    assert (facts["fold"], facts["seed"], facts["folds_side_by_side"]) == (2, 0, 3 if attempt == 1 else 1)
    assert len(read_table(out / "fold-0/predictions.tsv")) == 12


# ---- killed and resumed ----------------------------------------------------------------------------------------------
class Killed(Exception):
    pass


def killed(work) -> None:
    """Do some work in another process, of which it is the end."""
    child = os.fork()
    if child == 0:
        work()
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


def test_a_finished_training_that_is_repeated_and_killed_is_not_called_damaged(command, monkeypatch):
    """A kill between the end of a job and Snakemake's note of it: the job runs again, and is killed after an epoch."""
    train = partial(command[0], "train_fold", "--attempt", "1", fold=0)
    assert train() == 0
    record = command[1] / "fold-0/provenance.json"
    require_outputs(record, newer=True)

    def die(fit, *_):
        (fit.out / "history.tsv").write_text("epoch\n1\n")  # that of the new training, so far
        os._exit(9)

    monkeypatch.setattr(loop.Fit, "_validate", die)
    killed(train)
    assert (record.parent / "history.tsv").read_text() == "epoch\n1\n"
    require_outputs(record, newer=True)


RESUMED = {
    "last": {},
    "best": {"epoch_choice": "best_validation", "precision": "bfloat16", "weight_decay": 0.1, "clip_gradient": 0.1},
    "one cycle": {"schedule": "one_cycle", "batches": "fixed", "optimizer": "adam"},
    "average, mixup": {"average_weights": 0.9, "crop_range": (0.5, 1.5), "label_smoothing": 0.1, "mixup": 0.4},
    "numbers, normalised": {"crop_range": (0.5, 1.5)},
}


@pytest.mark.parametrize("case", RESUMED)
def test_resumes_bit_equal_after_many_kills(toy, tmp_path, monkeypatch, case, every_epoch_saved):
    toy, dataset = (write_numbers(tmp_path), NUMBERS) if "numbers" in case else (toy, DATASET)
    make_model = partial(short_model, "cnn_lstm") if "normalised" in case else toy_model
    model = make_model(epochs=4, **RESUMED[case])
    whole = run(toy, tmp_path / "whole", model, dataset)
    real, kills = loop.learning_rate, iter([2, 4, 5, 3, 4])
    countdown = [next(kills)]

    def dies(*now):  # called once a step
        countdown[0] -= 1
        if countdown[0] == 0:
            raise Killed
        return real(*now)

    monkeypatch.setattr(loop, "learning_rate", dies)
    died = 0
    while not (tmp_path / "torn" / "status.json").is_file():
        try:
            run(toy, tmp_path / "torn", model, dataset)
        except Killed:
            died += 1
            countdown[0] = next(kills, 10**9)
    assert died == 5
    assert equal(weights(whole), weights(tmp_path / "torn"))
    for name in ("history.tsv", "predictions.tsv"):
        assert (whole / name).read_bytes() == (tmp_path / "torn" / name).read_bytes()
    assert {path.name for path in (tmp_path / "torn").iterdir()} == FINISHED


def test_the_state_is_saved_now_and_then(toy, tmp_path, monkeypatch, spied):
    """And a kill between two saves costs the epochs since the last one."""
    now, written = [0.0], []
    monkeypatch.setattr(loop.time, "monotonic", lambda: now[0])
    spied(loop, "save_resume", lambda *given: written.append(len(given[-1].history)))

    def watch(row):
        now[0] += 25
        if now[0] == 250:
            raise Killed

    model = toy_model(epochs=12)
    with pytest.raises(Killed):
        run(toy, tmp_path, model, watching=lambda training: nullcontext(watch))
    assert written == [4, 7, 10], "once a minute, after an epoch"
    with safe_open(tmp_path / RESUME, framework="pt") as file:
        assert len(json.loads(file.metadata()["progress"])["history"]) == 10
    monkeypatch.undo()
    assert equal(weights(run(toy, tmp_path, model)), weights(run(toy, tmp_path / "whole", model)))


def raises(error):
    def fail(*_, **__):
        raise error

    return fail


def test_killed_within_a_save(toy, tmp_path, finished, monkeypatch, every_epoch_saved):
    """The state of the epoch before is resumed; of the half file nothing stays."""
    saves = iter((checkpoint.save_file, checkpoint.save_file))

    def die(tensors, path, **more):
        next(saves, lambda _, path, **__: [Path(path).write_bytes(b"half"), os._exit(9)])(tensors, path, **more)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save_file", die)
        killed(lambda: run(toy, tmp_path))
    with safe_open(tmp_path / RESUME, framework="pt") as file:
        assert len(json.loads(file.metadata()["progress"])["history"]) == 2
    assert equal(weights(finished), weights(run(toy, tmp_path)))
    assert {path.name for path in tmp_path.iterdir()} == FINISHED


def test_a_state_that_cannot_be_saved_ends_the_training(toy, tmp_path, monkeypatch, every_epoch_saved):
    monkeypatch.setattr("bolt.training.checkpoint.save_file", raises(OSError(errno.ENOSPC, "No space left on device")))
    with pytest.raises(OSError, match="No space left"):
        run(toy, tmp_path)
    assert not (tmp_path / "status.json").exists()


@pytest.mark.parametrize("other", [{}, {"weight_decay": 0.5}])
def test_killed_while_predicting(toy, tmp_path, finished, monkeypatch, every_epoch_saved, other):
    """What a training with other settings has left is not resumed."""
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(runner, "all_logits", raises(Killed))
        run(toy, tmp_path, toy_model(**other))
    assert equal(weights(finished), weights(run(toy, tmp_path)))


# ---- refusals --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("rate", "training", "place"),
    [
        (1e30, {}, r"the loss is not finite: toy, fold 1, seed 0, epoch \d+, step \d+"),
        # the loss of the very last step is finite, and no further loss would show the problem
        (1e38, {"epochs": 1, "batch_size": 8}, "not finite: toy, fold 1, seed 0, after epoch 1"),
    ],
)
def test_a_training_that_is_not_finite_leaves_nothing(toy, tmp_path, rate, training, place):
    rates = dict.fromkeys(("learning_rate", "peak_learning_rate", "final_learning_rate"), rate)
    with pytest.raises(BoltError, match=place):
        run(toy, tmp_path, toy_model(**rates, **training))
    assert not (tmp_path / "status.json").exists() and not (tmp_path / "checkpoint.safetensors").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"roles": ["train"] * 12}, "no test scan"),
        ({"labels": ["no", "yes"] * 5 + ["maybe", "no"]}, "label 'maybe', not one of"),
        ({"labels": [*range(11), "old"]}, "scan 'sub-11_task-rest' has label .*, which is not a number"),
        ({"labels": [25.3] * 10 + [6, 7]}, "fewer than two different labels"),
        ({"lengths": [30] * 8 + [5, 5, 30, 30]}, "all 2 validation scans of fold 1 are shorter than the 6 volumes"),
        ({"lengths": [30] * 10 + [5, 5]}, "all 2 test scans of fold 1 are shorter than the 6 volumes that model"),
    ],
)
def test_data_that_are_refused(tmp_path, change, message):
    dataset = NUMBERS if {5, 25.3} & set(change.get("labels", [])) else DATASET
    with pytest.raises(DataError, match=message):
        run(write_toy(tmp_path, **change), tmp_path / "run", dataset=dataset)


def test_no_validation_part(tmp_path):
    roles = ["train"] * 10 + ["test"] * 2
    out = run(write_toy(tmp_path, roles=roles), tmp_path / "run", toy_model(epoch_choice="best_validation"))
    assert "validation_loss" not in read_table(out / "history.tsv")
    assert read_json(out / "checkpoint.json")["epoch"] == 4


# ---- crops and the schedule ------------------------------------------------------------------------------------------
def test_crops_are_parts_of_their_scan_and_short_scans_are_whole(tmp_path):
    def number(series):  # every value identifies scan and volume
        for i, values in enumerate(series):
            values[:] = 100 * i + np.arange(len(values))[:, None]

    cache = SeriesCache(write_toy(tmp_path, change=number)[0])
    scans, random = Scans(Pool(cache, "cpu"), range(12)), torch.Generator().manual_seed(0)
    which, starts = torch.tensor([3, 0, 5]), set()
    for _ in range(200):
        crops = scans.values(scans.rows(which, 20, random))[..., 0]
        np.testing.assert_array_equal(crops[0, :18], 300 + np.arange(18))
        starts.add(int(crops[1, 0]))
        np.testing.assert_array_equal(crops[1:].diff(dim=1), 1)
    assert starts == set(range(11))  # both ends can be drawn
    assert scans.lengths_of(which, 20).tolist() == [18, 20, 20]
    np.testing.assert_array_equal(scans.whole([2, 4])[1, :, 0], 400 + np.arange(30))


def short_model(name: str, **training) -> Model:
    """Return a shipped model at the size for tests, trained as `toy_model` is."""
    return small(name).model_copy(update={"training": toy_model(**training).training})


@pytest.mark.parametrize("name", ["bolt", "lstm", "cnn_lstm"])
@pytest.mark.parametrize("mixup", [0.0, 1.0])
def test_no_volume_is_repeated_to_fill_a_crop(tmp_path, spied, mixup, name):
    """A jump from a scan's end to its start would mark the short scans, which may all be of one site.

    BolT takes lengths; the LSTM reads scans of each length apart; those of a batch interact in CNN-LSTM.
    """
    seen, passes = [], []

    def count_volumes(series):
        for values in series:
            values[:] = np.arange(len(values))[:, None]

    def note(_, fit, part, n):
        seen.extend(scan[:length, 0] for scan, length in zip(part.x, part.lengths, strict=True))
        passes.append(part.lengths.unique().tolist())

    spied(loop.Fit, "_gradient", note)
    run(write_toy(tmp_path, change=count_volumes), tmp_path / "run", short_model(name, mixup=mixup, epochs=2))
    assert {len(x) for x in seen} == {18, 20} and len(seen) == 8 * 2
    assert len(passes) > 6 if name == "lstm" else len(passes) == 6
    assert ([18, 20] in passes) == (name == "bolt")
    for x in seen:
        torch.testing.assert_close(x.diff(), torch.ones_like(x[1:]))


@pytest.mark.parametrize("name", [name for name in TORCH if inputs_of(load_model(name).model) == "series"])
def test_a_step_is_one_pass_of_scans_that_interact(toy, tmp_path, spied, name):
    """So short scans are not normalised by their own statistics, and a batch counts once in the running ones."""
    steps, crops = [], []

    def note(_, fit, *rest):
        steps.append({int(n) for key, n in fit.net.state_dict().items() if key.endswith("num_batches_tracked")})

    spied(loop.Fit, "_step", note)
    spied(Scans, "rows", lambda rows, *given: crops.append(rows.shape[1]))
    run(toy, tmp_path, short_model(name, epochs=1))
    alike = crops_alike(load_model(name).model)
    assert steps == ([{1}, {2}, {3}] if alike else [set()] * 3)
    assert set(crops) == ({18, 20} if alike else {20})


@pytest.mark.parametrize("takes_lengths", [True, False])
def test_predictions_do_not_depend_on_the_batch(toy, monkeypatch, takes_lengths):
    """Scans of different length share a batch of a model that takes lengths, up to a number of volumes."""
    monkeypatch.setattr(BolT, "takes_lengths", takes_lengths)
    monkeypatch.setattr(prediction, "VOLUMES_AT_ONCE", 100)
    net, scans, sizes = make("bolt_small", ROIS, 2).eval(), Scans(Pool(SeriesCache(toy[0]), "cpu"), range(8)), []
    net.register_forward_pre_hook(lambda module, inputs: sizes.append(inputs[0].shape[:2]))
    with torch.inference_mode():
        alone = torch.cat([net(scans.whole([i])).logits for i in range(8)])
    sizes.clear()
    torch.testing.assert_close(prediction.all_logits(net, scans), alone)
    assert all(n * longest <= 100 for n, longest in sizes)
    assert len(sizes) == (3 if takes_lengths else 4)


def test_connectivity_of_whole_scans_is_computed_once(toy, tmp_path, monkeypatch, spied):
    """And it may be too large to be kept."""
    seen = []
    spied(BrainNetworkTransformer, "matrices", lambda _, net, x: seen.extend(x))
    model = small("bnt").model_copy(update={"training": Training(epochs=4, batch_size=4)})
    whole = run(toy, tmp_path / "whole", model)
    assert len(seen) == 12, "each scan once, whether for training, validation or predictions"
    monkeypatch.setattr(prediction, "MATRICES_KEPT", 0)
    assert equal(weights(whole), weights(run(toy, tmp_path / "again", model)))
    assert len(seen) == 12 + 4 * (8 + 2) + 12


def test_folds_share_connectivity_and_models_with_other_settings_do_not(tmp_path, spied):
    toy, seen = write_toy(tmp_path / "toy", more=[ROLES[::-1]]), []
    spied(BrainGNN, "matrices", lambda _, net, x: seen.extend(x))
    model = small("braingnn").model_copy(update={"connectivity": "scan", "training": Training(epochs=2, batch_size=4)})
    assert run_folds(toy, tmp_path, (1, 2), model) == [None, None]
    assert len(seen) == 12
    pool = Pool(SeriesCache(toy[0]), "cpu")
    for complete in (False, True, False):
        net = make("braingnn", ROIS, 2)
        net.complete = complete
        Scans(pool, [0, 1]).matrices(net, [0, 1])
    assert len(seen) == 12 + 2 + 2


def test_crops_of_many_lengths(toy, tmp_path, monkeypatch):
    """Each batch has a length of its own within the range; scans that are shorter are whole."""
    draws = []

    def step(fit, optimizer, draw, key):
        draws.append(draw)
        return torch.zeros(()), torch.zeros(len(draw.which), 2)

    monkeypatch.setattr(loop.Fit, "_step", step)
    out = run(toy, tmp_path, toy_model(crop_range=(0.5, 2), epochs=8, batch_size=2))
    crops = [(draw.series.shape[1], draw.lengths.max().item()) for draw in draws]
    drawn = {crop for crop, _ in crops}
    assert len(crops) == 32 and drawn <= set(range(10, 41)) and len(drawn) > 10
    assert all(longest == min(crop, 30) or longest in LENGTHS for crop, longest in crops)
    assert read_json(out / "checkpoint.json")["crop"] == 20
    with pytest.raises(ConfigError, match="crops of 5 volumes"):
        run(toy, tmp_path / "short", toy_model(crop_range=(0.25, 1)))
    with pytest.raises(ValueError, match="shortest and the longest"):
        Training(crop_range=(1, 0.5))
    assert Training(crop_range=(0.5, 1.5)).crop_lengths(25) == (12, 38) and Training().crop_lengths(25) == (25, 25)


def test_averaged_weights_are_the_moving_average_of_the_steps(toy, tmp_path, spied):
    steps = []
    spied(loop.Fit, "_step", lambda _, fit, *rest: steps.append(deepcopy(fit.net.state_dict())))
    run(toy, tmp_path, toy_model(average_weights=0.8))
    expected, *later = steps
    for step in later:
        expected = {name: 0.8 * value + 0.2 * step[name] for name, value in expected.items()}
    torch.testing.assert_close(weights(tmp_path), expected)


def test_smoothed_labels_pull_probabilities_together(toy, tmp_path):
    """Validation is judged by the labels themselves."""
    extreme = {}
    for share in (0.0, 0.8):
        out = run(toy, tmp_path / f"{share}", toy_model(label_smoothing=share, epochs=12))
        table = read_table(out / "predictions.tsv", text=TEXT)
        assert share or (table["label"] == table["predicted"]).all()
        extreme[share] = table["p_yes"].sub(0.5).abs().mean()
        assert (read_table(out / "history.tsv")["validation_loss"].iloc[-1] > 0.3) == (share > 0)
    assert extreme[0.0] > 0.45 > extreme[0.8] + 0.2
    logits, truth = torch.tensor([[2.0, 0.0]]), torch.tensor([0])
    by_hand = 0.9 * np.log(1 + np.exp(-2)) + 0.1 * np.log(1 + np.exp(2))
    assert float(Classes(["no", "yes"]).loss(logits, truth, 0.2)) == pytest.approx(by_hand)


def test_a_batch_with_short_scans_gives_the_gradient_of_its_mean_loss(tmp_path, monkeypatch, spied):
    """And the logits of its scans in their order, by length."""
    steps = []

    def note(result, fit, optimizer, batch, key):
        steps.append((*result, batch.lengths, [p.grad.clone() for p in fit.net.parameters()]))

    spied(loop.Fit, "_step", note)
    monkeypatch.setattr(Adam, "step", lambda *_, **__: None)
    toy = write_toy(tmp_path, lengths=[20, 18, 12] * 4)  # no crop, so nothing to draw
    for size in (8, 1):
        model = toy_model(batch_size=size, epochs=1)
        model.hyper["dropout"] = 0.0
        run(toy, tmp_path / f"run{size}", model)
    (loss, logits, lengths, gradient), *single = steps
    losses, each, length, gradients = zip(*single, strict=True)
    order = torch.cat(length).argsort(stable=True)
    assert len(single) == 8 and lengths.equal(torch.cat(length)[order])
    torch.testing.assert_close(logits, torch.cat(each)[order])
    torch.testing.assert_close(loss, torch.stack(losses).mean())
    for whole, *parts in zip(gradient, *gradients, strict=True):
        torch.testing.assert_close(whole, torch.stack(parts).mean(0), rtol=1e-3, atol=1e-6)


def test_series_are_the_caches_file_and_no_copy_of_it(tmp_path):
    cache = SeriesCache(write_toy(tmp_path)[0])
    pool = Pool(cache, "cpu")
    file = np.load(cache.folder / "series.npy", mmap_mode="r+")
    file[:] = 42
    file.flush()
    assert (pool.data == 42).all()
    pool.data[0] = 7  # an accidental write does not reach the disk
    assert (np.load(cache.folder / "series.npy") == 42).all()


@pytest.mark.parametrize("labels", [None, [f"{20 + 1.5 * i}" for i in range(12)]])
def test_a_share_of_the_training_subjects(tmp_path, labels):
    """Also for labels that are numbers; a smaller share is a subset of a larger one."""
    (cache, folds), drawn = write_toy(tmp_path, labels=labels), []
    for share in (0.25, 0.5, 1.0):
        table = fold_table(SeriesCache(cache), folds, 1, share=share, seed=0, numbers=labels is not None)
        drawn.append(set(table.loc[table["role"] == "train", "scan_id"]))
        assert (len(drawn[-1]), len(table)) == (8 * share, 8 * share + 4)
    assert drawn[0] < drawn[1] < drawn[2]
