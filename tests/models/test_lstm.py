"""LSTM, CNN-LSTM and meanMLP: their equations."""

import torch
from torch.nn import functional

from tests.models.conformance import as_configured


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


def test_cnn_lstm_equals_its_equations():
    """Convolutions along time with ROIs as channels, then the LSTM, whose states are averaged."""
    model, x = as_configured("cnn_lstm", 6, 2), torch.randn(2, 21, 6)
    model.train()(torch.randn(8, 21, 6))  # so that running statistics are not 0 and 1
    features = x.mT
    for layer, norm in (model.eval().convolutions[:2], model.convolutions[3:5]):
        features = norm(functional.conv1d(features, layer.weight, layer.bias, padding=1)).relu()
    torch.testing.assert_close(model(x).logits, model.classifier(model.lstm(features.mT)[0].mean(1)))
