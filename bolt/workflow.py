"""What the Snakefile needs to know: which files are asked for, and what a rule depends on."""

from __future__ import annotations

import hashlib
import os
import shlex
import sys
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from bolt import config as configuration
from bolt.atlas_files import atlas_folder, describe_atlas, find_image, find_labels
from bolt.check import check_names, check_room, is_judged, minimum_volumes
from bolt.check_experiments import check_experiment, check_experiment_names, lacks_reference
from bolt.config import ROOT, Config, Model
from bolt.datasets import source_of
from bolt.errors import BoltError, ConfigError, DataError
from bolt.experiments import available, entries, paper_table, rows_of, trained_models
from bolt.files import read_table, sha256, write_yaml
from bolt.layout import Layout, folder_of
from bolt.metadata import metadata_of
from bolt.models._registry import fitted_at_once
from bolt.provenance import fingerprint
from bolt.room import is_dry_run
from bolt.search_space import check_search

STAGES: dict[str, tuple[str, ...]] = {
    "simulate": ("bolt.datasets.phantom",),
    "index": (
        "bolt.datasets",
        "bolt.datasets.bids",
        "bolt.datasets.fmriprep",
        "bolt.datasets.series",
        "bolt.datasets.abide",
        "bolt.datasets.hcp",
        "bolt.atlases",
        "bolt.folds",
    ),
    "template": ("bolt.templates", "bolt.preprocess.evidence"),
    "anatomical": ("bolt.preprocess.anatomical",),
    "functional": ("bolt.preprocess.functional",),
    "parcellate": ("bolt.parcellate",),
    "quality": ("bolt.quality",),
    "quality_pages": ("bolt.report.quality_pages", "bolt.bidsignore"),
    "cache": ("bolt.series",),
    "folds": ("bolt.folds", "bolt.check_folds"),
    "train": ("bolt.train",),
    "explain": ("bolt.explain.importance",),
    "evaluate": ("bolt.evaluate.metrics",),
    "inner_folds": ("bolt.inner_folds", "bolt.check_folds"),
    "landmarks": ("bolt.explain.landmarks",),
    "regions": ("bolt.explain.regions",),
    "tasks": ("bolt.explain.tasks",),
    "train_permuted": ("bolt.explain.permuted",),
    "sanity": ("bolt.explain.sanity",),
    "faithfulness_fold": ("bolt.explain.perturb",),
    "faithfulness": ("bolt.explain.faithfulness",),
    "stability": ("bolt.explain.stability",),
    "oracle_cache": ("bolt.evaluate.truth",),
    "truth": ("bolt.evaluate.truth",),
    "explanation": ("bolt.report.explanation",),
    "report": ("bolt.report.collect", "bolt.report.html"),
    "search": ("bolt.search", "bolt.search_choice"),
    "complexity": ("bolt.complexity",),
    "spectra": ("bolt.spectra",),
    "experiment": (
        "bolt.report.experiment",
        "bolt.report.complexity",
        "bolt.report.spectra",
        "bolt.report.landmark_experiment",
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


class Run:
    """One configured run of the workflow, as the rules see it.

    Parameters
    ----------
    raw : dict
        The merged configuration that Snakemake read.
    """

    def __init__(self, raw: dict[str, Any]) -> None:
        self.config = configuration.parse(Config, raw, "configuration")
        self.dataset = configuration.load_dataset(self.config.dataset)
        self.models = {m.run_name: m for m in map(configuration.load_model, self.config.models)}
        self.layout = Layout(self.config)
        check_experiment_names(self.config)
        self.experiments = available(self.config)
        self.experiment_rows = {name: rows_of(one, self.config) for name, one in self.experiments.items()}
        self.experiment_models = trained_models(self.experiments, self.experiment_rows)

    def save_config(self) -> Path:
        """Write the merged configuration where every command reads it, if it changed.

        Called when a run has started: after Snakemake's lock, and never by a dry run, so that looking at another
        configuration does not change the jobs of a run under way.
        """
        data = self.config.model_dump(mode="json")
        path = self.layout.config
        if not path.is_file() or yaml.safe_load(path.read_text()) != data:
            write_yaml(data, path)
        return path

    # ---- what a rule depends on besides its input files --------------------------------------
    def code(self, stage: str, *modules: str) -> str:
        return fingerprint(*STAGES[stage], *modules)

    def settings(self, stage: str) -> dict[str, Any]:
        """Where a stage finds its configuration, what it reads there, and its code; a rule that lists them runs again
        when they change."""
        more = ["bolt.native"] if stage == "parcellate" and self.layout.native else []
        found = repr(self._settings(stage))
        return {"config": self.layout.config, "settings": found, "code": self.code(stage, *more)}

    def _settings(self, stage: str) -> Any:
        """What a stage reads of the configuration; only its own is put together, for every job asks."""
        config, dataset = self.config, self.dataset
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
                [one.model_dump(exclude=NOT_ANATOMICAL) for one in self._registrations],
            ],
            "functional": lambda: [
                config.preprocess.model_dump(exclude={"keep_bold", "registration", "threads"}),
                self._registrations[0].model_dump(exclude={"description"}),
            ],
            "parcellate": lambda: [
                self._atlases(),
                self._images(),
                config.parcellate.coverage,
                configuration.load_denoise(config.denoise),
                [config.preprocess.slice_timing] if self.layout.native else [],
            ],
            "quality": lambda: config.quality,
            "quality_pages": lambda: [config.parcellate.coverage, _templates()],
            "cache": lambda: [self._atlases(), config.parcellate.uncovered, minimum_volumes(config)],
            "oracle_cache": lambda: self._atlases(),
            "folds": lambda: config.folds.model_dump(exclude={"run", "side_by_side"}),
            "train": lambda: [dataset.classes, dataset.crop, config.device],
            "search": lambda: [
                [dataset.classes, dataset.crop, config.device],
                config.search.model_dump(exclude={"models", "scheme"}),
                configuration.load_space(config.search.space),
            ],
            "regions": lambda: [
                self._atlases(),
                self._images(),
                config.explain.model_dump(exclude=TASK_KEYS | LANDMARK_KEYS | {"sanity", "faithfulness"}),
            ],
            "landmarks": lambda: config.explain.model_dump(include=LANDMARK_KEYS),
            "inner_folds": lambda: [
                config.folds.model_dump(exclude={"run", "side_by_side"}),
                config.explain.inner_folds,
            ],
            "tasks": lambda: config.explain.model_dump(include=TASK_KEYS),
            "train_permuted": lambda: [dataset.classes, dataset.crop, config.device, config.explain.sanity.fold],
            "sanity": lambda: config.explain.sanity.model_dump(exclude={"fold"}),
            "faithfulness_fold": lambda: config.explain.faithfulness,
            "stability": lambda: config.explain.top_rois,
            "truth": lambda: dataset.expected,
            "complexity": lambda: [config.device, config.quick],
            "explanation": lambda: [_templates(), self._images(), config.explain, dataset],
            "report": lambda: [_templates(), config.model_dump(mode="json"), dataset],  # its page prints these
        }
        return chosen[stage]() if stage in chosen else None

    @cached_property
    def _registrations(self) -> list[configuration.Registration]:
        """In the order in which they are tried."""
        return [configuration.load_registration(name) for name in self.config.preprocess.registrations]

    def _atlases(self) -> list[str]:
        """What the atlases are: their descriptions, and the hashes of their tables of labels."""
        found = []
        for place in self.config.atlas_places.values():
            about = describe_atlas(place)
            try:
                table = sha256(find_labels(about, atlas_folder(place), self.config.paths.atlas_dir))
            except DataError:  # a family's table, before `resources` has fetched it
                table = "not staged"
            found += [about.model_dump_json(), table]
        return found

    def _images(self) -> list[str]:
        """Hashes of the label images whose description has none: users' own. Caches do not read them, so that an image
        for the maps of ready series trains nothing again."""
        found = []
        for place in self.config.atlas_places.values():
            about = describe_atlas(place)
            if about.kind == "image" and not about.sha256:
                paths = self.config.paths
                try:
                    image = find_image(about, atlas_folder(place), paths.atlas_dir, paths.templateflow_home)
                    found.append(sha256(image))
                except BoltError:
                    found.append("not staged")
        return found

    def files(self) -> str:
        """Names, sizes and times of a dataset's images and sidecars: a scan that was mended is indexed anew."""
        patterns = {
            "bids": "sub-*/**/*.*",
            "fmriprep": "sub-*/**/func/*_desc-*_bold.*",
            "hcp": "*/MNINonLinear/Results/?fMRI_*_??/?fMRI_*_??.nii.gz",
        }
        pattern = patterns.get(self.dataset.source)
        if pattern is None or self.dataset.downloaded:
            return ""
        found = sorted((str(path), path.stat()) for path in self.dataset.path.glob(pattern) if path.is_file())
        return hashlib.sha256(repr([(p, s.st_size, s.st_mtime_ns) for p, s in found]).encode()).hexdigest()

    def model_code(self, run_name: str) -> str:
        runner = ["bolt.train_features"] if self.fitted_at_once(run_name) else []
        return self.code("train", f"bolt.models.{self.model(run_name).model}", *runner)

    @cached_property
    def searched(self) -> dict[str, Model]:
        """Models of the target `search` by name; refused here where they cannot be searched."""
        return {model.name: model for model in check_search(self.config)}

    def searched_code(self, name: str) -> list[str]:
        """What a model that is searched is, and its code."""
        model = self.searched[name]
        return [model.model_dump_json(), self.code("search", f"bolt.models.{model.model}")]

    def choices(self) -> list[Path]:
        """What the target `search` writes."""
        schemes = self.config.search.schemes
        return [
            self.layout.choice(atlas, scheme, name)
            for atlas in self.config.atlas_places
            for scheme in schemes
            for name in self.searched
        ]

    def model(self, run_name: str) -> Model:
        """A configured model, or one that an experiment trains."""
        return self.models.get(run_name) or self.experiment_models[run_name]

    def fitted_at_once(self, run_name: str) -> bool:
        """Whether a model learns without epochs, in seconds."""
        return fitted_at_once(self.model(run_name).model)

    # ---- which scans and files ---------------------------------------------------------------
    @cached_property
    def scans(self) -> pd.DataFrame:
        """Scans to be processed; readable once the index is written."""
        from bolt.datasets import TEXT_COLUMNS

        table = read_table(self.layout.scans, text=TEXT_COLUMNS).set_index("scan_id", drop=False)
        return table[table.exclude_reason.isna()]

    def t1w(self, folder: str) -> str:
        """The T1w image of an anatomical folder."""
        return next(path for path in self.scans.t1w if folder_of(path) == folder)

    def anatomical_outputs(self, scan_id: str) -> list[Path]:
        """What the anatomical half has made for a scan."""
        folder = folder_of(self.scans.t1w[scan_id])
        return [self.layout.anatomical_status(folder), *self.layout.anatomical_files(folder).values()]

    @property
    def own_tables(self) -> list[Path]:
        """The user's own tables of subjects."""
        tables = [self.dataset.subjects_table, self.dataset.hcp.restricted_table]
        return [table for table in tables if table is not None]

    def download_status(self, scan_id: str) -> Path:
        """Says that a scan is fetched; scans that are fetched lie beside theirs."""
        folder: Path = source_of(self.dataset).download_folder(self.dataset, self.config)
        return folder / scan_id / "status.json"

    def parcellate_inputs(self, scan_id: str) -> dict[str, Path | str]:
        scan = self.scans.loc[scan_id]
        if self.dataset.downloaded:
            return {"status": self.download_status(scan_id)}
        if scan.kind == "raw":
            layout = self.layout
            bold = scan.bold if layout.native else layout.bold(scan_id)
            files: dict[str, Path | str] = {"bold": bold, "mask": layout.mask(scan_id)}
            return files | {"confounds": layout.confounds(scan_id), "status": layout.functional_status(scan_id)}
        return {name: scan[name] for name in ("bold", "mask", "confounds") if isinstance(scan[name], str)}

    @property
    def judged(self) -> bool:
        return is_judged(self.config, self.dataset)

    def parcellate_group(self, scan_id: str) -> str:
        """What a cluster joins a scan's parcellation with: its own preprocessing, or other scans' parcellation."""
        return "scan" if self.scans.kind[scan_id] == "raw" else "parcellations"

    def scan_series(self) -> list[Path | str]:
        """What the cache waits for: the status of each scan's series, or the series that were there already."""
        scans = self.scans.itertuples()
        if self.dataset.downloaded and self.dataset.ready_series:
            return [self.download_status(str(s.scan_id)) for s in scans]
        return [s.bold if s.kind == "series" else self.layout.series_status(str(s.scan_id)) for s in scans]

    def scan_settings(self, scan_id: str) -> str:
        """What the index and, of slices, the sidecar say of a scan that its preprocessing reads."""
        scan = self.scans.loc[scan_id]
        facts: list[Any] = scan[["tr", "t1w", "mask", "confounds"]].astype(str).tolist()
        if scan.kind == "raw" and self.config.preprocess.slice_timing == "auto":
            about = metadata_of(scan.bold)
            facts += [about.get("SliceTiming"), about.get("SliceEncodingDirection")]
        return repr(facts)

    @property
    def subjects_table(self) -> Path:
        """The table whose change makes the index run again."""
        dataset = self.dataset
        if dataset.downloaded:
            return source_of(dataset).table_path(dataset, self.config)
        inside = dataset.path if dataset.source == "series" else dataset.path / "participants.tsv"
        return dataset.subjects_table or inside

    @property
    def listed(self) -> str:
        """What of a bucket its listing holds; asked for anew when it changes. A table of subjects holds everybody."""
        dataset = self.dataset
        if dataset.source != "hcp":
            return ""
        subjects = [dataset.include, dataset.exclude]
        return repr([dataset.tasks, dataset.sessions, dataset.runs, dataset.hcp.bucket, *subjects, dataset.tr])

    def fold_files(self, wildcards: Any, name: str) -> list[Path]:
        """A file of every fold of a run."""
        run = (wildcards.atlas, wildcards.model, wildcards.seed)
        folds = self.folds_of(wildcards.model)
        return [self.layout.fold(*run, fold, wildcards.get("variant")) / name for fold in folds]

    def inner_files(self, wildcards: Any, name: str) -> list[Path]:
        """A file of every inner model of a fold."""
        folder = self.layout.inner(*(wildcards.get(key) for key in ("atlas", "model", "seed", "fold", "variant")))
        return [folder / f"fold-{inner}" / name for inner in range(self.config.explain.inner_folds)]

    def inner_importance(self, wildcards: Any) -> list[Path]:
        """What inner models explain, of every fold; none where there are none."""
        return self.fold_files(wildcards, "inner/importance.tsv") if self.config.explain.inner_folds else []

    def permuted(self, wildcards: Any) -> list[Path]:
        """The model trained on permuted labels, where one is asked for."""
        which = (wildcards.atlas, wildcards.model, wildcards.seed, wildcards.get("variant"))
        folder = self.layout.permuted(*which)
        asked = self.config.explain.sanity.permuted
        return [folder / name for name in ("status.json", "checkpoint.safetensors")] if asked else []

    def seed_files(self, wildcards: Any, name: str) -> list[Path]:
        """A file of the explanation of every seed of a run."""
        seeds = sorted({*map(str, self.config.seeds), wildcards.seed})
        return [
            self.layout.explanation(wildcards.atlas, wildcards.model, seed, wildcards.get("variant")) / name
            for seed in seeds
        ]

    def predictions(self, runs: list[tuple[str, str, int]] | None = None) -> list[Path]:
        """What every fold of some runs predicts; by default of those that are configured."""
        runs = self.runs() if runs is None else runs
        folds = [(run, fold) for run in runs for fold in self.folds_of(run[1])]
        return [self.layout.fold(*run, fold) / "predictions.tsv" for run, fold in folds]

    def in_every_fold(self, name: str) -> list[Path]:
        """A file of every fold of a run, for a rule that trains all of them."""
        wildcards = ("{atlas}", "{model}", "{seed}")
        return [self.layout.fold(*wildcards, fold, "{variant}") / name for fold in self.config.folds.of("")]

    def folds_of(self, run_name: str) -> list[int]:
        return self.config.folds.of(self.model(run_name).name)

    def runs(self) -> list[tuple[str, str, int]]:
        """Every (atlas, model, seed) that is configured; experiments have more."""
        return [(a, m, s) for a in self.config.atlas_places for m in self.models for s in self.config.seeds]

    def experiment_runs(self, name: str) -> list[tuple[str, str, int]]:
        """Every (atlas, model, seed) that an experiment needs, each once."""
        rows = [row for row in entries(self.config, self.experiments[name]) if not row.note]
        return list(dict.fromkeys((row.atlas, row.model.run_name, s) for row in rows for s in self.config.seeds))

    def experiment_inputs(self, name: str) -> list[Path]:
        """What the table of an experiment waits for, of this dataset."""
        kind, atlases = self.experiments[name].kind, self.config.atlas_places
        if kind == "landmarks":
            return [self.layout.explanation(*run) / "landmarks.tsv" for run in self.experiment_runs(name)]
        if kind == "complexity":
            return [self.layout.complexity(name, atlas) for atlas in atlases]
        if kind == "spectra":
            return [self.layout.spectra(name, atlas) for atlas in atlases]
        return self.predictions(self.experiment_runs(name))

    def paper(self) -> list[Path]:
        """What the target `paper` makes; landmarks are of classes, and left out where the label is a number."""
        names = [n for n in self.config.experiment_places if self.experiments[n].kind != "landmarks"]
        if self.dataset.classes is not None:
            names = list(self.config.experiment_places)
        return [self.layout.experiment(name) for name in names]

    def experiment_settings(self, name: str) -> str:
        """What an experiment's file says, what its models are called, and the paper's own table of it."""
        theirs = paper_table(name)
        called = [(row.row, model.title, model.family) for row, model in self.experiment_rows[name]]
        return repr([self.experiments[name], called, sha256(theirs) if theirs.is_file() else None])

    def metrics(self, variant: str | None = None) -> list[Path]:
        return [self.layout.runs(a, m, s, variant) / "metrics.tsv" for a, m, s in self.runs()]

    def explanations(self, variant: str | None = None) -> list[Path]:
        names = ["roi_weights.tsv"]
        names += ["tasks.tsv"] if self.has_tasks and variant is None else []
        if variant is None:
            names += ["stability.tsv"] + ["sanity.tsv"] * self.config.explain.sanity.asked
            names += ["faithfulness_areas.tsv"] * (self.config.explain.faithfulness.scans > 0)
        return [
            self.layout.explanation(a, m, s, variant) / name
            for a, m, s in self.runs()
            if self.explained(m)
            for name in names
        ]

    @property
    def has_tasks(self) -> bool:
        """Whether scans may have tables of events beside them."""
        return self.dataset.source == "bids" or (self.dataset.source == "hcp" and self.dataset.tasks != ["REST"])

    def explanation_page(self) -> list[Path]:
        """The page that tells them, where a model can be explained."""
        return [self.layout.explanation_page] if self.explanations() else []

    def explained(self, run_name: str) -> bool:
        """Only BolT has attention windows that Algorithm 1 can follow, as long as nothing but series goes in; and
        landmarks are regressions of classes."""
        model = self.models[run_name]
        return model.model == "bolt" and not model.covariates and self.dataset.classes is not None

    def truth(self) -> list[Path]:
        """The truth table, where the dataset has a known answer."""
        judged = self.dataset.source == "phantom" and any(map(self.explained, self.models))
        return [self.layout.tables / "truth.tsv"] if judged else []


