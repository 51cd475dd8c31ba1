"""CNN-LSTM: size, shapes, and a signal of two neighbouring volumes."""

from __future__ import annotations

import pytest
import torch

from bolt.io.errors import ConfigError
from bolt.models.registry import create_model
from tests.models.recurrent import as_configured, learned, size, zscored


def test_sizes():
    assert size(as_configured("cnn_lstm", 400, 2)) == 253_314
    assert size(as_configured("cnn_lstm", 116, 7)) == 253_314 - 284 * 3 * 128 + 5 * 65


@pytest.mark.parametrize(("batch", "time", "n_rois", "n_classes"), [(1, 2, 5, 2), (3, 40, 7, 1), (2, 250, 116, 7)])
def test_shapes(batch, time, n_rois, n_classes):
    model = as_configured("cnn_lstm", n_rois, n_classes)
    assert model(torch.randn(batch, time, n_rois)).logits.shape == (batch, n_classes)


def test_a_training_batch_of_one_scan_of_the_shortest_length():
    model = as_configured("cnn_lstm", 5, 2).train()
    model(torch.randn(1, model.min_length, 5)).logits.sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


def test_convolutions_run_along_time():
    """A volume affects the two before and after it, in every channel, and no others."""
    model, x = as_configured("cnn_lstm", 6, 2), torch.randn(1, 21, 6)
    other = x.clone()
    other[0, 10] += 1
    features = [model.convolutions(scan.mT)[0] for scan in (x, other)]
    changed = (features[0] != features[1]).any(0).nonzero().flatten().tolist()
    assert changed == [8, 9, 10, 11, 12]


def test_an_even_kernel_is_refused():
    with pytest.raises(ConfigError, match=r"'kernel' must be odd, such as 3 or 5"):
        create_model("cnn_lstm", 6, 2, kernel=4)
    with pytest.raises(ConfigError, match="'kernel' is 0.*Set it to at least 1"):
        create_model("cnn_lstm", 6, 2, kernel=0)


def test_it_learns_what_two_volumes_show_together():
    """White noise in which an ROI repeats or reverses the volume before; single volumes are alike in both classes."""
    torch.manual_seed(1)
    truth = torch.arange(160) % 2
    x = torch.randn(160, 24, 4)
    x[:, 1::2, 0] = x[:, ::2, 0] * (2 * truth - 1)[:, None]
    assert learned(as_configured("cnn_lstm", 4, 2), zscored(x), truth, steps=30) > 0.9
