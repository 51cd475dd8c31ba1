"""A user's own configuration files: found by name beside the configuration that names them.

A name such as ``dataset: my_study`` is looked up in the folder of the configuration and in the folder above it, each
arranged as the shipped ``config/`` is: ``datasets/my_study.yaml``, ``models/…``, ``atlases/<name>/atlas.yaml``.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bolt.config import KINDS, ROOT
from bolt.io.files import read_yaml

ATLAS = "atlas"
NAMED: dict[str, str] = {
    "dataset": "dataset",
    "atlases": ATLAS,
    "models": "model",
    "experiments": "experiment",
    "denoise": "denoising",
    "preprocess.registration": "registration",
    "search.space": "search",
    "search.models": "model",
}
"""Keys of a configuration that name files, and the kind of these files."""


def with_own_files(raw: dict[str, Any], configfiles: Sequence[str | Path]) -> tuple[dict[str, Any], list[str]]:
    """Replace the names of a user's own files by their paths.

    Parameters
    ----------
    raw : dict
        The merged configuration.
    configfiles : sequence of path
        The files that it was merged from; a later one has precedence.

    Returns
    -------
    raw : dict
        A copy. Names that are not found stay names: those of shipped files. Paths are relative to the working folder if
        they are in it.
    notes : list of str
        One line for each of the user's files that has the name of a shipped one.
    """
    raw = copy.deepcopy(raw)
    files = [Path(os.path.abspath(file)) for file in reversed(configfiles)]  # without `..`
    folders = list(dict.fromkeys(folder for file in files for folder in file.parents[:2]))
    notes: list[str] = []

    def place(key: str, name: Any) -> Any:
        # else a path, or a mistake, which parsing reports
        is_name = isinstance(name, str) and Path(name).name == name and not name.endswith((".yaml", ".yml"))
        if not is_name:
            return name
        kind, shipped = NAMED[key], _shipped(NAMED[key], name)
        found = (own for own in (_place(kind, name, folder) for folder in folders) if os.path.isfile(own))
        own = next((own for own in found if not (shipped and own.samefile(shipped))), None)
        if own is None:
            return name
        if shipped:
            notes.append(f"Note: '{key}: {name}' is your own {own}, not the file of this name that comes with BolT.")
        path, here = own.parent if kind == ATLAS else own, Path.cwd()
        return str(path.relative_to(here) if path.is_relative_to(here) else path)

    for key in NAMED:
        *above, last = key.split(".")
        holder = raw
        for part in above:
            holder = holder.get(part) if isinstance(holder, dict) else None  # type: ignore[assignment]
        if isinstance(holder, dict) and last in holder:
            names = holder[last]
            holder[last] = [place(key, name) for name in names] if isinstance(names, list) else place(key, names)
    return raw, notes


def _shipped(kind: str, name: str) -> Path | None:
    """Find the file of this name that comes with BolT; of an atlas in several sizes, that of the family."""
    place = _place(kind, name, ROOT if kind == ATLAS else ROOT / "config")
    if place.is_file() or kind != ATLAS:
        return place if place.is_file() else None
    families = ROOT.glob("atlases/*/atlas.yaml")
    return next((family for family in families if name in read_yaml(family).get("members", {})), None)


def _place(kind: str, name: str, folder: Path) -> Path:
    return folder / "atlases" / name / "atlas.yaml" if kind == ATLAS else folder / KINDS[kind][0] / f"{name}.yaml"
