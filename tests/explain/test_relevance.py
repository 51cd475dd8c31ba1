"""Relevance: what it does beside being Algorithm 1 (which tests/models/test_bolt.py holds it to)."""

import pytest
import torch

from bolt.explain.relevance import importance, relevance
from bolt.models.bolt import BolT


@pytest.fixture
def made():
    torch.manual_seed(0)
    return BolT(6, 2, hidden=8, n_blocks=3, n_heads=2, head_dim=4, window=5), torch.randn(3, 17, 6)


def test_shape_sign_and_mean_over_windows_for_the_class_asked_for_or_the_predicted_one(made):
    model, x = made
    predicted = model.eval()(x).logits.argmax(-1)
    for target in (predicted, 1 - predicted, None):
        found = relevance(model, x, target)
        assert found.shape == (3, len(model.window_starts(17)), 17) and (found >= 0).all() and (found > 0).any()
        torch.testing.assert_close(importance(model, x, target), found.mean(1))
    assert torch.equal(found, relevance(model, x, predicted))
    assert not torch.allclose(found, relevance(model, x, 1 - predicted))


def test_leaves_the_model_as_it_was(made):
    model, x = made
    model.train()
    with torch.no_grad():  # also works where the caller switched gradients off
        first = relevance(model, x)
    assert model.training and all(p.grad is None for p in model.parameters())
    model.requires_grad_(False)
    assert torch.equal(relevance(model, x), first)
