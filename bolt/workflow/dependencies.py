"""What a rule depends on besides its input files: settings, code, and what lies in a dataset's folder."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from bolt import config as configuration
from bolt.atlases.description import atlas_folder, describe_atlas, find_image, find_labels
from bolt.config import Config, Dataset
from bolt.config.layout import Layout
from bolt.io.errors import BoltError, DataError
from bolt.io.files import sha256
from bolt.io.places import PACKAGE
from bolt.jobs.code_hash import fingerprint
from bolt.models.suitability import minimum_volumes

STAGES: dict[str, tuple[str, ...]] = {
    "simulate": ("bolt.datasets.phantom.dataset",),
    "index": (
        "bolt.datasets",
        "bolt.datasets.bids",
        "bolt.datasets.fmriprep",
        "bolt.datasets.series",
        "bolt.datasets.abide",
        "bolt.datasets.hcp",
        "bolt.atlases.image",
        "bolt.folds.splits",
    ),
    "template": ("bolt.preprocess.templates", "bolt.preprocess.quality.evidence"),
    "anatomical": ("bolt.preprocess.anatomical.workflow",),
    "functional": ("bolt.preprocess.functional.workflow",),
    "parcellate": ("bolt.series.parcellate",),
    "quality": ("bolt.cohort.quality",),
    "quality_pages": ("bolt.report.pages.quality", "bolt.preprocess.bidsignore"),
    "cache": ("bolt.series.cache",),
    "folds": ("bolt.folds.splits", "bolt.folds.check"),
    "train": ("bolt.training.runner",),
    "explain": ("bolt.explain.importance",),
    "evaluate": ("bolt.evaluate.metrics",),
    "inner_folds": ("bolt.folds.inner", "bolt.folds.check"),
    "landmarks": ("bolt.explain.landmarks",),
    "regions": ("bolt.explain.regions",),
    "tasks": ("bolt.explain.tasks",),
    "train_permuted": ("bolt.explain.trust.permuted",),
    "sanity": ("bolt.explain.trust.sanity",),
    "faithfulness_fold": ("bolt.explain.trust.perturb",),
    "faithfulness": ("bolt.explain.trust.faithfulness",),
    "stability": ("bolt.explain.trust.stability",),
    "oracle_cache": ("bolt.truth.table",),
    "truth": ("bolt.truth.table",),
    "explanation": ("bolt.report.pages.explanation",),
    "report": ("bolt.report.pages.report", "bolt.report.html"),
    "search": ("bolt.training.tuning.search", "bolt.training.tuning.choice"),
    "complexity": ("bolt.experiments.complexity",),
    "spectra": ("bolt.series.spectra",),
    "experiment": (
        "bolt.report.tables.experiment",
        "bolt.report.tables.complexity",
        "bolt.report.tables.spectra",
        "bolt.report.tables.landmarks",
    ),
}
"""The modules that a stage runs; with what they import they are its code fingerprint."""


NOT_INDEXED = ("description", "crop", "simulate", "expected", "paper")
"""Keys of a dataset that its index does not read."""


LANDMARK_KEYS = {"tokens", "random_draws", "subset_offsets", "inner_folds"}
"""Keys of `explain` that only landmarks are found by."""


TASK_KEYS = {"hrf_shift", "trial_types", "masked_task"}
"""Keys of `explain` that only the course of tasks is read from."""


NOT_ANATOMICAL = {"description", "motion_sampling", "motion_iterations"}
"""Keys of a registration that the anatomical half does not read."""


def code_of(stage: str, *modules: str) -> str:
    """Fingerprint of the code of a stage, and of further modules."""
    return fingerprint(*STAGES[stage], *modules)


def settings_of(config: Config, dataset: Dataset, stage: str) -> Any:
    """What a stage reads of the configuration, of a dataset and of the atlases.

    Parameters
    ----------
    config : Config
    dataset : Dataset
        The configured one.
    stage : str

    Returns
    -------
    object
        Whose representation changes with the settings; None for a stage that reads none.
    """
    native = Layout(config).native
    chosen: dict[str, Callable[[], Any]] = {
        "simulate": lambda: dataset.simulate,
        "index": lambda: [
            dataset.model_dump(exclude={**dict.fromkeys(NOT_INDEXED, True), "abide": {"base"}, "hcp": {"bucket"}}),
            config.preprocess.space,
            configuration.load_denoise(config.denoise).strategy == "ica_aroma",
            config.folds.outer,
            minimum_volumes(config),
        ],
        "template": lambda: config.preprocess.space,
        "anatomical": lambda: [
            config.preprocess.space,
            [one.model_dump(exclude=NOT_ANATOMICAL) for one in _registrations(config)],
        ],
        "functional": lambda: [
            config.preprocess.model_dump(exclude={"keep_bold", "registration", "threads"}),
            _registrations(config)[0].model_dump(exclude={"description"}),
        ],
        "parcellate": lambda: [
            _atlases(config),
            _images(config),
            config.parcellate.coverage,
            configuration.load_denoise(config.denoise),
            [config.preprocess.slice_timing] if native else [],
        ],
        "quality": lambda: config.quality,
        "quality_pages": lambda: [config.parcellate.coverage, _templates()],
        "cache": lambda: [_atlases(config), config.parcellate.uncovered, minimum_volumes(config)],
        "oracle_cache": lambda: _atlases(config),
        "folds": lambda: config.folds.model_dump(exclude={"run", "side_by_side"}),
        "train": lambda: [dataset.classes, dataset.crop, config.device],
        "search": lambda: [
            [dataset.classes, dataset.crop, config.device],
            config.search.model_dump(exclude={"models", "scheme"}),
            configuration.load_space(config.search.space),
        ],
        "regions": lambda: [
            _atlases(config),
            _images(config),
            config.explain.model_dump(exclude=TASK_KEYS | LANDMARK_KEYS | {"sanity", "faithfulness"}),
        ],
        "landmarks": lambda: config.explain.model_dump(include=LANDMARK_KEYS),
        "inner_folds": lambda: [
            config.folds.model_dump(exclude={"run", "side_by_side"}),
            config.explain.inner_folds,
        ],
        "tasks": lambda: config.explain.model_dump(include=TASK_KEYS),
        "train_permuted": lambda: [dataset.classes, dataset.crop, config.device, config.explain.sanity.fold],
        "explain": lambda: config.device,
        "sanity": lambda: [config.explain.sanity.model_dump(exclude={"fold"}), config.device],
        "faithfulness_fold": lambda: [config.explain.faithfulness, config.device],
        "stability": lambda: config.explain.top_rois,
        "truth": lambda: dataset.expected,
        "complexity": lambda: [config.device, config.quick],
        "explanation": lambda: [_templates(), _images(config), config.explain, dataset],
        "report": lambda: [_templates(), config.model_dump(mode="json"), dataset],  # its page prints these
    }
    return chosen[stage]() if stage in chosen else None


def _registrations(config: Config) -> list[configuration.Registration]:
    """In the order in which they are tried."""
    return [configuration.load_registration(name) for name in config.preprocess.registrations]


def _atlases(config: Config) -> list[str]:
    """What the atlases are: their descriptions, and the hashes of their tables of labels."""
    found = []
    for place in config.atlas_places.values():
        about = describe_atlas(place)
        try:
            table = sha256(find_labels(about, atlas_folder(place), config.paths.atlas_dir))
        except DataError:  # a family's table, before `resources` has fetched it
            table = "not staged"
        found += [about.model_dump_json(), table]
    return found


def _images(config: Config) -> list[str]:
    """Hashes of the label images whose description has none: users' own. Caches do not read them, so that an image
    for the maps of ready series trains nothing again."""
    found = []
    for place in config.atlas_places.values():
        about = describe_atlas(place)
        if about.kind == "image" and not about.sha256:
            paths = config.paths
            try:
                image = find_image(about, atlas_folder(place), paths.atlas_dir, paths.templateflow_home)
                found.append(sha256(image))
            except BoltError:
                found.append("not staged")
    return found


def _templates() -> list[str]:
    return [sha256(path) for path in sorted((PACKAGE / "report/templates").iterdir())]


def files_of(dataset: Dataset) -> str:
    """Names, sizes and times of a dataset's images and sidecars: a scan that was mended is indexed anew."""
    patterns = {
        "bids": "sub-*/**/*.*",
        "fmriprep": "sub-*/**/func/*_desc-*_bold.*",
        "hcp": "*/MNINonLinear/Results/?fMRI_*_??/?fMRI_*_??.nii.gz",
    }
    pattern = patterns.get(dataset.source)
    if pattern is None or dataset.downloaded:
        return ""
    found = sorted((str(path), path.stat()) for path in dataset.path.glob(pattern) if path.is_file())
    return hashlib.sha256(repr([(p, s.st_size, s.st_mtime_ns) for p, s in found]).encode()).hexdigest()
