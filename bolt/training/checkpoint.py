"""Checkpoints on disk: those of finished trainings, and those from which interrupted trainings resume.

Safetensors and JSON only, so that loading cannot run code.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from bolt.cohort.covariates import Covariates
from bolt.io.files import atomic, write_json
from bolt.models.base import SeriesModel
from bolt.models.registry import create_model, with_covariates
from bolt.training.adam import Adam
from bolt.training.outputs import checked_files

RESUME = "resume.safetensors"
LAYERS = {"n_blocks", "n_layers"}
"""Settings of models that count layers."""


@dataclass
class Progress:
    """State of a training after some epochs.

    Attributes
    ----------
    history : list of dict
        One row per epoch.
    epoch : int
        The epoch whose weights would be kept so far, from 1.
    chosen : dict
        The weights of that epoch, if the best epoch is chosen by validation.
    average : dict
        Moving average of the weights, if they are averaged.
    """

    history: list[dict[str, float]] = field(default_factory=list)
    epoch: int = 0
    chosen: dict[str, Tensor] = field(default_factory=dict)
    average: dict[str, Tensor] = field(default_factory=dict)


def save_resume(folder: Path, fingerprint: str, net: SeriesModel, optimizer: Adam, progress: Progress) -> None:
    """Write everything that the next epoch of a training depends on, in one file that is replaced atomically.

    Random states are not saved, because every epoch starts from its own seed. `fingerprint` identifies settings and
    data.
    """
    tensors = {f"net.{name}": value for name, value in net.state_dict().items()}
    for group in ("chosen", "average"):
        tensors |= {f"{group}.{name}": value for name, value in getattr(progress, group).items()}
    tensors |= {f"optimizer.{name}": value for name, value in optimizer.state.items()}
    facts = {"fingerprint": fingerprint, "history": progress.history, "epoch": progress.epoch}
    plain = torch.contiguous_format  # and none shares its memory with another
    copies = {name: value.detach().cpu().clone(memory_format=plain) for name, value in tensors.items()}
    with atomic(folder / RESUME) as temporary:
        save_file(copies, temporary, metadata={"progress": json.dumps(facts)})


def load_resume(folder: Path, fingerprint: str, net: SeriesModel, optimizer: Adam) -> Progress | None:
    """Restore `net` and `optimizer` from an interrupted training.

    Returns
    -------
    Progress or None
        None if there is nothing to resume, or it belongs to other settings or data.
    """
    try:
        with safe_open(folder / RESUME, framework="pt") as file:
            facts = json.loads(file.metadata()["progress"])
            if facts["fingerprint"] != fingerprint:
                return None
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
    except (FileNotFoundError, SafetensorError, KeyError, TypeError, ValueError):  # missing, damaged or foreign
        return None
    net.load_state_dict(_under("net.", tensors))
    optimizer.load(_under("optimizer.", tensors))
    return Progress(facts["history"], facts["epoch"], _under("chosen.", tensors), _under("average.", tensors))


def save_checkpoint(folder: Path, net: SeriesModel, info: dict[str, Any]) -> None:
    """Write ``checkpoint.safetensors`` and ``checkpoint.json``.

    `info` must contain what `load_checkpoint` needs: model (the configuration), n_rois, classes and covariates, if any.
    """
    with atomic(folder / "checkpoint.safetensors") as temporary:
        save_file({name: value.detach().cpu().contiguous() for name, value in net.state_dict().items()}, temporary)
    write_json(info, folder / "checkpoint.json")


def load_checkpoint(folder: str | Path) -> tuple[SeriesModel, dict[str, Any]]:
    """Read a trained model.

    Parameters
    ----------
    folder : path
        A run's ``fold-<k>``.

    Returns
    -------
    tuple
        The model in evaluation mode, on the CPU; and the contents of ``checkpoint.json``: model, fold, seed, n_rois,
        classes (None for a number; then also label, its mean and sd in training), rois (values in the atlas),
        covariates (columns of `bolt.cohort.covariates.Covariates`), crop, epoch.

    Raises
    ------
    DataError
        The files are missing or do not fit each other.
    """
    with checked_files(Path(folder)) as (info, weights):
        settings = with_covariates(info["model"]["hyper"], len(Covariates(info.get("covariates", []))))
        n_outputs = 1 if info["classes"] is None else len(info["classes"])
        model = (info["model"]["model"], info["n_rois"], n_outputs)
        with safe_open(weights, framework="pt") as file:
            shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118 (not a mapping)
        for key in LAYERS & settings.keys():
            if settings[key] > len(shapes):  # every layer has weights; building millions would take all memory
                raise ValueError(f"{key} is {settings[key]}, but there are {len(shapes)} tensors of weights")
        with torch.device("meta"):  # needs no memory, whatever sizes a foreign file states
            state = create_model(*model, **settings).state_dict()
        expected = {name: list(value.shape) for name, value in state.items()}
        for name in sorted(expected.keys() | shapes.keys()):
            if expected.get(name) != shapes.get(name):
                raise RuntimeError(
                    f"{name} has shape {shapes.get(name, 'none')}, expected {expected.get(name, 'none')}"
                )
        net = create_model(*model, **settings)
        net.load_state_dict(load_file(weights))
        for name, value in net.state_dict().items():
            if not torch.isfinite(value).all():
                raise RuntimeError(f"{name} has NaN or infinite weights")
    return net.eval(), info


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Select the tensors whose names begin with `prefix`, and remove it."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
