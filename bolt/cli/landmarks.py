"""Stages of landmarks: models that explain scans they did not see, and regressions on few volumes of each scan."""

from __future__ import annotations

from bolt.cli.shared import Shared
from bolt.io.errors import DataError
from bolt.io.files import read_json, read_table, write_table
from bolt.jobs.provenance import Inputs, beside


class LandmarkStages(Shared):
    """One command a method."""

    def inner_folds(self) -> None:
        from bolt.folds.check import series_hashes
        from bolt.folds.inner import make_inner_folds
        from bolt.folds.splits import FOLD_COLUMNS
        from bolt.series.cache import SeriesCache

        folds = read_table(self.layout.folds, text=("scan_id", "subject", "group"))
        scans = self._scans()
        scans = self._strata(scans[scans["scan_id"].isin(folds["scan_id"])])
        caches = [self.layout.cache(atlas) for atlas in self.config.atlas_places]
        contents = {f"series in {cache}": series_hashes(SeriesCache(cache)) for cache in caches}
        for fold in sorted(folds["fold"].unique()):
            table = make_inner_folds(folds, scans, fold, self.config.folds, self.config.explain.inner_folds, contents)
            write_table(table, self.layout.inner_folds(fold), FOLD_COLUMNS)
        inputs = [self.layout.folds, self.layout.scans, *(cache / "manifest.json" for cache in caches)]
        self._note(self.layout.inner_folds(0).with_name("provenance.json"), inputs, seed=self.config.folds.seed)

    def train_inner(self) -> None:
        from bolt.training.runner import train_fold

        options = self.options
        out = self._inner() / f"fold-{options.inner}"
        cache, folds = self.layout.cache(options.atlas, options.variant), self.layout.inner_folds(options.fold)
        place = {"fold": options.inner, "seed": options.seed}

        def work() -> None:
            model = self._model().for_fold(options.fold)  # settings of the outer fold, by its own validation scans
            facts = {"device": self.config.device, "threads": options.threads}
            train_fold(cache, folds, model, self.dataset, **place, out=out, **facts)

        outcome = self._outcome("train_inner", out / "status.json", [cache / "manifest.json", folds])
        outcome.facts = {"outer": options.fold, **place}
        outcome.empty = [out / "checkpoint.safetensors", out / "predictions.tsv"]
        outcome.of(work)

    def explain_inner(self) -> None:
        from bolt.explain.importance import explain_inner
        from bolt.series.cache import SeriesCache

        options, out = self.options, self._inner()
        inner = range(self.config.explain.inner_folds)
        statuses = [out / f"fold-{one}" / "status.json" for one in inner]
        failed = [status for status in statuses if read_json(status)["state"] != "ok"]
        cache = self.layout.cache(options.atlas, options.variant)
        inputs: Inputs = [cache / "manifest.json", [out / f"fold-{one}" / "checkpoint.safetensors" for one in inner]]
        outcome = self._outcome("explain_inner", out / "explain_status.json", inputs, out / "importance.tsv")
        outcome.facts = {"outer": options.fold, "seed": options.seed}
        outcome.after((failed or statuses)[0])
        outcome.empty = [out / "importance.npy", out / "importance.tsv"]
        outcome.of(lambda: explain_inner(SeriesCache(cache), out, inner, self.config.device))

    def landmarks(self) -> None:
        from bolt.explain.landmarks import write_landmarks
        from bolt.explain.weights import explained_folds
        from bolt.series.cache import SeriesCache

        options, settings = self.options, self.config.explain
        if self.dataset.classes is None:
            raise DataError("landmarks are regressions of classes, but the label of this dataset is a number")
        which = (options.atlas, options.model, options.seed, options.variant)
        run, out, classes = self.layout.run(*which).folder, self.layout.run(*which).explanation, self.dataset.classes
        done = explained_folds(run, self._folds())

        def work() -> None:
            write_landmarks(
                SeriesCache(self.layout.cache(options.atlas, options.variant)),
                run,
                done,
                classes,
                out,
                tokens=settings.tokens,
                random_draws=settings.random_draws,
                offsets=settings.subset_offsets,
                inner=settings.inner_folds > 0,
                seed=options.seed,
            )

        self._of_folds(done, [out / name for name in ("landmarks.tsv", "subsets.tsv", "coefficients.npy")], work)
        self._note(beside(out / "landmarks.tsv"), self._importance(done), seed=options.seed)

    def _inner(self):
        options = self.options
        return self.layout.run(options.atlas, options.model, options.seed, options.variant).inner(options.fold)
