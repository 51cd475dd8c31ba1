"""Stages of experiments: tables that span runs and datasets, and measures of models and series that need no run."""

from __future__ import annotations

from pathlib import Path

from bolt.cli.shared import Shared
from bolt.config import Experiment
from bolt.experiments.entries import Entry, all_entries, available, configurations, rows_of, with_first_looks
from bolt.io.errors import ConfigError, DataError
from bolt.io.files import write_table
from bolt.jobs.provenance import beside


class ExperimentStages(Shared):
    """One command a method."""

    def experiment(self) -> None:
        from bolt.report.tables.complexity import write_complexity
        from bolt.report.tables.experiment import write_experiment
        from bolt.report.tables.landmarks import write_landmark_experiment
        from bolt.report.tables.spectra import write_spectra

        experiment, out, found = self._experiment(), self.layout.paper, list[Entry]()
        results, present = self.config.paths.results, self.config.dataset_name
        if experiment.kind == "complexity":
            write_complexity(experiment, out)
        elif experiment.kind == "spectra":
            write_spectra(experiment, list(configurations(results, present)), out)
        else:
            found = all_entries(experiment, results, present)
            if not found:
                raise DataError(
                    f"experiment '{experiment.name}' has no run of any dataset",
                    where=results,
                    hint=f"Train it: snakemake {experiment.name}",
                )
            write = write_landmark_experiment if experiment.kind == "landmarks" else write_experiment
            write(with_first_looks(experiment, results, {one.dataset for one in found}), found, out)
        self._note(beside(self.layout.experiment(experiment.name)), [self._read_by(experiment, found)])

    def complexity(self) -> None:
        from bolt.atlases.image import load_labels
        from bolt.experiments.complexity import COLUMNS, device_of, measure

        experiment, atlas = self._experiment("complexity"), self.options.atlas
        settings = experiment.complexity
        assert settings is not None
        n_rois = len(load_labels(self.config.atlas_places[atlas], atlas_dir=self.config.paths.atlas_dir))
        rows = [(row.row, model) for row, model in rows_of(experiment, self.config)]
        table = measure(
            rows,
            atlas,
            n_rois,
            settings.up_to(self.config.quick),
            tr=settings.tr,
            repeats=settings.repeats,
            device=device_of(self.config.device),
        )
        write_table(table, self.layout.complexity(experiment.name, atlas), COLUMNS)
        self._note(beside(self.layout.complexity(experiment.name, atlas)), [])

    def spectra(self) -> None:
        from bolt.series.cache import SeriesCache
        from bolt.series.spectra import BAND_COLUMNS, SPECTRUM_COLUMNS, spectra_of

        experiment, atlas = self._experiment("spectra"), self.options.atlas
        assert experiment.spectra is not None
        spectra, bands = spectra_of(SeriesCache(self.layout.cache(atlas)), experiment.spectra)
        write_table(bands, self.layout.bands(experiment.name, atlas), BAND_COLUMNS)
        write_table(spectra, self.layout.spectra(experiment.name, atlas), SPECTRUM_COLUMNS)
        manifest = self.layout.cache(atlas) / "manifest.json"
        self._note(beside(self.layout.spectra(experiment.name, atlas)), [manifest])

    def ledger(self) -> None:
        from bolt.jobs.ledger import write_ledger

        write_ledger(self.layout.ledger)

    def _read_by(self, experiment: Experiment, found: list[Entry]) -> list[Path]:
        """Files that the table of an experiment was made of."""
        if experiment.kind == "complexity":
            return sorted((self.layout.paper / experiment.name).glob("*.tsv"))
        if experiment.kind == "spectra":
            return sorted(self.config.paths.results.glob(f"*/spectra/{experiment.name}/*/*.tsv"))
        if experiment.kind == "landmarks":
            return [folder / "landmarks.tsv" for one in found for folder in one.explanations]
        return [file for one in found for run in one.folders for file in run.glob("fold-*/predictions.tsv")]

    def _experiment(self, kind: str | None = None) -> Experiment:
        name, known = self.options.name, available(self.config)
        if name not in known or kind not in (None, known[name].kind):
            fitting = [one for one, found in known.items() if kind in (None, found.kind)]
            raise ConfigError(f"no experiment '{name}'", hint=f"Known here: {', '.join(fitting)}")
        return known[name]
