"""Stages of experiments: tables that span runs and datasets, and measures that need no run."""

from __future__ import annotations

from typing import Any

from bolt.config import Experiment
from bolt.config.study import Study
from bolt.experiments.entries import EXPLAINED_BY, all_entries, available, configurations, rows_of, with_first_looks
from bolt.io.errors import ConfigError, DataError
from bolt.io.files import write_table
from bolt.jobs.provenance import provenance_path
from bolt.workflow.job import Job


def experiment(job: Job) -> None:
    """Write the tables and the figure of an experiment."""
    from bolt.experiments.explained import write_brain_maps, write_landmark_experiment, write_task_timing
    from bolt.experiments.measured import write_complexity, write_spectra
    from bolt.experiments.tables import write_experiment

    experiment, out = _experiment(job), job.layout.paper
    results, present = job.config.paths.results, job.config.dataset_name
    if experiment.kind == "complexity":
        write_complexity(experiment, out)
        read = sorted((out / experiment.name).glob("*.tsv"))
    elif experiment.kind == "spectra":
        write_spectra(experiment, list(configurations(results, present)), out)
        read = sorted(results.glob(f"*/spectra/{experiment.name}/*/*.tsv"))
    else:
        entries = all_entries(experiment, results, present)
        if not entries:
            raise DataError(
                f"experiment '{experiment.name}' has no run of any dataset",
                where=results,
                hint=f"Ask for the target '{experiment.name}'",
            )
        shown = {entry.dataset for entry in entries}
        experiment = with_first_looks(experiment, results, shown)
        if experiment.kind in ("brain_maps", "task_timing"):
            configured = configurations(results, present)
            studies = {config.dataset_name: Study.of(config) for config in configured if config.dataset_name in shown}
            draw = write_brain_maps if experiment.kind == "brain_maps" else write_task_timing
            draw(experiment, entries, studies, out)
        else:
            write = write_landmark_experiment if experiment.kind == "landmarks" else write_experiment
            write(experiment, entries, out)
        if experiment.explains is not None:
            read = [folder / EXPLAINED_BY[experiment.kind] for entry in entries for folder in entry.explanations]
        else:
            runs = [run for entry in entries for run in entry.folders]
            read = [file for run in runs for file in run.glob("fold-*/predictions.tsv")]
    job.note(provenance_path(job.layout.experiment(experiment.name)), [read])


def _experiment(job: Job, kind: str | None = None) -> Experiment:
    """Return the experiment that the options name, of one kind where one is needed."""
    name, known = job.options.name, available(job.config)
    fitting = [other for other, experiment in known.items() if kind in (None, experiment.kind)]
    if name not in fitting:
        raise ConfigError(f"no experiment '{name}'", hint=f"Known here: {', '.join(fitting)}")
    return known[name]


def measure_complexity(job: Job) -> None:
    """Measure what models cost with the ROIs of an atlas."""
    from bolt.atlases.labels import load_labels
    from bolt.experiments.complexity import COLUMNS, measure
    from bolt.training.device import device_of

    experiment, atlas, config = _experiment(job, "complexity"), job.options.atlas, job.config
    out = job.output.costs
    settings: Any = experiment.complexity
    table = measure(
        [(row.row, model) for row, model in rows_of(experiment, config)],
        atlas,
        len(load_labels(config.atlas_places[atlas], atlas_dir=config.paths.atlas_dir)),
        settings.up_to(config.quick),
        tr=settings.tr,
        repeats=settings.repeats,
        device=device_of(config.device, job.options.threads).type,
    )
    write_table(table, out, COLUMNS)
    job.note(out, [])


def take_spectra(job: Job) -> None:
    """Write power spectra and the power in bands."""
    from bolt.experiments.spectra import BAND_COLUMNS, SPECTRUM_COLUMNS, spectra_of

    settings: Any = _experiment(job, "spectra").spectra
    spectra, bands = spectra_of(
        job.series_cache(), settings, lambda scan: job.layout.series_file(scan, job.options.atlas)
    )
    write_table(bands, job.output.bands, BAND_COLUMNS)
    write_table(spectra, job.output.spectra, SPECTRUM_COLUMNS)
    job.note(job.output.spectra, [job.input.cache])
