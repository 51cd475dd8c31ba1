"""BolT written directly from the paper's equations, in loops over windows, heads and tokens.

A slow reference for the fast implementation, with which it shares only the parameters.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import gelu

from bolt.models.bolt import BolT


@dataclass
class Plain:
    """All quantities that the paper defines, for one scan."""

    logits: Tensor  # (classes,)
    cls: Tensor  # (F, N)
    cwr: Tensor
    attention: list[list[Tensor]]  # block, window: (heads, 1 + W, 1 + W + 2L), padding zero
    starts: list[int]
    covered: int
    of_cls: list[list[Tensor]]  # block: with a global CLS token, its map, (heads, 1, 1 + T)


def window_starts(length: int, window: int, stride: int, tail: str) -> list[int]:
    starts, first = [], 0
    while first + window <= length:
        starts.append(first)
        first += stride
    if tail == "cover" and starts[-1] + window != length:
        starts.append(length - window)
    return starts


def plain_bolt(model: BolT, x: Tensor) -> Plain:
    """Compute the forward pass of one scan, (time, rois), without dropout."""
    window = model.window if model.windowed else len(x)
    starts = window_starts(len(x), window, model.stride, model.tail) if model.windowed else [0]
    covered = starts[-1] + window
    bold = [model.projection(x[t]) for t in range(covered)]
    n_cls = {"local": len(starts), "global": 1, "none": 0}[model.cls_token]
    cls = [model.cls[0, 0] for _ in range(n_cls)]
    maps, of_cls = [], []
    for block in model.blocks:
        bold, cls, weights, global_weights = plain_block(block, bold, cls, starts, window)
        maps.append(weights)
        of_cls.append(global_weights)
    final = model.norm(torch.stack(cls or bold))
    mean = sum(final) / len(final)
    cwr = sum(((token - mean) ** 2).sum() for token in final) / final.numel()  # equation 4
    logits = model.classifier.weight @ mean + model.classifier.bias
    return Plain(logits, final if cls else mean[None], cwr, maps, starts, covered, of_cls)


def plain_block(block, bold: list[Tensor], cls: list[Tensor], starts: list[int], window: int):
    attention, length = block.attention, len(bold)
    fringe = attention.fringe if attention.windowed else 0
    normed, normed_cls = ([block.attention_norm(token) for token in tokens] for tokens in (bold, cls))
    beyond = None if block.mask_right else block.attention_norm(torch.zeros_like(bold[0]))
    contexts: list[list[Tensor]] = [[] for _ in bold]
    new_cls, weights, of_cls = [], [], []
    for i, start in enumerate(starts):
        volumes = range(start - fringe, start + window + fringe)
        receptive = [None if t < 0 else normed[t] if t < length else beyond for t in volumes]
        key = {"local": i, "global": 0, "none": None}[attention.cls_token]
        queries = normed[start : start + window]
        if attention.cls_token == "local":
            queries = [normed_cls[i], *queries]
        outputs, of_window = plain_window(
            attention, queries, None if key is None else normed_cls[key], receptive, fringe
        )
        weights.append(of_window)
        if attention.cls_token == "local":
            new_cls.append(cls[i] + outputs.pop(0))
        for w in range(window):
            contexts[start + w].append(outputs[w])
    if attention.cls_token == "global":  # attends to the whole scan
        outputs, global_weights = plain_window(attention, normed_cls, normed_cls[0], normed, 0)
        new_cls.append(cls[0] + outputs[0])
        of_cls.append(global_weights)
    bold = [token + sum(outputs) / len(outputs) for token, outputs in zip(bold, contexts, strict=True)]  # equation 3
    return [plus_mlp(block, b) for b in bold], [plus_mlp(block, c) for c in new_cls], weights, of_cls


def plus_mlp(block, token: Tensor) -> Tensor:
    first, _, _, second = block.mlp
    return token + second(gelu(first(block.mlp_norm(token))))


def plain_window(attention, queries: list[Tensor], cls: Tensor | None, receptive: list[Tensor | None], fringe: int):
    """Compute equations 1 and 2; the CLS token, if any, is the first key, and None is a masked key."""
    heads, d = attention.n_heads, attention.head_dim
    there = [key is not None for key in ([] if cls is None else [cls]) + receptive]
    keys = [torch.zeros_like(queries[0]) if key is None else key for key in ([] if cls is None else [cls]) + receptive]
    k, v = attention.key_value(torch.stack(keys)).view(len(keys), 2, heads, d).unbind(1)
    maps = []
    for h in range(heads):
        for row, token in enumerate(queries):
            q = attention.query(token).view(heads, d)[h]
            t = None if token is cls else row - (queries[0] is cls)  # of the query, in the window
            exponentials = []
            for column in range(len(keys)):
                u = column - (cls is not None)  # of the key, in the receptive field; -1: the CLS token
                score = q @ k[column, h] / math.sqrt(d) + position(attention, h, t, u, fringe)
                exponentials.append(torch.exp(score) * there[column])
            maps.append(torch.stack(exponentials) / sum(exponentials))
    weights = torch.stack(maps).reshape(heads, len(queries), len(keys))
    mixed = torch.stack([torch.cat([weights[h, row] @ v[:, h] for h in range(heads)]) for row in range(len(queries))])
    return list(attention.output(mixed)), weights


def position(attention, head: int, query: int | None, key: int, fringe: int) -> Tensor:
    """Return B of a pair: by distance between BOLD tokens (at most W + L - 1), by position for pairs with a CLS token.

    The last entry is used for all positions after it.
    """
    if query is None and key == -1:
        return attention.bias_cls_to_cls[0, head, 0, 0]
    if query is None:
        biases = attention.bias_cls_to_bold[0, head, 0]
        return biases[min(key, len(biases) - 1)]
    if key == -1:
        biases = attention.bias_bold_to_cls[0, head, :, 0]
        return biases[min(query, len(biases) - 1)]
    furthest = attention.window + attention.fringe - 1
    distance = max(-furthest, min(furthest, query - (key - fringe)))
    return attention.bias_distance[distance + furthest, head]


def plain_relevance(model: BolT, x: Tensor, target: int | None = None, gradient: str = "logit") -> Tensor:
    """Compute Algorithm 1 for one scan with the full (F+T)² map; (F, time)."""
    out = plain_bolt(model, x)
    target = int(out.logits.argmax()) if target is None else target
    flat = [weights for maps in (*out.attention, *out.of_cls) for weights in maps]
    loss = model.cwr_weight * out.cwr - out.logits.log_softmax(-1)[target]  # equation 4 and cross entropy
    explained = {"logit": out.logits[target], "loss": loss, "minus_loss": -loss}[gradient]
    gradients = dict(zip(map(id, flat), torch.autograd.grad(explained, flat, allow_unused=True), strict=True))
    n_cls = len(out.cls)
    size = n_cls + out.covered
    rel = torch.eye(size, dtype=x.dtype)
    for block, maps, of_cls in zip(model.blocks, out.attention, out.of_cls, strict=True):
        total, count = torch.zeros(size, size, dtype=x.dtype), torch.zeros(size, size, dtype=x.dtype)

        def write(weights, rows, columns, total=total, count=count):
            gradient = gradients[id(weights)]
            gradient = torch.zeros_like(weights) if gradient is None else gradient  # the last BOLD tokens are not read
            mean = (weights * gradient).clamp(min=0).mean(0).detach()
            for a, row in enumerate(rows):
                for b, column in enumerate(columns):
                    if column < n_cls or 0 <= column - n_cls < out.covered:
                        total[row, column] += mean[a, b]
                        count[row, column] += 1

        fringe = block.attention.fringe if model.windowed else 0
        for i, (start, weights) in enumerate(zip(out.starts, maps, strict=True)):
            base = list(range(n_cls + start, n_cls + start + weights.shape[1] - (not of_cls)))
            # volumes before the first would get indices of CLS tokens, so they are moved beyond the last
            near = [t if t >= 0 else size for t in range(start - fringe, start + len(base) + fringe)]
            cls = 0 if of_cls else i
            write(weights, base if of_cls else [i, *base], [cls, *(n_cls + t for t in near)])
        for weights in of_cls:
            write(weights, [0], range(size))
        rel = rel + (total / count.clamp(min=1)) @ rel
    whole = torch.zeros(n_cls, len(x), dtype=x.dtype)
    whole[:, : out.covered] = rel[:n_cls, n_cls:]
    return whole
