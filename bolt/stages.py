"""The stages behind the commands: which room works on which files.

A stage of one scan or one fold that meets bad data says so in its ``status.json``, leaves its outputs empty, and lets
the night go on (`bolt.outcome`). A stage over the whole dataset raises instead.
"""

from __future__ import annotations

import argparse
import logging
import time
from pathlib import Path
from typing import Any

import pandas as pd

from bolt import config as configuration
from bolt.config import Config, Dataset
from bolt.datasets import COLUMNS, TEXT_COLUMNS
from bolt.errors import BoltError, DataError
from bolt.files import read_table, write_json, write_table
from bolt.layout import Layout, folder_of, prefix_of
from bolt.outcome import Outcome, command_again
from bolt.provenance import provenance

log = logging.getLogger("bolt")
CONFIG = Path("config/config.yaml")


class Stages:
    """Every command of `bolt.cli` is a method here, its options the method's `options`."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.config: Config = configuration.load_config(options.config or CONFIG)
        name = getattr(options, "dataset", None) or self.config.dataset
        self.dataset: Dataset = configuration.load_dataset(name)
        self.layout = Layout(self.config)
        self.models = {m.run_name: m for m in map(configuration.load_model, self.config.models)}

    # ---- whole dataset -----------------------------------------------------------------------
    def simulate(self) -> None:
        from bolt.datasets.phantom import simulate

        if self.dataset.simulate is None:
            raise DataError("this dataset has no 'simulate' keys", where=self.dataset.name, mend="Use the phantom's")
        simulate(self.options.out or self.dataset.path, self.dataset.simulate, n_jobs=self.options.threads)

    def check(self) -> None:
        from bolt.check import check_names, check_room

        check_names(self.config, self.dataset)
        check_room(self.config, self.dataset)

    def index(self) -> None:
        from bolt.bad_scans import EXCLUSION_COLUMNS
        from bolt.datasets import index
        from bolt.folds import make_folds

        if not self.dataset.ready_series:
            for name in self.config.atlas_places:
                self._atlas(name)  # a missing or wrong image shows here, hours before parcellation
        scans = index(self.config, self.dataset, self.options.minimum_volumes)
        usable = scans[scans.exclude_reason.isna()]
        make_folds(self._strata(usable), self.config.folds)  # too few subjects a class show here, hours before training
        left_out = scans.loc[scans.exclude_reason.notna(), ["scan_id", "exclude_stage", "exclude_reason"]]
        left_out.columns = pd.Index(EXCLUSION_COLUMNS)
        self._refuse_bad(left_out)
        write_table(scans, self.layout.scans, COLUMNS)
        for scan in scans[scans.exclude_reason.notna()].itertuples():
            log.warning("%s is left out: %s", scan.scan_id, scan.exclude_reason)
        log.info("%d scans of %d subjects", len(usable), usable.subject.nunique())
        self._compare_cohort(scans)

    def template(self) -> None:
        from bolt.templates import stage_template

        stage_template(
            self.config.preprocess.space, TEMPLATE_MM, self.layout.template, self.config.paths.templateflow_home
        )

    def resources(self) -> None:
        from bolt.resources import stage_atlases

        stage_atlases(self.config)
        if self.dataset.source == "bids":
            self.template()

    def download(self) -> None:
        from bolt.datasets import source_of

        source, scan_id = source_of(self.dataset), self.options.scan
        if scan_id is None:
            return source.download_table(self.dataset, self.config)
        outcome = self._outcome("download", self._download_status(scan_id))
        outcome.passing = True
        outcome.of(lambda: source.download_scan(scan_id, self.dataset, self.config))

    # ---- one subject, one scan ---------------------------------------------------------------
    def anatomical(self) -> None:
        from bolt.preprocess.anatomical import preprocess_anatomical
        from bolt.preprocess.names import T1W_PICTURES, forget
        from bolt.preprocess.sidecars import describe_dataset

        folder = self.options.folder
        out = self.layout.anatomical(folder)
        t1w = next(path for path in self._scans().t1w.dropna() if folder_of(path) == folder)

        def work() -> None:
            describe_dataset(self.layout.derivatives, self.dataset.path, self.dataset.name)
            preprocess_anatomical(
                Path(t1w),
                self.layout.template,
                self.config.preprocess.space,
                list(map(configuration.load_registration, self.config.preprocess.registrations)),
                out,
                self.layout.work / "preprocess" / folder / "anat",
                prefix=prefix_of(folder),
            )

        outcome = self._outcome("anatomical", self.layout.anatomical_status(folder))
        outcome.empty = list(self.layout.anatomical_files(folder).values())
        forget(outcome.empty, prefix_of(folder), T1W_PICTURES)
        outcome.of(work)

    def functional(self) -> None:
        from bolt.preprocess.functional import functional_names, preprocess_functional
        from bolt.preprocess.names import SCAN_PICTURES, forget
        from bolt.preprocess.sidecars import sidecar_of

        scan = self._scan()
        layout, settings = self.layout, self.config.preprocess
        folder = folder_of(scan.scan_id)
        anatomical = folder_of(scan.t1w)

        def work() -> None:
            preprocess_functional(
                Path(scan.bold),
                layout.anatomical(anatomical),
                layout.template,
                settings.space,
                settings.resolution,
                configuration.load_registration(settings.registrations[0]),
                layout.functional(folder),
                layout.work / "preprocess" / folder / scan.scan_id,
                scan_id=scan.scan_id,
                prefix=prefix_of(anatomical),
                tr=scan.tr,
                output=settings.output,
                slice_timing=settings.slice_timing == "auto",
                steady_state=settings.steady_state,
            )
            if not settings.keep_bold:  # the image goes once its series are taken; BIDS wants no JSON file without one
                sidecar_of(layout.bold(scan.scan_id)).unlink(missing_ok=True)

        outcome = self._outcome("functional", layout.functional_status(scan.scan_id))
        outcome.after(layout.anatomical_status(anatomical))
        outcome.empty = [layout.mask(scan.scan_id), layout.confounds(scan.scan_id)]
        outcome.empty += [] if layout.native else [layout.bold(scan.scan_id)]
        names = functional_names(scan.scan_id, settings.space, settings.output).values()
        forget([layout.functional(folder) / name for name in names], f"{scan.scan_id}_", SCAN_PICTURES)
        outcome.of(work)

    def parcellate(self) -> None:
        from bolt.parcellate import parcellate, write_parcellated

        scan = self._scan()
        layout, settings = self.layout, self.config.parcellate
        denoise = configuration.load_denoise(self.config.denoise)
        raw = scan.kind == "raw"
        bold = layout.bold(scan.scan_id) if raw else Path(scan.bold)
        mask = layout.mask(scan.scan_id) if raw else _path(scan.mask)
        confounds = layout.confounds(scan.scan_id) if raw else _path(scan.confounds)

        def work() -> None:
            atlases = [self._atlas(name) for name in self.config.atlas_places]
            if raw and layout.native:
                results = self._parcellate_native(scan, atlases, denoise)
                return write_parcellated(results, layout.series(scan.scan_id), scan_id=scan.scan_id)
            results = parcellate(
                bold,
                atlases,
                mask=mask,
                confounds=confounds,
                denoise=denoise,
                tr=None if pd.isna(scan.tr) else scan.tr,  # the header's then
                threshold=settings.coverage,
                space=self.config.preprocess.space,
            )
            write_parcellated(results, layout.series(scan.scan_id), scan_id=scan.scan_id)

        outcome = self._outcome("parcellate", layout.series_status(scan.scan_id))
        if raw:
            outcome.after(layout.functional_status(scan.scan_id))
        elif self.dataset.downloaded:
            outcome.after(self._download_status(scan.scan_id))
        outcome.empty = [layout.series_file(scan.scan_id, atlas) for atlas in self.config.atlas_places]
        outcome.of(work)

    def _parcellate_native(self, scan: pd.Series, atlases: list[Any], denoise: configuration.Denoise) -> dict[str, Any]:
        from bolt.native import Transforms, parcellate_native
        from bolt.preprocess.functional import functional_names
        from bolt.preprocess.names import anatomical_names

        settings, anatomical = self.config.preprocess, folder_of(scan.t1w)
        anat, func = self.layout.anatomical(anatomical), self.layout.functional(folder_of(scan.scan_id))
        from_t1w = anatomical_names(prefix_of(anatomical), settings.space)
        made = functional_names(scan.scan_id, settings.space, "native")
        return parcellate_native(
            Path(scan.bold),
            atlases,
            Transforms(
                forward=anat / from_t1w["forward"],
                inverse=anat / from_t1w["inverse"],
                **{name: func / made[name] for name in ("bold_to_t1w", "motion", "mask", "confounds")},
            ),
            space=settings.space,
            denoise=denoise,
            tr=scan.tr,
            threshold=self.config.parcellate.coverage,
            slice_timing=settings.slice_timing == "auto",
        )

    # ---- quality -----------------------------------------------------------------------------
    def quality(self) -> None:
        from bolt.quality import gather_quality

        table = gather_quality(self._scans(), self.config, self.layout)
        log.info("%d of %d scans are left out", (table.state != "ok").sum(), len(table))

    def quality_pages(self) -> None:
        from bolt.bidsignore import write_bidsignore
        from bolt.report.quality_pages import write_pages

        write_pages(self.config, self.layout)
        if (self.layout.derivatives / "dataset_description.json").is_file():
            write_bidsignore(self.layout.derivatives)  # now that it is known who failed

    # ---- series and folds --------------------------------------------------------------------
    def cache(self) -> None:
        from bolt.atlases import load_labels
        from bolt.check import is_judged, minimum_volumes
        from bolt.series import EXCLUSION_COLUMNS, build_cache

        atlas = self.options.atlas
        out = self.layout.cache(atlas)
        excluded = build_cache(
            self._scans(),
            atlas,
            load_labels(self.config.atlas_places[atlas], atlas_dir=self.config.paths.atlas_dir),
            lambda scan: Path(scan.bold) if scan.kind == "series" else self.layout.series_file(scan.scan_id, atlas),
            out,
            policy=self.config.parcellate.uncovered,
            expected={
                "Atlas": atlas,
                "Denoising": configuration.load_denoise(self.config.denoise).model_dump(mode="json"),
            },
            minimum_volumes=minimum_volumes(self.config),
            verdict_of=self.layout.quality_status if is_judged(self.config, self.dataset) else None,
        )
        write_table(excluded, out / "exclusions.tsv", EXCLUSION_COLUMNS)

    def folds(self) -> None:
        from bolt.bad_scans import EXCLUSION_COLUMNS, WARNING_COLUMNS
        from bolt.check_folds import series_hashes
        from bolt.folds import FOLD_COLUMNS, make_folds
        from bolt.series import SeriesCache

        scans = self._scans()
        caches = [self.layout.cache(atlas) for atlas in self.config.atlas_places]
        excluded = pd.concat([read_table(cache / "exclusions.tsv", text=("scan_id",)) for cache in caches])
        excluded = excluded.drop_duplicates().sort_values(["scan_id", "stage"])
        self._refuse_bad(excluded)
        write_table(excluded, self.layout.exclusions, EXCLUSION_COLUMNS)
        odd = pd.concat([read_table(cache / "warnings.tsv", text=tuple(WARNING_COLUMNS)) for cache in caches])
        write_table(odd.drop_duplicates().sort_values(["scan_id", "stage"]), self.layout.warnings, WARNING_COLUMNS)
        usable = self._strata(scans[~scans.scan_id.isin(excluded.scan_id)])
        contents = {f"series in {cache}": series_hashes(SeriesCache(cache)) for cache in caches}
        write_table(make_folds(usable, self.config.folds, contents), self.layout.folds, FOLD_COLUMNS)

    # ---- models ------------------------------------------------------------------------------
    def train(self) -> None:
        options, folds = self.options, sorted(set(self.options.fold))
        # the last attempt gives every fold a process of its own, so that a crash is recorded where it belongs
        apart = options.attempt >= Outcome.ATTEMPTS
        together = {} if apart else self._train(folds)
        for fold in folds:

            def work(fold: int = fold) -> None:
                facts = (self._train([fold]) if apart else together)[fold]
                if isinstance(facts, BoltError):
                    raise facts
                inputs = [self.layout.cache(options.atlas, options.variant) / "manifest.json", self.layout.folds]
                write_json(provenance(inputs, **facts), self._fold(fold) / "provenance.json")

            out = self._fold(fold)
            outcome = self._outcome("train", out / "status.json")
            outcome.empty = [out / "checkpoint.safetensors", out / "predictions.tsv"]
            outcome.of(work)

    def _train(self, folds: list[int]) -> dict[int, dict[str, Any] | BoltError]:
        """Train folds side by side; for each the facts for its provenance, or its error."""
        from bolt.models._registry import inputs_of
        from bolt.train import Job, train_folds
        from bolt.train_features import train_features

        options, model, start = self.options, self._model(), time.monotonic()
        runner = train_features if inputs_of(model.model) == "connectivity" else train_folds
        errors = runner(
            self.layout.cache(options.atlas, options.variant),
            self.layout.folds,
            model,
            self.dataset,
            [Job(fold, options.seed, self._fold(fold)) for fold in folds],
            device=self.config.device,
            threads=options.threads,
        )
        facts = {"seed": options.seed, "seconds": round(time.monotonic() - start, 1), "folds_side_by_side": len(folds)}
        return {fold: error or {"fold": fold, **facts} for fold, error in zip(folds, errors, strict=True)}

    def explain(self) -> None:
        from bolt.explain.importance import explain_fold
        from bolt.series import SeriesCache

        options = self.options
        out = self._fold(options.fold)
        cache = self.layout.cache(options.atlas, options.variant)
        outcome = self._outcome("explain", out / "explain_status.json", out / "importance.tsv")
        outcome.after(out / "status.json")
        outcome.empty = [out / "importance.npy", out / "importance.tsv"]
        outcome.of(lambda: explain_fold(SeriesCache(cache), out, self.config.device))

    def evaluate(self) -> None:
        from bolt.evaluate.metrics import write_metrics

        options = self.options
        run = self.layout.runs(options.atlas, options.model, options.seed, options.variant)
        write_metrics(run, self.dataset.classes, self._folds(), run)

    def regions(self) -> None:
        from bolt.explain.landmarks import write_landmarks
        from bolt.explain.regions import write_regions
        from bolt.series import SeriesCache

        options, settings = self.options, self.config.explain
        if self.dataset.classes is None:
            raise DataError(
                "landmarks and regions are regressions of classes, but the label of this dataset is a number"
            )
        out = self.layout.explanation(options.atlas, options.model, options.seed, options.variant)
        cache = SeriesCache(self.layout.cache(options.atlas, options.variant))
        run = self.layout.runs(options.atlas, options.model, options.seed, options.variant)
        write_landmarks(
            cache,
            run,
            self._folds(),
            self.dataset.classes,
            out,
            tokens=settings.tokens,
            random_draws=settings.random_draws,
            seed=options.seed,
        )
        try:
            atlas = self._atlas(options.atlas)
            image, space = atlas.image, atlas.spaces[0]
        except DataError as error:
            if not self.dataset.ready_series:
                raise
            log.warning("no brain maps: %s", error)  # ready series need no atlas image
            image, space = None, ""
        write_regions(
            out / "coefficients.npy",
            cache.rois,
            self.dataset.classes,
            image,
            out,
            fraction=settings.top_rois,
            space=space,
        )

    # ---- the demo's truth --------------------------------------------------------------------
    def oracle_cache(self) -> None:
        from bolt.evaluate.truth import build_oracle_cache

        build_oracle_cache(self.config, self.layout, self.dataset, self.options.atlas)

    def truth(self) -> None:
        from bolt.evaluate.truth import write_truth_table

        write_truth_table(self.config, self.dataset, self.layout)

    def report(self) -> None:
        from bolt.report.collect import collect
        from bolt.report.html import write_report

        if self.layout.exclusions.is_file():
            self._refuse_bad(read_table(self.layout.exclusions, text=("scan_id",)))
        self._compare_cohort(self._scans())  # the paper's numbers may have changed since the index
        write_report(collect(self.config, self.dataset, self.layout), self.layout.report)

    # ---- what several stages ask -------------------------------------------------------------
    def _refuse_bad(self, excluded: pd.DataFrame) -> None:
        """Stop at bad scans where the configuration says so. No other stage reads that key: changing it on a finished
        run makes the report anew, and nothing else."""
        from bolt.bad_scans import refuse_bad_scans

        refuse_bad_scans(excluded, self.layout.bad_scans, refuse=self.config.bad_scans == "refuse")

    def _compare_cohort(self, scans: pd.DataFrame) -> None:
        """Write the cohort beside the paper's, where the dataset's file says what that is."""
        from bolt.datasets._cohort import COHORT_COLUMNS, compare_cohort

        if self.dataset.paper is None:
            self.layout.cohort.unlink(missing_ok=True)
            self.layout.cohort.with_suffix(".json").unlink(missing_ok=True)
            return
        cohort = compare_cohort(scans, self.dataset.paper)
        write_table(cohort, self.layout.cohort, COHORT_COLUMNS)
        for measure, found, due in cohort.itertuples(index=False):
            log.info("%s: %d (the paper: %d)", measure, found, due)

    def _outcome(self, stage: str, status: Path, output: Path | None = None) -> Outcome:
        """How one job ends; `output` is an output of its rule, where the status is none."""
        outcome = Outcome(stage, status, self.options.attempt)
        outcome.again = command_again(output or status, self.layout.config)
        return outcome

    def _scans(self) -> pd.DataFrame:
        return read_table(self.layout.scans, text=TEXT_COLUMNS)

    def _strata(self, scans: pd.DataFrame) -> pd.DataFrame:
        """Scans as their folds are stratified: by class, or by quarter of a label that is a number."""
        from bolt.folds import quarters

        return scans if self.dataset.classes else scans.assign(label=quarters(scans["label"]))

    def _scan(self) -> pd.Series:
        scans = self._scans().set_index("scan_id", drop=False)
        if self.options.scan not in scans.index:
            raise DataError(
                f"no scan '{self.options.scan}'", where=self.layout.scans, mend="Give a scan_id listed there"
            )
        return scans.loc[self.options.scan]

    def _download_status(self, scan_id: str) -> Path:
        from bolt.datasets import source_of

        return source_of(self.dataset).download_folder(self.dataset, self.config) / scan_id / "status.json"

    def _atlas(self, name: str):
        from bolt.atlases import load_atlas

        paths = self.config.paths
        place = self.config.atlas_places[name]
        return load_atlas(place, atlas_dir=paths.atlas_dir, templateflow_home=paths.templateflow_home)

    def _model(self) -> configuration.Model:
        name = self.options.model
        if name not in self.models:
            raise DataError(f"no run of model '{name}' is configured", mend=f"Configured: {', '.join(self.models)}")
        return self.models[name]

    def _fold(self, fold: int) -> Path:
        options = self.options
        return self.layout.fold(options.atlas, options.model, options.seed, fold, options.variant)

    def _folds(self) -> list[int]:
        return self.config.folds.of(self._model().name)


TEMPLATE_MM = 2.0
"""Voxel size of the templates that T1w images are registered to."""


def run(options: argparse.Namespace) -> None:
    """Run the stage of a command."""
    if options.command == "check-folds":
        from bolt.check_folds import check_folds

        return check_folds(options)
    if options.command == "parcellate" and options.image is not None:
        from bolt.by_hand import parcellate_by_hand

        return parcellate_by_hand(options)
    getattr(Stages(options), options.command.replace("-", "_"))()


def _path(value: object) -> Path | None:
    return Path(value) if isinstance(value, str) else None
