"""The configuration: YAML files as typed, checked objects.

`config/config.yaml` (or any file given with ``--configfile``) holds the keys of `Config`; it names
files in `config/datasets`, `config/models`, `config/experiments`, `config/denoise`, `config/registration`
and `config/search`, which hold the keys of the classes below. Defaults are the paper's. An unknown
key is an error that names the nearest known one.

A user's own files are found by name, too: ``dataset: my_study`` is looked up in the folder of the configuration and in
the folder above it, each arranged as the shipped `config/` is (``datasets/my_study.yaml``), or has ``atlases/<name>``.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from bolt.config.datasets import Abide, Bucket, Dataset, Hcp, PaperDataset, Published, Range, Simulate
from bolt.config.experiments import EXPLAINING, Complexity, Experiment, InPaper, OneAtlas, Quick, Row, Spectra, Sweep
from bolt.config.keys import DIFFERENT, Keys, Names, Seed, nearest, parse
from bolt.config.models import FoldSettings, Model, Search, Space, Span, Training
from bolt.config.preprocessing import AROMA, STRATEGY_PARAMETERS, Denoise, Parcellate, Preprocess, Quality, Registration
from bolt.io.bids import atlas_name
from bolt.io.errors import ConfigError
from bolt.io.files import read_yaml
from bolt.io.places import ROOT


class Paths(Keys):
    """Folders, relative to the one in which `snakemake` runs."""

    results: Path = Path("results")
    work: Path = Path("work")
    atlas_dir: Path | None = None
    templateflow_home: Path | None = None

    @property
    def carried_atlases(self) -> Path:
        """Return the folder of atlas images that were carried over to another space."""
        return self.work / "atlases"


class Folds(Keys):
    """Splits into training, validation and test scans."""

    scheme: Literal["kfold", "leave-site-out"] = "kfold"
    group: Literal["family", "subject"] = Field("family", description="what never straddles a split")
    duplicates: Literal["refuse", "exclude", "group"] = Field(
        "refuse", description="scans that hold the same recording: stop, keep one of them, or never split them"
    )
    outer: int = Field(10, ge=2, le=1000)
    validation: float = Field(0.1, gt=0, lt=0.5)
    seed: Seed = 0
    run: list[int] | dict[str, list[int]] | None = Field(
        None, description="train only these outer folds, for all models or by model; null: all"
    )
    side_by_side: bool = Field(False, description="train all folds of a run in one job, taking turns on the device")
    permutations: int = Field(
        0, ge=0, description="repeat the cross-validation of models that are fitted at once on permuted labels"
    )

    @model_validator(mode="after")
    def _chosen_folds(self) -> Folds:
        if self.side_by_side and isinstance(self.run, dict):
            raise ValueError("'side_by_side' needs the same folds for all models: give 'run' as a list")
        for folds in self.run.values() if isinstance(self.run, dict) else [self.run]:
            if folds is not None and not 0 < len(folds) == len(set(folds)):
                raise ValueError("'run' must name at least one fold, and none twice (null: all)")
        return self

    def of(self, model: str) -> list[int]:
        """Return the outer folds in which a model of this name is trained."""
        chosen = self.run.get(model) if isinstance(self.run, dict) else self.run
        return list(range(self.outer)) if chosen is None else chosen


class Sanity(Keys):
    """Sanity checks of explanations: random weights and permuted labels, beside a model trained again."""

    draws: int = Field(2, ge=0, description="draws of random weights for cascading randomisation; 0: none")
    scans: int | None = Field(40, ge=2, description="test scans per fold, at most; null: all")
    independent: bool = Field(True, description="also randomise each layer alone")
    permuted: bool = Field(True, description="also train a model on permuted labels")
    retrained: bool = Field(True, description="also train a model again with another seed, the positive control")
    fold: int | None = Field(None, ge=0, description="fold of these two models; null: the first configured one")

    def fold_of(self, folds: list[int]) -> int:
        """Return the fold in which a model is trained on permuted labels, and again with another seed."""
        return folds[0] if self.fold is None else self.fold

    @property
    def asked(self) -> bool:
        """Return whether any check is configured."""
        return self.draws > 0 or self.permuted

    @property
    def controlled(self) -> bool:
        """Return whether the checks have their positive control."""
        return self.retrained and self.asked


class Faithfulness(Keys):
    """Deletion and insertion of important volumes."""

    scans: int = Field(100, ge=0, description="test scans per fold, at most; 0: no curves of deletion and insertion")
    steps: int = Field(10, ge=2, description="steps from the intact to the fully replaced scan")
    random_draws: int = Field(3, ge=1, description="random orders, and shifts of importance, to average")
    surrogates: int = Field(2, ge=1, description="phase-randomised copies of a scan to average")
    block: int = Field(5, ge=1, description="volumes replaced together by such a copy")
    gradient_steps: int = Field(16, ge=2, description="points on the path of integrated gradients")


class Agreement(Keys):
    """Agreement of maps between folds, seeds and halves of the people."""

    permutations: int = Field(200, ge=20, description="permutations of the labels that agreement is compared with")


class Explain(Keys):
    """Explanations: importance, landmarks and ROI weights."""

    tokens: int = Field(5, ge=1)
    landmark_samples: Literal["volumes", "scans"] = Field(
        "volumes", description="landmark regression: each volume is a sample, or those of a scan, side by side, are one"
    )
    top_rois: float = Field(0.02, gt=0, le=1)
    odds_ratio: Literal["symmetric", "published"] = Field(
        "symmetric", description="ROI importance: odds ratio of the mean weight, or as in the published code"
    )
    gradient: Literal["logit", "loss", "minus_loss"] = Field(
        "logit", description="whose gradient weights attention in Algorithm 1"
    )
    random_draws: int = Field(20, ge=1)
    subset_offsets: int = Field(
        60, ge=0, description="points of the curve over volumes in order of importance; 0: no curve"
    )
    subset_score: Literal["floored", "published"] = Field(
        "floored", description="the curve's score: importance over the scan's smallest above zero, or as in the paper"
    )
    inner_folds: int = Field(
        0,
        ge=0,
        description="parts of each fold's training side, each explained by a model trained without it; 0: none",
    )
    hrf_shift: float = Field(0.0, ge=0, le=30, description="seconds by which figures delay a task's events")
    trial_types: list[str] | None = Field(
        None, min_length=1, description="types of events in figures; null: those that define the task"
    )
    masked_task: str | None = Field(
        None, description="class (or task) whose series is drawn masked by importance; null: the first with events"
    )

    sanity: Sanity = Sanity()
    faithfulness: Faithfulness = Faithfulness()
    agreement: Agreement = Agreement()

    @model_validator(mode="after")
    def _parts(self) -> Explain:
        if self.inner_folds == 1:
            raise ValueError("'inner_folds' must be 0, or 2 at least")
        return self


class Config(Keys):
    """One run of the workflow."""

    dataset: str
    atlases: Names = ["schaefer400", "aal116"]
    models: Names = ["bolt"]
    seeds: Annotated[list[Seed], Field(min_length=1), DIFFERENT] = [0]
    experiments: list[str] = Field(
        [
            *("ablation", "window_size", "landmarks", "comparison", "complexity", "task_timing", "brain_maps"),
            *("baselines", "windows_only", "learning_curve", "spectra", "tuned", "tuned_learning_curve"),
        ],
        description="files in config/experiments (or paths), run by the targets `paper` (what the paper shows) and "
        "`extras` (the others)",
    )
    quick: Quick | None = Field(None, description="settings of a cheap first look at experiments")
    denoise: str = "none"
    bad_scans: Literal["continue", "refuse"] = "continue"
    device: Literal["auto", "cpu", "cuda"] = "auto"
    watch: list[Literal["tensorboard", "wandb"]] = Field([], description="where curves of trainings are shown")
    container: str | None = Field(None, pattern=r"^[\w./][\w.:/@-]*$", description="image of jobs with --sdm apptainer")
    paths: Paths = Paths()
    preprocess: Preprocess = Preprocess()
    parcellate: Parcellate = Parcellate()
    quality: Quality = Quality()
    folds: Folds = Folds()
    explain: Explain = Explain()
    search: Search = Search()

    @property
    def dataset_name(self) -> str:
        """Return the name of the dataset, without folder and suffix."""
        return Path(self.dataset).stem

    @property
    def experiment_places(self) -> dict[str, str]:
        """Return experiment names with their configured names or paths."""
        return {Path(experiment).stem: experiment for experiment in self.experiments}

    @property
    def atlas_places(self) -> dict[str, str]:
        """Return atlas names with their configured names or paths; two of one name are refused."""
        places: dict[str, str] = {}
        for atlas in self.atlases:
            first = places.setdefault(atlas_name(atlas), atlas)
            if first != atlas:
                raise ConfigError(f"two atlases have one name: {first} and {atlas}", hint="Rename one of them")
        return places

    @property
    def searched(self) -> list[str]:
        """Return the models of the target `search`."""
        return self.search.models or self.models

    def folds_searched(self, model: str, scheme: str) -> list[int]:
        """Return the folds that a scheme of the search needs for a model of this name."""
        folds = sorted(self.folds.of(model))
        return folds if scheme == "per-fold" else folds[:1]


KINDS: dict[str, tuple[str, type[Keys]]] = {
    "dataset": ("datasets", Dataset),
    "model": ("models", Model),
    "denoising": ("denoise", Denoise),
    "experiment": ("experiments", Experiment),
    "registration": ("registration", Registration),
    "search": ("search", Space),
}


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


def load_config(path: str | Path) -> Config:
    """Read and check the main configuration file."""
    return parse(Config, read_yaml(path), path)


def load_dataset(name: str) -> Dataset:
    """Read a dataset by name or path."""
    return _load("dataset", name)  # type: ignore[return-value]


def load_model(name: str) -> Model:
    """Read a model by name or path."""
    return _load("model", name)  # type: ignore[return-value]


def load_denoise(name: str) -> Denoise:
    """Read a denoising strategy by name or path."""
    return _load("denoising", name)  # type: ignore[return-value]


def load_experiment(name: str) -> Experiment:
    """Read an experiment by name or path."""
    return _load("experiment", name)  # type: ignore[return-value]


def load_space(name: str) -> Space:
    """Read a search space by name or path."""
    return _load("search", name)  # type: ignore[return-value]


def load_registration(name: str) -> Registration:
    """Read registration settings by name or path."""
    return _load("registration", name)  # type: ignore[return-value]


def known(kind: str) -> list[str]:
    """Return the names of the configuration files of a kind, sorted."""
    return sorted(p.stem for p in (ROOT / "config" / KINDS[kind][0]).glob("*.yaml"))


def _load(kind: str, name: str) -> Keys:
    """Read `config/<folder>/<name>.yaml`, or the YAML file at the path `name`."""
    return _read(kind, name, Path(name)) if name.endswith((".yaml", ".yml")) else _shipped(kind, name)


@cache  # every start asks for a model's file once a row of an experiment
def _shipped(kind: str, name: str) -> Keys:
    return _read(kind, name, ROOT / "config" / KINDS[kind][0] / f"{name}.yaml")


def _read(kind: str, name: str, path: Path) -> Keys:
    if not path.is_file():
        hint = f"Known: {', '.join(known(kind))}{nearest(name, known(kind))}; or give the path of a .yaml file"
        raise ConfigError(f"unknown {kind} '{name}'", hint=hint)
    return parse(KINDS[kind][1], {"name": path.stem, **read_yaml(path)}, path)


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
        kind, shipped = NAMED[key], shipped_file(NAMED[key], name)
        found = (own for own in (_place_of(kind, name, folder) for folder in folders) if os.path.isfile(own))
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


def shipped_file(kind: str, name: str) -> Path | None:
    """Find the file of this name that comes with BolT; of an atlas in several sizes, that of the family."""
    place = _place_of(kind, name, ROOT if kind == ATLAS else ROOT / "config")
    if place.is_file() or kind != ATLAS:
        return place if place.is_file() else None
    families = ROOT.glob("atlases/*/atlas.yaml")
    return next((family for family in families if name in read_yaml(family).get("members", {})), None)


def _place_of(kind: str, name: str, folder: Path) -> Path:
    return folder / "atlases" / name / "atlas.yaml" if kind == ATLAS else folder / KINDS[kind][0] / f"{name}.yaml"


def schemas() -> dict[str, dict[str, Any]]:
    """Return the JSON schemas of all configuration files, which `make schemas` writes to `config/schemas/`."""
    kinds: dict[str, type[Keys]] = {"config": Config} | {kind: keys for kind, (_, keys) in KINDS.items()}
    return {kind: keys.model_json_schema() for kind, keys in kinds.items()}


def schema_line(kind: str, file: str | Path) -> str:
    """Return the first line of a configuration file: where editors find its schema.

    Parameters
    ----------
    kind : str
        Of `schemas`.
    file : path
        The file: the schema's path is relative to its folder if both are in one clone, else absolute.
    """
    schema, folder = ROOT / f"config/schemas/{kind}.json", Path(file).resolve().parent
    path = os.path.relpath(schema, folder) if folder.is_relative_to(ROOT) else schema
    return f"# yaml-language-server: $schema={path}\n"
