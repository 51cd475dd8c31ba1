"""Relevance beside being Algorithm 1, to which tests/models/test_bolt.py holds it; rollout against its equations."""

import pytest
import torch

from bolt.explain.relevance import importance, relevance, rollout
from bolt.io.errors import DataError
from bolt.models.attention import native
from bolt.models.bolt import BolT
from tests.models.plain_bolt import plain_bolt
from tests.models.test_bolt import small


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


@pytest.fixture(params=["kernel", "torch"])
def backend(request, monkeypatch):
    """Both ways to compute attention."""
    if request.param == "torch":
        monkeypatch.setattr(native, "usable", lambda q: False)
    elif native.library() is None:
        pytest.skip("no C++ compiler")


def plain_rollout(model, x):
    """One scan, (time,): whole maps in loops, rows over their sums, (I + A) multiplied."""
    out = plain_bolt(model, x)
    n_cls, local = len(out.cls), model.cls_token == "local"
    size, whole = n_cls + out.covered, torch.eye(n_cls + out.covered, dtype=x.dtype)
    for number, (block, maps, of_cls) in enumerate(zip(model.blocks, out.attention, out.of_cls, strict=True)):
        last = number == len(model.blocks) - 1
        total, count = torch.zeros(2, size, size, dtype=x.dtype)
        fringe = block.attention.fringe if model.windowed else 0
        for i, (start, weights) in enumerate(zip(out.starts, maps, strict=True)):
            mean = weights.detach().mean(0)
            window = mean.shape[0] - local
            rows = [*([i] if local else []), *range(n_cls + start, n_cls + start + window)]
            for a, row in enumerate(rows):
                if last and row >= n_cls:
                    continue  # nothing reads them
                total[row, i if local else 0] += mean[a, 0]
                count[row, i if local else 0] += 1
                for b, t in enumerate(range(start - fringe, start + window + fringe)):
                    if 0 <= t < out.covered:
                        total[row, n_cls + t] += mean[a, 1 + b]
                        count[row, n_cls + t] += 1
        for weights in of_cls:
            total[0] += weights.detach().mean(0)[0, :size]
            count[0] += 1
        mean = total / count.clamp(min=1)
        whole = (torch.eye(size, dtype=x.dtype) + mean / mean.sum(1, keepdim=True).clamp(min=1e-300)) @ whole
    found = torch.zeros(len(x), dtype=x.dtype)
    found[: out.covered] = whole[:n_cls, n_cls:].mean(0)
    return found


@pytest.mark.parametrize(
    "kind",
    [{}, {"mask_right": False}, {"tail": "drop"}, {"cls_token": "global"}, {"cls_token": "global", "windowed": False}],
    ids=str,
)
def test_rollout_equals_the_equations(backend, kind):
    model = small(n_blocks=3, stride_coefficient=0.5, **kind).eval()
    x = torch.randn(2, 11, 5, dtype=torch.float64)
    expected = torch.stack([plain_rollout(model, scan) for scan in x])
    torch.testing.assert_close(rollout(model, x), expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("kind", [{"cls_token": "none"}, {"n_covariates": 2}], ids=str)
def test_what_rollout_cannot_follow_is_refused(kind):
    with pytest.raises(DataError, match="CLS tokens"):
        rollout(small(**kind), torch.randn(1, 9, 5, dtype=torch.float64))
