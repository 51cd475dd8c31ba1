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
from bolt.explain.relevance import Gradient
from bolt.explain.trust import sanity
from bolt.explain.trust.sanity import cascade, fresh_model, layers_of, with_random, write_sanity
from bolt.explain.trust.sanity_outcome import PERMUTED, RETRAINED, SANITY_COLUMNS, Interval, summary, verdict
from bolt.explain.weights import write_importance
from bolt.io.errors import DataError
from bolt.io.files import read_table, write_status
from bolt.models.registry import create_model
from bolt.training.checkpoint import load_checkpoint, save_checkpoint
from tests.explain.runs import N_ROIS, MemoryCache

HYPER = {"hidden": 16, "n_blocks": 2, "n_heads": 2, "head_dim": 8, "window": 8}
CLASSES = ["control", "patient"]
RUN = ("x", "v", "m", 0)
PERMUTED_ALONE = Sanity(draws=0, scans=None, independent=False, retrained=False)
CASCADE_ALONE = Sanity(draws=1, scans=None, independent=False, permuted=False, retrained=False)


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
    table = table.assign(**{f"p_{name}": np.where(table["predicted"] == name, 0.9, 0.1) for name in CLASSES})
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
    assert whole.at[4, "verdict"] == "no control" and whole["verdict"].notna().sum() == 1
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

    def note(model, series, device, targets, gradient):
        asked.append(targets)
        return real(model, series, device, targets, gradient)

    monkeypatch.setattr(sanity, "importance_of", note)
    monkeypatch.setattr(cache, "index", cache.index.drop(columns="label"))
    cascade(cache, folder / "fold-0", draws=1, scans=None, independent=False, device="cpu")
    assert len(asked) == 5
    table = read_table(folder / "fold-0" / "importance.tsv")
    assert asked == [[CLASSES.index(c) for c in table.loc[table["role"] == "test", "predicted"]]] * 5


@pytest.mark.parametrize("gradient", ["logit", "loss"])
def test_curves_are_compared_under_the_gradient_of_the_fold(run: tuple, tmp_path: Path, gradient: Gradient) -> None:
    """The model itself (step 0) gives each scan its own curve, and with another gradient another curve."""
    cache, folder = run
    fold = shutil.copytree(folder / "fold-0", tmp_path / "fold-0")
    explain_fold(cache, fold, "cpu", "loss")
    rows = cascade(cache, fold, draws=0, scans=None, independent=False, device="cpu", gradient=gradient)
    same = rows.query("step == 0")["rho_raw"]
    assert same.min() > 0.999 if gradient == "loss" else same.max() < 0.9


def test_the_interval_is_over_families() -> None:
    """Six families of five scans each that agree: between them lies all that varies. Five have no interval."""
    scans, families = [f"s{i}" for i in range(30)], [f"f{i // 5}" for i in range(30)]
    found = pd.DataFrame({"scan_id": scans, "fold": "0", "check": "cascade", "step": 1, "layer": "classifier"})
    found = found.assign(rho=[0.0] * 15 + [1.0] * 15, rho_raw=0.5)
    of_families, of_persons = (summary(found.assign(group=group)).iloc[0] for group in (families, scans))
    assert of_families["low"] < 0.1 < 0.25 < of_persons["low"] < of_persons["high"] < 0.75
    few = summary(found.assign(group=families).iloc[5:]).iloc[0]
    assert few["rho"] == pytest.approx(0.6) and np.isnan(few["low"])


def test_the_same_seed_gives_the_same_table(run: tuple) -> None:
    one, other = (
        cascade(run[0], run[1] / "fold-1", draws=1, scans=4, independent=False, device="cpu") for _ in range(2)
    )
    pd.testing.assert_frame_equal(one, other)


def test_an_explanation_of_position_alone_does_not_pass(run: tuple, monkeypatch, tmp_path: Path) -> None:
    """The same curve for every scan and model: nothing is left to compare, which is said."""
    cache = run[0]

    def position(model, series, device="cpu", targets=None, gradient="logit"):
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


NEAR, AGREES = Interval(0.05, -0.04, 0.14), Interval(0.4, 0.3, 0.5)


@pytest.mark.parametrize(
    ("rho", "control", "contrast", "outcome"),
    [
        (NEAR, AGREES, Interval(0.35, 0.2, 0.5), "passed"),
        (Interval(-0.05, -0.14, 0.04), AGREES, Interval(0.35, 0.2, 0.5), "passed"),
        (Interval(0.05, -0.12, 0.22), AGREES, Interval(0.35, 0.2, 0.5), "not shown"),
        (Interval(-0.05, -0.22, 0.12), AGREES, Interval(0.35, 0.2, 0.5), "not shown"),
        (Interval(0.05, np.nan, np.nan), AGREES, Interval(0.35, 0.2, 0.5), "not shown"),
        (Interval(0.2, 0.15, 0.25), AGREES, Interval(0.2, 0.1, 0.3), "not passed"),
        (Interval(-0.3, -0.4, -0.2), AGREES, Interval(0.1, 0.05, 0.2), "not passed"),
        (Interval(np.nan, np.nan, np.nan), AGREES, Interval(np.nan, np.nan, np.nan), "not passed"),
        (NEAR, None, None, "no control"),
        (NEAR, Interval(0.4, np.nan, np.nan), Interval(0.35, np.nan, np.nan), "no control"),
        (NEAR, Interval(0.1, -0.02, 0.22), Interval(0.05, -0.1, 0.2), "not reproducible"),
        (NEAR, Interval(0.1, 0.02, 0.18), Interval(0.05, -0.1, 0.2), "not reproducible"),
    ],
)
def test_a_check_is_passed_by_the_whole_interval_and_with_its_control(
    rho: Interval, control: Interval | None, contrast: Interval | None, outcome: str
) -> None:
    assert verdict(rho, control, contrast) == outcome


