"""Trained models from disk, as estimators and with what is known of them: saved ones, packs, and folders of runs.

The command ``bolt pack`` puts a run's models in one folder that can be given to others, with a model card: a README in
Markdown, with the metadata that model hubs read.
"""

from __future__ import annotations

import argparse
import logging
import re
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from bolt import __version__
from bolt.config import Model
from bolt.evaluate.metrics import metrics_of
from bolt.io.errors import BoltError, ConfigError, DataError
from bolt.io.files import atomic, read_json, sha256, write_json, write_text
from bolt.io.packages import name_extra
from bolt.models.registry import inputs_of
from bolt.report.numbers import metric_name
from bolt.share.cohort import RunPlace, describe_run, fit_floor, floor_name, of_present_split, span
from bolt.share.estimators import ABOUT, FORMAT, NOT_SETTINGS, estimator_class, new_folder, write_estimator
from bolt.share.scans import class_name
from bolt.training.ensembles import Member, load_member
from bolt.training.outputs import checked_info

log = logging.getLogger("bolt")

MOST_MEMBERS = 1000
"""More models than anyone packs; a foreign file could name millions."""
ARRAYS = "cohort.safetensors"
FLOOR = "floor"
"""Folder of a pack's confound floor."""
SUMS = "sha256.json"
TEMPLATES = Path(__file__).with_name("templates")


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
    about: dict[str, Any] = {}
    described = ABOUT if (folder / ABOUT).is_file() else "checkpoint.json"
    if described == ABOUT:
        about = read_json(folder / ABOUT)
        with checked_info(folder, ABOUT):
            if about["format"] != FORMAT:
                raise ValueError(f"format {about['format']}, but this version of BolT reads format {FORMAT}")
            names, classes = about["members"], about["classes"]
            if not 0 < len(names) <= MOST_MEMBERS or not all(re.fullmatch(r"[\w-]+", name) for name in names):
                raise ValueError("'members' is not a list of folders' names")  # which lead nowhere else
            if classes is not None and not all(isinstance(name, str | int | float) for name in classes):
                raise ValueError("'classes' is not a list of names or numbers")
            places = [folder / name for name in names]
    else:
        found = [sorted(folder.glob(f"{pattern}{described}")) for pattern in ("", "fold-*/", "seed-*/fold-*/")]
        trained = [path.parent for path in next(filter(None, found), [])]
        places = of_present_split(trained)
        if trained and not places:
            raise DataError("all models were trained on an earlier split", where=folder, hint="Run the workflow again")
        if not places:
            hint = "Give a folder written by save() or 'bolt pack', or a run's: results/<dataset>/runs/…/<model>"
            raise DataError("no trained model in this folder", where=folder, hint=hint)
    members = [load_member(place) for place in places]
    first = members[0].info
    with checked_info(folder, described):
        about = about or {name: first[name] for name in ("model", "classes")} | {"settings": {"seed": first["seed"]}}
        for member in members[1:]:
            for key in ("classes", "n_rois", "rois"):
                if member.info[key] != first[key]:
                    raise ValueError(f"its models differ in {key}")
        classes, roi_names = about["classes"], about.get("roi_names")
        names = None if classes is None else [class_name(name) for name in classes]
        if first["classes"] != names:
            raise ValueError(f"classes are {names}, but those of its models {first['classes']}")
        if roi_names is not None and len(set(map(str, roi_names))) != first["n_rois"]:
            raise ValueError("'roi_names' are not one name per ROI")
        settings = {k: tuple(v) if isinstance(v, list) else v for k, v in about["settings"].items()}
        settings = {name: value for name, value in settings.items() if name not in NOT_SETTINGS}
        estimator = estimator_class(Model.model_validate(about["model"]), names is None)(**settings)
    estimator.members_, estimator.n_features_in_ = members, first["n_rois"]
    if roi_names is not None:
        estimator.feature_names_in_ = np.array(roi_names, object)
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


