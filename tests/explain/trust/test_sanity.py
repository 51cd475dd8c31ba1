"""Random layers and permuted labels: what is left of the importance."""

import shutil

import numpy as np
import pandas as pd
import pytest
import torch

from bolt.config import Sanity
from bolt.config.layout import ModelRun
from bolt.explain.importance import explain_fold, fresh_model
from bolt.explain.trust import sanity
from bolt.explain.trust.sanity import cascade, layers_of, with_random, write_sanity
from bolt.explain.trust.similarity import PERMUTED, RETRAINED, SANITY_COLUMNS, Interval, summary, verdict
from bolt.explain.weights import write_importance
from bolt.io.errors import DataError
from bolt.io.files import read_table, write_status
from bolt.models.registry import create_model
from bolt.training.checkpoint import load_checkpoint
from tests.explain.runs import N_ROIS, MemoryCache, save_bolt

HYPER = {"hidden": 16, "n_blocks": 2, "n_heads": 2, "head_dim": 8, "window": 8}
CLASSES = ["control", "patient"]
RUN = ("x", "v", "m", 0)
ALL_SCANS = {"scans": None, "independent": False, "device": "cpu"}
SETTINGS = Sanity(draws=1, scans=None, independent=False)
PERMUTED_ALONE = SETTINGS.model_copy(update={"draws": 0, "retrained": False})


