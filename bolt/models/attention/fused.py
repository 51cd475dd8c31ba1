"""Fused window multi-head self-attention (FW-MSA), the core of BolT, and its transformer block.

Symbols: T volumes, W window, L fringe, F windows, N hidden size, h heads, d head size.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor, nn

from bolt.models import layers
from bolt.models.attention import native, window
from bolt.models.attention.window import Maps, Shape
from bolt.models.attention.windows import ClsToken, Windows, windows_of
from bolt.models.layers import FeedForward
from bolt.models.parts import masks

log = logging.getLogger(__name__)


class Attended(NamedTuple):
    """Inputs and output of the attention of one block, as needed to explain it."""

    q: Tensor
    kv: Tensor
    bias: Tensor
    shape: Shape
    output: Tensor

    def maps(self, gradient: Tensor) -> Maps:
        """Compute gradient-weighted attention from the gradient of the explained logit with respect to `output`."""
        maps = native.attention_maps if native.usable(self.q) else window.attention_maps
        return maps(self.q, self.kv, self.bias, self.shape, gradient)


class FusedWindowAttention(nn.Module):
    """FW-MSA with token fusion (section 2.1 of the paper, equations 1 to 3).

    Keys and values are projected once per token and shared by its windows. Fusion averages a token's outputs over its
    windows before the output projection; because that is linear, the order does not matter. It does for dropout of the
    projected output: by default a fused token has one mask; with `dropout_before_fusion`, one per window.

    Parameters
    ----------
    hidden, n_heads, head_dim : int
        N, h and d.
    window, fringe : int
        W and L, in volumes.
    dropout : float
        On attention weights, and on the output.
    cls_token : {"local", "global", "none"}
    windowed : bool
        If false, every token attends to the whole scan. Distances beyond W + L - 1 share one bias, because unbounded
        distances cannot each have a parameter.
    dropout_before_fusion : bool
        Needs a CLS token per window. In training, torch then computes attention (`window`), not the kernel.
    """

    def __init__(
        self,
        hidden: int,
        n_heads: int,
        head_dim: int,
        window: int,
        fringe: int,
        dropout: float,
        cls_token: ClsToken = "local",
        windowed: bool = True,
        dropout_before_fusion: bool = False,
    ) -> None:
        super().__init__()
        self.dropout_before_fusion = dropout_before_fusion
        self.n_heads, self.head_dim, self.window, self.fringe = n_heads, head_dim, window, fringe
        self.dropout, self.cls_token, self.windowed = dropout, cls_token, windowed
        inner = n_heads * head_dim
        self.query = nn.Linear(hidden, inner)
        self.key_value = nn.Linear(hidden, 2 * inner)
        self.output = nn.Linear(inner, hidden)
        # B of equation 2: for pairs of BOLD tokens one entry per relative distance in [-(W+L-1), W+L-1]; for pairs with
        # the CLS token one entry per position, or a single one if positions are those of the whole scan.
        self.bias_distance = nn.Parameter(torch.empty(2 * (window + fringe) - 1, n_heads))
        biases = [self.bias_distance]
        if cls_token != "none":
            field = window + 2 * fringe if windowed and cls_token == "local" else 1
            self.bias_cls_to_bold = nn.Parameter(torch.empty(1, n_heads, 1, field))
            self.bias_bold_to_cls = nn.Parameter(torch.empty(1, n_heads, window if windowed else 1, 1))
            self.bias_cls_to_cls = nn.Parameter(torch.empty(1, n_heads, 1, 1))
            biases += [self.bias_cls_to_bold, self.bias_bold_to_cls, self.bias_cls_to_cls]
        for bias in biases:
            nn.init.trunc_normal_(bias, std=0.02)

    def forward(
        self,
        tokens: Tensor,
        windows: Windows,
        *,
        following: Tensor | None = None,
        cls_only: bool = False,
        record: list[Attended] | None = None,
    ) -> Tensor:
        """Attend within each window and fuse the outputs of each token.

        Parameters
        ----------
        tokens : Tensor
            Packed (see `windows`), CLS tokens first, (CLS tokens + BOLD tokens, N).
        windows : Windows
        following : Tensor, optional
            A token (N,) that fills the fringes after the last volume of each scan; by default they are masked.
        cls_only : bool
            Compute only the CLS tokens.
        record : list, optional
            Receives one `Attended`.

        Returns
        -------
        Tensor
            (tokens, N), or (CLS tokens, N) with `cls_only`.
        """
        fringe = self.fringe if self.windowed else 0
        beyond = 0 if following is None else fringe
        reach = self.window + self.fringe if self.windowed else windows.window
        shape = Shape(windows, self.n_heads, fringe, reach, beyond, not cls_only)
        keys = tokens if following is None else windows.with_following(tokens, following, beyond)
        q = self.query(tokens[: windows.n_cls] if cls_only else tokens)
        kv, bias = self.key_value(keys), self._bias(shape)
        dropout = self.dropout if self.training else 0.0
        if dropout and self.dropout_before_fusion and not cls_only:  # CLS tokens are in one window each
            apart = window.attend_apart(q, kv, bias, shape, dropout)
            return window.fuse(layers.dropout(self.output(apart), dropout), shape)
        output = _way(q, windows, self.head_dim)(q, kv, bias, shape, dropout)
        if record is not None:
            record.append(Attended(q, kv, bias, shape, output))
        return layers.dropout(self.output(output), dropout)

    def _bias(self, shape: Shape) -> Tensor:
        """Return B, (h, sum of `shape.bias_sizes`)."""
        near = self.bias_distance.flip(0)  # by key minus query, from 1 - W - L
        missing = shape.reach - (self.window + self.fringe)
        if missing > 0:
            near = torch.cat([near[:1].expand(missing, -1), near, near[-1:].expand(missing, -1)])
        near = near[max(-missing, 0) : len(near) - max(-missing, 0)].T
        _, field, width, _ = shape.bias_sizes
        if self.cls_token == "none":
            return torch.cat([near, near.new_zeros(self.n_heads, 1)], dim=1)
        parts = ((self.bias_cls_to_bold, field), (self.bias_bold_to_cls, width), (self.bias_cls_to_cls, 1))
        return torch.cat([near, *(bias.view(self.n_heads, -1).expand(-1, n) for bias, n in parts)], dim=1)


def _way(q: Tensor, windows: Windows, head_dim: int) -> Callable[..., Tensor]:
    """Return the fastest `attend` that can compute on the device of `q`; wider heads need much memory in Triton."""
    if q.is_cuda and q.dtype != torch.float64 and head_dim <= 64 and (in_triton := _in_triton()) is not None:
        return in_triton
    return native.attend if native.usable(q) and not windows.padded else window.attend


@cache
def _in_triton() -> Callable[..., Tensor] | None:
    """Return `window.attend` in Triton, or None where Triton is missing or cannot compile it."""
    try:
        from bolt.models.attention.triton_window import attend

        windows = windows_of((8, 6), 4, 2, "cover", "local")
        shape = Shape(windows, 2, 2, 6, 0, True)
        rows, sizes = windows.n_cls + windows.n_tokens, sum(shape.bias_sizes)
        shapes = (rows, 8), (rows, 16), (2, sizes)
        seeds = iter([torch.ones((), dtype=torch.int64, device="cuda")])  # none of a step
        with torch.inference_mode(False), torch.enable_grad(), masks.given_seeds(seeds):
            q, kv, bias = (torch.ones(*size, device="cuda", requires_grad=True) for size in shapes)
            attend(q, kv, bias, shape, 0.1).sum().backward()
        torch.cuda.synchronize()
    except Exception as error:  # of many kinds, from Triton, its compilers and the driver
        log.info("attention is computed by torch, which is slower, without Triton: %s", error)
        return None
    return attend


class Block(nn.Module):
    """Pre-norm transformer block: FW-MSA and MLP with skip connections, shared by BOLD and CLS tokens."""

    def __init__(self, attention: FusedWindowAttention, hidden: int, inner: int, dropout: float, mask_right: bool):
        super().__init__()
        self.attention_norm, self.attention = nn.LayerNorm(hidden), attention
        self.mlp_norm, self.mlp = nn.LayerNorm(hidden), FeedForward(hidden, inner, dropout)
        self.mask_right = mask_right

    def forward(
        self, tokens: Tensor, windows: Windows, cls_only: bool = False, record: list[Attended] | None = None
    ) -> Tensor:
        """Update packed tokens (tokens, N); parameters as in `FusedWindowAttention.forward`."""
        normed = self.attention_norm(tokens)
        # the published code pads with zeros before the norm
        following = None if self.mask_right else self.attention_norm(torch.zeros_like(tokens[0]))
        attended = self.attention(normed, windows, following=following, cls_only=cls_only, record=record)
        tokens = tokens[: len(attended)] + attended
        return tokens + self.mlp(self.mlp_norm(tokens))
