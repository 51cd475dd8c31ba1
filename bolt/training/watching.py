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
from typing import Any

from bolt.io.errors import ConfigError

log = logging.getLogger("bolt")

Watch = Callable[[dict[str, float]], None]
"""Takes the row of the history after each epoch."""


Curves = tuple[Callable[[dict[str, float], int], None], Callable[[], None]]
"""Takes the values of an epoch, and its number; and ends the curves of a training."""


def _tensorboard(folder: Path, title: str, settings: Mapping[str, Any]) -> Curves:
    """Write event files in a folder per training; those of an earlier attempt at the same training are hidden."""
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(folder / title), purge_step=1)

    def add(values: dict[str, float], epoch: int) -> None:
        for name, value in values.items():
            writer.add_scalar(name, value, epoch)
        writer.flush()

    return add, writer.close


def _wandb(folder: Path, title: str, settings: Mapping[str, Any]) -> Curves:
    """Begin a run of Weights & Biases: losses and the model's settings, without code, commit or console."""
    import wandb

    folder.mkdir(parents=True, exist_ok=True)
    run = wandb.init(
        project=os.environ.get("WANDB_PROJECT", "bolt"),
        name=title,
        dir=str(folder),
        config=dict(settings),
        mode=os.environ.get("WANDB_MODE", "offline"),
        reinit="create_new",  # folds that are trained side by side
        settings=wandb.Settings(console="off", save_code=False, disable_git=True, silent=True),
    )
    return lambda values, epoch: run.log(values, step=epoch), run.finish


TOOLS = {"tensorboard": _tensorboard, "wandb": _wandb}
"""By the name of the tool, which is that of its package."""


def require_tools(names: Sequence[str]) -> None:
    """Refuse tools whose package is not installed.

    Raises
    ------
    ConfigError
    """
    for name in names:
        if name not in sys.modules and importlib.util.find_spec(name) is None:
            hint = f"Install it (pip install 'bolt-fmri[{name}]'), or set 'watch' to []"
            raise ConfigError(f"'watch' names {name}, which is not installed", where="configuration", hint=hint)


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

    def attempt(name: str, work: Callable[..., Any], *given: Any) -> Any:
        try:
            return work(*given)
        except Exception as error:  # whatever it is: the training must not end with it
            log.warning("%s: no curves in %s: %s", title, name, error)
            opened.pop(name, None)
            return None

    for name in tools:
        if curves := attempt(name, TOOLS[name], folder / name, title, settings):
            opened[name] = curves

    def watch(row: dict[str, float]) -> None:
        values = {name: value for name, value in row.items() if name != "epoch"}
        for name, (add, _) in list(opened.items()):
            attempt(name, add, values, int(row["epoch"]))

    try:
        yield watch
    finally:
        for name, (_, close) in list(opened.items()):
            attempt(name, close)
