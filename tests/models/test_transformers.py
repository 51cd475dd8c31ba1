"""Common tests of the transformer baselines: sizes, shapes, errors, schedules, and learning."""

from __future__ import annotations

import pytest
import torch

from bolt.config import load_model
from bolt.io.errors import ConfigError, DataError
from bolt.models.registry import create_model, with_facts
from bolt.training.schedule import learning_rate
from tests.models.recurrent import as_configured, learned, size
from tests.models.transformers import NAMES, WITH_POSITIONS, tiny, together_or_opposed


@pytest.mark.parametrize(
    ("name", "n_rois", "settings", "parameters"),
    [
        ("swint", 400, {}, 7_869_042),
        ("swint", 400, {"mlp_ratio": 1}, 4_024_242),
        ("swint", 116, {}, 7_755_442),
        ("longformer", 400, {"crop": 1200}, 10_268_402),
        ("longformer", 116, {"crop": 1200}, 10_154_802),
        ("band", 400, {"crop": 1200, "n_layers": 1}, 2_663_426),
        ("band", 400, {"crop": 1200}, 4_241_410),
        ("tff", 400, {}, 103_343_666),  # as published
        ("tff", 400, {"hidden": 400, "inner": 1600}, 4_345_202),
        ("ift_net", 400, {}, 6_356_290),
        ("hatnet", 400, {}, 2_811_522),
        ("band", 116, {"crop": 1200}, 4_096_002),
        ("tff", 116, {"hidden": 400, "inner": 1600}, 4_231_602),
        ("ift_net", 116, {}, 6_283_586),
        ("hatnet", 116, {}, 2_593_410),
    ],
)
def test_sizes(name, n_rois, settings, parameters):
    with torch.device("meta"):
        assert size(as_configured(name, n_rois, 2, **settings)) == parameters


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("batch", "time", "n_rois", "n_classes"), [(1, 31, 5, 2), (3, 40, 7, 1), (2, 67, 116, 7), (1, 150, 9, 2)]
)
def test_shapes(name, batch, time, n_rois, n_classes):
    model = create_model(name, n_rois, n_classes, **tiny(name))
    x = torch.randn(batch, time, n_rois)
    for training in (True, False):
        out = model.train(training)(x)
        assert out.logits.shape == (batch, n_classes)
        assert out.logits.isfinite().all()
        assert out.cls.shape[0] == batch
        assert out.losses == {}
    assert torch.equal(model(x).logits, out.logits)


@pytest.mark.parametrize("name", NAMES)
def test_the_shortest_scan_is_read_and_trained_on_alone(name):
    model = create_model(name, 5, 2, **tiny(name))
    out = model(torch.randn(1, model.min_length, 5))
    out.logits.sum().backward()
    assert out.logits.isfinite().all()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)
    if model.min_length > 1:
        with pytest.raises(DataError, match="needs at least"):
            model(torch.randn(1, model.min_length - 1, 5))


@pytest.mark.parametrize("name", NAMES)
def test_heads_must_divide_the_hidden_size(name):
    with pytest.raises(ConfigError, match=r"3 attention heads do not divide a hidden size of 16.*'n_heads'"):
        create_model(name, 5, 2, **tiny(name, n_heads=3))


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("swint", {"window": 0}, r"hyper.window: 'window' is 0"),
        ("longformer", {"n_blocks": 0}, r"hyper.n_blocks: 'n_blocks' is 0"),
        ("band", {"crop": 0}, r"hyper.crop: 'crop' is 0"),
        ("tff", {"window": 10, "stride": 11}, r"hyper.stride: .* at most the window of 10"),
        ("ift_net", {"kernel": 4}, r"hyper.kernel: .* odd"),
        ("hatnet", {"window": 1}, r"hyper.window: .* at least 2"),
    ],
)
def test_settings_that_cannot_be_meant(name, settings, message):
    with pytest.raises(ConfigError, match=message):
        create_model(name, 5, 2, **settings)


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
def test_the_crop_is_filled_in_where_positions_are_learned(name):
    settings = with_facts(name, {}, {"crop": 80, "tr": 2.0})
    assert settings == ({"crop": 80} if name in WITH_POSITIONS else {})


@pytest.mark.parametrize(
    ("name", "epoch", "rate"),
    [
        ("swint", 0, 2e-7), ("swint", 1.5, 2e-4), ("swint", 30, 2e-6),
        ("longformer", 1, 1.001e-4), ("longformer", 2, 2e-4), ("longformer", 21, 1.001e-4), ("longformer", 40, 2e-7),
        ("band", 0, 1e-4), ("band", 12, 6.67e-5), ("band", 21, 5e-5), ("band", 30, 3.33e-5),
        ("tff", 0.1, 1e-5), ("tff", 30, 1e-5),
        ("ift_net", 30, 1e-4),
        ("hatnet", 0, 1e-7), ("hatnet", 3, 1e-4), ("hatnet", 54, 1e-4), ("hatnet", 55, 5e-5), ("hatnet", 100, 5e-5),
    ],
)  # fmt: skip
def test_schedules(name, epoch, rate):
    assert learning_rate(load_model(name).training, epoch) == pytest.approx(rate, rel=1e-6)


@pytest.mark.parametrize(
    ("name", "epochs", "batch_size", "rate"),
    [
        ("swint", 30, 32, 2e-4),
        ("longformer", 40, 32, 2e-4),
        ("band", 30, 32, 1e-4),
        ("tff", 30, 32, 1e-5),
        ("ift_net", 30, 8, 1e-4),
        ("hatnet", 100, 32, 1e-4),
    ],
)
def test_the_papers_training(name, epochs, batch_size, rate):
    training = load_model(name).training
    assert (training.epochs, training.batch_size, training.optimizer) == (epochs, batch_size, "adam")
    assert max(learning_rate(training, e / 4) for e in range(4 * epochs + 1)) == pytest.approx(rate)


@pytest.mark.parametrize("name", NAMES)
def test_half_precision_in_training(name):
    model, x = create_model(name, 5, 2, **tiny(name)), torch.randn(2, 40, 5)
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(x).logits
    logits.float().sum().backward()
    assert logits.isfinite().all()


@pytest.mark.parametrize("name", NAMES)
def test_learns_which_rois_move_together(name):
    torch.manual_seed(0)
    model = create_model(name, 6, 2, **tiny(name, dropout=0.0))
    assert learned(model, *together_or_opposed(), steps=40) > 0.9
