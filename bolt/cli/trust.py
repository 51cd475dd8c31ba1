"""Stages that ask how far an explanation may be believed."""

from __future__ import annotations

from bolt.cli.shared import Shared
from bolt.config.layout import ModelRun
from bolt.io.errors import DataError
from bolt.jobs.provenance import beside


class TrustStages(Shared):
    """One command a method."""

    def train_permuted(self) -> None:
        from bolt.explain.trust.permuted import train_permuted

        options, run = self.options, self._checked_run()
        fold = self.config.explain.sanity.fold_of(self._folds())
        out = run.permuted
        outcome = self._outcome("train_permuted", out / "status.json", [run.cache / "manifest.json", self.layout.folds])
        outcome.facts = {"fold": fold, "seed": options.seed}
        outcome.empty = [out / "checkpoint.safetensors", out / "predictions.tsv"]
        facts = {"fold": fold, "device": self.config.device, "threads": options.threads}
        outcome.of(lambda: train_permuted(run, self.layout.folds, self._model(), self.dataset, **facts))

    def sanity(self) -> None:
        from bolt.explain.trust.sanity import write_sanity
        from bolt.explain.weights import explained_folds
        from bolt.series.cache import SeriesCache

        settings, run = self.config.explain.sanity, self._checked_run()
        done, table = explained_folds(run.folder, self._folds()), run.explanation / "sanity.tsv"
        self._of_folds(
            done, [table], lambda: write_sanity(SeriesCache(run.cache), run, done, settings, self.config.device)
        )
        self._note(beside(table), self._importance(done), seed=self.options.seed)

    def stability(self) -> None:
        from bolt.explain.trust.stability import write_stability
        from bolt.explain.weights import explained_folds

        run, folds = self._checked_run(), self._folds()
        seeds = {*self.config.seeds, self.options.seed}
        classes, fraction = self.dataset.classes or [], self.config.explain.top_rois
        done, table = explained_folds(run.folder, folds), run.explanation / "stability.tsv"
        self._of_folds(done, [table], lambda: write_stability(run, seeds, folds, classes, fraction=fraction))
        maps = [run.with_seed(seed).explanation / "coefficients.npy" for seed in seeds]
        self._note(beside(table), [*self._importance(done), *sorted(maps)], seed=self.options.seed)

    def faithfulness_fold(self) -> None:
        from bolt.explain.trust.perturb import perturb_fold
        from bolt.series.cache import SeriesCache

        options, out = self.options, self._fold(self.options.fold)
        cache = self.layout.cache(options.atlas, options.variant)
        inputs = [cache / "manifest.json", *(out / name for name in ("checkpoint.safetensors", "importance.npy"))]
        curves = out / "faithfulness_curves.tsv"
        outcome = self._outcome("faithfulness_fold", out / "faithfulness_status.json", inputs, curves)
        outcome.facts = {"fold": options.fold, "seed": options.seed}
        outcome.after(out / "explain_status.json")
        outcome.empty = [out / "faithfulness_curves.npy", out / "faithfulness_curves.tsv"]
        settings, device = self.config.explain.faithfulness, self.config.device
        outcome.of(lambda: perturb_fold(SeriesCache(cache), out, settings, seed=options.seed, device=device))

    def faithfulness(self) -> None:
        from bolt.explain.trust.faithfulness import finished_folds, write_faithfulness

        run, folds = self._checked_run(), self._folds()
        done = finished_folds(run.folder, folds)
        outputs = [run.explanation / "faithfulness.tsv", run.explanation / "faithfulness_areas.tsv"]
        self._of_folds(done, outputs, lambda: write_faithfulness(run, folds))
        curves = [run.fold(fold) / "faithfulness_curves.npy" for fold in done]
        self._note(beside(outputs[0]), curves, seed=self.options.seed)

    def _checked_run(self) -> ModelRun:
        """Return the run whose explanation is checked."""
        if self.dataset.classes is None:
            raise DataError("importance is checked for classes, but the label of this dataset is a number")
        options = self.options
        return self.layout.run(options.atlas, options.model, options.seed, options.variant)
