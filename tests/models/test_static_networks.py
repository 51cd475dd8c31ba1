"""BrainNetCNN and BNT: layers and parts against explicit computations."""

import torch
from torch.nn import functional

from bolt.models.brainnetcnn import EdgeToEdge
from tests.models.conformance import as_configured


# ---- BrainNetCNN -----------------------------------------------------------------------------------------------------
def test_edge_to_edge_is_two_convolutions_spread_over_the_matrix():
    torch.manual_seed(0)
    layer = EdgeToEdge(3, 4, 5)
    with torch.no_grad():
        for part in (layer.rows, layer.columns):
            part.bias.normal_()
        x = torch.randn(2, 3, 5, 5)
        rows, columns = (part.weight.permute(2, 0, 1) for part in (layer.rows, layer.columns))
        across = functional.conv2d(x, rows[:, :, None, :], layer.rows.bias[:, 0])
        down = functional.conv2d(x, columns[:, :, :, None], layer.columns.bias[:, 0])
        torch.testing.assert_close(layer(x), across.expand(-1, -1, -1, 5) + down.expand(-1, -1, 5, -1))


def test_brainnetcnn_drops_out_in_training_alone_and_its_logits_are_linear():
    """Published versions got both wrong: dropout in testing, and a rectifier on the logits."""
    model = as_configured("brainnetcnn", 6, 2)
    x = torch.randn(4, 30, 6)
    assert not torch.equal(model.train()(x).logits, model(x).logits)
    output = model.eval()(x)
    torch.testing.assert_close(output.logits, functional.linear(output.cls, *model.classifier.parameters()))


# ---- BNT -------------------------------------------------------------------------------------------------------------
def test_the_centres_are_orthonormal_and_stay():
    model = as_configured("bnt", 24, 2, clusters=10)
    torch.testing.assert_close(model.centres @ model.centres.T, torch.eye(10), atol=1e-5, rtol=0)
    assert "centres" in model.state_dict() and "centres" not in dict(model.named_parameters())
    assert as_configured("bnt", 8, 2).centres.shape == (8, 8)  # no more centres than ROIs


def test_layers_start_with_weights_of_their_own():
    first, second = as_configured("bnt", 8, 2).transformer.layers
    assert not torch.equal(first.linear1.weight, second.linear1.weight)


def test_rois_are_assigned_by_their_squared_projections():
    model = as_configured("bnt", 8, 2, clusters=3)
    embedded = torch.randn(2, 8, 8)
    shares = model.assignments(embedded)
    powers = torch.stack([(embedded @ centre) ** 2 for centre in model.centres], -1).exp()
    torch.testing.assert_close(shares, powers / powers.sum(-1, keepdim=True))
