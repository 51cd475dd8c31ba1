"""BrainGNN: graphs as nilearn and a loop make them, a convolution and the losses by hand in numpy."""

import numpy as np
import pytest
import torch
from nilearn.connectome import ConnectivityMeasure
from sklearn.covariance import LedoitWolf

from bolt.models.braingnn import RoiConvolution, TopPooling, _two_steps
from tests.models.conformance import as_configured
from tests.models.test_connectivity import brain_series


# ---- graphs ----------------------------------------------------------------------------------------------------------
def graphs(x, **settings):
    return as_configured("braingnn", x.shape[2], 2, **settings).matrices(torch.from_numpy(x)).double().numpy()


def partial_of(x):
    """By nilearn, whose default covariance is shrunk."""
    return ConnectivityMeasure(kind="partial correlation", standardize=False).fit_transform(list(x.astype(float)))


@pytest.mark.parametrize("volumes", [120, 12])
def test_features_are_fishers_z_of_shrunk_correlations(volumes):
    x = brain_series(2, volumes, 20)
    for values, series in zip(graphs(x)[:, 0], x, strict=True):
        covariance = LedoitWolf().fit(series.astype(float)).covariance_
        correlation = covariance / np.sqrt(np.outer(np.diag(covariance), np.diag(covariance)))
        np.fill_diagonal(correlation, 0)
        np.testing.assert_allclose(values, np.arctanh(correlation), atol=1e-5)


@pytest.mark.parametrize("volumes", [120, 12])
def test_edges_are_the_largest_tenth_and_nobody_is_left_alone(volumes):
    x = brain_series(3, volumes, 20)
    rejoined = 0
    for edges, partial in zip(graphs(x)[:, 1], partial_of(x), strict=True):
        np.fill_diagonal(partial, -2)
        largest = np.sort(partial[np.triu_indices(20, 1)])[-19:]  # 190 pairs
        due = {(i, j) for i in range(20) for j in range(20) if partial[i, j] >= largest[0] - 1e-6}
        for i in set(range(20)) - {i for i, _ in due}:
            rejoined += 1
            nearest = int(partial[i].argmax())
            due |= {(i, nearest), (nearest, i)}
        assert set(zip(*np.nonzero(edges), strict=True)) == due
        for i, j in due:
            assert edges[i, j] == pytest.approx(abs(np.arctanh(partial[i, j])), abs=1e-5)
    assert rejoined


def test_negative_correlations_are_no_edges_and_a_complete_graph_has_all():
    x = brain_series(1, 120, 20)
    positive = partial_of(x)[0] > 0
    np.fill_diagonal(positive, False)
    np.testing.assert_array_equal(graphs(x, edge_share=1.0)[0, 1] > 0, positive)
    complete = graphs(x, complete=True)[0, 1]
    assert (complete > 0).sum() == 20 * 19
    np.testing.assert_allclose(
        complete[~positive & ~np.eye(20, dtype=bool)].max(), np.arctanh(-partial_of(x).min()), 1e-4
    )


# ---- layers ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("some", [False, True])
def test_convolution_by_hand(some):
    torch.manual_seed(0)
    layer = RoiConvolution(6, 3, 2, communities=4)
    rois = torch.tensor([[0, 2, 5], [1, 2, 3]]) if some else torch.arange(6).expand(2, -1)
    n = rois.shape[1]
    nodes, graph = torch.randn(2, n, 3), torch.rand(2, n, n) * (torch.rand(2, n, n) < 0.5)
    for b, out in enumerate(layer(nodes, graph, rois if some else None)):
        weights = [layer.weights(layer.memberships(torch.eye(6)[roi]).relu()).view(3, 2) for roi in rois[b]]
        own = [node @ weight for node, weight in zip(nodes[b], weights, strict=True)]
        for i in range(n):
            edges = {j: graph[b, i, j] for j in range(n) if graph[b, i, j] > 0 and j != i} | {i: torch.tensor(1.0)}
            total = sum(weight.exp() for weight in edges.values())
            due = sum(weight.exp() / total * own[j] for j, weight in edges.items())
            torch.testing.assert_close(out[i], due + layer.bias)


