"""Trained models in memory: one, or one per fold and seed, that predict together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bolt.io.files import read_json
from bolt.models.registry import has_epochs, shortest_of
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
    members : list of Member
        Of an ensemble.
    """

    model: SeriesModel | Trained
    info: dict[str, Any]
    members: list[Member] = field(default_factory=list)

    @property
    def parts(self) -> list[Member]:
        """Return the model and the members of an ensemble."""
        return [self, *self.members]

    @property
    def shortest(self) -> int:
        """Return the length of the shortest scan that the model can read, in volumes."""
        configured = [part.info["model"] for part in self.parts]
        return max(2, *(shortest_of(model["model"], model["hyper"]) for model in configured))

    @property
    def has_epochs(self) -> bool:
        """Return whether the model is a network, which needs torch."""
        return has_epochs(self.info["model"]["model"])

    def save(self, folder: Path) -> None:
        """Write ``checkpoint.safetensors`` and ``checkpoint.json``."""
        folder.mkdir(parents=True, exist_ok=True)
        if self.has_epochs:
            from bolt.training.checkpoint import save_checkpoint

            save_checkpoint(folder, self.model, self.info)  # type: ignore[arg-type]
        else:
            from bolt.training.features import save_trained

            save_trained(folder, self.model)  # type: ignore[arg-type]
        for number, member in enumerate(self.members):
            member.save(member_folder(folder, number, member.info["model"]["name"]))


def predict_each(
    members: Sequence[Member], scans: SeriesCache, device: str = "auto", rows: Sequence[int] | None = None
) -> NDArray[np.float64]:
    """Predict scans of a cache (by default all) with each model.

    Returns
    -------
    (members, scans, classes) or, for numbers, (members, scans) array
    """
    rows = range(len(scans)) if rows is None else rows
    return np.stack([_predict(member, scans, rows, device) for member in members])


def _predict(member: Member, scans: SeriesCache, rows: Sequence[int], device: str) -> NDArray[np.float64]:
    """Predict scans with one model."""
    if member.members:
        parts = [_predict(part, scans, rows, device) for part in member.members]
        return member.model.model.probabilities(features_of(parts))  # type: ignore[arg-type,union-attr,operator,no-any-return]
    if not member.has_epochs:
        return member.model.predict(scans, rows)  # type: ignore[operator,union-attr,no-any-return]
    from bolt.training.device import device_of
    from bolt.training.prediction import predict

    return predict(member.model, scans, rows, device_of(device, None), info=member.info)  # type: ignore


def load_member(folder: Path) -> Member:
    """Read a trained model from a folder with ``checkpoint.json``.

    Raises
    ------
    DataError
        The files are missing or do not fit each other.
    """
    info: dict[str, Any] = read_json(folder / "checkpoint.json")
    with checked_info(folder):
        network = has_epochs(info["model"]["model"])
        names = [str(member["name"]) for member in info["model"].get("members", [])]
    if network:
        from bolt.training.checkpoint import load_checkpoint

        return Member(*load_checkpoint(folder))
    from bolt.training.features import load_trained

    trained = load_trained(folder)
    with checked_info(folder):
        parts = [load_member(member_folder(folder, number, name)) for number, name in enumerate(names)]
        if any(part.info[key] != trained.info[key] for part in parts for key in ("classes", "n_rois", "rois")):
            raise ValueError("its members differ in classes or ROIs")
    return Member(trained, trained.info, parts)


def member_folder(folder: Path, number: int, name: str) -> Path:
    """Return the folder of one member of an ensemble."""
    return folder / "members" / f"{number}-{Path(name).name}"


def features_of(probabilities: Sequence[NDArray[np.floating]]) -> NDArray[np.float64]:
    """Join the members' probabilities, (n, classes) each, to the features of an ensemble, (n, members × classes)."""
    return np.concatenate([np.asarray(part, float) for part in probabilities], axis=1)
