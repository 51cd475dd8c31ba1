"""Plain attention rollout: importance from attention alone, without gradients. An alternative to Algorithm 1.

Abnar and Zuidema 2020, Quantifying attention flow in transformers, doi:10.18653/v1/2020.acl-main.385: attention is
averaged over heads, a block is (A + I) / 2 with rows that sum to one, and blocks are multiplied. Windows are combined
into a map of the whole scan as in Algorithm 1 (mean over the windows that contain a pair of tokens), whose rows are
then divided by their sums. The factors 1/2 scale all volumes equally and are omitted.
"""

from __future__ import annotations

import torch
from torch import Tensor

from bolt.explain.relevance import explainable, roll_out
from bolt.models.attention.fused import Attended
from bolt.models.attention.window import Maps
from bolt.models.bolt import BolT


def rollout(model: BolT, x: Tensor) -> Tensor:
    """Return the attention from the CLS tokens to each volume, mean over CLS tokens.

    It does not depend on a class: the same weights explain every prediction.

    Parameters
    ----------
    model : BolT
    x : Tensor
        (batch, time, rois).

    Returns
    -------
    Tensor
        (batch, time), not negative.

    Raises
    ------
    DataError
        The model has no CLS tokens, or uses covariates.
    """
    record: list[Attended] = []
    with explainable(model), torch.no_grad():
        model(x, record=record)
        return roll_out(record, map(attention_of, reversed(record)), x, rows_of_one=True).mean(1)


def attention_of(attended: Attended) -> Maps:
    """Return the attention weights of one block instead of gradient-weighted ones.

    Values and output gradients are replaced so that every pair of tokens has the gradient 1.
    """
    size = attended.q.shape[1] // attended.shape.n_heads
    kv, ones = attended.kv.clone(), torch.zeros_like(attended.output)
    kv[:, attended.q.shape[1] :] = 0
    kv[:, attended.q.shape[1] :: size] = 1
    ones[:, ::size] = 1
    windows = attended.shape.windows
    gather = windows.gather(attended.shape.fringe, attended.shape.beyond, ones.device)
    if attended.shape.bold_rows:  # their outputs are means over windows, so gradients are smaller by that factor
        ones[windows.n_cls :] *= gather.times[:, None].to(ones.dtype)
    return attended._replace(kv=kv).maps(ones)
