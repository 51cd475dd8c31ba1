"""Series on a device, as random crops or whole; and what a model says of them."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from bolt.cohort.covariates import Covariates
from bolt.io.errors import ConfigError, MemoryShortage
from bolt.io.files import write_table
from bolt.io.resource_errors import is_shortage
from bolt.models.base import ConnectivityModel, ModelOutput, SeriesModel
from bolt.series.cache import SeriesCache
from bolt.training.batch_splitting import whose
from bolt.training.targets import stored_target

log = logging.getLogger(__name__)

PREDICTIONS = {
    "scan_id": "Scan",
    "subject": "Subject",
    "group": "Family where known, else subject",
    "site": "Site",
    "role": "Part of the fold: train, validation or test",
    "fold": "Outer fold",
    "seed": "Seed of weights, order, crops and dropout",
    "label": "True class, or number",
    "predicted": "Class of the largest probability, or number, in the unit of the label",
}
VOLUMES_AT_ONCE = 4096  # in a batch of whole scans: bounds the memory of prediction
MATRICES_AT_ONCE = 16  # scans of a model of connectivity, whose memory goes by ROIs and not by volumes


class Pool:
    """All series of a cache, in memory once for every training that reads them.

    On the CPU this is the cache's file itself, memory-mapped: jobs side by side share it too. On a GPU the series are
    copied there where they take less than half of its free memory; else crops go there a batch at a time.

    Parameters
    ----------
    cache : SeriesCache
    device : torch.device or str
    """

    def __init__(self, cache: SeriesCache, device: torch.device | str) -> None:
        self.cache, self.device = cache, torch.device(device)
        # copy-on-write, for torch knows no arrays that are read only; nothing writes to it
        self.data = torch.from_numpy(np.load(cache.folder / "series.npy", mmap_mode="c"))
        self._finite: set[int] = set()
        where = "read where they lie"
        if self.device.type == "cuda":
            fits = self.data.nbytes < torch.cuda.mem_get_info(self.device)[0] / 2
            where = "copied to the GPU" if fits else "too large for the GPU, copied a batch at a time"
            self.data = self.data.to(self.device) if fits else self.data
        log.info("series: %.2f GB, %s", self.data.nbytes / 1e9, where)

    def check(self, i: int) -> None:
        """Refuse a scan (row `i` of the index) with NaN or Inf; each is looked at once."""
        if i in self._finite:
            return
        self.cache.finite_series(i)
        self._finite.add(i)

    def to_device(self, values: Tensor) -> Tensor:
        """Copy from the host's memory; on a GPU without making it, or the host, wait."""
        return values.pin_memory().to(self.device, non_blocking=True) if self.device.type == "cuda" else values


class Scans:
    """Some scans of a pool, numbered from 0 in the order of `ids`.

    Parameters
    ----------
    pool : Pool
    ids : sequence of int
        Rows of the cache's index.
    covariates : ndarray, optional
        (scans, n) float32, of the same scans.

    Attributes
    ----------
    covariates : Tensor or None
        On the device; None where there are none.

    Raises
    ------
    DataError
        Where a series has NaN or Inf.
    """

    def __init__(self, pool: Pool, ids: Sequence[int], covariates: np.ndarray | None = None) -> None:
        for i in ids:
            pool.check(int(i))
        self.pool = pool
        rows = pool.cache.index.iloc[[int(i) for i in ids]]
        self.lengths: list[int] = rows["length"].tolist()
        some = covariates is not None and covariates.shape[1] > 0
        self.covariates = torch.tensor(covariates, device=pool.device) if some else None
        self._offset = torch.tensor(rows["offset"].to_numpy(np.int64))
        self._length = torch.tensor(rows["length"].to_numpy(np.int64))

    def __len__(self) -> int:
        return len(self.lengths)

    def crops(self, which: Tensor, length: int, random: torch.Generator) -> Tensor:
        """A random stretch of each scan, (len(which), length, rois), on the device; a shorter scan is repeated.

        `which` and `random` are the host's.
        """
        draws = torch.rand(len(which), generator=random, dtype=torch.float64)
        total = self._length[which]
        start = (draws * (total - length + 1).clamp(min=1)).long()
        volumes = (start[:, None] + torch.arange(length)) % total[:, None]
        return self._take(self._offset[which][:, None] + volumes)

    def whole(self, which: Sequence[int]) -> Tensor:
        """Scans of one length as they are, (len(which), time, rois), on the device."""
        return self._take(self._offset[list(which)][:, None] + torch.arange(self.lengths[which[0]]))

    def _take(self, rows: Tensor) -> Tensor:
        """Rows of the packed series, (batch, time) to (batch, time, rois)."""
        pool = self.pool
        if pool.data.device.type == "cpu":
            return pool.to_device(pool.data[rows])
        return pool.data[pool.to_device(rows)]


