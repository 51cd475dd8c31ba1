"""CNN-LSTM: convolutions along time, and a signal of two neighbouring volumes."""

from __future__ import annotations

import torch

from tests.models.recurrent import as_configured, learned, zscored


def test_convolutions_run_along_time():
    """A volume affects the two before and after it, in every channel, and no others."""
    model, x = as_configured("cnn_lstm", 6, 2), torch.randn(1, 21, 6)
    other = x.clone()
    other[0, 10] += 1
    features = [model.convolutions(scan.mT)[0] for scan in (x, other)]
    changed = (features[0] != features[1]).any(0).nonzero().flatten().tolist()
    assert changed == [8, 9, 10, 11, 12]


def test_it_learns_what_two_volumes_show_together():
    """White noise in which an ROI repeats or reverses the volume before; single volumes are alike in both classes."""
    torch.manual_seed(1)
    truth = torch.arange(160) % 2
    x = torch.randn(160, 24, 4)
    x[:, 1::2, 0] = x[:, ::2, 0] * (2 * truth - 1)[:, None]
    assert learned(as_configured("cnn_lstm", 4, 2), zscored(x), truth, steps=30) > 0.9
