"""All models at small sizes, and simulated signals that a model should be able to learn."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bolt.config import Model, known, load_model
from bolt.models.base import SeriesModel
from bolt.models.registry import create_model, fitted_at_once, has_epochs, with_facts

SMALL: dict[str, dict[str, Any]] = {
    "band": {"hidden": 16, "inner": 16, "n_layers": 2, "n_heads": 2},
    "bnt": {"feedforward": 16, "clusters": 4},
    "bolt": {"hidden": 16, "n_blocks": 2, "n_heads": 2, "head_dim": 8, "window": 6},
    "braingnn": {"hidden": 8, "inner": 16},
    "brainnetcnn": {"edge_channels": [4, 4], "graph_channels": 8, "linear": [8, 8]},
    "cnn_lstm": {"channels": 8, "hidden": 8},
    "gc_lstm": {"hidden": 8, "window_seconds": 24, "mlp": 8},
    "hatnet": {"hidden": 16, "n_heads": 2, "channels": 16, "window": 4},
    "ift_net": {"hidden": 16, "n_blocks": 2, "n_heads": 2},
    "longformer": {"hidden": 16, "n_blocks": 2, "n_heads": 2, "window": 6},
    "lstm": {"hidden": 8},
    "meanmlp": {"hidden": 16},
    "stagin": {"hidden": 8, "n_layers": 2, "window": 12},
    "swint": {"hidden": 16, "n_blocks": 2, "n_heads": 2, "window": 6},
    "tff": {"hidden": 16, "inner": 16, "n_heads": 2, "window": 6, "stride": 3},
    # these need no smaller size
    "ensemble": {},
    "logistic": {},
    "majority": {},
    "ridge": {},
    "svm": {},
    "tangent": {},
}
"""Small settings of each model (a file in `bolt/models`), with which tests take a fraction of a second."""

NOT_REACHED = {
    "bolt": ("blocks.1.attention.bias_distance", "blocks.1.attention.bias_bold_to_cls"),
    "longformer": ("blocks.1.attention.local.weight", "blocks.1.attention.local.bias"),
}
"""Parameters without a gradient by design: only CLS tokens are queries in the last block."""

ALL = known("model")
"""Every file in `config/models`."""
TORCH = [name for name in ALL if has_epochs(load_model(name).model)]
AT_ONCE = [name for name in ALL if fitted_at_once(load_model(name).model)]
CROP = 30  # volumes


def small(name: str) -> Model:
    """Return a shipped configuration at the size for tests."""
    return small_model(load_model(name))


def small_model(model: Model) -> Model:
    """Return a configuration, with its members, at the size for tests."""
    if model.model not in SMALL:
        pytest.fail(f"model '{model.model}' has no entry in tests/models/conformance.py: add its settings to SMALL")
    # null follows the data and stays
    fewer = {key: value for key, value in SMALL[model.model].items() if model.hyper.get(key, value) is not None}
    members = [small_model(member) for member in model.members]
    return model.model_copy(update={"hyper": model.hyper | fewer, "members": members})


def make(name: str, n_rois: int, n_classes: int, seed: int = 0) -> SeriesModel:
    """Create a small torch model with fresh weights."""
    torch.manual_seed(seed)
    model = small(name)
    settings = with_facts(model.model, model.hyper, {"crop": CROP, "tr": 2.0})
    return create_model(model.model, n_rois, n_classes, **settings)


def as_configured(name: str, n_rois: int, n_classes: int, **changed: object) -> nn.Module:
    """Create a model with the settings of its shipped configuration, in evaluation mode."""
    config = load_model(name)
    torch.manual_seed(0)
    return create_model(config.model, n_rois, n_classes, **config.hyper | changed).eval()


def size(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def attended(q: Tensor, k: Tensor, v: Tensor, n_heads: int, seen: Tensor | None = None, bias: Tensor | float = 0.0):
    """Compute attention explicitly, of (tokens, n) each; `seen` (queries, keys) and `bias` (heads, queries, keys)."""
    q, k, v = (part.unflatten(1, (n_heads, -1)).transpose(0, 1) for part in (q, k, v))
    scores = q @ k.mT / q.shape[2] ** 0.5 + bias
    if seen is not None:
        scores[:, ~seen] = -torch.inf
    return (scores.softmax(2) @ v).transpose(0, 1).flatten(1)


def joint_attention(layer: nn.MultiheadAttention, query: Tensor, key: Tensor) -> Tensor:
    """Compute torch's attention layer explicitly, of (tokens, n) each."""
    (wq, wk, wv), (bq, bk, bv) = layer.in_proj_weight.chunk(3), layer.in_proj_bias.chunk(3)
    return layer.out_proj(attended(query @ wq.T + bq, key @ wk.T + bk, key @ wv.T + bv, layer.num_heads))


def labelled(n: int, time: int, n_rois: int, n_classes: int, seed: int) -> tuple[Tensor, Tensor]:
    """Simulate series (n, time, rois): the pair of ROIs of the class shares a signal, varies more and correlates."""
    random = torch.Generator().manual_seed(seed)
    x, shared = torch.randn(n, time, n_rois, generator=random), torch.randn(n, time, generator=random)
    labels = torch.arange(n) % n_classes
    for roi in (labels, labels + 1):
        x[torch.arange(n), :, roi] += 2 * shared
    return x, labels


def loss_of(net: nn.Module, x: Tensor, labels: Tensor) -> Tensor:
    output = net(x)
    return nn.functional.cross_entropy(output.logits, labels) + sum(output.losses.values())
