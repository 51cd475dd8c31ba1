"""The command ``bolt pack``: a run's models in one folder that can be given to others."""

from __future__ import annotations

import argparse
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from bolt.api.loading import load
from bolt.api.saved import ABOUT, FLOOR, new_folder, write_estimator
from bolt.io.errors import DataError
from bolt.io.files import read_json, sha256, write_json, write_text
from bolt.packs.card import model_card
from bolt.packs.facts import Facts, RunPlace, describe_run
from bolt.packs.floor import fit_floor, floor_name
from bolt.training.ensembles import Member, load_member
from bolt.training.outputs import checked_info

log = logging.getLogger("bolt")

ARRAYS = "cohort.safetensors"
SUMS = "sha256.json"


@dataclass
class Pack:
    """Trained models and what is known about them.

    Attributes
    ----------
    estimator : Classifier or Regressor
    facts : Facts or None
        None for an estimator saved from Python.
    place : RunPlace or None
        The results that hold the models; None for a pack.
    floor : Member or None
        A model of what must not explain the predictions: motion, age and sex, as far as they are known.
    """

    estimator: Any
    facts: Facts | None = None
    place: RunPlace | None = None
    floor: Member | None = None

    @property
    def about(self) -> dict[str, Any]:
        """Return the facts as JSON; empty if there are none."""
        return self.facts.about if self.facts else {}

    @property
    def classes(self) -> list[str] | None:
        """Return the names of the classes; None if the models predict a number."""
        classes = self.estimator.members_[0].info["classes"]
        return None if classes is None else list(classes)


def pack(options: argparse.Namespace) -> None:
    """Run ``bolt pack RUN_FOLDER --out FOLDER``.

    Parameters
    ----------
    options : Namespace
        run, out, licence.

    Raises
    ------
    DataError
        The run has no finished fold.
    ConfigError
        `out` holds something else.
    """
    place = RunPlace.of(options.run)
    facts = describe_run(place)
    estimator = load(options.run)
    with new_folder(options.out) as out:
        _write(estimator, facts, fit_floor(place.cache, estimator.members_[0].info["classes"]), options.licence, out)
    n, failed = len(estimator.members_), facts.about["runs"]["failed"]
    log.info("%s: %d models%s", options.out, n, f" ({failed} trainings have failed)" if failed else "")


def _write(estimator: Any, facts: Facts, floor: Member | None, licence: str | None, out: Path) -> None:
    """Write the files of a pack into an empty folder."""
    write_estimator(estimator, out, **facts.about)
    if floor is not None:
        floor.save(out / FLOOR)
    save_file({"connectivity": facts.connectivity}, out / ARRAYS)
    write_text(
        model_card(estimator, facts.about, licence, "" if floor is None else floor_name(floor)), out / "README.md"
    )
    write_json(_sums(out), out / SUMS)


def _sums(folder: Path) -> dict[str, str]:
    """Return the checksums of all files of a pack but the list of them."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != SUMS)
    return {path.relative_to(folder).as_posix(): sha256(path) for path in files}


def read_pack(folder: Path) -> Pack:
    """Read a pack, an estimator saved from Python, a run's folder, or one of its folds.

    Raises
    ------
    DataError
        It holds no model, or its files do not fit each other.
    """
    estimator = load(folder)
    if not (folder / ABOUT).is_file():
        place = RunPlace.of(folder)
        return Pack(
            estimator, describe_run(place), place, fit_floor(place.cache, estimator.members_[0].info["classes"])
        )
    about = read_json(folder / ABOUT)
    if "cohort" not in about:
        return Pack(estimator)
    _require_unaltered(folder)
    with checked_info(folder, ABOUT):
        connectivity = _mean_connectivity(folder, about["rois"]["value"])
        if estimator.members_[0].info["rois"] != about["rois"]["value"]:
            raise ValueError("its ROIs differ from those of its models")
        needed = (
            about["cohort"]["volumes"],
            about["cohort"]["distance"],
            about["atlas"]["name"],
            about["atlas"]["sha256"],
        )
        _check_cohort(about["cohort"], about["series"])
        if None in needed[:3] or not 0 < float(about["temperature"] or 1) < 1000 or about["series"].get("crop") is None:
            raise ValueError("the cohort, the atlas or the series are not described")
    floor = load_member(folder / FLOOR) if (folder / FLOOR).is_dir() else None
    return Pack(estimator, Facts(about, connectivity), None, floor)


def _require_unaltered(folder: Path) -> None:
    """Refuse a pack of which a file that is read is missing or altered (DataError); its card may be edited."""
    if not (folder / SUMS).is_file():
        return
    known, actual = read_json(folder / SUMS), _sums(folder)
    if not isinstance(known, dict):
        raise DataError("not a list of checksums", where=folder / SUMS, hint="Get the pack again")
    for name in sorted(known.keys() | actual.keys()):
        if name.endswith((".json", ".safetensors")) and known.get(name) != actual.get(name):
            problem = "missing" if name not in actual else "altered, or cut off"
            raise DataError(f"'{name}' is {problem}", where=folder, hint="Get the pack again")


def _check_cohort(cohort: dict[str, Any], series: dict[str, Any]) -> None:
    """Refuse a foreign description with which scans cannot be compared (ValueError, TypeError, KeyError)."""
    ends = [cohort["volumes"], *([cohort["tr"]] if cohort.get("tr") else [])]
    ends += [[cohort[name]["5"], cohort[name]["95"]] for name in ("mean_fd", "age") if cohort.get(name)]
    numbers = [[float(low), float(high)] for low, high in ends]
    if not np.isfinite(numbers).all() or not len(cohort["distance"]) or not np.isfinite(cohort["distance"]).all():
        raise ValueError("the cohort is not described in finite numbers")
    if not isinstance(series.get("denoising"), dict | None) or not isinstance(cohort.get("site"), dict | None):
        raise TypeError("denoising or sites are not described")


def _mean_connectivity(folder: Path, rois: list[int]) -> NDArray[np.float32]:
    try:
        mean: NDArray[np.float32] = load_file(folder / ARRAYS)["connectivity"]
    except Exception as error:  # whatever a damaged file raises
        reason = " ".join(str(error).split())[:200]
        raise DataError(f"not readable ({reason})", where=folder / ARRAYS, hint="Pack the run again") from None
    if mean.shape != (len(rois) * (len(rois) - 1) // 2,) or not np.isfinite(mean).all():
        raise DataError(f"connectivity of shape {mean.shape} for {len(rois)} ROIs", where=folder / ARRAYS)
    return mean
