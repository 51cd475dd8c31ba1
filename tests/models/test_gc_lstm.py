"""GC-LSTM: its windows, correlations and filters against numpy, and its memory."""

import numpy as np
import pytest
import torch

from bolt.models import gc_lstm
from bolt.models.registry import create_model, with_facts
from tests.models.conformance import as_configured


@pytest.mark.parametrize(
    ("facts", "window", "stride"),
    [
        ({"tr": 0.72, "crop": 600}, 167, 3),  # HCP-Rest
        ({"tr": 0.72, "crop": 150}, 123, 3),  # HCP-Task: 167 volumes do not fit
        ({"tr": 2.0, "crop": 100}, 60, 1),  # ABIDE-I
        ({"tr": 3.0, "crop": 100}, 40, 1),
        ({}, 60, 1),  # TR unknown: 2 s
        ({"crop": 3}, 2, 1),
        ({"crop": 60}, 51, 1),  # only one window of 60 would fit: no recurrence
        ({"crop": 12}, 6, 1),  # not below half of the crop
    ],
)
def test_windows_follow_from_the_data(facts, window, stride):
    model = create_model("gc_lstm", 5, 2, **with_facts("gc_lstm", {}, facts))
    assert (model.window, model.stride, model.min_length) == (window, stride, window)


def by_hand(model, scan):
    """Compute the features of one scan (time, rois) in numpy, window by window, with explicit polynomials."""
    weights = {name: value.detach().double().numpy() for name, value in model.named_parameters()}
    n, width = scan.shape[1], 4 * model.hidden
    h = c = np.zeros((n, model.hidden))
    states = []
    for start in range(0, len(scan) - model.window + 1, model.stride):
        fc = np.corrcoef(scan[start : start + model.window].T)
        a = np.where(np.eye(n) == 1, 0, fc.clip(min=0))
        d = np.diag(np.where(a.any(1), a.sum(1), 1) ** -0.5)  # an ROI may have no edge
        graph = -d @ a @ d
        t = [np.eye(n), graph]
        gates = np.tile(weights["bias"], (n, 1))
        for k in range(model.order):
            t.append(2 * graph @ t[-1] - t[-2])
            rows = slice(k * width, (k + 1) * width)
            gates += t[k] @ (fc @ weights["input.weight"][rows].T + h @ weights["recurrent.weight"][rows].T)
        i, f, g, o = np.split(gates, 4, axis=1)
        i, f, o = (1 / (1 + np.exp(-gate)) for gate in (i, f, o))
        c = f * c + i * np.tanh(g)
        h = o * np.tanh(c)
        states.append(h)
    return np.mean(states, axis=0).ravel()


@pytest.mark.parametrize(("n_rois", "order"), [(7, 1), (7, 2), (7, 5), (40, 3)])
def test_it_is_its_equations(n_rois, order):
    """For fewer and more ROIs than twice the volumes of a window."""
    model = as_configured("gc_lstm", n_rois, 2, crop=24, tr=3.0, order=order)
    assert model.window == 15
    with torch.no_grad():
        model.bias.normal_()
    x = torch.randn(2, 31, n_rois)
    features = model(x).cls.detach().numpy()
    for scan_features, scan in zip(features, x.double().numpy(), strict=True):
        np.testing.assert_allclose(scan_features, by_hand(model, scan), atol=1e-5)


def test_a_constant_roi_gives_finite_gradients():
    model, x = as_configured("gc_lstm", 5, 1, crop=12).train(), torch.randn(1, 12, 5)
    x[..., 2] = 0
    model(x).logits.sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


def test_training_keeps_no_matrix_of_a_window(monkeypatch):
    """Memory for the backward pass grows with the states of a window, not with its matrices."""
    monkeypatch.setattr(gc_lstm, "KEPT", 0)
    model, x = as_configured("gc_lstm", 40, 2, crop=20, hidden=2).train(), torch.randn(2, 60, 40)
    kept: dict[int, int] = {}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        model(x)
    windows, matrix = 1 + (60 - model.window) // model.stride, 2 * 40 * 40 * 4
    assert sum(kept.values()) < windows * matrix / 4


def test_gradients_are_the_same_if_matrices_are_kept(monkeypatch):
    gradients = []
    for kept in (0, gc_lstm.KEPT):
        monkeypatch.setattr(gc_lstm, "KEPT", kept)
        torch.manual_seed(0)
        model, x = as_configured("gc_lstm", 6, 2, crop=20).train(), torch.randn(2, 40, 6)
        torch.manual_seed(1)
        model(x).logits.sum().backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
    assert all(torch.equal(*pair) for pair in zip(*gradients, strict=True))


def test_windows_read_together_or_apart_give_the_same_states():
    model, windows = as_configured("gc_lstm", 6, 2, crop=20), torch.randn(2, 5, 12, 6)
    state = cell = total = torch.zeros(2, 6, model.hidden)
    for window in windows.split(1, dim=1):
        state, cell, added = model._read(window, state, cell)
        total = total + added
    together = model._read(windows, *(torch.zeros_like(state) for _ in range(2)))
    for ours, theirs in zip((state, cell, total), together, strict=True):
        torch.testing.assert_close(ours, theirs)