def compared(n: int, seed: int, *, remains: float, again: float, spread: float = 0.15) -> pd.DataFrame:
    """Correlations of `n` scans with a random model, and with one that was trained again."""
    random = np.random.default_rng(seed)
    scans = [f"s{i}" for i in range(n)]
    about = pd.DataFrame({"scan_id": scans, "group": scans, "fold": "0", "rho_raw": 0.5})
    rows = [
        about.assign(check="cascade", step=1, layer="input", rho=random.normal(remains, spread, n)),
        about.assign(check=RETRAINED, step=np.nan, layer=np.nan, rho=random.normal(again, spread, n)),
    ]
    return summary(pd.concat(rows)).query("fold == 'all'").set_index("check")


def test_random_numbers_vanish_and_prove_nothing() -> None:
    """Few explanations without meaning have a control that agrees by chance, or pass with it; most real ones pass."""
    ends = [compared(20, seed, remains=0, again=0).loc["cascade", "verdict"] for seed in range(60)]
    assert ends.count("passed") <= 1 and ends.count("not reproducible") > 54
    kept = [compared(20, seed, remains=0.2, again=0.5).loc["cascade", "verdict"] for seed in range(200)]
    assert kept.count("passed") <= 10
    real = [compared(20, seed, remains=0, again=0.4).loc["cascade", "verdict"] for seed in range(60)]
    assert real.count("passed") > 57


def test_the_control_is_compared_on_the_same_scans() -> None:
    table = compared(20, 0, remains=0.1, again=0.5)
    assert table.loc["cascade", "contrast"] == pytest.approx(table.loc[RETRAINED, "rho"] - table.loc["cascade", "rho"])
    low, high = table.loc["cascade", ["contrast_low", "contrast_high"]]
    assert 0.2 < low < table.loc["cascade", "contrast"] < high < 0.6
    assert table.loc[RETRAINED, "verdict"] == "reproducible" and np.isnan(table.loc[RETRAINED, "contrast"])
    assert compared(20, 0, remains=0.1, again=0).loc[RETRAINED, "verdict"] == "not reproducible"
    assert compared(5, 0, remains=0, again=0.5)["verdict"].to_dict() == {"cascade": "not shown", RETRAINED: "not shown"}


def test_a_model_trained_again_is_the_control_of_both_checks(copied: tuple) -> None:
    """Here it is the model itself, and permuted labels gave another; the seed of a run is no part of its class."""
    cache, run = copied
    settings = Sanity(draws=2, scans=None, independent=False)
    model, _ = load_checkpoint(run.fold(1))
    make_fold(cache, run.retrained, 1, model)
    make_fold(cache, run.permuted, 1, fresh_model(load_checkpoint(run.fold(1))[1], 7))
    write_sanity(cache, run, [0, 1], settings, "cpu", [run.retrained])
    ends = read_table(run.explanation / "sanity.tsv", text=("fold",)).query("fold == 'all'").set_index("check")
    assert ends.loc[RETRAINED, "rho"] == pytest.approx(1, abs=1e-4) and ends.loc[RETRAINED, "verdict"] == "reproducible"
    right = ends.loc[RETRAINED, "note"]
    assert right.startswith("seed 0, fold 1; is right about ")
    last = ends[ends["verdict"].notna()]
    assert set(last.index) == {RETRAINED, PERMUTED, "cascade"}
    assert (last.loc[["cascade", PERMUTED], "contrast_low"] > 0.5).all()
    both = [run.fold(0), run.fold(1)]  # of another seed
    write_sanity(cache, run, [0, 1], settings, "cpu", both)
    ends = read_table(run.explanation / "sanity.tsv", text=("fold",)).query("check == @RETRAINED")
    assert ends["fold"].tolist() == ["all", "0", "1"] and ends["n_scans"].tolist() == [32, 16, 16]
    assert "folds 0, 1; is right" in ends["note"].iloc[0]


def test_a_control_that_failed_or_was_not_asked_for_is_missing(copied: tuple) -> None:
    cache, run = copied
    write_status(run.retrained / "status.json", "failed", "train", DataError("the loss is not finite"))
    write_sanity(cache, run, [0, 1], Sanity(draws=2, independent=False, permuted=False), "cpu", [run.retrained])
    ends = read_table(run.explanation / "sanity.tsv", text=("fold",)).query("fold == 'all'").dropna(subset="verdict")
    ends = ends.set_index("check")
    assert ends.loc[RETRAINED, "verdict"] == "not done" and "not finite" in ends.loc[RETRAINED, "note"]
    assert ends.loc["cascade", "verdict"] in ("no control", "not shown") and np.isnan(ends.loc["cascade", "contrast"])
    write_sanity(cache, run, [0, 1], CASCADE_ALONE, "cpu", [run.retrained])
    assert RETRAINED not in set(read_table(run.explanation / "sanity.tsv")["check"])


def test_the_next_configured_seed_is_the_control_or_else_one_more_training(tmp_path: Path) -> None:
    run = ModelRun(tmp_path, "x", "v", "m", "0")
    assert run.trained_again([2, 5], [0]) == [run.retrained]
    assert run.trained_again([2, 5], [0, 1, 2]) == [run.with_seed(1).fold(2), run.with_seed(1).fold(5)]
    assert run.with_seed(1).trained_again([2], [0, 1, 2]) == [run.fold(2)]