@dataclass
class Pack:
    """Trained models and what is known about them.

    Attributes
    ----------
    estimator : Classifier or Regressor
    about : dict
        From `bolt.share.cohort.describe_run`; empty for an estimator saved from Python.
    connectivity : (R (R - 1) / 2,) array or None
        Mean of the training cohort, if it is described.
    place : RunPlace or None
        The results that hold the models; None for a pack.
    floor : Member or None
        A model of what must not explain the predictions: motion, age and sex, as far as they are known.
    """

    estimator: Any
    about: dict[str, Any] = field(default_factory=dict)
    connectivity: NDArray[np.float32] | None = None
    place: RunPlace | None = None
    floor: Member | None = None

    @property
    def classes(self) -> list[str] | None:
        """Return the names of the classes; None if the models predict a number."""
        classes = self.estimator.members_[0].info["classes"]
        return None if classes is None else list(classes)

    @property
    def rois(self) -> list[int]:
        """Return the values of the ROIs that the models read, in order."""
        return list(self.estimator.members_[0].info["rois"])

    @property
    def atlas(self) -> dict[str, Any]:
        """Return name (empty if unknown) and sha256 of the atlas."""
        return self.about.get("atlas", {"name": "", "sha256": None})  # type: ignore[no-any-return]

    @property
    def space(self) -> str | None:
        """Return the space of the series, as their sidecars state it."""
        from bolt.series.parcellate import NATIVE

        series = self.about.get("series", {})
        return NATIVE if series.get("output") == NATIVE else series.get("space")

    @property
    def shortest(self) -> int:
        """Return the length of the shortest scan that all models can read, in volumes."""
        return max(member.shortest for member in self.estimator.members_)


