"""Importance of volumes for a prediction: the paper's Algorithm 1, gradient-weighted attention rollout over blocks.

The algorithm multiplies maps of (F+T)² entries, Rel[m+1] = (I + A[m]) Rel[m], and reads the F rows of the CLS tokens.
Only those rows are computed here: rows · (I + A[M-1]) · … · (I + A[0]), from the last block to the first.

Integrated gradients: what each value of a scan adds to a class's logit. An alternative to Algorithm 1.

Sundararajan, Taly and Yan 2017, Axiomatic attribution for deep networks, arXiv:1703.01365; computed by captum.

Plain attention rollout: importance from attention alone, without gradients. An alternative to Algorithm 1.

Abnar and Zuidema 2020, Quantifying attention flow in transformers, doi:10.18653/v1/2020.acl-main.385: attention is
averaged over heads, a block is (A + I) / 2 with rows that sum to one, and blocks are multiplied. Windows are combined
into a map of the whole scan as in Algorithm 1 (mean over the windows that contain a pair of tokens), whose rows are
then divided by their sums. The factors 1/2 scale all volumes equally and are omitted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from bolt.io.errors import DataError
from bolt.models.attention.fused import Attended
from bolt.models.attention.window import Maps, Shape
from bolt.models.bolt import BolT

Gradient = Literal["logit", "loss", "minus_loss"]
"""Whose gradient weights attention: the logit of the explained class, or the training loss with that class as label."""


def relevance(model: BolT, x: Tensor, target: Tensor | None = None, gradient: Gradient = "logit") -> Tensor:
    """Compute the relevance of every volume to every CLS token.

    Parameters
    ----------
    model : BolT
        Run in evaluation mode; its mode and gradients are left unchanged.
    x : Tensor
        (batch, time, rois).
    target : Tensor, optional
        The explained class of each scan, (batch,); by default the predicted class.
    gradient : {"logit", "loss", "minus_loss"}
        Of the logit of the explained class, as in the published code; or of the loss with that class as the label, as
        in the paper's text. The loss falls where evidence for the class grows, so its positive gradient marks evidence
        against the class; ``minus_loss`` reverses its sign.

    Returns
    -------
    Tensor
        (batch, windows, time), not negative. Volumes of a dropped tail are zero.

    Raises
    ------
    DataError
        The model has no CLS tokens, whose rows the algorithm reads; or it uses covariates, which the algorithm does not
        cover.

    Notes
    -----
    Entries of the global map are the mean over the windows that contain a pair of tokens, as the published code
    implements the assignments and ``A_norm`` of Algorithm 1.
    """
    record: list[Attended] = []
    with explainable(model), torch.enable_grad():
        output = model(x.detach().requires_grad_(), record=record)
        target = output.logits.argmax(-1) if target is None else target.to(output.logits.device)
        if gradient == "logit":
            explained = output.logits.gather(1, target[:, None]).sum()
        elif output.logits.shape[1] == 1:
            what = "the gradient of the loss needs classes, but the model predicts a number"
            raise DataError(what, hint="Use the gradient of the prediction, 'logit'")
        else:
            own_terms = len(target) * sum(output.losses.values())  # means over scans
            loss = cross_entropy(output.logits, target, reduction="sum") + own_terms
            explained = loss if gradient == "loss" else -loss
        gradients = torch.autograd.grad(explained, [attended.output for attended in record])
    maps = (attended.maps(gradient) for attended, gradient in zip(reversed(record), reversed(gradients), strict=True))
    return roll_out(record, maps, x)


@contextmanager
def explainable(model: BolT) -> Iterator[None]:
    """Set evaluation mode within the block; refuse a model without CLS tokens or with covariates (`DataError`)."""
    if model.cls_token == "none" or model.n_covariates:
        what = "relevance is defined for models with CLS tokens and without covariates"
        raise DataError(what, hint="Explain another model")
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


def roll_out(record: Sequence[Attended], maps: Iterable[Maps], x: Tensor, *, rows_of_one: bool = False) -> Tensor:
    """Return the rows of the CLS tokens in the product of I + A over all blocks.

    Parameters
    ----------
    record : sequence of Attended
        One per block, first to last.
    maps : iterable of Maps
        Of the same blocks, last to first.
    x : Tensor
        (batch, time, rois).
    rows_of_one : bool
        Divide each row of A by its sum first.

    Returns
    -------
    Tensor
        (batch, windows, time); volumes of a dropped tail are zero.
    """
    shape = record[0].shape
    n_cls, covered = shape.windows.n_cls // len(x), shape.windows.lengths[0]
    on_cls = torch.eye(n_cls, dtype=x.dtype, device=x.device).repeat(len(x), 1, 1)
    on_bold = x.new_zeros(len(x), n_cls, x.shape[1])
    rows = on_bold[..., :covered]  # a view: the tail stays zero
    for attended, block_maps in zip(reversed(record), maps, strict=True):
        cls_cls, cls_bold, bold_cls, bold_bold = _global_map(block_maps, attended.shape)
        if rows_of_one:  # rows of zeros are kept
            tiny = torch.finfo(x.dtype).tiny
            of_cls = (cls_cls + cls_bold.sum(-1)).clamp(min=tiny)
            of_bold = (bold_cls.sum(-1) + bold_bold.sum(-1)).clamp(min=tiny)[..., None]
            cls_cls, cls_bold = cls_cls / of_cls, cls_bold / of_cls[..., None]
            bold_cls, bold_bold = bold_cls / of_bold, bold_bold / of_bold
        from_bold = rows @ bold_cls
        rows += on_cls @ cls_bold + rows @ bold_bold
        on_cls = on_cls + on_cls * cls_cls[:, None] + from_bold
    return on_bold


def importance(model: BolT, x: Tensor, target: Tensor | None = None, gradient: Gradient = "logit") -> Tensor:
    """Compute the importance weight of every volume, (batch, time).

    It is relevance, averaged over the windows' CLS tokens (equation 12). Parameters are those of `relevance`.
    """
    return relevance(model, x, target, gradient).mean(1)


def _global_map(maps: Maps, shape: Shape) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the four parts of A_G (equations 6 to 10) for scans of one length.

    Returns
    -------
    tuple of Tensor
        CLS to CLS (batch, F; it is diagonal), CLS to BOLD (batch, F, T), BOLD to CLS (batch, T, F), BOLD to BOLD
        (batch, T, T).
    """
    windows, local = shape.windows, shape.windows.cls_token == "local"
    n_batch, length = len(windows.lengths), windows.lengths[0]
    gather = windows.gather(shape.fringe, shape.beyond, maps.near.device)
    cls_cls = maps.cls_to_cls.unflatten(0, (n_batch, -1))

    first = gather.base[:, :1] // length * length  # of the window's scan, among the BOLD tokens
    cls_bold = maps.near.new_zeros(windows.n_cls, length)
    if local:
        volume = (gather.base[:, :1] - first) + torch.arange(-shape.fringe, windows.window + shape.fringe).to(first)
        inside = (volume >= 0) & (volume < length)
        cls_bold.scatter_add_(1, volume.clamp(0, length - 1), maps.cls_to_bold * inside)
    else:
        cls_bold += maps.cls_to_bold[:, :length]

    n_each = windows.n_cls // n_batch
    bold_cls = maps.near.new_zeros(n_batch * length, n_each)
    column = (gather.cls % n_each)[:, None].expand_as(gather.base)
    bold_cls.index_put_((gather.base, column), maps.bold_to_cls * gather.within, accumulate=True)
    if not local:
        bold_cls /= gather.times[:, None].to(bold_cls.dtype)

    # a diagonal band: columns of a matrix that is wider by the reach on both sides
    margin = shape.reach - 1
    wide = maps.near.new_zeros(n_batch, length, length + 2 * margin)
    band = wide.as_strided((n_batch, length, 2 * margin + 1), (wide.stride(0), wide.stride(1) + 1, 1))
    band.copy_(maps.near.unflatten(0, (n_batch, length)))
    return (
        cls_cls,
        cls_bold.unflatten(0, (n_batch, n_each)),
        bold_cls.unflatten(0, (n_batch, length)),
        wide[..., margin : margin + length],
    )


PASSES = 8
"""Points of the path per forward and backward pass."""


def integrated_gradients(model: nn.Module, x: Tensor, target: Tensor, steps: int) -> Tensor:
    """Attribute a class's logit to each value, relative to a scan of zeros (the mean of z-scored series).

    Parameters
    ----------
    model : Module
        In evaluation mode; returns `bolt.models.base.ModelOutput`.
    x : Tensor
        (batch, time, rois).
    target : Tensor
        The class of each scan whose logit is explained, (batch,).
    steps : int
        Points of the path from zeros to the scan (Gauss-Legendre).

    Returns
    -------
    Tensor
        (batch, time, rois). Over a scan they add up to the logit minus that of zeros, but for the error of a finite
        number of `steps`.
    """
    from captum.attr import IntegratedGradients  # an extra

    method = IntegratedGradients(lambda scans: model(scans).logits)
    with torch.enable_grad():
        attributions: Tensor = method.attribute(
            x.detach(), baselines=0.0, target=target, n_steps=steps, internal_batch_size=max(PASSES, len(x))
        )
    return attributions.detach()


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
