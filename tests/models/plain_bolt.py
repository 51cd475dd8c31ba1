"""BolT straight from the paper's equations, in loops over windows, heads and tokens.

Slow on purpose: it shares no code with the fast implementation but its parameters, and is what that is held against.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from bolt.models.bolt import BolT


@dataclass
class Plain:
    """Everything the paper defines, for one scan."""

    logits: Tensor  # (classes,)
    cls: Tensor  # (F, N)
    cwr: Tensor
    attention: list[list[Tensor]]  # block, window: (heads, 1 + W, 1 + W + 2L), padding zero
    starts: list[int]
    covered: int


def window_starts(length: int, window: int, stride: int, tail: str) -> list[int]:
    starts, first = [], 0
    while first + window <= length:
        starts.append(first)
        first += stride
    if tail == "cover" and starts[-1] + window != length:
        starts.append(length - window)
    return starts


def plain_bolt(model: BolT, x: Tensor) -> Plain:
    """Forward pass of one scan, (time, rois), without dropout."""
    window = model.window
    starts = window_starts(len(x), window, model.stride, model.tail)
    covered = starts[-1] + window
    bold = [model.projection(x[t]) for t in range(covered)]
    cls = [model.cls[0, 0] for _ in starts]
    maps = []
    for block in model.blocks:
        bold, cls, weights = plain_block(block, bold, cls, starts, window)
        maps.append(weights)
    final = torch.stack([norm(token, model.norm) for token in cls])
    mean = sum(final) / len(final)
    cwr = sum(((token - mean) ** 2).sum() for token in final) / final.numel()  # equation 4
    logits = model.classifier.weight @ mean + model.classifier.bias
    return Plain(logits, final, cwr, maps, starts, covered)


def norm(token: Tensor, layer) -> Tensor:
    variance = ((token - token.mean()) ** 2).mean()
    return (token - token.mean()) / torch.sqrt(variance + layer.eps) * layer.weight + layer.bias


def plain_block(block, bold: list[Tensor], cls: list[Tensor], starts: list[int], window: int):
    attention, length = block.attention, len(bold)
    normed = [norm(token, block.attention_norm) for token in bold]
    beyond = norm(torch.zeros_like(bold[0]), block.attention_norm)
    contexts: list[list[Tensor]] = [[] for _ in bold]
    new_cls, weights = [], []
    for i, start in enumerate(starts):
        receptive = []
        for t in range(start - attention.fringe, start + window + attention.fringe):
            if t < 0 or (t >= length and block.mask_right):
                receptive.append(None)
            else:
                receptive.append(normed[t] if t < length else beyond)
        tokens = [norm(cls[i], block.attention_norm), *normed[start : start + window]]
        outputs, of_window = plain_window(attention, tokens, receptive)
        weights.append(of_window)
        new_cls.append(cls[i] + outputs[0])
        for w in range(window):
            contexts[start + w].append(outputs[1 + w])
    bold = [token + sum(several) / len(several) for token, several in zip(bold, contexts, strict=True)]  # equation 3
    return [plus_mlp(block, b) for b in bold], [plus_mlp(block, c) for c in new_cls], weights


def plus_mlp(block, token: Tensor) -> Tensor:
    first, _, _, second = block.mlp
    inner = first.weight @ norm(token, block.mlp_norm) + first.bias
    inner = inner * 0.5 * (1 + torch.erf(inner / math.sqrt(2)))
    return token + second.weight @ inner + second.bias


def plain_window(attention, queries: list[Tensor], receptive: list[Tensor | None]):
    """Equations 1 and 2: `queries` are CLS and base tokens; None stands for a masked key."""
    d, inner = attention.head_dim, attention.head_dim * attention.n_heads
    kv_weight, kv_bias = attention.key_value.weight, attention.key_value.bias
    keys = [queries[0], *receptive]
    maps = []
    for h in range(attention.n_heads):
        rows = slice(h * d, (h + 1) * d)
        for row, token in enumerate(queries):
            q = attention.query.weight[rows] @ token + attention.query.bias[rows]
            exponentials = []
            for column, other in enumerate(keys):
                if other is None:
                    exponentials.append(torch.zeros((), dtype=q.dtype))
                    continue
                k = kv_weight[rows] @ other + kv_bias[rows]
                exponentials.append(torch.exp(q @ k / math.sqrt(d) + position(attention, h, row, column)))
            maps.append(torch.stack(exponentials) / sum(exponentials))
    weights = torch.stack(maps).reshape(attention.n_heads, len(queries), len(keys))

    outputs = []
    for row in range(len(queries)):
        mixed = []
        for h in range(attention.n_heads):
            rows = slice(inner + h * d, inner + (h + 1) * d)
            values = [None if key is None else kv_weight[rows] @ key + kv_bias[rows] for key in keys]
            mixed.append(sum(weights[h, row, c] * value for c, value in enumerate(values) if value is not None))
        outputs.append(attention.output.weight @ torch.cat(mixed) + attention.output.bias)
    return outputs, weights


def position(attention, head: int, row: int, column: int) -> Tensor:
    """B: by relative distance between BOLD tokens, by position where the CLS token takes part."""
    if row == 0 and column == 0:
        return attention.bias_cls_to_cls[0, head, 0, 0]
    if row == 0:
        return attention.bias_cls_to_bold[0, head, 0, column - 1]
    if column == 0:
        return attention.bias_bold_to_cls[0, head, row - 1, 0]
    distance = (row - 1) - (column - 1 - attention.fringe)
    return attention.bias_distance[distance + attention.window + attention.fringe - 1, head]


def plain_relevance(model: BolT, x: Tensor, target: int | None = None) -> Tensor:
    """Algorithm 1 for one scan, with the whole (F+T)² map; (F, time)."""
    out = plain_bolt(model, x)
    target = int(out.logits.argmax()) if target is None else target
    flat = [weights for block in out.attention for weights in block]
    gradients = iter(torch.autograd.grad(out.logits[target], flat, allow_unused=True))
    n_windows, window = len(out.starts), model.window
    size = n_windows + out.covered
    rel = torch.eye(size, dtype=x.dtype)
    for block, maps in zip(model.blocks, out.attention, strict=True):
        total, count = torch.zeros(size, size, dtype=x.dtype), torch.zeros(size, size, dtype=x.dtype)
        for i, (start, weights) in enumerate(zip(out.starts, maps, strict=True)):
            gradient = next(gradients)
            mean = (weights * gradient).clamp(min=0).mean(0).detach()
            left, right = start - block.attention.fringe, start + window + block.attention.fringe
            rows = [i, *range(n_windows + start, n_windows + start + window)]
            for a, row in enumerate(rows):
                total[row, i] += mean[a, 0]
                count[row, i] += 1
                for b, t in enumerate(range(left, right)):
                    if 0 <= t < out.covered:
                        total[row, n_windows + t] += mean[a, 1 + b]
                        count[row, n_windows + t] += 1
        rel = rel + (total / count.clamp(min=1)) @ rel
    whole = torch.zeros(n_windows, len(x), dtype=x.dtype)
    whole[:, : out.covered] = rel[:n_windows, n_windows:]
    return whole
