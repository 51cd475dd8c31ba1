"""TFF's windows."""

from __future__ import annotations

import pytest
import torch

from bolt.models.tff import TFF


def tiny() -> TFF:
    torch.manual_seed(0)
    return TFF(5, 3, hidden=16, inner=16, n_heads=2).eval()


@pytest.mark.parametrize(("time", "windows"), [(600, 59), (20, 1), (29, 1), (30, 2)])
def test_windows_of_20_every_10_volumes(time, windows):
    assert tiny()(torch.randn(1, time, 5)).cls.shape == (1, windows, 16)


def test_logits_are_the_mean_of_those_of_windows_apart():
    model, x = tiny(), torch.randn(2, 47, 5)
    apart = torch.stack([model(x[:, start : start + 20]).logits for start in (0, 10, 20)])
    torch.testing.assert_close(model(x).logits, apart.mean(0))


def test_positions_suffice_for_longer_windows():
    model = TFF(5, 3, hidden=16, inner=16, n_heads=2, window=40, stride=40)
    assert model(torch.randn(1, 80, 5)).cls.shape == (1, 2, 16)
    assert model.min_length == 40


@pytest.mark.slow
def test_signals_keep_their_size_in_a_narrower_model() -> None:
    """With BERT's standard deviation of 0.02 whatever the width, scans differed 30 times less at a width of 400."""
    x = torch.randn(24, 40, 200, generator=torch.Generator().manual_seed(0))
    spread = {}
    for hidden, inner in ((2640, 3072), (400, 1600), (160, 640)):
        torch.manual_seed(0)
        model = TFF(200, 2, hidden=hidden, inner=inner, n_heads=16).eval()
        weights = model.encoder.pooler.weight
        assert weights.std().item() == pytest.approx(0.02 * (2640 / hidden) ** 0.5, rel=0.02)
        with torch.no_grad():
            spread[hidden] = model(x).cls.mean(1).std(0).mean().item()
    assert spread[400] == pytest.approx(spread[2640], rel=0.3) and spread[160] == pytest.approx(spread[2640], rel=0.5)
