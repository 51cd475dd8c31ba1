"""Curves of trainings in TensorBoard or Weights & Biases, epoch by epoch; the results do not depend on them.

Nothing leaves the machine: Weights & Biases writes to disk (``WANDB_MODE=offline``) unless the user sets that variable.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from bolt.io.errors import ConfigError

log = logging.getLogger("bolt")

Watch = Callable[[dict[str, float]], None]
"""Takes the row of the history after each epoch."""


class Curves(Protocol):
    """Where the curves of one training are written."""

    def add(self, row: Mapping[str, float], epoch: int) -> None:
        """Add the values of an epoch."""

    def close(self) -> None:
        """Write what is still in memory."""


class TensorBoard:
    """Event files in a folder per training; those of an earlier attempt at the same training are hidden."""

    def __init__(self, folder: Path, title: str, settings: Mapping[str, Any]) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(str(folder / title), purge_step=1)

    def add(self, row: Mapping[str, float], epoch: int) -> None:
        """Add the values of an epoch."""
        for name, value in row.items():
            self.writer.add_scalar(name, value, epoch)
        self.writer.flush()

    def close(self) -> None:
        """Close the file."""
        self.writer.close()


class WeightsAndBiases:
    """A run of Weights & Biases: losses and the model's settings, without code, commit or console."""

    def __init__(self, folder: Path, title: str, settings: Mapping[str, Any]) -> None:
        import wandb

        folder.mkdir(parents=True, exist_ok=True)
        self.run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "bolt"),
            name=title,
            dir=str(folder),
            config=dict(settings),
            mode=os.environ.get("WANDB_MODE", "offline"),
            reinit="create_new",  # folds that are trained side by side
            settings=wandb.Settings(console="off", save_code=False, disable_git=True, silent=True),
        )

    def add(self, row: Mapping[str, float], epoch: int) -> None:
        """Add the values of an epoch."""
        self.run.log(dict(row), step=epoch)

    def close(self) -> None:
        """End the run."""
        self.run.finish()


TOOLS: dict[str, Callable[[Path, str, Mapping[str, Any]], Curves]] = {
    "tensorboard": TensorBoard,
    "wandb": WeightsAndBiases,
}
"""By the name of the tool, which is that of its package."""


def require_tools(names: Sequence[str]) -> None:
    """Refuse tools whose package is not installed.

    Raises
    ------
    ConfigError
    """
    for name in names:
        if name not in sys.modules and importlib.util.find_spec(name) is None:
            raise ConfigError(
                f"'watch' names {name}, which is not installed",
                where="configuration",
                hint=f"Install it (pip install 'bolt-fmri[{name}]'), or set 'watch' to []",
            )


@contextmanager
def watched(tools: Sequence[str], folder: Path, title: str, settings: Mapping[str, Any]) -> Iterator[Watch]:
    """Yield what takes the epochs of one training; a tool that fails is left out with a warning.

    Parameters
    ----------
    tools : sequence of str
        Keys of `TOOLS`.
    folder : Path
        Receives a folder per tool.
    title : str
        Of the training, unique in `folder`; may have parts, as a path.
    settings : mapping
        Of the model, to be shown beside the curves.
    """
    opened: dict[str, Curves] = {}

    def attempt(name: str, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except Exception as error:  # whatever it is: the training must not end with it
            log.warning("%s: no curves in %s: %s", title, name, error)
            opened.pop(name, None)
            return None

    for name in tools:
        curves = attempt(name, lambda name=name: TOOLS[name](folder / name, title, settings))  # type: ignore[misc]
        if curves is not None:
            opened[name] = curves

    def watch(row: dict[str, float]) -> None:
        values = {name: value for name, value in row.items() if name != "epoch"}
        for name, curves in list(opened.items()):
            attempt(name, lambda curves=curves: curves.add(values, int(row["epoch"])))  # type: ignore[misc]

    try:
        yield watch
    finally:
        for name, curves in list(opened.items()):
            attempt(name, curves.close)
