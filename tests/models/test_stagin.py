"""STAGIN: windows, edges, equations and the orthogonality term against explicit loops."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from bolt.models import stagin
from bolt.models.stagin import similarity
from tests.models.conformance import as_configured


@pytest.mark.parametrize("n_rois", [5, 20, 53])
def test_edges_are_the_correlations_above_the_percentile_of_their_window(n_rois):
    model, x = as_configured("stagin", n_rois, 2), torch.randn(2, 61, n_rois)
    for scan, scan_edges in zip(x.numpy(), model.adjacency(x).numpy(), strict=True):
        for start, window_edges in zip((0, 3, 6, 9), scan_edges, strict=True):
            fc = np.corrcoef(scan[start : start + 50].T)
            expected = (fc > np.percentile(fc, 70)) | np.eye(n_rois, dtype=bool)
            np.testing.assert_array_equal(window_edges, expected)


def test_a_constant_roi_is_its_own_neighbour_alone():
    x = torch.randn(1, 50, 6)
    x[..., 2] = 0
    edges = as_configured("stagin", 6, 2).adjacency(x)[0, 0]
    assert edges[2].tolist() == [0, 0, 1, 0, 0, 0]


def by_hand(model, x):
    """Compute the logits of one scan (time, rois), one window, ROI and layer at a time."""
    n, starts = x.shape[1], range(0, len(x) - model.window + 1, model.stride)
    states = model.time(x[None])[0][0]
    edges = model.adjacency(x[None])[0]
    nodes = [
        [model.node(torch.cat([torch.eye(n)[i], states[start + model.window - 1]])) for i in range(n)]
        for start in starts
    ]
    logits = 0
    for graph, (readout, attention), classifier in zip(model.graphs, model.summaries, model.classifiers, strict=True):
        windows = []
        for f in range(len(starts)):
            gathered = [sum(edges[f, i, j] * nodes[f][j] for j in range(n)) + graph.own * nodes[f][i] for i in range(n)]
            nodes[f] = [graph.mlp(node[None])[0] for node in gathered]
            mean = torch.stack(nodes[f]).mean(0)
            share = readout.excite(readout.squeeze(mean[None]))[0].sigmoid()
            windows.append(sum(share[i] * nodes[f][i] for i in range(n)) / n)
        z, layer = torch.stack(windows), attention.attention
        query, key, value = functional.linear(z, layer.in_proj_weight, layer.in_proj_bias).chunk(3, dim=1)
        attended = layer.out_proj((query @ key.T / query.shape[1] ** 0.5).softmax(1) @ value)
        attended = attention.attention_norm(attended)
        attended = attention.mlp_norm(attended + attention.mlp(attended))
        logits = logits + classifier(attended.sum(0))
    return logits


def test_it_is_its_equations():
    model = as_configured("stagin", 6, 3, window=20)
    with torch.inference_mode():
        for graph in model.graphs:
            graph.own.fill_(0.5)
        x = torch.randn(2, 29, 6)  # the last window ends with the scan
        torch.testing.assert_close(model(x).logits, torch.stack([by_hand(model, scan) for scan in x]))


def test_the_orthogonality_term():
    nodes = torch.rand(3, 6, 4)
    nodes[1, 2] = 0  # an ROI whose features are all zero
    norms = []
    for window in nodes.double().numpy():
        inner = window @ window.T
        largest = inner.max(1, keepdims=True)
        inner = np.divide(inner, largest, out=np.zeros_like(inner), where=largest > 0) - np.eye(6)
        norms.append(np.sqrt(sum(inner[i, j] ** 2 for i in range(6) for j in range(i, 6))))
    np.testing.assert_allclose(similarity(nodes), norms, rtol=1e-5)


@pytest.mark.parametrize("products", [1, 100, 10_000])
def test_the_orthogonality_term_is_a_sum_over_layers_and_belongs_to_training(products, monkeypatch):
    monkeypatch.setattr(stagin, "PRODUCTS", products)
    model, x = as_configured("stagin", 6, 2, window=20), torch.randn(2, 30, 6)
    assert model(x).losses == {}
    seen = []
    for graph in model.graphs:
        graph.register_forward_hook(lambda module, inputs, output: seen.append(output.detach()))
    term = model.train()(x).losses["orthogonality"].detach()
    expected = 1e-5 * sum(float(similarity(nodes.flatten(0, 1)).mean()) for nodes in seen)
    assert float(term) == pytest.approx(expected, rel=1e-4)


def test_gradients_are_the_same_if_inner_products_are_kept(monkeypatch):
    """They are kept if those of all layers are few: 4 layers, 2 scans, 4 windows, 6 ROIs."""
    gradients, recomputed, real = [], [], stagin.checkpoint
    monkeypatch.setattr(stagin, "checkpoint", lambda *given, **how: (recomputed.append(1), real(*given, **how))[1])
    for products in (4 * 2 * 4 * 6**2 - 1, 4 * 2 * 4 * 6**2):
        monkeypatch.setattr(stagin, "PRODUCTS", products)
        model, x = as_configured("stagin", 6, 2, window=20, orthogonality_weight=1.0).train(), torch.randn(2, 30, 6)
        torch.manual_seed(1)
        out = model(x)
        (out.logits.sum() + out.losses["orthogonality"]).backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
    assert len(recomputed) == 4
    assert all(torch.equal(*pair) for pair in zip(*gradients, strict=True))
