"""LSTM and meanMLP: equations, and what they can and cannot learn."""

from __future__ import annotations

import torch

from tests.models.recurrent import as_configured, learned, zscored


def test_meanmlp_is_the_mean_of_the_logits_of_single_volumes_in_any_order():
    model, x = as_configured("meanmlp", 6, 3), torch.randn(2, 9, 6)
    one_by_one = torch.stack([model(x[:, t : t + 1]).logits for t in range(9)]).mean(0)
    torch.testing.assert_close(model(x).logits, one_by_one)
    torch.testing.assert_close(model(x.flip(1)).logits, one_by_one)


def test_lstm_equals_its_equations():
    model, x = as_configured("lstm", 6, 2), torch.randn(1, 12, 6)
    lstm = dict(model.lstm.named_parameters())
    h = c = torch.zeros(32)
    states = []
    for volume in x[0]:
        gates = lstm["weight_ih_l0"] @ volume + lstm["bias_ih_l0"] + lstm["weight_hh_l0"] @ h + lstm["bias_hh_l0"]
        i, f, g, o = gates.chunk(4)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        states.append(h)
    torch.testing.assert_close(model(x).logits[0], model.classifier(torch.stack(states).mean(0)))


def planted(kind, n=256, time=24, n_rois=3):
    """Simulate classes that differ in the skew of an ROI (`volumes`) or in the direction of its sawtooth (`order`)."""
    torch.manual_seed(1)
    truth = torch.arange(n) % 2
    x = torch.randn(n, time, n_rois)
    if kind == "volumes":
        sign = (2 * truth - 1)[:, None]
        x[..., 0] = sign * x[..., 0].exp()
    else:
        saw = (torch.arange(time) + torch.randint(8, (n, 1))) % 8.0
        x[..., 0] = torch.where(truth[:, None] == 1, saw, saw.flip(1))
    return zscored(x), truth


def test_meanmlp_learns_what_single_volumes_show_and_cannot_learn_their_order():
    assert learned(as_configured("meanmlp", 3, 2), *planted("volumes"), steps=60) > 0.95
    x, truth = planted("order")
    assert learned(as_configured("meanmlp", 3, 2), x, truth, steps=60) < 0.75


def test_lstm_learns_order():
    assert learned(as_configured("lstm", 3, 2), *planted("order"), steps=120, rate=1e-2) > 0.9
