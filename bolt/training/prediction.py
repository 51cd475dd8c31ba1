"""Scans on a device, as random crops or whole, and predictions for them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bolt.cohort.covariates import Covariates
from bolt.io.errors import ConfigError, MemoryShortage
from bolt.io.resource_errors import is_shortage
from bolt.models.base import ConnectivityModel, ModelOutput, SeriesModel
from bolt.series.cache import SeriesCache
from bolt.training.batches import memory_owner
from bolt.training.device import compute_exactly, copied_to
from bolt.training.outputs import stored_target

VOLUMES_AT_ONCE = 4096  # per batch of whole scans, which bounds the memory of prediction
MATRICES_KEPT = 2**30  # bytes of connectivity matrices that are computed once for all epochs and folds
MATRICES_AT_ONCE = 16  # scans per batch of a connectivity model, whose memory depends on ROIs and not on volumes


class Pool:
    """All series of a cache, loaded once and shared by all trainings.

    On the CPU this is the cache's memory-mapped file, which parallel jobs share too. On a GPU, the series are copied
    there if they take less than half of its free memory; otherwise crops are copied batch by batch.

    Parameters
    ----------
    cache : SeriesCache
    device : torch.device or str

    Attributes
    ----------
    place : str
        Where the series are, in words.
    finite : set of int
        Rows of the index whose series were found to be finite.
    matrices : dict
        Connectivity of whole scans that is kept for all epochs and folds: by class and settings of the model, then by
        row of the index.
    """

    def __init__(self, cache: SeriesCache, device: torch.device | str) -> None:
        self.cache, self.device = cache, torch.device(device)
        self.data = torch.from_numpy(cache.array())  # torch has no read-only tensors, but nothing writes to it
        self.finite: set[int] = set()
        self.matrices: dict[tuple[Any, ...], dict[int, Tensor]] = defaultdict(dict)
        self.place = "memory-mapped"
        if self.device.type == "cuda":
            fits = self.data.nbytes < torch.cuda.mem_get_info(self.device)[0] / 2
            self.place = "copied to the GPU" if fits else "too large for the GPU, copied batch by batch"
            self.data = self.data.to(self.device) if fits else self.data


class Scans:
    """A selection of scans, numbered from 0 in the order of `ids`.

    Parameters
    ----------
    pool : Pool
    ids : sequence of int
        Rows of the cache's index.
    covariates : ndarray, optional
        (scans, n) float32.
    truth : ndarray, optional
        (scans,) labels, as encoded by `bolt.training.outputs`.

    Attributes
    ----------
    covariates, truth : Tensor or None
        On the device; None if there are none.

    Raises
    ------
    DataError
        A series has NaN or Inf.
    """

    def __init__(
        self, pool: Pool, ids: Sequence[int], covariates: np.ndarray | None = None, truth: np.ndarray | None = None
    ) -> None:
        self.pool, self._ids = pool, [int(i) for i in ids]
        for i in self._ids:
            if i not in pool.finite:
                pool.cache.finite_series(i)
                pool.finite.add(i)
        places = torch.tensor(pool.cache.index.iloc[self._ids][["offset", "length"]].to_numpy(np.int64))
        self._offset, self._length = places.unbind(1)
        self.lengths: list[int] = self._length.tolist()
        has_covariates = covariates is not None and covariates.shape[1] > 0
        self.covariates = torch.tensor(covariates, device=pool.device) if has_covariates else None
        self.truth = None if truth is None else torch.tensor(truth, device=pool.device)

    def __len__(self) -> int:
        """Return the number of scans."""
        return len(self.lengths)

    def rows(self, which: Tensor, length: int, random: torch.Generator) -> Tensor:
        """Draw a random crop of each scan: rows of the pool (len(which), length); all are on the host.

        Shorter scans are whole; what follows their end has no meaning and must not be read (`lengths_of`).
        """
        draws = torch.rand(len(which), generator=random, dtype=torch.float64)
        total = self._length[which]
        start = (draws * (total - length + 1).clamp(min=1)).long()
        volumes = torch.minimum(start[:, None] + torch.arange(length), total[:, None] - 1)
        return self._offset[which][:, None] + volumes

    def lengths_of(self, which: Tensor, length: int) -> Tensor:
        """Return how many volumes of each scan are in a crop, (len(which),), on the host."""
        return self._length[which].clamp(max=length)

    def whole(self, which: Sequence[int]) -> Tensor:
        """Return whole scans, (len(which), longest, rois), on the device.

        What follows the end of a shorter scan has no meaning and must not be read.
        """
        lengths = self._length[list(which)]
        volumes = torch.minimum(torch.arange(int(lengths.max())), lengths[:, None] - 1)
        return self.values(self._offset[list(which)][:, None] + volumes)

    def matrices(self, model: ConnectivityModel, which: Sequence[int]) -> Tensor:
        """Return connectivity matrices of whole scans, (len(which), kinds, rois, rois), on the device.

        The pool keeps them, unless those of all its scans would take more than `MATRICES_KEPT`.
        """
        kept = self.pool.matrices[type(model), *model.matrix_settings]
        missing = [i for i in which if self._ids[i] not in kept]
        with torch.inference_mode(False), torch.no_grad():  # those kept in a prediction may be trained on
            # one by one, because the last digits of products depend on the other scans of a batch
            computed = {self._ids[i]: model.matrices(self.whole([i]))[0] for i in missing}
        if computed and next(iter(computed.values())).nbytes * len(self.pool.cache) <= MATRICES_KEPT:
            kept |= computed
        return torch.stack([(computed if self._ids[i] in computed else kept)[self._ids[i]] for i in which])

    def values(self, rows: Tensor) -> Tensor:
        """Return rows (batch, time) of the pool as series (batch, time, rois) on the device."""
        return copied_to(self.pool.device, self.pool.data[copied_to(self.pool.data.device, rows)])


def forward(model: SeriesModel, x: Tensor, lengths: Tensor | None, covariates: Tensor | None) -> ModelOutput:
    """Apply a model to series of these lengths, with covariates if there are any, or to connectivity matrices.

    `lengths` are on the host, or on the device if the model can read them there; None if all are those of `x`.
    """
    if isinstance(model, ConnectivityModel):
        return model.classify(x)
    more: dict[str, Any] = {} if covariates is None else {"covariates": covariates}
    if lengths is not None and read_on_device(model, x.device):
        more["lengths"] = copied_to(x.device, lengths)
    elif lengths is not None and len(set(lengths.tolist())) > 1:  # only of models that take lengths
        more["lengths"] = lengths.tolist()
    return model(x, **more)


def read_on_device(model: SeriesModel, device: torch.device) -> bool:
    """Return whether a model reads the lengths of scans on a GPU, whose host then need not wait."""
    return device.type == "cuda" and model.lengths_on_device


def all_logits(model: SeriesModel, scans: Scans) -> Tensor:
    """Compute logits of all scans at full length, (scans, classes), in evaluation mode."""
    was_training = model.training
    model.eval()
    batches = _batches(model, scans.lengths)
    with torch.inference_mode():
        logits = torch.cat([_logits(model, scans, batch) for batch in batches])
    model.train(was_training)
    return logits[torch.tensor([i for batch in batches for i in batch]).argsort()]


def _batches(model: SeriesModel, lengths: Sequence[int]) -> list[list[int]]:
    """Divide scans of these lengths into batches, shortest first; of equal length, unless the model takes lengths."""
    most = MATRICES_AT_ONCE if isinstance(model, ConnectivityModel) else len(lengths)
    batches: list[list[int]] = []
    for i in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        last = batches[-1] if batches else []
        fits = len(last) < most and (len(last) + 1) * lengths[i] <= VOLUMES_AT_ONCE
        if last and fits and (model.takes_lengths or lengths[last[0]] == lengths[i]):
            last.append(i)
        else:
            batches.append([i])
    return batches


def _logits(model: SeriesModel, scans: Scans, which: list[int]) -> Tensor:
    """Compute logits of some scans, (len(which), classes), in smaller batches if memory is short."""
    try:
        x = scans.matrices(model, which) if isinstance(model, ConnectivityModel) else scans.whole(which)
        covariates = None if scans.covariates is None else scans.covariates[which]
        lengths = [scans.lengths[i] for i in which]
        return forward(model, x, torch.tensor(lengths) if len(set(lengths)) > 1 else None, covariates).logits
    except (RuntimeError, MemoryError) as error:
        if not is_shortage(error):
            raise
        if len(which) == 1:
            raise MemoryShortage(
                f"a scan of {scans.lengths[which[0]]} volumes does not fit in the {memory_owner(error)}'s memory",
                hint="Free memory, choose a smaller model, or, if the GPU's memory is short, set 'device: cpu'",
            ) from None
    torch.cuda.empty_cache()
    half = len(which) // 2
    return torch.cat([_logits(model, scans, part) for part in (which[:half], which[half:])])


def predict(
    model: SeriesModel,
    cache: SeriesCache,
    ids: Sequence[int],
    device: torch.device | str = "cpu",
    *,
    info: Mapping[str, Any] | None = None,
) -> np.ndarray:
    """Predict whole scans.

    Parameters
    ----------
    model : SeriesModel
        Moved to `device`.
    cache : SeriesCache
    ids : sequence of int
        Rows of the cache's index.
    device : torch.device or str
    info : mapping, optional
        Second value of `bolt.training.checkpoint.load_checkpoint`; needed by models with covariates and by models that
        predict a number.

    Returns
    -------
    ndarray
        Class probabilities (len(ids), classes), or numbers in the label's unit (len(ids),); float64.
    """
    info = {"classes": [], **(info or {})}
    covariates = Covariates(info.get("covariates", [])).encode(cache.index.iloc[list(ids)])
    if torch.device(device).type == "cuda":
        compute_exactly()
    logits = all_logits(model.to(device), Scans(Pool(cache, device), ids, covariates))
    if info["classes"] is not None and logits.shape[1] == 1:
        raise ConfigError("this model predicts a number", hint="Pass 'info', the second value of load_checkpoint")
    return stored_target(info).decode(logits)
