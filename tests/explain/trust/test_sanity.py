"""Random layers and permuted labels: what is left of the importance."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from bolt.config import Sanity
from bolt.config.layout import ModelRun
from bolt.explain.importance import explain_fold
from bolt.explain.trust import sanity
from bolt.explain.trust.sanity import (
    SANITY_COLUMNS,
    cascade,
    fresh_model,
    layers_of,
    summary,
    with_random,
    write_sanity,
)
from bolt.explain.weights import write_importance
from bolt.io.errors import DataError
from bolt.io.files import read_table, write_status
from bolt.models.registry import create_model
from bolt.training.checkpoint import load_checkpoint, save_checkpoint
from tests.explain.runs import N_ROIS, MemoryCache

HYPER = {"hidden": 16, "n_blocks": 2, "n_heads": 2, "head_dim": 8, "window": 8}
CLASSES = ["control", "patient"]
RUN = ("x", "v", "m", 0)
PERMUTED_ALONE = Sanity(draws=0, scans=None, independent=False)
CASCADE_ALONE = Sanity(draws=1, scans=None, independent=False, permuted=False)


def make_fold(cache: MemoryCache, folder: Path, fold: int, model: torch.nn.Module | None = None) -> None:
    """A fold whose model is untrained but sharp: random weights give another map."""
    if model is None:
        torch.manual_seed(100 + fold)
        model = create_model("bolt", N_ROIS, 2, **HYPER).eval()
        with torch.no_grad():
            for block in model.blocks:
                block.attention.query.weight *= 6
                block.attention.key_value.weight *= 3
    about = {"model": {"model": "bolt", "hyper": HYPER}, "n_rois": N_ROIS, "classes": CLASSES}
    save_checkpoint(folder, model, {**about, "fold": fold, "seed": 0})  # type: ignore[arg-type]
    names = cache.index["scan_id"]
    table = pd.DataFrame(
        {
            "scan_id": names,
            "subject": names,
            "group": names.str[:6],
            "role": ["test", "test", "train"] * (len(names) // 3),
        }
    ).assign(predicted=[CLASSES[_answer(model, cache.series(i))] for i in range(len(names))], label="neither")
    table.to_csv(folder / "predictions.tsv", sep="\t", index=False)
    write_status(folder / "status.json", "ok", "train")
    explain_fold(cache, folder, "cpu")


def _answer(model: torch.nn.Module, series: np.ndarray) -> int:
    with torch.inference_mode():
        return int(model(torch.from_numpy(series)[None]).logits.argmax())


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[MemoryCache, Path]:
    """A run without an explanation; tests that write one copy it (`copied`)."""
    random, run = np.random.default_rng(0), ModelRun(tmp_path_factory.mktemp("run"), *RUN)
    series = [random.standard_normal((40 + i % 2 * 5, N_ROIS)).astype(np.float32) for i in range(24)]
    cache = MemoryCache(series, CLASSES * 12)
    for fold in (0, 1):
        make_fold(cache, run.fold(fold), fold)
    return cache, run.folder


@pytest.fixture
def copied(run: tuple, tmp_path: Path) -> tuple[MemoryCache, ModelRun]:
    target = ModelRun(tmp_path, *RUN)
    shutil.copytree(run[1], target.folder)
    return run[0], target


def test_layers_hold_every_weight_once_from_the_output_to_the_input() -> None:
    model = create_model("bolt", N_ROIS, 2, **HYPER)
    layers = layers_of(model)
    assert list(layers) == ["classifier", "block 2", "block 1", "input"]
    for name in model.state_dict():
        assert sum(name.startswith(begins) for begins in layers.values()) == 1, name


def test_random_layers_are_as_before_training_and_the_others_stay(run: tuple) -> None:
    model, info = load_checkpoint(run[1] / "fold-0")
    fresh = fresh_model(info, 0)
    state = torch.random.get_rng_state()
    assert all(torch.equal(a, b) for a, b in zip(fresh.parameters(), fresh_model(info, 0).parameters(), strict=True))
    assert not torch.equal(fresh.cls, fresh_model(info, 1).cls)
    assert torch.equal(torch.random.get_rng_state(), state)
    mixed = with_random(model, fresh, ["classifier", "block 2"]).state_dict()
    for name, value in mixed.items():
        source = fresh if name.startswith(("classifier.", "norm.", "blocks.1.")) else model
        assert torch.equal(value, source.state_dict()[name]), name


def test_nothing_random_gives_one_and_everything_random_gives_little(run: tuple) -> None:
    cache, folder = run
    found = pd.concat(
        [cascade(cache, folder / f"fold-{k}", draws=3, scans=None, independent=False, device="cpu") for k in (0, 1)]
    )
    first, last = (found[found["step"] == step] for step in (0, 4))
    assert len(first) == 32 and len(last) == 96
    np.testing.assert_allclose(first[["rho", "rho_raw"]], 1, atol=1e-4)
    assert abs(last["rho"].mean()) < 0.2
    table = summary(found)
    assert list(table) == list(SANITY_COLUMNS)
    whole = table[table["fold"] == "all"].set_index("step")
    assert whole.at[0, "rho"] == pytest.approx(1, abs=1e-4)
    assert whole.at[4, "verdict"] == "passed" and whole["verdict"].notna().sum() == 1
    assert (whole["n_scans"] == 16 * 2).all()
    assert whole.at[4, "low"] <= whole.at[4, "rho"] <= whole.at[4, "high"]
    assert len(table[table["fold"] == "1"]) == 5


def test_each_layer_alone(run: tuple) -> None:
    cache, folder = run
    found = cascade(cache, folder / "fold-0", draws=1, scans=3, independent=True, device="cpu")
    table = summary(found)
    alone = table[(table["check"] == "independent") & (table["fold"] == "all")]
    assert alone["layer"].tolist() == ["classifier", "block 2", "block 1", "input"]
    assert (table["n_scans"] == 3).all()
    cascaded = table[(table["check"] == "cascade") & (table["layer"] == "classifier")]
    assert alone["rho"].iloc[0] == pytest.approx(cascaded["rho"].iloc[0])


def test_the_class_of_the_original_model_is_explained_and_no_label_read(run: tuple, monkeypatch) -> None:
    cache, folder = run
    asked = []
    real = sanity.importance_of

    def note(model, series, device, targets):
        asked.append(targets)
        return real(model, series, device, targets)

    monkeypatch.setattr(sanity, "importance_of", note)
    monkeypatch.setattr(cache, "index", cache.index.drop(columns="label"))
    cascade(cache, folder / "fold-0", draws=1, scans=None, independent=False, device="cpu")
    assert len(asked) == 5
    table = read_table(folder / "fold-0" / "importance.tsv")
    assert asked == [[CLASSES.index(c) for c in table.loc[table["role"] == "test", "predicted"]]] * 5


def test_the_interval_is_over_families() -> None:
    """Two families of five scans each that agree: between them lies all that varies."""
    scans = [f"s{i}" for i in range(10)]
    found = pd.DataFrame({"scan_id": scans, "fold": "0", "check": "cascade", "step": 1, "layer": "classifier"})
    found = found.assign(rho=[0.0] * 5 + [1.0] * 5, rho_raw=0.5)
    families, persons = (summary(found.assign(group=g)).iloc[0] for g in (["a"] * 5 + ["b"] * 5, scans))
    assert (families["low"], families["high"]) == (0, 1) and persons["low"] > 0.1


def test_the_same_seed_gives_the_same_table(run: tuple) -> None:
    one, other = (
        cascade(run[0], run[1] / "fold-1", draws=1, scans=4, independent=False, device="cpu") for _ in range(2)
    )
    pd.testing.assert_frame_equal(one, other)


def test_an_explanation_of_position_alone_does_not_pass(run: tuple, monkeypatch, tmp_path: Path) -> None:
    """The same curve for every scan and model: nothing is left to compare, which is said."""
    cache = run[0]

    def position(model, series, device="cpu", targets=None):
        return [(1 - 0.8 * np.exp(-np.arange(len(s)) / 6)).astype(np.float32) for s in series]

    checked = ModelRun(tmp_path, *RUN)
    make_fold(cache, checked.fold(0), 0)
    table = read_table(checked.fold(0) / "importance.tsv", text=("scan_id",))
    curves = position(None, [cache.series(i) for i in range(len(table))])
    write_importance(table[["scan_id", "role", "predicted"]], curves, checked.fold(0))
    monkeypatch.setattr(sanity, "importance_of", position)
    write_sanity(cache, checked, [0], CASCADE_ALONE)
    found = read_table(checked.explanation / "sanity.tsv", text=("fold",)).query("fold == 'all'")
    assert found["rho"].isna().all() and (found["n_undefined"] == found["n_scans"]).all()
    assert (found["rho_raw"] > 0.99).all()
    assert found["verdict"].dropna().tolist() == ["not passed"]


def test_permuted_labels_are_compared_and_a_map_that_stays_is_not_passed(copied: tuple) -> None:
    cache, run = copied
    model, _ = load_checkpoint(run.fold(1))
    make_fold(cache, run.permuted, 1, model)  # has learned nothing else
    write_sanity(cache, run, [0, 1], PERMUTED_ALONE)
    table = read_table(run.explanation / "sanity.tsv", text=("fold",))
    whole = table[table["fold"] == "all"].iloc[0]
    assert whole["check"] == "permuted labels" and whole["verdict"] == "not passed"
    assert whole["rho"] == pytest.approx(1, abs=1e-4)
    assert table["fold"].tolist() == ["all", "1"]
    predicted = read_table(run.permuted / "predictions.tsv", text=("predicted", "label"))
    right = (predicted["predicted"] == predicted["label"]).groupby(predicted["role"]).mean()
    assert whole["note"] == (
        f"it has learned {100 * right['train']:.0f}% of its permuted training labels, and is right about "
        f"{100 * right['test']:.0f}% of the test scans"
    )


def test_a_failed_training_is_said_and_stops_nothing(copied: tuple) -> None:
    cache, run = copied
    write_status(run.permuted / "status.json", "failed", "train", DataError("the loss is not finite"))
    write_sanity(cache, run, [0, 1], PERMUTED_ALONE)
    row = read_table(run.explanation / "sanity.tsv", text=("fold",)).iloc[0]
    assert row["verdict"] == "not done" and "not finite" in row["note"]


def test_permuted_labels_of_a_fold_that_is_not_explained_are_said(copied: tuple) -> None:
    cache, run = copied
    make_fold(cache, run.permuted, 2)
    write_sanity(cache, run, [0, 1, 2], PERMUTED_ALONE)
    row = read_table(run.explanation / "sanity.tsv", text=("fold",)).iloc[0]
    assert row["verdict"] == "not done" and "fold 2" in row["note"]


def test_without_an_explained_fold_there_is_nothing_to_check(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no fold of this run has importance"):
        write_sanity(None, ModelRun(tmp_path, *RUN), [0], CASCADE_ALONE)


def test_another_model_is_refused(run: tuple, tmp_path: Path) -> None:
    about = {"model": {"model": "lstm", "hyper": {}}, "n_rois": N_ROIS, "classes": CLASSES, "fold": 0, "seed": 0}
    save_checkpoint(tmp_path, create_model("lstm", N_ROIS, 2), about)
    with pytest.raises(DataError, match="BolT"):
        cascade(run[0], tmp_path, draws=1, scans=None, independent=False)
