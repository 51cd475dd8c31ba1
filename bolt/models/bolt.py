"""BolT: a cascade of transformer blocks with fused window attention.

Bedel, Sivgin, Dalmaz, Dar, Cukur. BolT: Fused window transformers for fMRI time series analysis.
Medical Image Analysis 88, 2023. https://doi.org/10.1016/j.media.2023.102841

Symbols: T volumes, W window, s stride, L fringe, F windows, N hidden size.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from bolt.errors import ConfigError, DataError
from bolt.models._base import ModelOutput, SeriesModel
from bolt.models._fused_attention import FusedWindowAttention
from bolt.models._registry import register
from bolt.models.layers import FeedForward


class Block(nn.Module):
    """Pre-norm transformer block: FW-MSA and MLP, each with a skip connection; BOLD and CLS tokens share both."""

    def __init__(self, attention: FusedWindowAttention, hidden: int, inner: int, dropout: float, mask_right: bool):
        super().__init__()
        self.attention_norm, self.attention = nn.LayerNorm(hidden), attention
        self.mlp_norm, self.mlp = nn.LayerNorm(hidden), FeedForward(hidden, inner, dropout)
        self.mask_right = mask_right

    def forward(
        self, bold: Tensor, cls: Tensor, starts: Tensor, attention: list[Tensor] | None
    ) -> tuple[Tensor, Tensor]:
        length = bold.shape[1]
        padding = 0 if self.mask_right else self.attention.fringe
        keys = self.attention_norm(functional.pad(bold, (0, 0, 0, padding)))
        more_bold, more_cls = self.attention(keys[:, :length], keys, self.attention_norm(cls), starts, attention)
        bold, cls = bold + more_bold, cls + more_cls
        return bold + self.mlp(self.mlp_norm(bold)), cls + self.mlp(self.mlp_norm(cls))


@register("bolt")
class BolT(SeriesModel):
    """BolT, with the paper's values as defaults.

    Parameters
    ----------
    n_rois, n_classes : int
    hidden : int
        Width of the tokens, N.
    n_blocks, n_heads, head_dim : int
    window : int
        W, volumes.
    stride_coefficient : float
        α; the stride is ``floor(α W)`` (at least 1).
    fringe_coefficient : float
        β; the fringe of block m is ``ceil(m β (1 - α) W)`` on either side.
    stride : int, optional
        Given outright, in place of α.
    fringe : sequence of int, optional
        Given outright, one a block, in place of β.
    dropout : float
    input_dropout : float
        Share of ROI values set to zero while training. Not in the paper; noise of this kind is a ridge on the input
        projection, which a training set of a few dozen scans needs.
    mlp_ratio : float
        Inner width of the MLP over `hidden`.
    cwr_weight : float
        λ of the cross-window regularization.
    input_projection : bool
        Without it the ROIs are the tokens and `hidden` must be `n_rois`.
    mask_right : bool
        Fringe keys beyond the last volume are masked, as those before the first always are. The published code
        leaves them in; False repeats that.
    tail : {"cover", "drop"}
        What to do where ``(T - W) / s`` is not whole, of which the paper says nothing. ``cover`` adds one window that
        ends with the scan, so that every volume counts; ``drop`` cuts the rest off, as the published code does.

    Notes
    -----
    CWR (equation 4) is taken on the CLS tokens after the final layer norm, which the classifier sees too, as in the
    published code, and averaged over the batch.
    """

    def __init__(
        self,
        n_rois: int,
        n_classes: int,
        *,
        hidden: int = 400,
        n_blocks: int = 4,
        n_heads: int = 40,
        head_dim: int = 20,
        window: int = 20,
        stride_coefficient: float = 0.4,
        fringe_coefficient: float = 2.0,
        stride: int | None = None,
        fringe: Sequence[int] | None = None,
        dropout: float = 0.1,
        input_dropout: float = 0.0,
        mlp_ratio: float = 1.0,
        cwr_weight: float = 0.1,
        input_projection: bool = True,
        mask_right: bool = True,
        tail: Literal["cover", "drop"] = "cover",
    ) -> None:
        super().__init__()
        # rounding guards against 0.29 * 100 = 28.999…
        self.stride = max(1, math.floor(round(stride_coefficient * window, 6))) if stride is None else stride
        growth = fringe_coefficient * (1 - stride_coefficient) * window
        fringes = [math.ceil(round(m * growth, 6)) for m in range(n_blocks)] if fringe is None else list(fringe)
        self.window, self.tail, self.cwr_weight = window, tail, cwr_weight
        self.min_length = window
        self._check(fringes, n_blocks, stride_coefficient, dropout, input_dropout)
        if not input_projection and n_rois != hidden:
            raise _wrong("input_projection", f"is needed: {n_rois} ROIs, hidden {hidden}")

        self.input_dropout = nn.Dropout(input_dropout)
        self.projection = nn.Linear(n_rois, hidden) if input_projection else nn.Identity()
        self.cls = nn.Parameter(torch.randn(1, 1, hidden))
        self.blocks = nn.ModuleList(
            Block(
                FusedWindowAttention(hidden, n_heads, head_dim, window, size, dropout),
                hidden,
                round(hidden * mlp_ratio),
                dropout,
                mask_right,
            )
            for size in fringes
        )
        self.norm = nn.LayerNorm(hidden)
        self.classifier = nn.Linear(hidden, n_classes)

    def _check(
        self, fringes: list[int], n_blocks: int, stride_coefficient: float, dropout: float, input_dropout: float
    ) -> None:
        """Refuse settings that cannot be meant."""
        rules = {
            "window": (self.window >= 1, "must be at least 1"),
            "stride_coefficient": (0 < stride_coefficient <= 1, "must be above 0 and at most 1"),
            "stride": (1 <= self.stride <= self.window, f"must be from 1 to the window, {self.window}"),
            "n_blocks": (n_blocks >= 1, "must be at least 1"),
            "fringe": (len(fringes) == n_blocks, f"must be {n_blocks} numbers, one a block"),
            "fringe_coefficient": (min(fringes, default=0) >= 0, "and the fringes must not be negative"),
            "dropout": (0 <= dropout < 1, "must be at least 0 and below 1"),
            "input_dropout": (0 <= input_dropout < 1, "must be at least 0 and below 1"),
            "tail": (self.tail in ("cover", "drop"), "must be 'cover' or 'drop'"),
        }
        for key, (holds, problem) in rules.items():
            if not holds:
                raise _wrong(key, problem)

    def window_starts(self, length: int) -> Tensor:
        """First volume of each window of a scan of `length` volumes, (F,).

        Raises
        ------
        DataError
            Where the scan is shorter than one window.
        """
        if length < self.window:
            raise DataError(
                f"the scan has {length} volumes, fewer than the model's window of {self.window}",
                mend="Leave the scan out, or set 'window' in the model's configuration to at most its length",
            )
        starts = list(range(0, length - self.window + 1, self.stride))
        if self.tail == "cover" and starts[-1] + self.window < length:
            starts.append(length - self.window)
        return torch.tensor(starts)

    def forward(self, x: Tensor, attention: list[Tensor] | None = None) -> ModelOutput:
        """Classify scans.

        Parameters
        ----------
        x : Tensor
            z-scored ROI series (batch, time, rois).
        attention : list, optional
            Receives one attention map a block, (batch, heads, windows, 1 + W, 1 + W + 2L).

        Returns
        -------
        ModelOutput
            `cls` are the windows' CLS tokens after the final norm, (batch, windows, hidden).
        """
        starts = self.window_starts(x.shape[1]).to(x.device)
        bold = self.projection(self.input_dropout(x[:, : int(starts[-1]) + self.window]))
        cls = self.cls.expand(len(x), len(starts), -1)
        for block in self.blocks:
            bold, cls = block(bold, cls, starts, attention)
        cls = self.norm(cls)
        cwr = (cls - cls.mean(1, keepdim=True)).square().mean()
        return ModelOutput(self.classifier(cls.mean(1)), cls, {"cwr": self.cwr_weight * cwr})


def _wrong(key: str, problem: str) -> ConfigError:
    return ConfigError(f"BolT's '{key}' {problem}", where=f"hyper.{key}", mend="Correct the value")


_REFERENCE_NAMES = {
    "clsToken": "cls",
    "encoder_postNorm.": "norm.",
    "classifierHead.": "classifier.",
    ".transformer.attention.relative_position_bias_table": ".attention.bias_distance",
    ".transformer.attention.cls_bias_sequence_up": ".attention.bias_cls_to_bold",
    ".transformer.attention.cls_bias_sequence_down": ".attention.bias_bold_to_cls",
    ".transformer.attention.cls_bias_self": ".attention.bias_cls_to_cls",
    ".transformer.attention.q.": ".attention.query.",
    ".transformer.attention.kv.": ".attention.key_value.",
    ".transformer.attention.proj.": ".attention.output.",
    ".transformer.attn_norm.": ".attention_norm.",
    ".transformer.mlp_norm.": ".mlp_norm.",
    ".transformer.mlp.net.0.0.": ".mlp.0.",
    ".transformer.mlp.net.2.": ".mlp.3.",
}


def from_reference(
    state_dict: Mapping[str, Tensor],
    *,
    window_size: int,
    stride: int,
    fringe: Sequence[int],
    num_heads: int,
    head_dim: int,
) -> BolT:
    """BolT with the weights of a checkpoint of the published implementation, and its behaviour: no input projection,
    right edge unmasked, tail dropped. (λ is the paper's 0.1; the published code's default is 1.)

    Parameters
    ----------
    state_dict : mapping
        Parameter name to tensor, under the published names. Its unused input norm is left out.
    window_size, stride, num_heads, head_dim : int
    fringe : sequence of int
        L of each block.

    Returns
    -------
    BolT
        In evaluation mode.

    Raises
    ------
    DataError
        Where a parameter is missing or has another shape than these settings ask for.
    """
    weights = {}
    for name, value in state_dict.items():
        if name.startswith("inputNorm."):
            continue
        for theirs, ours in _REFERENCE_NAMES.items():
            name = name.replace(theirs, ours)
        weights[name] = torch.as_tensor(value)
    try:
        n_classes, hidden = weights["classifier.weight"].shape
        model = BolT(
            hidden,
            n_classes,
            hidden=hidden,
            n_blocks=len(fringe),
            n_heads=num_heads,
            head_dim=head_dim,
            window=window_size,
            stride=stride,
            fringe=fringe,
            mlp_ratio=len(weights["blocks.0.mlp.0.bias"]) / hidden,
            input_projection=False,
            mask_right=False,
            tail="drop",
        ).to(weights["classifier.weight"].dtype)
        model.load_state_dict(weights)
    except (KeyError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise DataError(f"not a checkpoint of the published BolT with these settings: {reason}") from None
    return model.eval()
