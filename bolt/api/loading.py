"""Trained models from disk, as estimators: saved ones, packs, and folders of runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bolt.api.estimators import estimator_class
from bolt.api.saved import ABOUT, FORMAT, NOT_SETTINGS
from bolt.config import Model
from bolt.io.errors import BoltError, ConfigError, DataError
from bolt.io.extras import name_extra
from bolt.io.files import read_json
from bolt.training.ensembles import Member, load_member
from bolt.training.outputs import checked_info

MOST_MEMBERS = 1000
"""More models than anyone packs; a foreign file could name millions."""


def load(source: str | Path, *, hub: bool = False) -> Any:
    """Load a trained estimator.

    Parameters
    ----------
    source : path or str
        A folder written by ``save`` or ``bolt pack``; a run's folder (``results/…/runs/…/<model>``, with all seeds and
        folds), or one of its seeds or folds; or, with `hub`, a model's name on the Hugging Face hub (``owner/name``).
    hub : bool
        Download from the hub, which needs the extra ``hub`` (``pip install 'bolt-fmri[hub]'``). Without it nothing is
        looked up on the network.

    Returns
    -------
    Classifier or Regressor
        Its `predict` averages over all models in the folder.

    Raises
    ------
    DataError
        The folder holds no model, or its files do not fit each other.
    """
    folder = _downloaded(str(source)) if hub else Path(source)
    if not folder.is_dir():
        hint = "Give a folder written by save() or 'bolt pack', or a run's folder"
        hint += f". For a model on a hub: load({str(source)!r}, hub=True)" if str(source).count("/") == 1 else ""
        raise DataError("no such folder", where=folder, hint=hint)
    if (folder / ABOUT).is_file():
        return _from_pack(folder)
    members = [load_member(path.parent) for path in _checkpoints(folder)]
    first = members[0].info
    return _estimator(members, folder, first["classes"], first["model"], {"seed": first["seed"]})


def _checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoints of a run, of one of its seeds, or of one fold."""
    for pattern in ("checkpoint.json", "fold-*/checkpoint.json", "seed-*/fold-*/checkpoint.json"):
        if found := sorted(folder.glob(pattern)):
            return found
    raise DataError(
        "no trained model in this folder",
        where=folder,
        hint="Give a folder written by save() or 'bolt pack', or a run's: results/<dataset>/runs/…/<model>",
    )


def _from_pack(folder: Path) -> Any:
    """Load a folder with ``model.json``."""
    about = read_json(folder / ABOUT)
    with checked_info(folder, ABOUT):
        if about["format"] != FORMAT:
            raise ValueError(f"format {about['format']}, but this version of BolT reads format {FORMAT}")
        names = about["members"]
        if not names or len(names) > MOST_MEMBERS or not all(_plain(name) for name in names):
            raise ValueError("'members' is not a list of folders' names")
        settings = {key: value for key, value in about["settings"].items() if key not in NOT_SETTINGS}
        model, classes = about["model"], about["classes"]
        if classes is not None and not all(isinstance(name, str | int | float) for name in classes):
            raise ValueError("'classes' is not a list of names or numbers")
    members = [load_member(folder / name) for name in names]
    estimator = _estimator(members, folder, classes, model, settings)
    with checked_info(folder, ABOUT):
        names = about.get("roi_names")
        if names is not None and len(set(map(str, names))) != estimator.n_features_in_:
            raise ValueError("'roi_names' are not one name per ROI")
    estimator._name_rois(names)
    return estimator


def _plain(name: Any) -> bool:
    """Return whether a name from a foreign file is that of a folder, and leads nowhere else."""
    return isinstance(name, str) and name not in ("", ".", "..") and Path(name).name == name


def _estimator(members: list[Member], folder: Path, classes: Any, model: Any, settings: dict[str, Any]) -> Any:
    """Return an estimator with trained members; refuse members that differ in what they predict."""
    with checked_info(folder, ABOUT if (folder / ABOUT).is_file() else "checkpoint.json"):
        first = members[0].info
        for member in members[1:]:
            for key in ("classes", "n_rois", "rois"):
                if member.info[key] != first[key]:
                    raise ValueError(f"its models differ in {key}")
        names = None if classes is None else [str(name) for name in classes]
        if first["classes"] != names:
            raise ValueError(f"classes are {names}, but those of its models {first['classes']}")
        settings = {name: tuple(value) if isinstance(value, list) else value for name, value in settings.items()}
        estimator = estimator_class(Model.model_validate(model), names is None)(**settings)
    estimator.members_, estimator.n_features_in_ = members, first["n_rois"]
    history = folder / "history.tsv"
    estimator.history_ = pd.read_csv(history, sep="\t") if history.is_file() else pd.DataFrame()
    if classes is not None:
        estimator.classes_ = np.array(classes)
    return estimator


def _downloaded(name: str) -> Path:
    """Download a model from the Hugging Face hub; return its folder in the hub's cache."""
    with name_extra():
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HfHubHTTPError, HFValidationError
    patterns = ["*.json", "*.yaml", "*.tsv", "*.safetensors", "README.md"]  # nothing that could be run
    try:
        return Path(snapshot_download(name, allow_patterns=patterns))
    except HFValidationError as error:
        raise ConfigError(f"'{name}' is no name of a model on the hub ({error})", hint="As in owner/name") from None
    except (HfHubHTTPError, OSError) as error:
        reason = " ".join(str(error).split())[:300]
        raise BoltError(f"'{name}' cannot be downloaded ({reason})", hint="Check the name and the network") from None
