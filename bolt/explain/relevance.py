"""Which volumes decided: the paper's Algorithm 1, gradient-weighted attention rolled out over blocks.

The algorithm multiplies maps of (F+T)² entries, Rel[m+1] = (I + A[m]) Rel[m], and reads the F rows of the CLS tokens.
Those rows alone are computed here: rows · (I + A[M-1]) · … · (I + A[0]), from the last block to the first.
"""

from __future__ import annotations

import torch
from torch import Tensor

from bolt.models.bolt import BolT


def relevance(model: BolT, x: Tensor, target: Tensor | None = None) -> Tensor:
    """Relevance of every volume to every window's CLS token.

    Parameters
    ----------
    model : BolT
        Used in evaluation mode; left in the mode it came in, its gradients untouched.
    x : Tensor
        (batch, time, rois).
    target : Tensor, optional
        The class of each scan whose logit is explained, (batch,); by default the predicted class.

    Returns
    -------
    Tensor
        (batch, windows, time), not negative. Volumes that a dropped tail leaves out have zeros.

    Notes
    -----
    Entries of the global map are summed over the windows that hold a pair of tokens and divided by how many do, which
    is how the published code reads Algorithm 1's assignments and ``A_norm``.
    """
    was_training = model.training
    model.eval()
    attention: list[Tensor] = []
    try:
        with torch.enable_grad():
            logits = model(x.detach().requires_grad_(), attention).logits
            target = logits.argmax(-1) if target is None else target
            chosen = logits.gather(1, target.to(logits.device)[:, None]).sum()
            gradients = torch.autograd.grad(chosen, attention)
    finally:
        model.train(was_training)

    starts = model.window_starts(x.shape[1])
    covered = int(starts[-1]) + model.window
    on_cls = torch.eye(len(starts), dtype=x.dtype, device=x.device).repeat(len(x), 1, 1)
    on_bold = x.new_zeros(len(x), len(starts), x.shape[1])
    rows = on_bold[..., :covered]  # a view: the tail stays zero
    for weights, gradient in zip(reversed(attention), reversed(gradients), strict=True):
        windowed = (weights.detach() * gradient).clamp(min=0).mean(1)  # equation 5, (batch, F, 1 + W, 1 + W + 2L)
        cls_cls, cls_bold, bold_cls, bold_bold = _global_map(windowed, starts.to(x.device), model.window, covered)
        from_bold = rows @ bold_cls
        rows += on_cls @ cls_bold + rows @ bold_bold
        on_cls = on_cls + on_cls * cls_cls[:, None] + from_bold
    return on_bold


def importance(model: BolT, x: Tensor, target: Tensor | None = None) -> Tensor:
    """Importance weight of every volume, (batch, time): relevance averaged over the windows' CLS tokens (equation 11).

    Parameters are those of `relevance`.
    """
    return relevance(model, x, target).mean(1)


def _global_map(windowed: Tensor, starts: Tensor, window: int, length: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The four parts of A_G (equations 6 to 10), each CLS token having one window.

    Returns
    -------
    tuple of Tensor
        CLS to CLS (batch, F; it is diagonal), CLS to BOLD (batch, F, T), BOLD to CLS (batch, T, F), BOLD to BOLD
        (batch, T, T).
    """
    n_batch, n_windows = windowed.shape[:2]
    fringe = (windowed.shape[-1] - 1 - window) // 2
    base = starts[:, None] + torch.arange(window, device=starts.device)
    near = starts[:, None] + torch.arange(-fringe, window + fringe, device=starts.device)
    inside = ((near >= 0) & (near < length)).to(windowed.dtype)
    near = near.clamp(0, length - 1)
    row, number = torch.arange(n_windows, device=starts.device)[:, None], n_windows

    cls_bold = windowed.new_zeros(n_batch, number * length)
    cls_bold.index_add_(1, (row * length + near).flatten(), (windowed[:, :, 0, 1:] * inside).flatten(1))
    bold_cls = windowed.new_zeros(n_batch, length * number)
    bold_cls.index_add_(1, (base * number + row).flatten(), windowed[:, :, 1:, 0].flatten(1))

    pair = (base[:, :, None] * length + near[:, None]).flatten()
    seen = inside[:, None].expand(-1, window, -1)
    total, count = windowed.new_zeros(n_batch, length * length), windowed.new_zeros(length * length)
    total.index_add_(1, pair, (windowed[:, :, 1:, 1:] * seen).flatten(1))
    count.index_add_(0, pair, seen.flatten())
    bold_bold = total / count.clamp(min=1)
    return (
        windowed[:, :, 0, 0],
        cls_bold.unflatten(1, (number, length)),
        bold_cls.unflatten(1, (length, number)),
        bold_bold.unflatten(1, (length, length)),
    )
