"""Series on a device, as random crops or whole; and what a model says of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from bolt.errors import DataError
from bolt.files import write_table
from bolt.models._base import SeriesModel
from bolt.series import SeriesCache

PREDICTIONS = {
    "scan_id": "Scan",
    "subject": "Subject",
    "group": "Family where known, else subject",
    "site": "Site",
    "role": "Part of the fold: train, validation or test",
    "fold": "Outer fold",
    "seed": "Seed of weights, order, crops and dropout",
    "label": "True class",
    "predicted": "Class of the largest probability",
}
VOLUMES_AT_ONCE = 4096  # in a batch of whole scans: bounds the memory of prediction


class Scans:
    """The series of some scans, packed on one device; numbered from 0 in the order of `ids`.

    Parameters
    ----------
    cache : SeriesCache
    ids : sequence of int
        Rows of the cache's index.
    device : torch.device or str

    Raises
    ------
    DataError
        Where a series has NaN or Inf.
    """

    def __init__(self, cache: SeriesCache, ids: Sequence[int], device: torch.device | str) -> None:
        series = [cache.series(int(i)) for i in ids]
        for i, values in zip(ids, series, strict=True):
            if not np.isfinite(values).all():
                scan = cache.index["scan_id"].iloc[int(i)]
                raise DataError(
                    f"the series of scan '{scan}' has NaN or Inf", mend="Exclude the scan, or mend its series"
                )
        self.lengths = [len(values) for values in series]
        self._data = torch.from_numpy(np.concatenate(series)).to(device)
        self._length = torch.tensor(self.lengths, device=device)
        self._offset = self._length.cumsum(0) - self._length

    def __len__(self) -> int:
        return len(self.lengths)

    def crops(self, which: Tensor, length: int, random: torch.Generator) -> Tensor:
        """A random stretch of each scan, (len(which), length, rois); a shorter scan is repeated."""
        draws = torch.rand(len(which), generator=random, dtype=torch.float64).to(self._data.device)
        which = which.to(self._data.device)
        total = self._length[which]
        start = (draws * (total - length + 1).clamp(min=1)).long()
        volumes = (start[:, None] + torch.arange(length, device=start.device)) % total[:, None]
        return self._data[self._offset[which][:, None] + volumes]

    def whole(self, which: Sequence[int]) -> Tensor:
        """Scans of one length as they are, (len(which), time, rois)."""
        return torch.stack([self._data[self._offset[i] : self._offset[i] + self.lengths[i]] for i in which])


def class_logits(model: SeriesModel, scans: Scans) -> Tensor:
    """Logits of every scan at its own length, (scans, classes), in evaluation mode; equal lengths share batches."""
    was_training = model.training
    model.eval()
    parts, order = [], []
    with torch.inference_mode():
        for length in sorted(set(scans.lengths)):
            same = [i for i, own in enumerate(scans.lengths) if own == length]
            batch = max(1, VOLUMES_AT_ONCE // length)
            for first in range(0, len(same), batch):
                parts.append(model(scans.whole(same[first : first + batch])).logits)
            order += same
    model.train(was_training)
    return torch.cat(parts)[torch.tensor(order).argsort()]


def predict(
    model: SeriesModel, cache: SeriesCache, ids: Sequence[int], device: torch.device | str = "cpu"
) -> np.ndarray:
    """Class probabilities of whole scans.

    Parameters
    ----------
    model : SeriesModel
        Moved to `device`.
    cache : SeriesCache
    ids : sequence of int
        Rows of the cache's index.
    device : torch.device or str

    Returns
    -------
    ndarray
        (len(ids), classes), float64.
    """
    return class_logits(model.to(device), Scans(cache, ids, device)).double().softmax(-1).cpu().numpy()


def write_predictions(probabilities: np.ndarray, table: pd.DataFrame, classes: list[str], path: Path) -> None:
    """Write ``predictions.tsv``.

    Parameters
    ----------
    probabilities : ndarray
        (scans, classes).
    table : DataFrame
        One row a scan, with the columns of `PREDICTIONS` but ``predicted``; others are left out.
    classes : list of str
    path : Path
    """
    predicted = [classes[i] for i in probabilities.argmax(1)]
    rows = table.assign(predicted=predicted)[list(PREDICTIONS)]
    columns = {f"p_{name}": probabilities[:, i] for i, name in enumerate(classes)}
    described = {f"p_{name}": f"Probability of class {name}" for name in classes}
    write_table(rows.assign(**columns), path, PREDICTIONS | described)