def _templates() -> list[str]:
    return [sha256(path) for path in sorted((ROOT / "bolt/report/templates").iterdir())]


def start(raw: dict[str, Any]) -> Run:
    """Check the configuration before anything else; a problem ends Snakemake with one line."""
    try:
        run = Run(raw)
        check_names(run.config, run.dataset)
        check_search(run.config)
        for name, experiment in run.experiments.items():
            check_experiment(experiment, run.experiment_rows[name])
            if lacks_reference(experiment, run.experiment_rows[name]) and is_dry_run(sys.argv):
                print(f"Note: experiment '{name}' has no row '{experiment.reference}', so no tests.", file=sys.stderr)
        _check_room(run)
        return run
    except BoltError as error:
        sys.tracebacklimit = 0
        raise SystemExit(f"bolt: {error}") from None


def _check_room(run: Run) -> None:
    """Refuse downloads that the disk cannot hold; of a dry run, warn."""
    try:
        check_room(run.config, run.dataset)
    except ConfigError as error:
        if not is_dry_run(sys.argv):
            raise
        print(f"Warning: {error}", file=sys.stderr)


def shell_prefix() -> str:
    """Let every job find this package, also where Snakemake clears PYTHONPATH for a conda environment."""
    return f"set -euo pipefail; export PYTHONPATH={shlex.quote(str(ROOT))} TEMPLATEFLOW_AUTOUPDATE=false; "


def use_own_interpreter() -> None:
    """Run jobs with the interpreter that runs Snakemake; a conda environment takes precedence over it."""
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