def forward(model: SeriesModel, x: Tensor, covariates: Tensor | None) -> ModelOutput:
    """Ask a model; covariates are named to it only where there are some."""
    return model(x) if covariates is None else model(x, covariates=covariates)


def all_logits(model: SeriesModel, scans: Scans) -> Tensor:
    """Logits of every scan at its own length, (scans, classes), in evaluation mode; equal lengths share batches."""
    was_training = model.training
    model.eval()
    parts, order = [], []
    with torch.inference_mode():
        for length in sorted(set(scans.lengths)):
            same = [i for i, own in enumerate(scans.lengths) if own == length]
            batch = max(1, VOLUMES_AT_ONCE // length)
            if isinstance(model, ConnectivityModel):
                batch = min(batch, MATRICES_AT_ONCE)
            for first in range(0, len(same), batch):
                parts.append(_logits(model, scans, same[first : first + batch]))
            order += same
    model.train(was_training)
    return torch.cat(parts)[torch.tensor(order).argsort()]


def _logits(model: SeriesModel, scans: Scans, which: list[int]) -> Tensor:
    """Logits of scans of one length, (len(which), classes); of fewer at once where memory is short."""
    try:
        covariates = None if scans.covariates is None else scans.covariates[which]
        return forward(model, scans.whole(which), covariates).logits
    except (RuntimeError, MemoryError) as error:
        if not is_shortage(error):
            raise
        if len(which) == 1:
            raise MemoryShortage(
                f"{whose(error)} memory does not hold a scan of {scans.lengths[which[0]]} volumes",
                hint="Free memory, choose a smaller model, or (where it is the GPU's) set 'device: cpu'",
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
    """What a model says of whole scans.

    Parameters
    ----------
    model : SeriesModel
        Moved to `device`.
    cache : SeriesCache
    ids : sequence of int
        Rows of the cache's index.
    device : torch.device or str
    info : mapping, optional
        What `bolt.training.checkpoint.load_checkpoint` returned beside the model; a model with covariates, and one that
        predicts a number, need it.

    Returns
    -------
    ndarray
        Class probabilities (len(ids), classes), or numbers in the label's unit (len(ids),); float64.
    """
    info = {"classes": [], **(info or {})}
    covariates = Covariates(info.get("covariates", [])).encode(cache.index.iloc[list(ids)])
    logits = all_logits(model.to(device), Scans(Pool(cache, device), ids, covariates))
    if info["classes"] is not None and logits.shape[1] == 1:
        raise ConfigError("this model predicts a number", hint="Give 'info', which load_checkpoint returns as well")
    return stored_target(info).decode(logits)


def write_predictions(table: pd.DataFrame, path: Path) -> None:
    """Write ``predictions.tsv``.

    Parameters
    ----------
    table : DataFrame
        One row a scan, with the columns of `PREDICTIONS` and one ``p_<class>`` a class; others are left out.
    path : Path
    """
    described = {name: f"Probability of class {name[2:]}" for name in table if name.startswith("p_")}
    write_table(table[[*PREDICTIONS, *described]], path, PREDICTIONS | described)
