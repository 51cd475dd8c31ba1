"""BolT: a cascade of transformer blocks with fused window attention.

Bedel, Sivgin, Dalmaz, Dar, Cukur. BolT: Fused window transformers for fMRI time series analysis.
Medical Image Analysis 88, 2023. https://doi.org/10.1016/j.media.2023.102841

Symbols: T volumes, W window, s stride, L fringe, F windows, N hidden size.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from bolt.io.errors import DataError
from bolt.models.attention.fused import Attended, Block, FusedWindowAttention
from bolt.models.attention.windows import ClsToken, PaddedWindows, Tail, Windows, one_window, pack, unpack, windows_of
from bolt.models.base import ModelOutput, SeriesModel
from bolt.models.layers import Dropout, check_length, check_rules, dropout
from bolt.models.parts.connectivity import pearson
from bolt.models.registry import register


@register("bolt")
class BolT(SeriesModel):
    """BolT, with the paper's values as defaults.

    Parameters
    ----------
    n_rois, n_classes : int
        With one class the label is a number: the logit is the prediction.
    hidden : int, optional
        Width of the tokens, N; None: the number of ROIs.
    n_blocks, n_heads, head_dim : int
    window : int
        W, in volumes.
    stride_coefficient : float
        α; the stride is ``floor(α W)`` (at least 1).
    fringe_coefficient : float
        β; the fringe of block m is ``ceil(m β (1 - α) W)`` on either side.
    stride : int, optional
        In volumes; overrides α.
    fringe : sequence of int, optional
        In volumes, one per block; overrides β.
    dropout : float
        On attention weights, on the output of FW-MSA and within the MLP.
    dropout_before_fusion : bool
        Drop the output of FW-MSA in each window before a token's windows are averaged, as the published code does, and
        not after. Averaging P independently masked outputs leaves less noise, and hardly any entry of a fused token is
        zero. On a CPU, training is slower: the C++ kernel returns fused outputs only.
    input_dropout : float
        Share of ROI values set to zero in training. Not in the paper; this noise acts as a ridge penalty on the input
        projection, which a training set of a few dozen scans needs.
    roi_dropout : float
        Share of ROIs whose whole series are set to zero in training, drawn for each scan. Not in the paper.
    mlp_ratio : float
        Inner width of the MLP, as a multiple of `hidden`.
    cwr_weight : float
        λ, weight of the cross-window regularisation (CWR).
    input_projection : bool
        If false, the ROI values are the tokens, and `hidden` must equal `n_rois`.
    mask_right : bool
        Mask fringe keys after the last volume; those before the first are always masked. False reproduces the
        published code, which does not mask them.
    tail : {"cover", "drop"}
        What to do if ``(T - W) / s`` is not an integer, which the paper does not specify. ``cover`` adds a window that
        ends with the scan, so that every volume is used; ``drop`` ignores the remaining volumes, as the published code
        does.
    cls_token : {"local", "global", "none"}
        ``local``: one CLS token per window. ``global``: one for the whole scan, to which it attends, while BOLD tokens
        attend to their windows and to it. ``none``: the classifier reads the mean of the BOLD tokens over time.
    windowed : bool
        If false, every token attends to the whole scan.
    n_covariates : int
        Numbers per scan that are appended to the features before the classifier (age, sex, site).
    correlations : int
        Width of a layer that reads the Pearson correlations of the scan (of the crop, in training) and whose output is
        appended to the features as well; 0: none. Not in the paper: the tokens then need not learn what a connectivity
        model knows already.
    correlations_dropout : float
        Share of correlations set to zero in training.

    Notes
    -----
    CWR (equation 4) is computed on the CLS tokens after the final layer norm, which the classifier reads as well (as in
    the published code), and averaged over the batch.

    The paper's ablations, from the vanilla transformer to BolT, are settings of this class: the rows of
    ``config/experiments/ablation.yaml``.

    The classifier does not read the BOLD tokens of the last block, so the block's queries, output and MLP are computed
    for the CLS tokens only.
    """

    takes_lengths = True

    @classmethod
    def shortest(cls, settings: Mapping[str, Any]) -> int:
        """Return the window, or 1 without windows."""
        return int(settings["window"]) if settings["windowed"] else 1

    def __init__(
        self,
        n_rois: int,
        n_classes: int,
        *,
        hidden: int | None = 400,
        n_blocks: int = 4,
        n_heads: int = 40,
        head_dim: int = 20,
        window: int = 20,
        stride_coefficient: float = 0.4,
        fringe_coefficient: float = 2.0,
        stride: int | None = None,
        fringe: Sequence[int] | None = None,
        dropout: float = 0.1,
        dropout_before_fusion: bool = False,
        input_dropout: float = 0.0,
        roi_dropout: float = 0.0,
        mlp_ratio: float = 1.0,
        cwr_weight: float = 0.1,
        input_projection: bool = True,
        mask_right: bool = True,
        tail: Tail = "cover",
        cls_token: ClsToken = "local",
        windowed: bool = True,
        n_covariates: int = 0,
        correlations: int = 0,
        correlations_dropout: float = 0.5,
    ) -> None:
        super().__init__()
        # rounded first because 0.29 * 100 = 28.999…
        self.stride = max(1, math.floor(round(stride_coefficient * window, 6))) if stride is None else stride
        growth = fringe_coefficient * (1 - stride_coefficient) * window
        fringes = [math.ceil(round(m * growth, 6)) for m in range(n_blocks)] if fringe is None else list(fringe)
        self.window, self.tail, self.cwr_weight = window, tail, cwr_weight
        self.cls_token, self.windowed, self.n_covariates = cls_token, windowed, n_covariates
        self.min_length = window if windowed else 1
        hidden = n_rois if hidden is None else hidden
        local, share = cls_token == "local", "must be at least 0 and below 1"
        mismatch = f"must be true: {n_rois} ROIs do not match hidden: {hidden}"
        check_rules(
            window=(window >= 1, "must be at least 1"),
            stride_coefficient=(0 < stride_coefficient <= 1, "must be above 0 and at most 1"),
            stride=(1 <= self.stride <= window, f"must be from 1 to the window, {window}"),
            n_blocks=(n_blocks >= 1, "must be at least 1"),
            fringe=(len(fringes) == n_blocks, f"must be {n_blocks} numbers, one per block"),
            fringe_coefficient=(min(fringes, default=0) >= 0, "and the fringes must not be negative"),
            dropout=(0 <= dropout < 1, share),
            input_dropout=(0 <= input_dropout < 1, share),
            roi_dropout=(0 <= roi_dropout < 1, share),
            correlations_dropout=(0 <= correlations_dropout < 1, share),
            tail=(tail in ("cover", "drop"), "must be 'cover' or 'drop'"),
            cls_token=(cls_token in ("local", "global", "none"), "must be 'local', 'global' or 'none'"),
            windowed=(windowed or not local, "must be true for local CLS tokens"),
            n_covariates=(n_covariates >= 0, "must not be negative"),
            correlations=(correlations >= 0, "must not be negative"),
            dropout_before_fusion=(
                local or not dropout_before_fusion,
                "must be false without a CLS token per window (cls_token: local)",
            ),
            input_projection=(input_projection or n_rois == hidden, mismatch),
        )

        self.input_dropout, self.roi_dropout = Dropout(input_dropout), roi_dropout
        self.projection = nn.Linear(n_rois, hidden) if input_projection else nn.Identity()
        if cls_token != "none":
            self.cls = nn.Parameter(torch.randn(1, 1, hidden))
        self.blocks = nn.ModuleList()
        for size in fringes:
            attention = FusedWindowAttention(
                hidden, n_heads, head_dim, window, size, dropout, cls_token, windowed, dropout_before_fusion
            )
            self.blocks.append(Block(attention, hidden, round(hidden * mlp_ratio), dropout, mask_right))
        self.norm = nn.LayerNorm(hidden)
        self.correlations, self.lengths_on_device = None, not correlations
        if correlations:
            n_pairs = n_rois * (n_rois - 1) // 2
            layers = Dropout(correlations_dropout), nn.Linear(n_pairs, correlations), nn.LayerNorm(correlations)
            self.correlations = nn.Sequential(*layers)
        self.classifier = nn.Linear(hidden + correlations + n_covariates, n_classes)

    def window_starts(self, length: int) -> Tensor:
        """Return the first volume of each window of a scan of `length` volumes, (F,).

        Raises
        ------
        DataError
            The scan is shorter than one window.
        """
        return self.windows((length,)).flat_starts

    def windows(self, lengths: Sequence[int]) -> Windows:
        """Return the windows of scans of these lengths, in volumes."""
        check_length(min(lengths), self.min_length)
        if not self.windowed:
            return one_window(tuple(lengths), self.cls_token)
        return windows_of(tuple(lengths), self.window, self.stride, self.tail, self.cls_token)

    def forward(
        self,
        x: Tensor,
        *,
        lengths: Sequence[int] | Tensor | None = None,
        covariates: Tensor | None = None,
        record: list[Attended] | None = None,
    ) -> ModelOutput:
        """Classify scans.

        Parameters
        ----------
        x : Tensor
            z-scored ROI series (batch, time, rois).
        lengths : sequence of int or Tensor, optional
            Volumes of each scan, if some are shorter than the batch. Volumes after a scan's end are not read, so its
            output is the same as if it were alone. A tensor (batch,), on the device of `x`, is neither read by the host
            nor checked: shorter scans are padded, and the steps are the same whatever it holds (not with
            `correlations`). `x` must then be finite after the end of a scan, too.
        covariates : Tensor, optional
            (batch, n_covariates).
        record : list, optional
            Receives one `Attended` per block.

        Returns
        -------
        ModelOutput
            `cls` are the CLS tokens after the final norm, (batch, windows, hidden), padded with zeros for scans with
            fewer windows; without CLS tokens, the mean BOLD token (batch, 1, hidden).
        """
        volumes: Sequence[int] = [x.shape[1]] * len(x)
        if isinstance(lengths, Tensor):
            check_length(x.shape[1], self.min_length)
            width = self.window if self.windowed else None
            windows: Windows = PaddedWindows(lengths, x.shape[1], width, self.stride, self.tail, self.cls_token)
        else:
            volumes = volumes if lengths is None else [int(n) for n in lengths]
            if len(volumes) != len(x) or max(volumes) > x.shape[1]:
                raise DataError(
                    f"lengths {volumes} for {len(x)} scans of at most {x.shape[1]} volumes",
                    hint="Give one length per scan, none above that of the batch",
                )
            windows = self.windows(volumes)
        if self.roi_dropout and self.training:
            x = x * dropout(torch.ones_like(x[:, :1]), self.roi_dropout)
        tokens = self.projection(self.input_dropout(pack(x, windows.lengths)))
        if windows.n_cls:
            tokens = torch.cat([self.cls[0].expand(windows.n_cls, -1), tokens])
        for block in self.blocks:
            last = block is self.blocks[-1]
            tokens = block(tokens, windows, cls_only=last and windows.n_cls > 0, record=record)
        counts = windows.counts if windows.n_cls else windows.lengths
        padded = unpack(self.norm(tokens), counts)
        n_tokens = windows.n_read(padded.device)[:, None].to(padded.dtype)
        present = torch.arange(padded.shape[1], device=padded.device) < n_tokens
        padded = padded * present[..., None]
        mean = padded.sum(1) / n_tokens
        logits = self._classify(mean, x, volumes, covariates)
        if not windows.n_cls:
            return ModelOutput(logits, mean[:, None], {})
        deviation = (padded - mean[:, None]) * present[..., None]
        cwr = (deviation.square().mean(2).sum(1, keepdim=True) / n_tokens).mean()  # equation 4
        return ModelOutput(logits, padded, {"cwr": self.cwr_weight * cwr})

    def _classify(self, features: Tensor, x: Tensor, lengths: Sequence[int], covariates: Tensor | None) -> Tensor:
        """Classify features (batch, hidden), scans' correlations if they are read, and covariates."""
        if self.correlations is not None:
            upper = torch.triu_indices(x.shape[2], x.shape[2], offset=1, device=x.device)
            matrices = x.new_empty(len(x), upper.shape[1])
            for length in set(lengths):
                same = torch.tensor([n == length for n in lengths], device=x.device)
                matrices[same] = pearson(x[same, :length])[:, upper[0], upper[1]].to(x.dtype)
            features = torch.cat([features, self.correlations(matrices).to(features.dtype)], dim=1)
        if self.n_covariates:
            if covariates is None or covariates.shape != (len(features), self.n_covariates):
                raise DataError(
                    f"the model needs {self.n_covariates} covariates per scan",
                    hint="Pass them as 'covariates', an array (batch, n_covariates)",
                )
            features = torch.cat([features, covariates.to(features.dtype)], dim=1)
        return self.classifier(features)


