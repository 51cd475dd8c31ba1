"""Trained models in memory: one, or one per fold and seed, that predict together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bolt.io.files import read_json
from bolt.models.registry import fitted_at_once, shortest_of
from bolt.series.cache import SeriesCache
from bolt.training.outputs import checked_info

if TYPE_CHECKING:
    from bolt.models.base import SeriesModel
    from bolt.training.features import Trained


@dataclass
class Member:
    """One trained model.

    Attributes
    ----------
    model : SeriesModel or Trained
        In evaluation mode, on the CPU.
    info : dict
        Contents of its ``checkpoint.json``.
    """

    model: SeriesModel | Trained
    info: dict[str, Any]

    @property
    def shortest(self) -> int:
        """Return the length of the shortest scan that the model can read, in volumes."""
        return max(2, shortest_of(self.info["model"]["model"], self.info["model"]["hyper"]))

    @property
    def at_once(self) -> bool:
        """Return whether the model was fitted at once, without epochs and torch."""
        return fitted_at_once(self.info["model"]["model"])

    def save(self, folder: Path) -> None:
        """Write ``checkpoint.safetensors`` and ``checkpoint.json``."""
        folder.mkdir(parents=True, exist_ok=True)
        if self.at_once:
            from bolt.training.features import save_trained

            save_trained(folder, self.model)  # type: ignore[arg-type]
        else:
            from bolt.training.checkpoint import save_checkpoint

            save_checkpoint(folder, self.model, self.info)  # type: ignore[arg-type]


def predict_each(
    members: Sequence[Member], scans: SeriesCache, device: str = "auto", rows: Sequence[int] | None = None
) -> NDArray[np.float64]:
    """Predict scans of a cache (by default all) with each model.

    Returns
    -------
    (members, scans, classes) or, for numbers, (members, scans) array
    """
    rows = range(len(scans)) if rows is None else rows
    if all(member.at_once for member in members):
        return np.stack([member.model.predict(scans, rows) for member in members])  # type: ignore[operator,union-attr]
    from bolt.training.device import device_of
    from bolt.training.prediction import predict

    place = device_of(device, None)
    return np.stack([predict(member.model, scans, rows, place, info=member.info) for member in members])  # type: ignore


def load_member(folder: Path) -> Member:
    """Read a trained model from a folder with ``checkpoint.json``.

    Raises
    ------
    DataError
        The files are missing or do not fit each other.
    """
    info: dict[str, Any] = read_json(folder / "checkpoint.json")
    with checked_info(folder):
        at_once = fitted_at_once(info["model"]["model"])
    if at_once:
        from bolt.training.features import load_trained

        trained = load_trained(folder)
        return Member(trained, trained.info)
    from bolt.training.checkpoint import load_checkpoint

    return Member(*load_checkpoint(folder))
