"""TFF's windows."""

from __future__ import annotations

import pytest
import torch

from bolt.models.tff import TFF


def tiny() -> TFF:
    torch.manual_seed(0)
    return TFF(5, 3, hidden=16, inner=16, n_heads=2).eval()


@pytest.mark.parametrize(("time", "windows"), [(600, 59), (1200, 119), (150, 14), (100, 9), (20, 1), (29, 1), (30, 2)])
def test_windows_of_20_every_10_volumes(time, windows):
    assert tiny()(torch.randn(1, time, 5)).cls.shape == (1, windows, 16)


def test_logits_are_the_mean_of_those_of_windows_apart():
    model, x = tiny(), torch.randn(2, 47, 5)
    apart = torch.stack([model(x[:, start : start + 20]).logits for start in (0, 10, 20)])
    torch.testing.assert_close(model(x).logits, apart.mean(0))


def test_what_is_left_after_the_last_window_is_not_read():
    model, x = tiny(), torch.randn(1, 47, 5, requires_grad=True)
    model(x).logits[0, 0].backward()
    read = x.grad[0].abs().sum(1) > 0
    assert read[:40].all()
    assert not read[40:].any()


def test_positions_suffice_for_longer_windows():
    model = TFF(5, 3, hidden=16, inner=16, n_heads=2, window=40, stride=40)
    assert model(torch.randn(1, 80, 5)).cls.shape == (1, 2, 16)
    assert model.min_length == 40
