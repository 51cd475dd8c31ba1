"""Helpers of the tests of recurrent and dynamic models."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bolt.config import load_model
from bolt.models.registry import create_model


def as_configured(name: str, n_rois: int, n_classes: int, **changed: object) -> nn.Module:
    """Create a model with the settings of its shipped configuration, in evaluation mode."""
    config = load_model(name)
    torch.manual_seed(0)
    return create_model(config.model, n_rois, n_classes, **config.hyper | changed).eval()


def size(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def zscored(x: Tensor) -> Tensor:
    return (x - x.mean(1, keepdim=True)) / x.std(1, correction=0, keepdim=True)


def learned(model: nn.Module, x: Tensor, truth: Tensor, steps: int, rate: float = 3e-3) -> float:
    """Train a model on the first half of the scans; return its accuracy on the second half."""
    torch.manual_seed(0)
    half = len(x) // 2
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    model.train()
    for _ in range(steps):
        out = model(x[:half])
        loss = nn.functional.cross_entropy(out.logits, truth[:half]) + sum(out.losses.values())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.inference_mode():
        return float((model(x[half:]).logits.argmax(1) == truth[half:]).float().mean())
