"""Trained estimators on disk: a folder with `model.json` and one folder per model.

Weights are safetensors and all else is JSON, so that loading a folder from others cannot run code.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bolt import __version__
from bolt.io.errors import ConfigError
from bolt.io.files import write_json, write_table
from bolt.io.resource_errors import explain_shortages

ABOUT = "model.json"
FLOOR = "floor"
"""Folder of a pack's confound floor (`bolt.packs.floor`)."""
FORMAT = 1
NOT_SETTINGS = ("folder", "threads", "progress", "device")
"""Parameters that belong to a machine, not to a model."""


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Yield an empty folder that takes the place of `folder` when the block ends without an error.

    Raises
    ------
    ConfigError
        The folder holds something else than a saved model.
    """
    if folder.exists() and (not folder.is_dir() or (any(folder.iterdir()) and not (folder / ABOUT).is_file())):
        raise ConfigError("not an empty folder, nor a saved model", where=folder, hint="Give a new folder")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with explain_shortages(folder.parent), TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as place:
        made = Path(place) / "new"
        made.mkdir()
        yield made
        if folder.exists():
            folder.rename(Path(place) / "earlier")
        made.rename(folder)


def save_estimator(estimator: Any, folder: Path) -> None:
    """Write a trained estimator, in place of one that was saved there before.

    Raises
    ------
    ConfigError
        The folder holds something else.
    """
    with new_folder(folder) as place:
        write_estimator(estimator, place)


def write_estimator(estimator: Any, folder: Path, **facts: Any) -> None:
    """Write a trained estimator into an empty folder; `facts` are added to ``model.json``."""
    names = [f"member-{i}" for i in range(len(estimator.members_))]
    for name, member in zip(names, estimator.members_, strict=True):
        member.save(folder / name)
    if len(estimator.history_):
        write_table(estimator.history_, folder / "history.tsv", {column: column for column in estimator.history_})
    about = {
        "format": FORMAT,
        "bolt": __version__,
        "members": names,
        "n_rois": estimator.n_features_in_,
        "roi_names": list(getattr(estimator, "feature_names_in_", [])) or None,
        "classes": estimator.classes_.tolist() if hasattr(estimator, "classes_") else None,
        "model": estimator.configuration.model_dump(mode="json"),
        "settings": {k: v for k, v in estimator.get_params(deep=False).items() if k not in NOT_SETTINGS},
    }
    write_json(about | facts, folder / ABOUT)