def test_pooling_keeps_the_better_half_with_their_edges():
    pool = TopPooling(1, ratio=0.5)
    with torch.no_grad():
        pool.direction.fill_(3.0)
    nodes = torch.tensor([[[1.0], [-2.0], [3.0], [0.5], [2.0]]])
    graph = torch.arange(25.0).view(1, 5, 5)
    pooled = pool(nodes, graph)
    assert pooled.kept.tolist() == [[0, 2, 4]]
    torch.testing.assert_close(pooled.scores, nodes[..., 0].sigmoid())
    torch.testing.assert_close(pooled.nodes[0, :, 0], torch.tensor([1.0, 3.0, 2.0]) * pooled.scores[0, [0, 2, 4]])
    assert pooled.graph[0].tolist() == [[0, 2, 4], [10, 12, 14], [20, 22, 24]]
    assert pooled.length.item() == 3
    alike = pool(torch.ones(2, 40, 1), torch.zeros(2, 40, 40))
    assert alike.kept.tolist() == [list(range(20))] * 2, "the same on every device"


def test_two_steps():
    graph = torch.tensor([[[0.0, 2.0, 0.0], [2.0, 0.0, 3.0], [0.0, 3.0, 0.0]]])
    assert _two_steps(graph)[0].tolist() == [[0, 4, 6], [4, 0, 6], [6, 6, 0]]


# ---- losses ----------------------------------------------------------------------------------------------------------
def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def glc_by_hand(scores, truth):
    """trace(SᵀLS) / n² with the Laplacian L of all pairs of a class's scans, as the article writes it."""
    total = 0.0
    for c in np.unique(truth):
        own = scores[truth == c]
        n = len(own)
        total += np.trace(own.T @ (n * np.eye(n) - np.ones((n, n))) @ own) / n**2
    return total


@pytest.mark.parametrize("quirk", [False, True])
@pytest.mark.parametrize("ratio", [0.5, 0.8])
def test_losses_by_hand(quirk, ratio):
    model = as_configured("braingnn", 15, 3, official_quirk=quirk, unit_weight=0.7, ratio=ratio)
    x = torch.from_numpy(brain_series(7, 60, 15))
    truth = np.array([0, 1, 0, 2, 1, 0, 0])
    seen = []
    for pool in model.poolings:
        pool.register_forward_hook(lambda _, __, pooled: seen.append(pooled))
    output = model(x)
    losses = {**output.losses, **model.label_losses(output, torch.from_numpy(truth))}
    due = {}
    for layer, (pooled, pool) in enumerate(zip(seen, model.poolings, strict=True), start=1):
        due[f"unit_{layer}"] = 0.7 * (np.linalg.norm(pool.direction.detach().numpy()) - 1) ** 2
        scores = np.sort(pooled.scores.detach().double().numpy(), axis=1)
        n = scores.shape[1]
        kept = int(np.ceil(ratio * n))
        if quirk:  # of the kept nodes; as many of the smallest as of the largest
            part = int(min(ratio, 1 - ratio) * kept)
            scores = sigmoid(scores[:, -kept:])
            small, large = scores[:, :part], scores[:, -part:]
        else:
            small, large = scores[:, : n - kept], scores[:, n - kept :]
        due[f"tpk_{layer}"] = 0.1 * (-np.log(large).mean() - np.log(1 - small).mean())
        if layer == 1:
            plain = pooled.scores.detach().double().numpy()
            shown = sigmoid(sigmoid(np.sort(plain)[:, -kept:])) if quirk else plain
            due["glc"] = 0.1 * glc_by_hand(shown, truth)
    assert losses.keys() == due.keys()
    for name, value in due.items():
        assert losses[name].item() == pytest.approx(value, rel=1e-4), name
