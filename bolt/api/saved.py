"""Trained estimators on disk: a folder with `model.json` and one folder per model.

Weights are safetensors and all else is JSON, so that loading a folder from others cannot run code.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from bolt import __version__
from bolt.io.errors import ConfigError
from bolt.io.files import write_json, write_table

ABOUT = "model.json"
FLOOR = "floor"
"""Folder of a pack's confound floor (`bolt.packs.floor`)."""
FORMAT = 1
NOT_SETTINGS = ("folder", "threads", "progress", "device")
"""Parameters that belong to a machine, not to a model."""


def save_estimator(estimator: Any, folder: Path, **facts: Any) -> None:
    """Write a trained estimator; `facts` are added to ``model.json``.

    Raises
    ------
    ConfigError
        The folder holds something else.
    """
    if folder.exists() and (not folder.is_dir() or (any(folder.iterdir()) and not (folder / ABOUT).is_file())):
        raise ConfigError("not an empty folder, nor a saved model", where=folder, hint="Give a new folder")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ABOUT).unlink(missing_ok=True)  # incomplete from here to the end
    names = [f"member-{i}" for i in range(len(estimator.members_))]
    for name, member in zip(names, estimator.members_, strict=True):
        member.save(folder / name)
    for earlier in {*folder.glob("member-*"), folder / FLOOR} - {folder / name for name in names}:
        shutil.rmtree(earlier, ignore_errors=True)  # of a larger model that was saved here before
    (folder / "history.tsv").unlink(missing_ok=True)
    if len(estimator.history_):
        write_table(estimator.history_, folder / "history.tsv", {column: column for column in estimator.history_})
    about = {
        "format": FORMAT,
        "bolt": __version__,
        "members": names,
        "n_rois": estimator.n_features_in_,
        "classes": estimator.classes_.tolist() if hasattr(estimator, "classes_") else None,
        "model": estimator.configuration.model_dump(mode="json"),
        "settings": {k: v for k, v in estimator.get_params(deep=False).items() if k not in NOT_SETTINGS},
    }
    write_json(about | facts, folder / ABOUT)
