"""What the methods text says of models: word by word, and each number of a network and its training against these."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch

from bolt.cohort.harmonise import SiteEffects
from bolt.config import Model, load_model
from bolt.config.models import MIN_SCANS, Fidelity, FoldSettings
from bolt.io.files import read_yaml
from bolt.models import registry
from bolt.models.majority import Majority
from bolt.models.parts import calibration
from bolt.models.registry import create_model, defaults_of, with_facts
from bolt.report.pages.methods import model_text
from bolt.training import loop
from bolt.training.outputs import Training
from bolt.training.runner import train_folds
from bolt.training.schedule import betas, learning_rate
from tests.caches import dataset, pack, scan_table, split
from tests.models.conformance import ALL, TORCH, small_model
from tests.report.before import as_before, changes_of

CROP, TR = 40, 0.72
CLASSES = ["no", "yes"]
DATASET = dataset(CLASSES, CROP)
OF_SITES = DATASET.model_copy(update={"site": "site"})
FACTS = {"tr": TR, "crop": CROP}


def changed(model, hyper=None, training=None, **top):
    """Return a shipped model with other settings."""
    model = load_model(model)
    t = model.training.model_copy(update=training or {})
    top |= {name: TYPES[name](value) for name, value in top.items() if name in TYPES}
    return model.model_copy(update={"hyper": model.hyper | (hyper or {}), "training": t} | top)


TYPES = {
    "fidelity": Fidelity.model_validate,
    "by_fold": lambda folds: {fold: FoldSettings(**values) for fold, values in folds.items()},
}
VARIANTS = read_yaml(Path(__file__).with_name("variants.yaml"))
NETWORKS = {name: changed(**about) for name, about in VARIANTS["networks"].items()}
PUBLISHED = load_model("bolt_published")
TOY = PUBLISHED.by_dataset["abide1"].model_copy(update={"crop": 33, "training": {"batch_size": 5}})
NETWORKS |= {
    "settings of this dataset": PUBLISHED.model_copy(update={"by_dataset": {"toy": TOY}}),
    "defaults of a network": Model(name="plain", model="lstm", training=load_model("bolt").training),
}
AT_ONCE = {name: changed(**about) for name, about in VARIANTS["at_once"].items()} | {
    "defaults of a regression": Model(name="plain", model="tangent"),
    "vectors of others": Model(name="probe", model="features", file=Path("there/probe.npz"), description="a probe"),
    "predictions of others": Model(name="theirs", model="predictions", file=Path("theirs.tsv")),
}


def test_texts_on_models_are_those_that_were_read_last(monkeypatch):
    """The whole text on each shipped model, then what other settings remove (-) and add (+)."""
    monkeypatch.setitem(registry._MODELS, "rule", Majority)
    texts = {name: model_text(load_model(name), OF_SITES) for name in ALL}
    texts["a user's"] = model_text(Model(name="own", model="rule", description="a rule of mine"), OF_SITES)
    variants = {name: (model, model_text(model, OF_SITES, [FACTS])) for name, model in (NETWORKS | AT_ONCE).items()}
    numbers = DATASET.model_copy(update={"classes": None})
    smooth = changed("braingnn", {}, {"label_smoothing": 0.1})
    variants["a number with losses of classes"] = smooth, model_text(smooth, numbers)
    hcp, windows = dataset(CLASSES, 150), load_model("gc_lstm")
    for name, found in {"HCP": [(0.72, 150)] * 2, "two TRs": [(2.0, 150), (1.5, 150)], "unknown": []}.items():
        facts = [{"tr": tr, "crop": crop} for tr, crop in found]
        variants[f"windows of seconds, {name}"] = windows, model_text(windows, hcp, facts)
    parts = [f"# {name}\n{text}" for name, text in texts.items()]
    for name, (model, text) in variants.items():
        usual = texts.get(model.name, "")
        parts.append(f"# {name} ({model.name})\n" + "\n".join(changes_of(usual, text)))
    version = re.compile(r"(?<=nilearn )[\d.]+\d")
    as_before("models.txt", version.sub("<version>", "\n\n".join(parts)) + "\n")


DROPOUTS = {
    "input_dropout": r"input_dropout\.p",
    "roi_dropout": r"\.roi_dropout",
    "attention_dropout": r"bags\.\w+_attention\.dropout|summaries\..*",
    "word_dropout": r"bags\.word_dropout\.p",
    "correlations_dropout": r"correlations\.0\.p",
    "drop_path": r"blocks\.\d+\.drop_path",
    "dropout": ".*",
}
"""Settings of which the text tells, and where the rates are in the network."""
LOSSES = ("cwr_weight", "orthogonality_weight", "unit_weight", "pooling_weight", "consistency_weight")


@pytest.mark.parametrize("name", [*TORCH, *NETWORKS])
def test_the_network_is_as_its_settings_say(name):
    """Of which the text tells: dropout, losses, windows and size, and whether it reads the last volume."""
    model, of_dataset = (NETWORKS.get(name) or load_model(name)).on(DATASET)
    model = small_model(model)
    text = model_text(model, of_dataset, [FACTS])
    covariates = {"n_covariates": len(model.covariates)} if model.covariates else {}
    net = create_model(model.model, 9, 2, **with_facts(model.model, model.hyper, FACTS), **covariates).eval()

    def setting(name):
        return model.hyper.get(name, defaults_of(model.model).get(name))

    rates = {
        f"{path}.{key}": float(value)
        for path, module in net.named_modules()
        for key, value in vars(module).items()
        if (key == "p" or "drop" in key) and type(value) in (int, float) and value
    }
    for of, place in DROPOUTS.items():
        there = [rates.pop(path) for path in list(rates) if re.fullmatch(place, path)]
        if of == "drop_path" and there:
            blocks = [block.drop_path for block in net.blocks]
            assert blocks == pytest.approx(np.linspace(0, max(there), len(blocks)))
            there = [max(there)]
        # a rate without a place is of a layer that these settings leave out, of which the text does not tell either
        assert {*there} in ({setting(of)}, set()) and bool(there) == (of in told(text)), of
    local = any(getattr(m, "dropout_before_fusion", 0) or getattr(m, "before_fusion", 0) for m in net.modules())
    assert local == ("that of the output of attention was applied in each window, before windows were averaged" in text)
    assert [getattr(net, weight, None) for weight in LOSSES] == list(map(setting, LOSSES))
    if getattr(net, "correlations", None):
        assert net.correlations[1].out_features == setting("correlations")
    if model.model == "gc_lstm":
        assert f"Its windows had {net.window} volumes ({net.window * TR:.1f} s)" in text
    if model.model == "bolt":
        attention, window, hidden = net.blocks[0].attention, net.window, net.norm.normalized_shape[0]
        sizes = [len(net.blocks), attention.n_heads, attention.head_dim, hidden]
        assert sizes == [setting("n_blocks"), setting("n_heads"), setting("head_dim"), setting("hidden") or 9]
        assert ("within windows of" in text) == ("over all volumes" not in text)
        if setting("windowed"):
            assert window == setting("window")
            stride, share = setting("stride"), setting("stride_coefficient")
            assert net.stride == (max(1, int(share * window + 1e-6)) if stride is None else stride)
            wanted = [
                np.ceil(m * setting("fringe_coefficient") * (window - net.stride) - 1e-6) for m in range(sizes[0])
            ]
            assert [block.attention.fringe for block in net.blocks] == wanted or setting("fringe") is not None
    unread, random = False, torch.Generator().manual_seed(0)
    options = {"covariates": torch.zeros(1, net.n_covariates)} if covariates else {}
    for length in range(41, 50):
        x = torch.randn(1, length, 9, generator=random) @ torch.randn(9, 9, generator=random)
        other = torch.cat([x[:, :-1], -5 * x[:, -1:]], dim=1)
        unread |= bool((net(x, **options).logits == net(other, **options).logits).all())
    assert ("full length, up to the last whole window." in text) == unread


def told(text):
    """Return the dropout settings of which a text tells."""
    words = {
        "input_dropout": "dropout of single ROI values",
        "roi_dropout": "dropout of whole ROIs",
        "attention_dropout": "dropout in attention layers",
        "word_dropout": "dropout of the weights with which",
        "correlations_dropout": "(dropout rate",
        "drop_path": "stochastic depth",
        "dropout": " dropout (rate",
    }
    return [name for name, word in words.items() if word in text]


def test_rates_along_half_a_cosine_wave_and_in_steps():
    """Other schedules are those of the paper and of torch: ``tests/training/test_schedule.py``."""
    t = load_model("bolt").training.model_copy(update={"epochs": 10, "warmup_epochs": 4, "schedule": "cosine"})
    first, peak, final = t.learning_rate, t.peak_learning_rate, t.final_learning_rate
    half = (1 - np.cos(np.pi / 4)) / 2  # of a wave, a quarter of the time
    due = {
        0: first,
        1: first + half * (peak - first),
        2: (first + peak) / 2,
        5.5: peak + half * (final - peak),
        10: final,
    }
    assert {epoch: learning_rate(t, epoch, 1e-9) for epoch in due} == pytest.approx(due)
    steps = t.model_copy(update={"schedule": "step", "warmup_epochs": 0, "step_factor": 0.5, "step_epochs": 3})
    rates = [learning_rate(steps, epoch, 1) / peak for epoch in range(1, 11)]
    assert rates == pytest.approx([1, 1, 1, 0.5, 0.5, 0.5, 0.25, 0.25, 0.25, 0.125])


def test_small_classes_have_fewer_inner_folds_and_sites_of_one_scan_are_unknown():
    """The text says: as many as the smallest class has subjects, and fewer than `MIN_SCANS`."""
    assert len(list(calibration.inner_splits(np.repeat([0, 1], [3, 9]), np.arange(12), 2, 0))) == 3
    features = np.random.default_rng(0).standard_normal((9, 4)).astype(np.float32)
    for n in (MIN_SCANS - 1, MIN_SCANS):
        sites = ["a", "a", "a", "b", "b", "b", *["c"] * n]
        assert ("c" in SiteEffects.fit(features[: len(sites)], sites, "means").sites) == (n == MIN_SCANS)


ONE_CYCLE = {"schedule": "one_cycle", "warmup_epochs": 1, "peak_learning_rate": 0.004, "final_learning_rate": 1e-5}


@pytest.mark.parametrize(
    ("training", "words", "fixed"),
    [
        ({"optimizer": "adamw", "weight_decay": 0.03, "batches": "fixed"}, "AdamW (weight decay 0.03)", True),
        ({"optimizer": "adam", "weight_decay": 0.02} | ONE_CYCLE, "Adam (L2 penalty 0.02)", False),
    ],
)
def test_optimiser_rates_batches_and_epoch_are_those_of_the_text(tmp_path, monkeypatch, training, words, fixed):
    scans = scan_table([CLASSES[i % 2] for i in range(24)], tr=TR)
    random = np.random.default_rng(0)
    toy = pack(tmp_path, [random.standard_normal((45, 9)) for _ in range(24)], scans), split(tmp_path, scans, 3)
    of_steps, kinds, rates, step, draw = [], [], [], loop.Fit._step, loop.Fit._draw

    def noting_step(fit, optimizer, *rest):
        kinds.append((optimizer.decoupled, optimizer.weight_decay))
        rates.append((optimizer.rate, optimizer.betas))
        return step(fit, optimizer, *rest)

    def noting_draw(fit, batch, *rest):
        of_steps.append(batch.tolist())
        return draw(fit, batch, *rest)

    monkeypatch.setattr(loop.Fit, "_step", noting_step)
    monkeypatch.setattr(loop.Fit, "_draw", noting_draw)
    model = small_model(changed("lstm", {}, {"epochs": 3, "warmup_epochs": 0, "batch_size": 5} | training))
    now = [(model.training, epoch + step / 3, 1 / 3) for epoch in range(3) for step in (1, 2, 3)]
    (error,) = train_folds(*toy, model, DATASET, [Training(0, 0, tmp_path / "run")], device="cpu", progress=False)
    assert error is None
    text = model_text(model, DATASET)
    assert f"for 3 epochs with {words} and a batch size of 5" in text and set(kinds) == {
        (words.startswith("AdamW"), training["weight_decay"])
    }
    assert rates == [(learning_rate(*step), betas(*step)) for step in now]
    epochs = [of_steps[i : i + 3] for i in (0, 3, 6)]
    assert len(of_steps) == 9 and max(map(len, of_steps)) == 5
    assert ("same batches in every epoch" in text) == (epochs[0] == epochs[1] == epochs[2]) == fixed
