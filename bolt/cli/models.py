"""Stages from the cache of series to the report."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bolt import config as configuration
from bolt.cli.shared import Shared, log
from bolt.config.layout import ORACLE
from bolt.config.study import Study
from bolt.io.errors import BoltError, ConfigError, DataError
from bolt.io.files import holds_something, read_table, write_table
from bolt.jobs.outcome import Outcome
from bolt.jobs.provenance import beside

EXPLAINED = ("roi_weights.tsv", "stability.tsv", "sanity.tsv", "faithfulness_areas.tsv", "tasks.tsv", "landmarks.tsv")
"""What the explanation page tells of a run."""


class ModelStages(Shared):
    """One command a method."""

    def cache(self) -> None:
        from bolt.atlases.image import load_labels
        from bolt.cohort.quality import displacement, is_judged
        from bolt.models.suitability import minimum_volumes
        from bolt.series.cache import EXCLUSION_COLUMNS, build_cache

        atlas, judged = self.options.atlas, is_judged(self.config, self.dataset)
        out, scans = self.layout.cache(atlas), self._scans()

        def series_of(scan: Any) -> Path:
            return Path(scan.bold) if scan.kind == "series" else self.layout.series_file(scan.scan_id, atlas)

        excluded = build_cache(
            scans,
            atlas,
            load_labels(self.config.atlas_places[atlas], atlas_dir=self.config.paths.atlas_dir),
            series_of,
            out,
            policy=self.config.parcellate.uncovered,
            expected={
                "Atlas": atlas,
                "Denoising": configuration.load_denoise(self.config.denoise).model_dump(mode="json"),
            },
            minimum_volumes=minimum_volumes(self.config),
            verdict_of=self.layout.quality_status if judged else None,
            mean_fd=displacement(self.layout.quality) if judged else None,
        )
        write_table(excluded, out / "exclusions.tsv", EXCLUSION_COLUMNS)
        used = scans[~scans["scan_id"].isin(excluded["scan_id"])]
        tables = [self.layout.scans, *([self.layout.quality] if judged else [])]
        self._note(out / "provenance.json", [*tables, [series_of(scan) for scan in used.itertuples()]])

    def folds(self) -> None:
        from bolt.cohort.exclusions import EXCLUSION_COLUMNS, WARNING_COLUMNS
        from bolt.folds.check import series_hashes
        from bolt.folds.splits import FOLD_COLUMNS, make_folds
        from bolt.series.cache import SeriesCache

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
        tables = [cache / name for cache in caches for name in ("manifest.json", "exclusions.tsv")]
        self._note(beside(self.layout.folds), [self.layout.scans, *tables], seed=self.config.folds.seed)

    def train(self) -> None:
        options, folds = self.options, sorted(set(self.options.fold))
        # the last attempt gives every fold a process of its own, so that a crash is recorded where it belongs
        apart = options.attempt >= Outcome.ATTEMPTS
        together = {} if apart else self._train(folds)
        inputs = [self.layout.cache(options.atlas, options.variant) / "manifest.json", self.layout.folds]
        for fold in folds:

            def work(fold: int = fold) -> None:
                error = (self._train([fold]) if apart else together)[fold]
                if error is not None:
                    raise error

            out = self._fold(fold)
            outcome = self._outcome("train", out / "status.json", inputs)
            outcome.begun = time.monotonic() if apart else outcome.begun
            outcome.facts = {"fold": fold, "seed": options.seed, "folds_side_by_side": 1 if apart else len(folds)}
            outcome.empty = [out / "checkpoint.safetensors", out / "predictions.tsv"]
            outcome.of(work)

    def _train(self, folds: list[int]) -> dict[int, BoltError | None]:
        """Train folds side by side; for each its error, or None."""
        from bolt.models.registry import fitted_at_once
        from bolt.training.runner import Job, train_folds

        options, model = self.options, self._model()
        runner = train_folds
        if fitted_at_once(model.model):  # a second of imports that others need not wait for
            from bolt.training.features import train_features as runner
        errors = runner(
            self.layout.cache(options.atlas, options.variant),
            self.layout.folds,
            model,
            self.dataset,
            [Job(fold, options.seed, self._fold(fold)) for fold in folds],
            device=self.config.device,
            threads=options.threads,
        )
        return dict(zip(folds, errors, strict=True))

    def explain(self) -> None:
        from bolt.explain.importance import explain_fold
        from bolt.series.cache import SeriesCache

        options = self.options
        if None in (options.atlas, options.model, options.seed):
            raise ConfigError("--fold needs --atlas, --model and --seed", hint="For one scan give --checkpoint instead")
        out = self._fold(options.fold)
        cache = self.layout.cache(options.atlas, options.variant)
        inputs = [cache / "manifest.json", out / "checkpoint.safetensors", out / "checkpoint.json"]
        outcome = self._outcome("explain", out / "explain_status.json", inputs, out / "importance.tsv")
        outcome.facts = {"fold": options.fold, "seed": options.seed}
        outcome.after(out / "status.json")
        outcome.empty = [out / "importance.npy", out / "importance.tsv"]
        outcome.of(lambda: explain_fold(SeriesCache(cache), out, self.config.device))

    def evaluate(self) -> None:
        from bolt.evaluate.metrics import write_metrics

        options = self.options
        run = self.layout.run(options.atlas, options.model, options.seed, options.variant).folder
        write_metrics(run, self.dataset.classes, self._folds(), run)
        predictions = [run / f"fold-{fold}" / "predictions.tsv" for fold in self._folds()]
        self._note(beside(run / "metrics.tsv"), predictions, seed=options.seed)

    def regions(self) -> None:
        from bolt.explain.regions import write_regions
        from bolt.series.cache import SeriesCache

        options, settings = self.options, self.config.explain
        if self.dataset.classes is None:
            raise DataError(
                "landmarks and regions are regressions of classes, but the label of this dataset is a number"
            )
        out = self.layout.run(options.atlas, options.model, options.seed, options.variant).explanation
        cache = SeriesCache(self.layout.cache(options.atlas, options.variant))
        try:
            atlas = self._atlas(options.atlas)
            image, space = atlas.image, atlas.spaces[0]
        except BoltError as error:
            if not self.dataset.ready_series:
                raise
            log.warning("no brain maps: %s", error)  # ready series need no atlas image
            image, space = None, ""
        coefficients, classes = out / "coefficients.npy", self.dataset.classes
        keys: dict[str, Any] = {"fraction": settings.top_rois, "odds_ratio": settings.odds_ratio}
        self._of_folds(
            [coefficients] if holds_something(coefficients) else [],
            [out / "roi_weights.tsv"],
            lambda: write_regions(
                coefficients, cache.rois, classes, image, out, atlas=options.atlas, space=space, **keys
            ),
        )
        self._note(beside(out / "roi_weights.tsv"), [cache.folder / "manifest.json", coefficients], seed=options.seed)

    def tasks(self) -> None:
        from bolt.explain.tasks import write_tasks
        from bolt.explain.weights import explained_folds
        from bolt.io.series_files import kept_volumes
        from bolt.series.cache import SeriesCache

        options, layout = self.options, self.layout
        where = (options.atlas, options.model, options.seed, options.variant)
        run, out = layout.run(*where).folder, layout.run(*where).explanation
        done = explained_folds(run, self._folds())

        def kept(scan: str, rows: int) -> np.ndarray:
            return kept_volumes(layout.series_file(scan, options.atlas, options.variant), rows)

        def work() -> None:
            cache = SeriesCache(layout.cache(options.atlas, options.variant))
            write_tasks(cache, run, done, out, self.config.explain, kept)

        self._of_folds(done, [out / "tasks.tsv"], work)
        self._note(beside(out / "tasks.tsv"), self._importance(done), seed=options.seed)

    def oracle_cache(self) -> None:
        from bolt.truth.table import build_oracle_cache

        build_oracle_cache(self.config, self.layout, self.dataset, self.options.atlas)
        index, truth = self.layout.cache(self.options.atlas) / "index.tsv", self.layout.truth(self.dataset.path)
        place = self.layout.cache(self.options.atlas, ORACLE) / "provenance.json"
        self._note(place, [index, sorted(truth.rglob("*.npy"))])

    def truth(self) -> None:
        from bolt.truth.table import write_truth_table

        write_truth_table(self.config, self.dataset, self.layout)
        self._note(beside(self.layout.tables / "truth.tsv"), self._results("metrics.tsv", "roi_weights.tsv"))

    def explanation(self) -> None:
        from bolt.report.pages.explanation import write_explanation

        write_explanation(Study(self.config, self.dataset))
        self._note(beside(self.layout.explanation_page), self._results(*EXPLAINED, "metrics.tsv"))

    def report(self) -> None:
        from bolt.report.pages.report import write_report

        if self.layout.exclusions.is_file():
            self._refuse_bad(read_table(self.layout.exclusions, text=("scan_id",)))
        self._compare_cohort(self._scans())  # the paper's numbers may have changed since the index
        write_report(Study(self.config, self.dataset))
        layout = self.layout
        tables = [layout.scans, layout.folds, layout.exclusions, layout.quality, layout.tables / "truth.tsv"]
        found = [path for path in (*tables, layout.explanation_page) if path.is_file()]
        self._note(beside(layout.report), [*found, *self._results("metrics.tsv", "predictions.tsv")])

    def _results(self, *names: str) -> list[list[Path]]:
        """Files of these names in the folders of runs and explanations, a group a name."""
        results = self.layout.results
        return [sorted(path for top in ("runs", "explain") for path in (results / top).rglob(name)) for name in names]