_PUBLISHED_NAMES = {
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
"""Parts of the names of parameters in the published code, and ours."""


def from_reference(
    state_dict: Mapping[str, Tensor],
    *,
    window_size: int,
    stride: int,
    fringe: Sequence[int],
    num_heads: int,
    head_dim: int,
) -> BolT:
    """Build a BolT from a checkpoint of the published implementation.

    It behaves like that implementation: no input projection, right edge unmasked, tail dropped, dropout before fusion.
    (λ is the paper's 0.1; the published code's default is 1.)

    Parameters
    ----------
    state_dict : mapping
        Name to tensor, as the published module's ``state_dict()`` gives them: parameters, and buffers (masks of the
        edges, indices of distances), which must be those of these settings. The unused input norm is ignored.
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
        A parameter is missing, or a parameter or a buffer does not fit these settings.
    """
    weights, buffers = {}, _buffers(window_size, stride, fringe)
    for name, value in state_dict.items():
        if name in buffers:
            if not torch.equal(torch.as_tensor(value).double().cpu(), buffers[name].double()):
                raise _refused(f"{name} is that of another window, stride or fringe")
        elif not name.startswith("inputNorm."):
            for published, ours in _PUBLISHED_NAMES.items():
                name = name.replace(published, ours)
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
            dropout_before_fusion=True,
        ).to(weights["classifier.weight"].dtype)
        model.load_state_dict(weights)
    except (KeyError, RuntimeError) as error:
        raise _refused(" ".join(str(error).split())) from None
    return model.eval()


def _refused(reason: str) -> DataError:
    return DataError(
        f"not a checkpoint of the published BolT with these settings: {reason}",
        hint="Give window_size, stride, fringe, num_heads and head_dim of the training",
    )


def _buffers(window: int, stride: int, fringe: Sequence[int]) -> dict[str, Tensor]:
    """Return the buffers that the published module has with these settings.

    Its mask of the right edge is empty: the condition under which an entry is set never holds.
    """
    buffers = {}
    for i, length in enumerate(fringe):
        keys = window + 2 * length
        left = torch.zeros(length // stride + 1, window + 1, keys + 1)
        for row in range(len(left)):
            left[row, :, 1 : 1 + length - stride * row] = 1
        buffers[f"blocks.{i}.mask_left"] = left
        buffers[f"blocks.{i}.mask_right"] = torch.zeros_like(left)
        distance = torch.arange(window)[:, None] - (torch.arange(keys) - length)
        buffers[f"blocks.{i}.transformer.attention.relative_position_index"] = distance + window - 1 + length
    return buffers
