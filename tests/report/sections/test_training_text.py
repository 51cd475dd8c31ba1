"""The sentence on each network is compared, number by number, with a training of it."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch

from bolt.config import Model, load_model
from bolt.io.files import read_json, read_table
from bolt.models.registry import inputs_of
from bolt.report.sections.training_text import network_text
from bolt.training import loop
from bolt.training.roles import Training
from bolt.training.runner import train_folds
from tests.caches import dataset, pack, scan_table, split
from tests.models.conformance import TORCH, small

CROP, SCANS, FOLDS = 40, 24, 3
CLASSES = ["no", "yes"]
NUMBER = r"([\d.]+(?:e-?\d+)?)"


@pytest.fixture(scope="module")
def toy(tmp_path_factory) -> tuple[Path, Path]:
    """24 scans of 45 volumes, but one of 30, so that crops are shorter than most scans and longer than one."""
    folder, random = tmp_path_factory.mktemp("toy"), np.random.default_rng(0)
    series = [random.standard_normal((30 if i == 3 else 45, 9)) for i in range(SCANS)]
    scans = scan_table([CLASSES[i % 2] for i in range(SCANS)])
    return pack(folder, series, scans), split(folder, scans, FOLDS)


def shortened(name: str) -> Model:
    """Return a shipped model at a small size, its schedule shortened but of the same shape."""
    model, t = small(name), load_model(name).training
    fewer = {"epochs": 6, "batch_size": min(t.batch_size, 7), "step_epochs": 2}
    return model.model_copy(
        update={"training": t.model_copy(update=fewer | {"warmup_epochs": min(t.warmup_epochs, 2)})}
    )


def numbers(pattern: str, text: str) -> list[float]:
    """Return the numbers that a pattern finds; fails if it finds nothing."""
    found = re.search(pattern.replace("#", NUMBER), text)
    assert found, (pattern, text)
    return [float(number) for number in found.groups()]


@pytest.mark.parametrize("name", TORCH)
def test_every_number_is_what_the_training_used(toy, tmp_path, monkeypatch, name: str) -> None:
    optimisers, batches, lengths = [], [], []
    for method in (torch.optim.Adam, torch.optim.AdamW):

        def note(self, *rest, real=method.__init__, **options):
            if "weight_decay" in options:  # called by the loop; AdamW calls Adam's
                optimisers.append((type(self).__name__, options["weight_decay"]))
            real(self, *rest, **options)

        monkeypatch.setattr(method, "__init__", note)
    inputs, gradient, step, momenta = loop.Fit._inputs, loop.Fit._gradient, loop.Fit._step, []
    monkeypatch.setattr(loop.Fit, "_inputs", lambda self, b, *r: (batches.append(b.tolist()), inputs(self, b, *r))[1])
    monkeypatch.setattr(
        loop.Fit, "_step", lambda *rest: (momenta.append(rest[1].param_groups[0]["betas"][0]), step(*rest))[1]
    )

    def count(self, x, *rest):
        lengths.extend([x.shape[1]] * len(x))
        return gradient(self, x, *rest)

    monkeypatch.setattr(loop.Fit, "_gradient", count)
    model = shortened(name)
    text = " ".join(network_text(model, dataset(CLASSES, CROP)).split())
    (error,) = train_folds(*toy, model, dataset(CLASSES, CROP), [Training(0, 0, tmp_path)], device="cpu")
    assert error is None and text.startswith(model.name)
    history = read_table(tmp_path / "history.tsv")
    assert len(history) == numbers("for # epochs", text)[0]
    assert max(map(len, batches)) == numbers("batch size of #", text)[0]
    n_steps = len(batches) // 6
    assert ("same batches in every epoch" in text) == (batches[:n_steps] * 6 == batches)
    compare_momentum(text, momenta, n_steps)
    compare_input(model, text, lengths)
    compare_optimiser(text, *optimisers[0])
    compare_rates(model, text, history["learning_rate"].to_numpy())
    chosen = read_json(tmp_path / "checkpoint.json")["epoch"]
    if "last epoch" in text:
        assert chosen == 6
    else:
        assert "lowest validation loss" in text
        assert chosen == 6 - history["validation_loss"].to_numpy()[::-1].argmin()  # the latest of equal ones
    assert ("mixup" in text) == bool(model.training.mixup)
    assert ("before fusion" in text) == bool(model.hyper.get("dropout_before_fusion"))


def compare_momentum(text: str, momenta: list[float], n_steps: int) -> None:
    if "β1" not in text:
        assert set(momenta) == {0.9}
        return
    high, low, low_again, high_again = numbers("β1 fell from # to #, then rose from # to # at the same time", text)
    peak = int(numbers("over the first # epochs", text)[0] * n_steps) - 1
    assert [momenta[i] for i in (0, peak, peak, -1)] == pytest.approx([high, low, low_again, high_again])


def compare_input(model: Model, text: str, lengths: list[int]) -> None:
    if inputs_of(model.model) == "connectivity":
        if model.connectivity == "scan":
            assert "connectivity matrices of whole scans" in text
        else:
            assert numbers("connectivity matrices of random crops of at most # volumes", text) == [CROP]
    else:
        assert numbers("random crops of at most # volumes", text)[0] == max(lengths)
        assert set(lengths) <= {CROP, 30}
        alike = lengths.count(30) > 6  # other scans than the short one, which is trained on in each epoch
        words = "in batches with shorter scans, as long as the shortest" if alike else "shorter scans whole"
        assert f"({words})" in text


def compare_optimiser(text: str, kind: str, decay: float) -> None:
    if not decay:  # both are Adam then
        assert " with Adam, " in text
    elif kind == "Adam":
        assert numbers(r"Adam \(L2 penalty #\)", text) == [decay]
    else:
        assert numbers(r"AdamW \(weight decay #\)", text) == [decay]


def compare_rates(model: Model, text: str, rates: np.ndarray) -> None:
    """Compare the learning rate of each epoch's last step."""
    warm, last = int(min(model.training.warmup_epochs, 6)), rates[-1]
    if "constant learning rate" in text:
        assert rates == pytest.approx(numbers("constant learning rate of #", text)[0])
        return
    if warm >= 1:
        start, peak = numbers("(?:rose|fell) .*?from # to # over the first", text)
        assert ("rose" in text) == (peak > start)
        assert rates[warm - 1] == pytest.approx(peak, rel=0.7) and abs(rates[0] - start) < 0.95 * abs(peak - start)
    if "was multiplied" in text:
        factor, _ = numbers("was multiplied by # every # epochs", text)
        assert sorted({round(a / b, 6) for a, b in zip(rates[warm + 1 :], rates[warm:], strict=False)}) == [factor, 1]
    else:
        final = numbers("fell (?:linearly|along half a cosine wave) to #", text)[0]
        assert last == pytest.approx(final, rel=1e-3)
        highest, until = (
            numbers("to # over the first # epoch", text.replace("first epoch", "first 1 epoch"))
            if "over the first" in text
            else [*numbers(", from #", text), 0]
        )
        epochs = np.arange(1, len(rates) + 1)
        share = (epochs[epochs > until] - until) / (len(rates) - until)
        if "fell along half a cosine wave" in text:
            share = (1 - np.cos(np.pi * share)) / 2
        assert rates[epochs > until] == pytest.approx(highest + (final - highest) * share, rel=1e-6)


def test_settings_that_are_not_the_default_are_named() -> None:
    model = load_model("bolt")
    t = model.training.model_copy(
        update={
            "mixup": 0.4, "clip_gradient": 1.0, "precision": "bfloat16", "warmup_epochs": 0, "epochs": 1,
            "label_smoothing": 0.1, "average_weights": 0.99, "crop_range": (0.5, 1.5),
        }
    )  # fmt: skip
    changes = {"training": t, "train_share": 0.5, "covariates": ["age", "sex"]}
    text = network_text(model.model_copy(update=changes), dataset(CLASSES, CROP))
    for words in (
        "for one epoch",
        "and on age and sex",
        "learning rate that fell linearly to 1e-05, from 0.0002",
        f"random crops of {CROP // 2} to {CROP * 3 // 2} volumes",
        "mixup of pairs of scans [@mixup] (α = 0.4), label smoothing [@label_smoothing] of 0.1, gradients clipped at a",
        "the weights of the last epoch were used, averaged over steps (exponential moving average [@ema], decay 0.99)",
        "matrix products of training steps in bfloat16",
        "Only 50 % of the training subjects",
    ):
        assert words in text, words
