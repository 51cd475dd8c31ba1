"""A model's weights on disk: what a finished training leaves, and what an interrupted one goes on from.

Safetensors and JSON only: nothing here can run code when it is loaded.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from bolt.cohort.covariates import Covariates
from bolt.io.errors import ConfigError, DataError
from bolt.io.files import atomic, read_json, write_json
from bolt.models.base import SeriesModel
from bolt.models.registry import create_model

RESUME = "resume.safetensors"


@dataclass
class Progress:
    """How far a training has come.

    Attributes
    ----------
    history : list of dict
        One row an epoch.
    epoch : int
        The epoch whose weights will be kept, as far as is known; from 1.
    chosen : dict
        Its weights, where it need not be the last one.
    """

    history: list[dict[str, float]] = field(default_factory=list)
    epoch: int = 0
    chosen: dict[str, Tensor] = field(default_factory=dict)


def save_resume(
    folder: Path, fingerprint: str, net: SeriesModel, optimizer: torch.optim.Optimizer, progress: Progress
) -> None:
    """Keep everything that the next epoch depends on, in one file, so that no kill can tear it.

    Random states are not among it: every epoch starts from a seed of its own.
    """
    tensors = {f"net.{name}": value for name, value in net.state_dict().items()}
    tensors |= {f"chosen.{name}": value for name, value in progress.chosen.items()}
    for index, state in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{index}.{name}": value for name, value in state.items()}
    facts = {"fingerprint": fingerprint, "history": progress.history, "epoch": progress.epoch}
    with atomic(folder / RESUME) as temporary:
        save_file(_portable(tensors), temporary, metadata={"progress": json.dumps(facts)})


def load_resume(folder: Path, fingerprint: str, net: SeriesModel, optimizer: torch.optim.Optimizer) -> Progress | None:
    """Put `net` and `optimizer` where an interrupted training left them.

    Returns
    -------
    Progress or None
        None where there is nothing to go on from, or it belongs to other settings or data.
    """
    try:
        with safe_open(folder / RESUME, framework="pt") as file:
            facts = json.loads(file.metadata()["progress"])
            if facts["fingerprint"] != fingerprint:
                return None
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no mapping)
    except (FileNotFoundError, SafetensorError, KeyError, TypeError, ValueError):  # none, torn, or nothing of ours
        return None
    net.load_state_dict(_under("net.", tensors))
    states: dict[int, dict[str, Tensor]] = {}
    for name, value in _under("optimizer.", tensors).items():
        index, key = name.split(".")
        states.setdefault(int(index), {})[key] = value
    optimizer.load_state_dict({"state": states, "param_groups": optimizer.state_dict()["param_groups"]})
    return Progress(facts["history"], facts["epoch"], _under("chosen.", tensors))


def remove_resume(folder: Path) -> None:
    (folder / RESUME).unlink(missing_ok=True)


def save_checkpoint(folder: Path, net: SeriesModel, info: dict[str, Any]) -> None:
    """Write ``checkpoint.safetensors`` and ``checkpoint.json``; `info` holds at least what `load_checkpoint` needs:
    model (the configuration), n_rois, classes and, where there are any, covariates."""
    with atomic(folder / "checkpoint.safetensors") as temporary:
        save_file(_portable(net.state_dict()), temporary)
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
        The model in evaluation mode, on the CPU; and what ``checkpoint.json`` says: model, fold, seed, n_rois, classes
        (None: a number; then also label, its mean and sd in training), rois (values in the atlas), covariates (columns
        of `bolt.cohort.covariates.Covariates`), crop, epoch.

    Raises
    ------
    DataError
        Where the files are missing or do not belong together.
    """
    folder = Path(folder)
    info = read_json(folder / "checkpoint.json")
    with checked_weights(folder) as weights, described(folder):
        others = len(Covariates(info.get("covariates", [])))
        settings = info["model"]["hyper"] | ({"n_covariates": others} if others else {})
        n_outputs = 1 if info["classes"] is None else len(info["classes"])
        about = (info["model"]["model"], info["n_rois"], n_outputs)
        with torch.device("meta"):  # takes no memory, whatever sizes a foreign file names
            due = {name: list(value.shape) for name, value in create_model(*about, **settings).state_dict().items()}
        with safe_open(weights, framework="pt") as file:
            found = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118 (no mapping)
        different = sorted(name for name in due.keys() | found.keys() if due.get(name) != found.get(name))
        if different:
            one = different[0]
            raise RuntimeError(f"{one} is {found.get(one, 'not there')} in place of {due.get(one, 'nothing')}")
        net = create_model(*about, **settings)
        net.load_state_dict(load_file(weights))
    return net.eval(), info


@contextmanager
def described(folder: Path) -> Iterator[None]:
    """What is wrong with the words of a run's ``checkpoint.json``, used within the block, is a `DataError`."""
    where, hint = folder / "checkpoint.json", "Take the file that was written with these weights"
    try:
        yield
    except ConfigError as error:
        raise DataError(error.what, where=where, hint=hint) from None
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        reason = " ".join(str(error).split())[:200]
        raise DataError(f"it describes no model ({type(error).__name__}: {reason})", where=where, hint=hint) from None


@contextmanager
def checked_weights(folder: Path) -> Iterator[Path]:
    """The weights of a run's fold, to be read within the block; what is wrong with them is a `DataError`."""
    weights = folder / "checkpoint.safetensors"
    try:
        yield weights
    except FileNotFoundError:
        raise DataError("file not found", where=weights, hint="Train this fold again") from None
    except (SafetensorError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        what = f"not a readable checkpoint, or its weights do not fit checkpoint.json: {reason}"
        raise DataError(what, where=weights, hint="Train this fold again") from None


def _portable(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.detach().cpu().contiguous() for name, value in tensors.items()}


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
