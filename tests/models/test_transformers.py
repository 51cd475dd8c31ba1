"""Common tests of the transformer baselines: errors, positions, schedules, and learning."""

from __future__ import annotations

import pytest
import torch

from bolt.config import load_model
from bolt.io.errors import ConfigError
from bolt.models.registry import create_model
from bolt.training.schedule import learning_rate
from tests.models.conformance import SMALL

NAMES = ("swint", "longformer", "band", "tff", "ift_net", "hatnet")
WITH_POSITIONS = ("longformer", "band", "ift_net")


def tiny(name: str, **changed: object) -> dict[str, object]:
    """Return small settings of a model, with positions for 64 volumes if it learns positions."""
    return SMALL[name] | ({"crop": 64} if name in WITH_POSITIONS else {}) | changed


@pytest.mark.parametrize("name", [*NAMES, "stagin"])
def test_heads_must_divide_the_hidden_size(name):
    with pytest.raises(ConfigError, match="3 attention heads do not divide a hidden size of .*'n_heads'"):
        create_model(name, 5, 2, **tiny(name, n_heads=3))


@pytest.mark.parametrize("name", WITH_POSITIONS)
def test_long_scans_are_read_whole_and_positions_repeat(name):
    """The same as a model that has learned the repeated positions for the whole length."""
    torch.manual_seed(0)
    short, long = (create_model(name, 5, 3, **tiny(name, crop=crop)).eval() for crop in (30, 75))
    weights = short.state_dict()
    (key,) = [key for key in weights if key.endswith("positions")]
    n_before = len(weights[key]) - 30  # the CLS token's position
    first, rest = weights[key].normal_().split([n_before, 30])
    long.load_state_dict(weights | {key: torch.cat([first, rest, rest, rest[:15]])})
    x = torch.randn(2, 75, 5)
    torch.testing.assert_close(short(x).logits, long(x).logits)
    torch.testing.assert_close(short(x[:, :30]).logits, long(x[:, :30]).logits)


@pytest.mark.parametrize("name", NAMES)
def test_learns_which_rois_move_together(name):
    """Of z-scored scans, whose mean over time says nothing: ROIs 0 and 1 are correlated, or anticorrelated."""
    torch.manual_seed(1)
    truth = torch.arange(96) % 2
    x = torch.randn(96, 48, 6)
    x[..., 1] = (2 * truth - 1)[:, None] * x[..., 0] + 0.3 * x[..., 1]
    x = (x - x.mean(1, keepdim=True)) / x.std(1, correction=0, keepdim=True)
    net = create_model(name, 6, 2, **tiny(name, dropout=0.0))
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    for _ in range(40):
        out = net(x[:48])
        optimizer.zero_grad()
        (torch.nn.functional.cross_entropy(out.logits, truth[:48]) + sum(out.losses.values())).backward()
        optimizer.step()
    with torch.no_grad():
        assert (net.eval()(x[48:]).logits.argmax(1) == truth[48:]).float().mean() > 0.9


@pytest.mark.parametrize(
    ("name", "epochs", "batch_size", "rates"),  # of learning, by epoch
    [
        ("swint", 30, 32, {0: 2e-7, 1.5: 2e-4, 30: 2e-6}),
        ("longformer", 40, 32, {1: 1.001e-4, 2: 2e-4, 21: 1.001e-4, 40: 2e-7}),
        ("band", 30, 32, {0: 1e-4, 12: 6.67e-5, 21: 5e-5, 30: 3.33e-5}),
        ("tff", 30, 32, {0.1: 1e-5, 30: 1e-5}),
        ("ift_net", 30, 8, {30: 1e-4}),
        ("hatnet", 100, 32, {0: 1e-7, 3: 1e-4, 54: 1e-4, 55: 5e-5, 100: 5e-5}),
        ("brainnetcnn", 20, 16, {0: 1e-4}),
        ("braingnn", 50, 100, {0: 1e-2}),
    ],
)
def test_the_papers_training(name, epochs, batch_size, rates):
    training = load_model(name).training
    assert (training.epochs, training.batch_size, training.optimizer) == (epochs, batch_size, "adam")
    for epoch, rate in rates.items():
        assert learning_rate(training, epoch) == pytest.approx(rate, rel=1e-6), epoch
    largest = max(learning_rate(training, e / 4) for e in range(4 * epochs + 1))
    assert largest == pytest.approx(max(rates.values()))


def test_settings_of_published_code():
    assert all(load_model(name).connectivity == "crop" for name in ("brainnetcnn", "braingnn"))
    assert all(load_model(name).training.epoch_choice == "best_validation" for name in ("bnt", "braingnn"))
