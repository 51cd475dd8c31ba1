"""The registry: by name, with errors that name the nearest known."""

from __future__ import annotations

import pytest
import torch

from bolt.config import known, load_model
from bolt.errors import ConfigError
from bolt.models._base import ModelOutput
from bolt.models._registry import create_model, known_models


def test_known_models_are_sorted():
    assert "bolt" in known_models()
    assert known_models() == sorted(known_models())


def test_a_model_takes_series_and_returns_model_output():
    model = create_model("bolt", 7, 3, hidden=8, n_heads=2, head_dim=4, n_blocks=2, window=5)
    out = model(torch.randn(2, 12, 7))
    assert isinstance(out, ModelOutput)
    assert out.logits.shape == (2, 3)
    assert model.min_length == 5


def test_seed_decides_the_weights():
    def weights(seed):
        torch.manual_seed(seed)
        return torch.cat([p.flatten() for p in create_model("bolt", 7, 2, hidden=8, n_heads=1).parameters()])

    assert torch.equal(weights(1), weights(1))
    assert not torch.equal(weights(1), weights(2))


def test_unknown_model():
    with pytest.raises(ConfigError, match=r"unknown model 'bolr'.*did you mean 'bolt'"):
        create_model("bolr", 7, 2)


def test_unknown_setting():
    with pytest.raises(ConfigError, match=r"no setting 'hiden'.*did you mean 'hidden'"):
        create_model("bolt", 7, 2, hiden=3)


@pytest.mark.parametrize("name", known("model"))
def test_every_model_configuration_builds(name):
    config = load_model(name)
    create_model(config.model, 160, 2, **config.hyper)