def make_fold(cache, folder, fold, model=None):
    """A fold whose model is untrained but sharp: random weights give another map."""
    if model is None:
        torch.manual_seed(100 + fold)
        model = create_model("bolt", N_ROIS, 2, **HYPER).eval()
        with torch.no_grad():
            for block in model.blocks:
                block.attention.query.weight *= 6
                block.attention.key_value.weight *= 3
    save_bolt(folder, model, CLASSES, HYPER, fold=fold)
    with torch.inference_mode():
        answers = [int(model(torch.from_numpy(x)[None]).logits.argmax()) for x in cache.arrays]
    table = cache.index.assign(role=["test", "test", "train"] * (len(answers) // 3), p_control=0.9, p_patient=0.1)
    table["predicted"] = np.array(CLASSES)[answers]
    table["label"] = table["predicted"].where(table["role"] == "test", "neither")
    table.loc[np.array(answers) == 1, ["p_control", "p_patient"]] = 0.1, 0.9
    table.to_csv(folder / "predictions.tsv", sep="\t", index=False)
    write_status(folder / "status.json", "ok", "train")
    explain_fold(cache, folder, "cpu")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run without an explanation; tests that write one copy it (`copied`)."""
    random, run = np.random.default_rng(0), ModelRun(tmp_path_factory.mktemp("run"), *RUN)
    series = [random.standard_normal((40 + i % 2 * 5, N_ROIS)).astype(np.float32) for i in range(24)]
    cache = MemoryCache(series, CLASSES * 12)
    for fold in (0, 1):
        make_fold(cache, run.fold(fold), fold)
    return cache, run.folder


@pytest.fixture
def copied(run, tmp_path):
    target = ModelRun(tmp_path, *RUN)
    shutil.copytree(run[1], target.folder)
    return run[0], target


def written(run, query="fold == 'all'"):
    return read_table(run.explanation / "sanity.tsv", text=("fold",)).query(query)


def test_random_layers_are_as_before_training_and_the_others_stay(run):
    model, info = load_checkpoint(run[1] / "fold-0")
    for name in model.state_dict():  # is in one layer
        assert sum(name.startswith(begins) for begins in layers_of(model).values()) == 1, name
    fresh = fresh_model(info, 0)
    state = torch.random.get_rng_state()
    assert all(torch.equal(a, b) for a, b in zip(fresh.parameters(), fresh_model(info, 0).parameters(), strict=True))
    assert not torch.equal(fresh.cls, fresh_model(info, 1).cls)
    assert torch.equal(torch.random.get_rng_state(), state)
    for name, value in with_random(model, fresh, ["classifier", "block 2"]).state_dict().items():
        source = fresh if name.startswith(("classifier.", "norm.", "blocks.1.")) else model
        assert torch.equal(value, source.state_dict()[name]), name


def test_nothing_random_gives_one_and_everything_random_little_for_the_class_of_the_model(run, monkeypatch):
    """The explained class is that which the original model predicts; no label is read."""
    cache, folder = run
    asked, real = [], sanity.importance_of
    monkeypatch.setattr(sanity, "importance_of", lambda *given: asked.append(given[3]) or real(*given))
    monkeypatch.setattr(cache, "index", cache.index.drop(columns="label"))
    found = pd.concat([cascade(cache, folder / f"fold-{k}", draws=2, **ALL_SCANS) for k in (0, 1)])
    table = read_table(folder / "fold-0" / "importance.tsv").query("role == 'test'")
    assert asked[:9] == [[CLASSES.index(c) for c in table["predicted"]]] * 9  # the model, and twice four layers
    first, last = (found[found["step"] == step] for step in (0, 4))
    assert len(first) == 32 and len(last) == 64
    np.testing.assert_allclose(first[["rho", "rho_raw"]], 1, atol=1e-4)
    assert abs(last["rho"].mean()) < 0.2
    table = summary(found)
    assert list(table) == list(SANITY_COLUMNS) and len(table[table["fold"] == "1"]) == 5
    whole = table[table["fold"] == "all"].set_index("step")
    assert whole.at[4, "verdict"] == "no control" and whole["verdict"].notna().sum() == 1
    assert (whole["n_scans"] == 32).all() and whole.at[4, "low"] <= whole.at[4, "rho"] <= whole.at[4, "high"]


def test_each_layer_alone_of_a_few_scans_and_the_same_again(run):
    found, again = (
        cascade(run[0], run[1] / "fold-0", draws=1, scans=3, independent=True, device="cpu") for _ in range(2)
    )
    pd.testing.assert_frame_equal(found, again)
    table = summary(found).query("fold == 'all'")
    alone = table[table["check"] == "independent"]
    assert alone["layer"].tolist() == ["classifier", "block 2", "block 1", "input"] and (table["n_scans"] == 3).all()
    cascaded = table[(table["check"] == "cascade") & (table["layer"] == "classifier")]
    assert alone["rho"].iloc[0] == pytest.approx(cascaded["rho"].iloc[0])


def test_curves_are_compared_under_the_gradient_of_the_fold(run, tmp_path):
    """The model itself (step 0) gives each scan its own curve, and with another gradient another curve."""
    fold = shutil.copytree(run[1] / "fold-0", tmp_path / "fold-0")
    explain_fold(run[0], fold, "cpu", "loss")
    same, other = (cascade(run[0], fold, draws=0, gradient=name, **ALL_SCANS)["rho_raw"] for name in ("loss", "logit"))
    assert same.min() > 0.999 and other.max() < 0.9


def test_the_interval_is_over_families():
    """Six families of five scans each that agree: between them lies all that varies."""
    scans, families = [f"s{i}" for i in range(30)], [f"f{i // 5}" for i in range(30)]
    found = pd.DataFrame({"scan_id": scans, "fold": "0", "check": "cascade", "step": 1, "layer": "classifier"})
    found = found.assign(rho=[0.0] * 15 + [1.0] * 15, rho_raw=0.5)
    of_families, of_persons = (summary(found.assign(group=group)).iloc[0] for group in (families, scans))
    assert of_families["low"] < 0.1 < 0.25 < of_persons["low"] < of_persons["high"] < 0.75


def test_an_explanation_of_position_alone_does_not_pass(run, monkeypatch, tmp_path):
    """The same curve for every scan and model: nothing is left to compare, which is said."""
    cache, checked = run[0], ModelRun(tmp_path, *RUN)

    def position(model, series, device="cpu", targets=None, gradient="logit"):
        return [(1 - 0.8 * np.exp(-np.arange(len(s)) / 6)).astype(np.float32) for s in series]

    shutil.copytree(run[1] / "fold-0", checked.fold(0))
    table = read_table(checked.fold(0) / "importance.tsv", text=("scan_id",))
    write_importance(table, position(None, cache.arrays), checked.fold(0))
    monkeypatch.setattr(sanity, "importance_of", position)
    write_sanity(cache, checked, [0], SETTINGS.model_copy(update={"permuted": False, "retrained": False}))
    found = written(checked)
    assert found["rho"].isna().all() and (found["n_undefined"] == found["n_scans"]).all()
    assert (found["rho_raw"] > 0.99).all() and found["verdict"].dropna().tolist() == ["not passed"]


def test_permuted_labels_are_compared_and_a_map_that_stays_is_not_passed(copied):
    cache, run = copied
    make_fold(cache, run.permuted, 1, load_checkpoint(run.fold(1))[0])  # has learned nothing else
    write_sanity(cache, run, [0, 1], PERMUTED_ALONE)
    whole, single = written(run, "index >= 0").to_dict("records")
    assert (whole["check"], whole["fold"], single["fold"]) == (PERMUTED, "all", "1")
    assert whole["verdict"] == "not passed" and whole["rho"] == pytest.approx(1, abs=1e-4)
    learned = "it has learned 0% of its permuted training labels, and is right about 100% of the test scans"
    assert whole["note"] == learned  # training scans are labelled "neither"


def test_other_models_that_failed_or_are_of_another_fold_are_said(copied):
    cache, run = copied
    for folder in (run.permuted, run.retrained):
        write_status(folder / "status.json", "failed", "train", DataError("the loss is not finite"))
    write_sanity(cache, run, [0, 1], SETTINGS, "cpu", [run.retrained])
    ends = written(run).dropna(subset="verdict").set_index("check")
    for check in (PERMUTED, RETRAINED):
        assert ends.loc[check, "verdict"] == "not done" and "not finite" in ends.loc[check, "note"]
    assert ends.loc["cascade", "verdict"] in ("no control", "not shown") and np.isnan(ends.loc["cascade", "contrast"])
    make_fold(cache, run.permuted, 2)
    write_sanity(cache, run, [0, 1], PERMUTED_ALONE, "cpu", [run.retrained])
    (row,) = written(run).to_dict("records")  # nothing of the control, which was not asked for
    assert (row["check"], row["verdict"]) == (PERMUTED, "not done") and "fold 2" in row["note"]


NEAR, AGREES, APART, UNKNOWN = (0.05, -0.04, 0.14), (0.4, 0.3, 0.5), (0.35, 0.2, 0.5), (np.nan, np.nan, np.nan)
WIDE = [(0.05, -0.12, 0.22), (-0.05, -0.22, 0.12), (0.05, np.nan, np.nan), (0.22, -0.1, 0.5)]


@pytest.mark.parametrize(
    ("rho", "control", "contrast", "outcome"),
    [
        (NEAR, AGREES, APART, "passed"),
        ((-0.05, -0.14, 0.04), AGREES, APART, "passed"),
        *(((value, *ends), AGREES, APART, "not shown") for value, *ends in WIDE),
        ((0.2, 0.15, 0.25), AGREES, (0.2, 0.1, 0.3), "not passed"),
        ((-0.3, -0.4, -0.2), AGREES, (0.1, 0.05, 0.2), "not passed"),
        (UNKNOWN, AGREES, UNKNOWN, "not passed"),
        (NEAR, None, None, "no control"),
        (NEAR, (0.4, np.nan, np.nan), (0.35, np.nan, np.nan), "no control"),
        (NEAR, (0.1, -0.02, 0.22), (0.05, -0.1, 0.2), "not reproducible"),
        (NEAR, (0.1, 0.02, 0.18), (0.05, -0.1, 0.2), "not reproducible"),
    ],
)
def test_a_check_is_passed_by_the_whole_interval_and_with_its_control(rho, control, contrast, outcome):
    assert verdict(Interval(*rho), control and Interval(*control), contrast and Interval(*contrast)) == outcome


def test_the_control_is_compared_on_the_same_scans():
    def compared(n, remains, again):
        random, scans = np.random.default_rng(0), [f"s{i}" for i in range(n)]
        rho, control = random.normal(remains, 0.15, n), random.normal(again, 0.15, n)
        about = pd.DataFrame({"scan_id": scans, "group": scans, "fold": "0", "rho_raw": 0.5})
        of_cascade = about.assign(check="cascade", step=1, layer="input", rho=rho)
        again = about.assign(check=RETRAINED, step=np.nan, layer=np.nan, rho=control)
        return summary(pd.concat([of_cascade, again])).query("fold == 'all'").set_index("check")

    table = compared(20, remains=0.1, again=0.5)
    contrast, low, high = table.loc["cascade", ["contrast", "contrast_low", "contrast_high"]]
    assert contrast == pytest.approx(table.loc[RETRAINED, "rho"] - table.loc["cascade", "rho"])
    assert 0.2 < low < contrast < high < 0.6
    assert table.loc[RETRAINED, "verdict"] == "reproducible" and np.isnan(table.loc[RETRAINED, "contrast"])
    assert compared(20, remains=0.1, again=0).loc[RETRAINED, "verdict"] == "not reproducible"
    assert compared(5, remains=0, again=0.5)["verdict"].tolist() == ["not shown"] * 2


def test_a_model_trained_again_is_the_control_of_both_checks(copied):
    """Here it is the model itself, and permuted labels gave another; the seed of a run is no part of its class."""
    cache, run = copied
    model, info = load_checkpoint(run.fold(1))
    make_fold(cache, run.retrained, 1, model)
    make_fold(cache, run.permuted, 1, fresh_model(info, 7))
    write_sanity(cache, run, [0, 1], SETTINGS, "cpu", [run.retrained])
    ends = written(run).set_index("check")
    assert ends.loc[RETRAINED, "rho"] == pytest.approx(1, abs=1e-4) and ends.loc[RETRAINED, "verdict"] == "reproducible"
    assert ends.loc[RETRAINED, "note"] == "seed 0, fold 1; is right about 100% of the test scans"
    last = ends[ends["verdict"].notna()]
    assert set(last.index) == {RETRAINED, PERMUTED, "cascade"}
    assert (last.loc[["cascade", PERMUTED], "contrast_low"] > 0.5).all()
    both = [run.fold(0), run.fold(1)]  # of another seed
    write_sanity(cache, run, [0, 1], SETTINGS.model_copy(update={"draws": 0}), "cpu", both)
    ends = written(run, "check == @RETRAINED")
    assert ends["fold"].tolist() == ["all", "0", "1"] and ends["n_scans"].tolist() == [32, 16, 16]
    assert "folds 0, 1; is right" in ends["note"].iloc[0]


def test_the_next_configured_seed_is_the_control_or_else_one_more_training(tmp_path):
    run = ModelRun(tmp_path, "x", "v", "m", "0")
    assert run.trained_again([2, 5], [0]) == [run.retrained]
    assert run.trained_again([2, 5], [0, 1, 2]) == [run.with_seed(1).fold(2), run.with_seed(1).fold(5)]
    assert run.with_seed(1).trained_again([2], [0, 1, 2]) == [run.fold(2)]