def read_pack(folder: Path, *, describe: bool = True) -> Pack:
    """Read whatever can be loaded: a pack, an estimator saved from Python, a run's folder, or one of its folds.

    Parameters
    ----------
    folder : Path
    describe : bool
        Whether a run's cohort and its confound floor are needed; otherwise a copy of a fold, outside its results, will
        do.

    Raises
    ------
    DataError
        It holds no model, or its files do not fit each other.
    """
    estimator = load(folder)
    if not (folder / ABOUT).is_file():
        if not describe:
            with suppress(DataError):
                return Pack(estimator, place=RunPlace(folder))
            return Pack(estimator)
        place = RunPlace(folder)
        floor = fit_floor(place.cache, estimator.members_[0].info["classes"])
        return Pack(estimator, *describe_run(place), place, floor)
    about = read_json(folder / ABOUT)
    if "cohort" not in about:
        return Pack(estimator)
    if (folder / SUMS).is_file():  # of what is read: people may add to the card
        known, actual = read_json(folder / SUMS), _sums(folder)
        if not isinstance(known, dict):
            raise DataError("not a list of checksums", where=folder / SUMS, hint="Get the pack again")
        for name in sorted(known.keys() | actual.keys()):
            if name.endswith((".json", ".safetensors")) and known.get(name) != actual.get(name):
                problem = "missing" if name not in actual else "altered, or cut off"
                raise DataError(f"'{name}' is {problem}", where=folder, hint="Get the pack again")
    with checked_info(folder, ABOUT):  # a foreign description with which scans cannot be compared
        cohort, series, atlas, rois = about["cohort"], about["series"], about["atlas"], about["rois"]["value"]
        try:
            connectivity = load_file(folder / ARRAYS)["connectivity"]
        except Exception as error:  # whatever a damaged file raises
            reason = " ".join(str(error).split())[:200]
            raise DataError(f"not readable ({reason})", where=folder / ARRAYS, hint="Pack the run again") from None
        if connectivity.shape != (len(rois) * (len(rois) - 1) // 2,) or not np.isfinite(connectivity).all():
            raise DataError(f"connectivity of shape {connectivity.shape} for {len(rois)} ROIs", where=folder / ARRAYS)
        if estimator.members_[0].info["rois"] != rois:
            raise ValueError("its ROIs differ from those of its models")
        ends = [cohort["volumes"], *([cohort["tr"]] if cohort.get("tr") else [])]
        ends += [[cohort[name]["5"], cohort[name]["95"]] for name in ("mean_fd", "age") if cohort.get(name)]
        numbers = [float(end) for low, high in ends for end in (low, high)]
        if not len(cohort["distance"]) or not np.isfinite([*numbers, *cohort["distance"]]).all():
            raise ValueError("the cohort is not described in finite numbers")
        if not isinstance(series.get("denoising"), dict | None) or not isinstance(cohort.get("site"), dict | None):
            raise TypeError("denoising or sites are not described")
        if not all(isinstance(name, str) for names in about.get("institutions", {}).values() for name in names):
            raise TypeError("institutions are no lists of sites")
        sized = 0 < float(about["temperature"] or 1) < 1000 and series.get("crop") is not None
        if not sized or atlas["name"] is None or "sha256" not in atlas:
            raise ValueError("the cohort, the atlas or the series are not described")
    return Pack(
        estimator, about, connectivity, None, load_member(folder / FLOOR) if (folder / FLOOR).is_dir() else None
    )


def _sums(folder: Path) -> dict[str, str]:
    """Return the checksums of all files of a pack but the list of them."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != SUMS)
    return {path.relative_to(folder).as_posix(): sha256(path) for path in files}


def pack(options: argparse.Namespace) -> None:
    """Run ``bolt pack RUN_FOLDER --out FOLDER``.

    Parameters
    ----------
    options : Namespace
        run, out, licence.

    Raises
    ------
    DataError
        The run has no finished fold, or its models hold data of participants.
    ConfigError
        `out` holds something else.
    """
    place = RunPlace(options.run)
    about, connectivity = describe_run(place)
    estimator = load(options.run)
    if (options.out / ABOUT).is_file():
        there, (dataset, model) = read_json(options.out / ABOUT), (about["dataset"], estimator.configuration.name)
        if (there.get("dataset"), there.get("model", {}).get("name")) != (dataset, model):
            hint = "Give a new folder, or remove this one"
            raise ConfigError("holds the pack of another model or dataset", where=options.out, hint=hint)
    with new_folder(options.out) as out:
        floor = fit_floor(place.cache, estimator.members_[0].info["classes"])
        write_estimator(estimator, out, **about)
        refuse_participants(out)
        if floor is not None:
            floor.save(out / FLOOR)
        with atomic(out / ARRAYS) as temporary:  # which others may read
            save_file({"connectivity": connectivity}, temporary)
        card = model_card(estimator, about, options.licence, "" if floor is None else floor_name(floor))
        write_text(card, out / "README.md")
        write_json(_sums(out), out / SUMS)
    n, failed = len(estimator.members_), about["runs"]["failed"]
    log.info("%s: %d models%s", options.out, n, f" ({failed} trainings have failed)" if failed else "")


def refuse_participants(folder: Path) -> None:
    """Refuse models that hold training scans: support vectors of an RBF kernel are the matrices of people."""
    for path in sorted(folder.rglob("*.safetensors")):
        with safe_open(path, "numpy") as arrays:
            if any(name.endswith(".support") for name in arrays.keys()):  # noqa: SIM118
                raise DataError(
                    "the model holds connectivity matrices of training participants (support vectors of an RBF kernel)",
                    where=path.relative_to(folder),
                    hint="Train it with 'kernel: linear', or give 'bolt predict' the run's own folder",
                )


def model_card(estimator: Any, about: dict[str, Any], licence: str | None = None, floor: str = "") -> str:
    """Write the card.

    Parameters
    ----------
    estimator : Classifier or Regressor
    about : dict
        From `bolt.share.cohort.describe_run`.
    licence : str, optional
        Of the weights, as hubs name them: ``cc-by-4.0``, ``apache-2.0``, …
    floor : str
        What the pack's confound floor reads, in words; empty if it has none.

    Returns
    -------
    str
        Markdown, from `templates/card.md`.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    model, info = estimator.configuration, estimator.members_[0].info
    metrics = {name: about["metrics"][name] for name in metrics_of(info["classes"])}
    environment = Environment(loader=FileSystemLoader(TEMPLATES), undefined=StrictUndefined, autoescape=False)
    environment.filters["metric_name"] = metric_name
    return environment.get_template("card.md").render(
        licence=licence,
        about=about,
        cohort=dict.fromkeys(("label", "site", "sex", "age", "mean_fd")) | about["cohort"],
        classes=info["classes"],
        model=model,
        floor=floor,
        crop=info.get("crop", about["series"]["crop"]) if on_crops(model) else None,
        metrics={name: metric for name, metric in metrics.items() if metric["value"] is not None},
        n_models=len(estimator.members_),
        n_rois=len(about["rois"]["value"]),
        span=span,
        version=__version__,
    )


def on_crops(model: Model) -> bool:
    """Return whether a model itself is trained on crops; the members of an ensemble state their own settings."""
    inputs = inputs_of(model.model)
    return inputs == "series" or (inputs == "connectivity" and model.connectivity == "crop")
