"""Relevance: what it does beside being Algorithm 1 (which tests/models/test_bolt.py holds it to)."""

from __future__ import annotations

import torch

from bolt.explain.relevance import importance, relevance
from bolt.models.bolt import BolT


def model_and_scans():
    torch.manual_seed(0)
    return BolT(6, 2, hidden=8, n_blocks=3, n_heads=2, head_dim=4, window=5), torch.randn(3, 17, 6)


def test_shape_sign_and_mean_over_windows():
    model, x = model_and_scans()
    rel = relevance(model, x)
    assert rel.shape == (3, len(model.window_starts(17)), 17)
    assert (rel >= 0).all()
    assert (rel > 0).any()
    torch.testing.assert_close(importance(model, x), rel.mean(1))


def test_default_target_is_the_predicted_class():
    model, x = model_and_scans()
    predicted = model.eval()(x).logits.argmax(-1)
    assert torch.equal(relevance(model, x), relevance(model, x, predicted))
    assert not torch.allclose(relevance(model, x), relevance(model, x, 1 - predicted))


def test_a_batch_equals_its_scans_one_by_one():
    model, x = model_and_scans()
    apart = torch.cat([relevance(model, scan[None]) for scan in x])
    torch.testing.assert_close(relevance(model, x), apart, rtol=1e-4, atol=1e-8)


def test_leaves_the_model_as_it_was():
    model, x = model_and_scans()
    model.train()
    with torch.no_grad():  # also works where the caller switched gradients off
        first = relevance(model, x)
    assert model.training
    assert all(p.grad is None for p in model.parameters())
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    assert torch.equal(relevance(model, x), first)


def test_importance_is_that_of_the_class_asked_for():
    model, x = model_and_scans()
    for target in (torch.tensor([0, 1, 0]), torch.tensor([1, 0, 1])):
        torch.testing.assert_close(importance(model, x, target), relevance(model, x, target).mean(1))
