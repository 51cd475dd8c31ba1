"""Stages that ask how far an explanation may be believed."""

from __future__ import annotations

from pathlib import Path

from bolt.cli.shared import Shared
from bolt.io.errors import DataError
from bolt.jobs.provenance import beside


class TrustStages(Shared):
    """One command a method."""

    def train_permuted(self) -> None:
        from bolt.explain.trust.permuted import train_permuted

        options, (run, out) = self.options, self._run_and_out()
        inputs = [self.layout.cache(options.atlas, options.variant) / "manifest.json", self.layout.folds]
        outcome = self._outcome("train_permuted", out / "permuted" / "status.json", inputs)
        outcome.facts = {"fold": self.config.explain.sanity.fold_of(self._folds()), "seed": options.seed}
        outcome.empty = [out / "permuted" / "checkpoint.safetensors", out / "permuted" / "predictions.tsv"]
        outcome.of(
            lambda: train_permuted(
                self.layout.cache(options.atlas, options.variant),
                self.layout.folds,
                self._model(),
                self.dataset,
                run,
                fold=self.config.explain.sanity.fold_of(self._folds()),
                seed=options.seed,
                out=out / "permuted",
                device=self.config.device,
                threads=options.threads,
            )
        )

    def sanity(self) -> None:
        from bolt.explain.trust.sanity import write_sanity
        from bolt.explain.weights import explained_folds
        from bolt.series.cache import SeriesCache

        options, settings, (run, out) = self.options, self.config.explain.sanity, self._run_and_out()
        done = explained_folds(run, self._folds())

        def work() -> None:
            write_sanity(
                SeriesCache(self.layout.cache(options.atlas, options.variant)),
                run,
                done,
                out / "permuted" if settings.permuted else None,
                out,
                draws=settings.draws,
                scans=settings.scans,
                independent=settings.independent,
                device=self.config.device,
            )

        self._of_folds(done, [out / "sanity.tsv"], work)
        self._note(beside(out / "sanity.tsv"), self._importance(done), seed=options.seed)

    def stability(self) -> None:
        from bolt.explain.trust.stability import write_stability
        from bolt.explain.weights import explained_folds

        (run, out), folds = self._run_and_out(), self._folds()
        seeds = {seed: self._run_and_out(seed) for seed in {*self.config.seeds, self.options.seed}}
        classes, fraction = self.dataset.classes or [], self.config.explain.top_rois
        self._of_folds(
            explained_folds(run, folds),
            [out / "stability.tsv"],
            lambda: write_stability(seeds, self.options.seed, folds, classes, fraction=fraction),
        )
        maps = [explained / "coefficients.npy" for _, explained in seeds.values()]
        inputs = [*self._importance(explained_folds(run, folds)), *sorted(maps)]
        self._note(beside(out / "stability.tsv"), inputs, seed=self.options.seed)

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

        (run, out), folds = self._run_and_out(), self._folds()
        outputs = [out / "faithfulness.tsv", out / "faithfulness_areas.tsv"]
        self._of_folds(finished_folds(run, folds), outputs, lambda: write_faithfulness(run, folds, out))
        curves = [run / f"fold-{fold}" / "faithfulness_curves.npy" for fold in finished_folds(run, folds)]
        self._note(beside(out / "faithfulness.tsv"), curves, seed=self.options.seed)

    def _run_and_out(self, seed: int | None = None) -> tuple[Path, Path]:
        """The run that is looked at, of the seed that is asked for or another, and where its explanation lies."""
        if self.dataset.classes is None:
            raise DataError("importance is checked for classes, but the label of this dataset is a number")
        options = self.options
        which = (options.atlas, options.model, options.seed if seed is None else seed, options.variant)
        return self.layout.run(*which).folder, self.layout.run(*which).explanation
