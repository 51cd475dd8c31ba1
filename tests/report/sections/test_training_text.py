"""Each number in the text on a network is compared with what a training of it used, and none is left over."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.covariance import LedoitWolf

from bolt.config import Model, load_model
from bolt.config.models import Fidelity
from bolt.models.base import ConnectivityModel
from bolt.models.registry import inputs_of
from bolt.report.sections.training_text import network_text
from tests.caches import dataset, pack, scan_table, split
from tests.models.conformance import TORCH, small
from tests.report.sections.claims import Claims
from tests.report.sections.witness import Witness, dropout_rates, loss_weights

CROP, SHORT, SCANS, FOLDS, EPOCHS, TR = 40, 30, 24, 3, 6, 0.72
CLASSES = ["no", "yes"]
DATASET = dataset(CLASSES, CROP).model_copy(update={"age": "age"})

DROPOUTS = {
    r"dropout of single ROI values \(rate #\)": r"input_dropout\.p",
    r"dropout of whole ROIs \(rate #\)": r"\.roi_dropout",
    r"dropout in attention layers \(rate #\)": r"bags\.\w+_attention\.dropout|summaries\..*",
    r"dropout of the weights with which volumes and windows are pooled \(rate #\)": r"bags\.word_dropout\.p",
    r"correlations between ROIs \(dropout rate #\)": r"correlations\.0\.p",
    r"stochastic depth \(rate rising linearly to # in the last block\)": r"blocks\.\d+\.drop_path",
}
"""Kinds of dropout besides the main one: the sentence, and where the rates are in the network."""
LOSSES = {
    r"cross-window regularisation \(weight #\)": "cwr_weight",
    r"a penalty on ROI representations that are not orthogonal \(weight #\)": "orthogonality_weight",
    r"a unit loss on pooling vectors \(weight #\)": "unit_weight",
    r"a top-k pooling loss \(weight #\)": "pooling_weight",
    r"a group-level consistency loss \(weight #\)": "consistency_weight",
}


@pytest.fixture(scope="module")
def toy(tmp_path_factory) -> tuple[Path, Path]:
    """24 scans of 45 volumes, but one of 30, so that crops are shorter than most scans and longer than one."""
    folder, random = tmp_path_factory.mktemp("toy"), np.random.default_rng(0)
    series = [random.standard_normal((SHORT if i == 3 else 45, 9)) for i in range(SCANS)]
    scans = scan_table([CLASSES[i % 2] for i in range(SCANS)], tr=TR, age=np.linspace(20.0, 60.0, SCANS))
    return pack(folder, series, scans), split(folder, scans, FOLDS)


def shortened(name: str) -> Model:
    """Return a shipped model at a small size, its schedule shortened but of the same shape."""
    model, t = small(name), load_model(name).training
    fewer = {"epochs": EPOCHS, "batch_size": min(t.batch_size, 7), "step_epochs": 2}
    return model.model_copy(
        update={"training": t.model_copy(update=fewer | {"warmup_epochs": min(t.warmup_epochs, 2)})}
    )


def changed(name: str, hyper: dict[str, Any] | None = None, training: dict[str, Any] | None = None, **top) -> Model:
    """Return a shortened model with other settings."""
    model = shortened(name)
    updates = {"hyper": model.hyper | (hyper or {}), "training": model.training.model_copy(update=training or {})}
    return model.model_copy(update=updates | top)


VARIANTS = {
    "everything of BolT": lambda: changed(
        "bolt",
        {"input_dropout": 0.25, "roi_dropout": 0.15, "correlations": 5, "correlations_dropout": 0.35},
        {"clip_gradient": 0.7, "label_smoothing": 0.12, "average_weights": 0.9, "weight_decay": 0.03},
        covariates=["age"],
    ),
    "mixed scans": lambda: changed("bolt_tuned", {"cls_token": "none"}, {"mixup": 0.3, "precision": "bfloat16"}),
    "crops of several lengths": lambda: changed("meanmlp", {}, {"crop_range": (0.5, 0.9), "epochs": 1}),
    "defaults": lambda: Model(name="plain", model="lstm", training=shortened("bolt").training),
    "only a rise": lambda: changed("stagin", {}, {"warmup_epochs": 9}),
    "a rise of one epoch": lambda: changed("hatnet", {"attention_dropout": 0.2}, {"warmup_epochs": 1}),
    "no rise in one cycle": lambda: changed("bolt_published", {}, {"warmup_epochs": 0}),
    "all edges, mixed": lambda: changed("braingnn", {"complete": True}, {"mixup": 0.5}),
    "whole scans": lambda: changed("braingnn", {"edge_share": 0.3}, connectivity="scan"),
    "windows as configured": lambda: changed("gc_lstm", {"window_seconds": 12, "least_windows": 3}),
    "shorter windows": lambda: changed("gc_lstm", {"least_windows": 5}),
    "half of the subjects": lambda: changed("lstm", train_share=0.5),
    "settings of this dataset": lambda: changed("bolt_published").model_copy(
        update={"by_dataset": {"toy": load_model("bolt_published").by_dataset["abide1"].model_copy(
            update={"crop": 33, "training": {"batch_size": 5}})}}
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", [*TORCH, *VARIANTS])
def test_every_number_is_what_the_training_used(toy, tmp_path, monkeypatch, name: str) -> None:
    model = VARIANTS[name]() if name in VARIANTS else shortened(name)
    used = Witness(monkeypatch)
    used.train(toy, model, DATASET, tmp_path)
    text = network_text(model, DATASET, [used.info["model"]["hyper"]])
    if model.fidelity and model.fidelity.level == "reconstructed":
        note = f" It is a reconstruction, not the original method: {model.fidelity.note}"
        assert text.endswith(note)
        text = text.removesuffix(note)
    assert text.startswith(model.name)
    claims = Claims(text.removeprefix(model.name))
    compare_input(claims, used)
    compare_windows(claims, used)
    compare_graphs(claims, used)
    compare_steps(claims, used)
    compare_optimiser(claims, used)
    compare_rates(claims, used)
    compare_momentum(claims, used)
    compare_dropout(claims, used)
    compare_losses(claims, used)
    compare_regularisation(claims, used)
    compare_choice(claims, used)
    compare_test_scans(claims, used)
    assert claims.left() == []


def compare_input(claims: Claims, used: Witness) -> None:
    """Compare crops with the scans from which they came, and what the network was given with the crops."""
    if "ROI series:" not in claims and "random crops" not in claims:
        assert "computed from whole scans" in claims and not used.crops
        return
    assert "(shorter scans whole)" in claims
    if "crops of at most" in claims:
        shortest = longest = int(claims.number("random crops of at most # volumes"))
    else:
        shortest, longest = map(int, claims.numbers("random crops of # to # volumes"))
    lengths = []
    for scan, crop in used.crops:
        lengths.append(min(len(scan), len(crop)))
        windows = np.lib.stride_tricks.sliding_window_view(scan, lengths[-1], axis=0).swapaxes(1, 2)
        assert (windows == crop[: lengths[-1]]).all(axis=(1, 2)).any()  # neither wrapped nor shuffled
        assert lengths[-1] == len(scan) or shortest <= lengths[-1] <= longest
    assert {len(scan) for scan, _ in used.crops} == {SHORT, 45} or "% of the training" in claims
    assert max(lengths) == longest or shortest < longest
    if isinstance(used.fit.net, ConnectivityModel):
        assert all(len(crop) <= len(scan) for scan, crop in used.crops)
        return
    given = [length for _, of_pass in used.passes for length in of_pass]
    if not used.mixing:
        assert sorted(given) == sorted(lengths)
    assert all(width == max(of_pass) for width, of_pass in used.passes)
    assert used.fit.net.takes_lengths or all(len(set(of_pass)) == 1 for _, of_pass in used.passes)


def compare_windows(claims: Claims, used: Witness) -> None:
    if "Its windows had" not in claims:
        assert not hasattr(used.fit.net, "window") or used.fit.model.model != "gc_lstm"
        return
    settings, stride = used.fit.model.hyper, used.fit.net.stride
    volumes, seconds = claims.numbers(r"Its windows had # volumes \(# s\)")
    assert volumes == used.fit.net.window and seconds == pytest.approx(volumes * TR, abs=0.051)
    shortened = abs(volumes - settings["window_seconds"] / TR) > 0.51
    assert shortened == ("because" in claims)
    if shortened:
        wanted, least = claims.numbers("not # s, because a training crop would otherwise hold fewer than #")
        assert wanted == settings["window_seconds"]
        assert (CROP - wanted / TR) // stride + 1 < least
        assert (CROP - volumes) // stride + 1 == least or volumes == CROP // 2


def compare_graphs(claims: Claims, used: Witness) -> None:
    """Compare the matrices of a scan with those of numpy and scikit-learn."""
    net = used.fit.net
    if not isinstance(net, ConnectivityModel):
        return
    random = np.random.default_rng(1)
    series = (random.standard_normal((200, 9)) @ random.standard_normal((9, 9))).astype(np.float32)
    matrices = net.matrices(torch.tensor(series)[None])[0].numpy()
    off = ~np.eye(len(matrices[0]), dtype=bool)
    if "trained on Pearson correlations between all pairs of ROIs" in claims:
        assert matrices[0][off] == pytest.approx(np.corrcoef(series.T)[off], abs=1e-4)
        return
    for words in ("Fisher z-transformed correlations as node", "partial correlations as edges", "Ledoit–Wolf shrunk"):
        assert words in claims
    fitted = LedoitWolf().fit(series)
    partial, correlation = -normalised(fitted.precision_), normalised(fitted.covariance_)
    assert matrices[0][off] == pytest.approx(np.arctanh(correlation[off]), abs=1e-3)
    joined = (matrices[1] != 0) & off
    assert matrices[1][joined] == pytest.approx(np.abs(np.arctanh(partial[joined])), abs=1e-3)
    if "All pairs of ROIs were joined" in claims:
        assert joined[off].all()
        return
    share = claims.number("joined the # % of ROI pairs with the largest partial correlations") / 100
    pairs = partial[np.triu_indices(len(partial), 1)]
    least = np.sort(pairs)[::-1][int(np.ceil(share * len(pairs))) - 1]
    largest = (partial >= least) & (partial > 0) & off
    nearest = np.eye(len(partial), dtype=bool)[np.where(off, partial, -2).argmax(1)] & ~largest.any(1)[:, None]
    assert (joined == (largest | nearest | nearest.T)).all()


def normalised(matrix: np.ndarray) -> np.ndarray:
    return matrix / np.sqrt(np.outer(np.diag(matrix), np.diag(matrix)))


def compare_steps(claims: Claims, used: Witness) -> None:
    epochs = len(used.history)
    assert epochs == claims.number("was trained for # epochs?")
    assert max(map(len, used.batches)) == claims.number("batch size of #")
    steps = len(used.batches) // epochs
    n_scans = len({i for batch in used.batches for i in batch})
    assert sum(map(len, used.batches)) == epochs * n_scans
    assert ("same batches in every epoch" in claims) == (epochs > 1 and used.batches[:steps] * epochs == used.batches)
    if "training subjects were used" in claims:
        share = claims.number("Only # % of the training subjects were used") / 100
        roles = used.series.index["scan_id"].map(used.predictions["role"])
        assert n_scans == (roles == "train").sum() == pytest.approx(share * ALL_TRAINING, abs=1)
    else:
        assert n_scans == ALL_TRAINING


ALL_TRAINING = 14
"""Training scans of fold 0."""


def compare_optimiser(claims: Claims, used: Witness) -> None:
    (decay,) = set(used.decays)
    if not decay:  # both are Adam then
        assert " with Adam and a batch" in claims
    else:
        name = {"Adam": r"with Adam \(L2 penalty #\)", "AdamW": r"with AdamW \(weight decay #\)"}[used.optimiser]
        assert claims.number(name) == pytest.approx(decay, rel=1e-6)


def compare_rates(claims: Claims, used: Witness) -> None:
    """Compute the rate of every step from the text."""
    if "constant at" in claims:
        rate = claims.number("The learning rate was constant at #")
        assert used.rates == pytest.approx([rate] * len(used.rates), rel=1e-6)
        return
    sentence = re.search(r"The learning rate [^;]*?(?=\. [A-Z])", claims.text)[0]
    epochs, steps = len(used.history), len(used.rates) // len(used.history)
    warm, first, peak = 0.0, None, None
    if "over the first" in sentence:
        shape = "(?:linearly|along half a cosine wave)"
        first, peak = claims.numbers(f"The learning rate (?:rose|fell) {shape} from # to # over the first")
        warm = 1.0 if "the first epoch" in claims else claims.number("over the first # epochs")
        assert ("rate rose" in sentence) == (peak >= first)
    one_cycle = "one-cycle" in claims
    cosine = "along half a cosine wave" in sentence
    assert not (cosine and "linearly" in sentence)
    if "multiplied" in sentence:
        if not warm:
            peak = claims.number("The learning rate started at #")
        factor = claims.number("was multiplied by # every")
        every = claims.number("every # epochs?")
    elif warm < epochs:
        if not warm:
            peak = claims.number("The learning rate fell [^,]*? from # to")
        final = claims.number(r"fell [^,]*?to #(?=\. )")
    expected = []
    for step in range(1, len(used.rates) + 1):
        done, before = step / steps, (step - 1) / steps
        if done <= warm and not (one_cycle and done == warm):
            share = before / (warm - 1 / steps) if one_cycle else done / warm
            expected.append(between(first, peak, share, cosine))
        elif "multiplied" in sentence:
            expected.append(peak * factor ** ((before - warm + 1e-9) // every))
        else:
            expected.append(between(peak, final, (done - warm) / (epochs - warm), cosine))
    assert used.rates == pytest.approx(expected, rel=1e-6)


def between(start: float, end: float, share: float, cosine: bool) -> float:
    return start + (end - start) * ((1 - np.cos(np.pi * share)) / 2 if cosine else share)


def compare_momentum(claims: Claims, used: Witness) -> None:
    if "β1" not in claims:
        assert set(used.momenta) == {0.9}
        return
    claims.words("one-cycle schedule")
    peak = int(np.argmax(used.rates))
    if peak:
        high, low = claims.numbers("β1 fell from # to #")
        assert (used.momenta[0], used.momenta[peak]) == (pytest.approx(high), pytest.approx(low))
        assert (np.diff(used.momenta[: peak + 1]) <= 0).all()
    low, high = claims.numbers("rose from # to # .one-cycle")
    assert (used.momenta[peak], used.momenta[-1]) == (pytest.approx(low, abs=0.01), pytest.approx(high))
    assert (np.diff(used.momenta[peak:]) >= 0).all()


def compare_dropout(claims: Claims, used: Witness) -> None:
    """Compare all rates in the network."""
    rates = dropout_rates(used.fit.net)
    for pattern, place in DROPOUTS.items():
        there = {path: rates.pop(path) for path in list(rates) if re.fullmatch(place, path)}
        assert bool(there) == bool(re.search(pattern.replace("#", ".*?"), claims.text)), (pattern, there)
        if there:
            assert claims.number(pattern) == pytest.approx(max(there.values()), rel=1e-6)
        if "depth" in pattern:
            blocks = [block.drop_path for block in getattr(used.fit.net, "blocks", []) if there]
            assert blocks == pytest.approx(np.linspace(0, max(blocks, default=0), len(blocks)))
        else:
            assert len(set(there.values())) <= 1
    assert bool(rates) == (" dropout (rate " in claims)
    if rates:
        assert set(rates.values()) == {claims.number(r" dropout \(rate #")}
    local = "applied to the output of attention in each window, before windows were averaged" in claims
    assert local == any(
        getattr(module, "dropout_before_fusion", False) or getattr(module, "before_fusion", False)
        for module in used.fit.net.modules()
    )


def compare_losses(claims: Claims, used: Witness) -> None:
    weights = loss_weights(used.fit.net)
    if used.mixing:
        weights.pop("consistency_weight", None)
    if getattr(used.fit.net, "cls_token", "local") == "none":
        weights.pop("cwr_weight")
    assert weights == {name: claims.number(pattern) for pattern, name in LOSSES.items() if name in weights}
    assert [pattern for pattern, name in LOSSES.items() if pattern[:20] in claims and name not in weights] == []


def compare_regularisation(claims: Claims, used: Witness) -> None:
    net = used.fit.net
    if getattr(net, "correlations", None):
        assert claims.number("A layer of width #") == net.correlations[1].out_features
    assert ("The classifier also received" in claims) == bool(used.info["covariates"])
    for words, pattern, values in (
        ("mixup", r"mixup of pairs of scans \[@mixup\] \(α = #\)", used.mixing),
        ("smoothing", r"label smoothing \[@label_smoothing\] \(#\)", used.smoothing - {0.0}),
        ("gradients", "clipping of gradients to a norm of #", used.clips),
        ("moving average", r"exponential moving average \[@ema\], decay #", used.averaging),
    ):
        assert (words in claims) == bool(values)
        if values:
            assert list(values) == pytest.approx([claims.number(pattern)] * len(values), abs=1e-3 * (words[0] == "m"))
    assert ("bfloat16" in claims) == (used.precisions == {torch.bfloat16})


def compare_choice(claims: Claims, used: Witness) -> None:
    chosen = used.info["epoch"]
    if "last epoch" in claims:
        assert chosen == len(used.history)
    else:
        assert "epoch with the lowest validation loss" in claims
        assert (
            chosen == len(used.history) - used.history["validation_loss"].to_numpy()[::-1].argmin()
        )  # latest of equals


def compare_test_scans(claims: Claims, used: Witness) -> None:
    """Predict whole test scans again; then see whether a change of the last volume is noticed, whatever the length."""
    net, tested = used.fit.net.eval(), used.predictions[used.predictions["role"] == "test"]
    options = {"covariates": torch.zeros(1, net.n_covariates)} if getattr(net, "n_covariates", 0) else {}
    with torch.no_grad():
        for scan, row in tested.iterrows():
            logits = net(torch.tensor(used.series_of(scan))[None], **options).logits
            if not options:
                assert logits.softmax(-1)[0].tolist() == pytest.approx([row[f"p_{c}"] for c in CLASSES], abs=1e-4)
        unread = False
        for length in range(41, 50):
            random = torch.Generator().manual_seed(0)
            x = torch.randn(1, length, 9, generator=random) @ torch.randn(9, 9, generator=random)
            other = torch.cat([x[:, :-1], -5 * x[:, -1:]], dim=1)
            unread |= bool((net(x, **options).logits == net(other, **options).logits).all())
    assert "Test scans were used at full length" in claims
    assert ("full length, up to the last whole window." in claims) == unread


def test_settings_that_are_not_the_default_are_named() -> None:
    model = load_model("bolt")
    t = model.training.model_copy(update={"warmup_epochs": 0, "epochs": 1, "crop_range": (0.5, 1.5)})
    changes = {"training": t, "covariates": ["age", "sex"], "by_fold": {0: {}}}
    text = network_text(model.model_copy(update=changes), DATASET)
    for words in (
        "was trained for one epoch with Adam",
        "The classifier also received age and sex.",
        "The learning rate fell linearly from 0.0002 to 1 × 10⁻⁵.",
        f"random crops of {CROP // 2} to {CROP * 3 // 2} volumes",
        "values that a search had chosen replaced some of these settings",
    ):
        assert words in text, words
    fast = model.model_copy(update={"training": t.model_copy(update={"precision": "tf32"})})
    assert "in TensorFloat-32 where a GPU computed them" in network_text(fast, DATASET)


def test_what_needs_classes_is_not_said_of_numbers() -> None:
    number = DATASET.model_copy(update={"classes": None})
    model = changed("braingnn", {}, {"label_smoothing": 0.1})
    for words in ("consistency loss", "label smoothing"):
        assert words in network_text(model, DATASET) and words not in network_text(model, number)


def test_windows_in_seconds_are_those_of_the_trained_folds() -> None:
    """HCP-Task: 120 s are 167 volumes, and a crop has 150."""
    model, task = load_model("gc_lstm"), dataset(CLASSES, 150)
    said = (
        "Its windows had 123 volumes (88.6 s), not 120 s, because a training crop would otherwise hold fewer than 10."
    )
    assert said in network_text(model, task, [{"tr": 0.72, "crop": 150}] * 2)
    several = network_text(model, task, [{"tr": 2.0, "crop": 150}, {"tr": 1.5, "crop": 150}])
    assert "Its windows had 60 and 80 volumes (120 s)." in several
    assert (
        "Its windows lasted 120 s, or less where a training crop would otherwise hold fewer than 10."
        in network_text(model, task)
    )


def test_a_reconstruction_is_called_one() -> None:
    model = load_model("lstm").model_copy(update={"fidelity": Fidelity(level="reconstructed", note="Guessed.")})
    assert network_text(model, DATASET).endswith("not the original method: Guessed.")
    assert inputs_of(model.model) == "series"
