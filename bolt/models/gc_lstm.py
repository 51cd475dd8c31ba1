"""GC-LSTM: an LSTM over windows, whose gates are graph convolutions on each window's connectivity.

Xing et al. Dynamic spectral graph convolution networks with assistant task training for early MCI diagnosis.
MICCAI 2019. https://doi.org/10.1007/978-3-030-32251-9_70
Spectral filters: Defferrard, Bresson, Vandergheynst. NeurIPS 2016. https://arxiv.org/abs/1606.09375
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from bolt.models.base import ModelOutput, SeriesModel
from bolt.models.layers import Dropout, check_length, check_rules
from bolt.models.parts.connectivity import inner_products, unit_series
from bolt.models.parts.settings import stride_volumes, window_volumes
from bolt.models.registry import register

KEPT = 2**25  # correlations of all windows of a batch that are kept for the backward pass: a few hundred MB


@register("gc_lstm")
class GCLSTM(SeriesModel):
    """Graph-convolutional LSTM over sliding windows; an MLP on the states of all ROIs, averaged over windows.

    Parameters
    ----------
    n_rois, n_classes : int
    hidden : int
        Width of each ROI's state.
    order : int
        Chebyshev polynomials per graph convolution: an ROI receives input from ROIs up to ``order - 1`` edges away.
    window_seconds, stride_seconds : float
        Rounded to volumes, at least 2 and 1.
    least_windows : int
        If `crop` is known and a training crop does not hold this many windows, the window is shortened until it does
        (but not below half of the crop), because there is no recurrence over a single window. In HCP-Task, 120 s are
        167 volumes and a crop has 150, so the window is 123 volumes (89 s). Training and test scans have the same
        window.
    mlp : int
        Width of the classifier's hidden layer.
    dropout : float
        In the classifier.
    tr : float
        Seconds between volumes; one number, because a model has one window. Filled in from the training scans.
    crop : int, optional
        Length of a training crop in volumes. Filled in from the data.

    Notes
    -----
    Two ROIs that correlate positively within a window are joined by an edge, weighted by the correlation; there are no
    loops. The filters are Chebyshev polynomials of ``-D^(-1/2) A D^(-1/2)``: the graph's Laplacian, scaled to
    eigenvalues in [-1, 1] by its largest possible eigenvalue, 2. The input of an ROI is its row of signed correlations.

    The paper averages states over time. A mean over ROIs as well would forget which ROI has which state; with it,
    nothing was learned from ABIDE-I (see ``benchmarks/README.md``).

    Windows are read one after the other; on a GPU, their correlations are computed for many at a time. Unless their
    matrices are few (`KEPT`), they are not kept, and the backward pass computes them again; memory then holds those of
    a few windows only, and of all others the ROI states.
    """

    whole_windows = True

    def __init__(
        self,
        n_rois: int,
        n_classes: int,
        *,
        hidden: int = 32,
        order: int = 3,
        window_seconds: float = 120.0,
        stride_seconds: float = 2.0,
        least_windows: int = 10,
        mlp: int = 64,
        dropout: float = 0.5,
        tr: float = 2.0,
        crop: int | None = None,
    ) -> None:
        super().__init__()
        check_rules(tr=(tr > 0, "must be above 0"))
        self.stride = stride_volumes(stride_seconds, tr)
        self.window = window_volumes(window_seconds, stride_seconds, tr, crop, least_windows)
        self.min_length, self.hidden, self.order = self.window, hidden, order
        self.input = nn.Linear(n_rois, order * 4 * hidden, bias=False)
        self.recurrent = nn.Linear(hidden, order * 4 * hidden, bias=False)
        self.bias = nn.Parameter(torch.zeros(4 * hidden))
        self.classifier = nn.Sequential(
            nn.Linear(n_rois * hidden, mlp), nn.ReLU(), Dropout(dropout), nn.Linear(mlp, n_classes)
        )

    def forward(self, x: Tensor) -> ModelOutput:
        """Classify z-scored ROI series (batch, time, rois); `cls` are mean states, (batch, rois × hidden)."""
        check_length(x.shape[1], self.min_length)
        windows = x.unfold(1, self.window, self.stride).mT  # (batch, F, volumes, rois), a view
        of_window = len(x) * x.shape[2] ** 2
        recomputed = torch.is_grad_enabled() and windows.shape[1] * of_window > KEPT
        at_once = max(1, KEPT // of_window) if x.is_cuda else 1  # a CPU's cache rarely holds two
        state = cell = total = x.new_zeros(len(x), x.shape[2], self.hidden)
        for part in windows.split(at_once, dim=1):
            if recomputed:
                states = checkpoint(self._read, part, state, cell, use_reentrant=False, preserve_rng_state=False)
            else:
                states = self._read(part, state, cell)
            state, cell, of_part = states
            total = total + of_part
        features = (total / windows.shape[1]).flatten(1)
        return ModelOutput(self.classifier(features), features, {})

    def _read(self, windows: Tensor, state: Tensor, cell: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Update state and cell, (batch, rois, hidden), by windows (batch, n, volumes, rois); add up the states.

        With * the graph convolution, C a window's correlations and h the state: i, f, g, o = W_x * C + W_h * h + b;
        c' = σ(f) c + σ(i) tanh(g); h' = σ(o) tanh(c').
        """
        series = unit_series(windows.flatten(0, 1)).unflatten(0, windows.shape[:2])
        correlations = inner_products(series)
        # for correlations C = ZᵀZ and input weights W, C W and Zᵀ(Z W) are equal but for rounding; the second needs
        # fewer operations if windows are short
        short = 2 * windows.shape[2] < windows.shape[3]
        inputs = series.mT @ self.input(series) if short else self.input(correlations)
        graphs = scaled_laplacian(correlations)
        total = torch.zeros_like(state)
        for graph, given in zip(graphs.unbind(1), inputs.unbind(1), strict=True):
            terms = (given + self.recurrent(state)).chunk(self.order, dim=-1)
            i, f, g, o = (chebyshev(graph, terms) + self.bias).chunk(4, dim=-1)
            cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
            state = o.sigmoid() * cell.tanh()
            total = total + state
        return state, cell, total


def scaled_laplacian(correlations: Tensor) -> Tensor:
    """Compute ``-D^(-1/2) A D^(-1/2)``, A being the positive correlations (..., rois, rois) without loops.

    Its eigenvalues are in [-1, 1]. An ROI without edges has a row of zeros.
    """
    edges = correlations.clamp(min=0) * (1 - torch.eye(correlations.shape[-1], device=correlations.device))
    degree = edges.sum(-1)
    scale = torch.where(degree > 0, degree, 1).rsqrt()
    return -scale[..., :, None] * edges * scale[..., None, :]


def chebyshev(graph: Tensor, terms: tuple[Tensor, ...]) -> Tensor:
    """Compute the sum over k of T_k(graph) @ terms[k] by Clenshaw's recurrence.

    The filters' weights are already applied to the terms, which is cheaper than filtering first: the terms are narrower
    than the input.
    """
    if len(terms) == 1:
        return terms[0]
    first, *middle, last = terms
    later = torch.zeros_like(last)
    for term in reversed(middle):
        last, later = term + 2 * (graph @ last) - later, last
    return first + graph @ last - later
