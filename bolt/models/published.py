"""Checkpoints of the implementation published with the paper (doi:10.1016/j.media.2023.102841)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from bolt.io.errors import DataError
from bolt.models.bolt import BolT

_NAMES = {
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
"""Parts of published names, and ours."""


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
            for published, ours in _NAMES.items():
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
