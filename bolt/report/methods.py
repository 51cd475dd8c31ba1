"""The methods section, written from the configuration that was run (``templates/methods.txt``)."""

from __future__ import annotations

from collections.abc import Sequence

from jinja2 import Environment, PackageLoader, StrictUndefined

from bolt.atlas_files import describe_atlas
from bolt.config import Config, Dataset, Model, load_denoise, load_registration
from bolt.provenance import versions


def methods(config: Config, dataset: Dataset, models: Sequence[Model]) -> list[str]:
    """Paragraphs for a manuscript.

    Parameters
    ----------
    config : Config
    dataset : Dataset
    models : sequence of Model
        Those of `config`, loaded.
    """
    environment = Environment(loader=PackageLoader("bolt.report"), undefined=StrictUndefined, autoescape=False)
    text = environment.get_template("methods.txt").render(
        config=config,
        dataset=dataset,
        models=models,
        folds_run=_folds_run(config, models),
        atlases=[describe_atlas(place) for place in config.atlas_places.values()],
        raw=dataset.source in ("phantom", "bids"),
        registration=load_registration(config.preprocess.registration),
        denoise=load_denoise(config.denoise),
        versions=versions(),
    )
    return [" ".join(paragraph.split()) for paragraph in text.split("\n\n") if paragraph.strip()]


def _folds_run(config: Config, models: Sequence[Model]) -> str:
    """Which folds were run, where they were not all."""
    run = {model.name: config.folds.of(model.name) for model in models}
    if all(len(folds) == config.folds.outer for folds in run.values()):
        return ""
    named = {name: ", ".join(map(str, folds)) for name, folds in run.items()}
    if len(set(named.values())) == 1:
        return f" (folds run: {next(iter(named.values()))})"
    return f" (folds run: {'; '.join(f'{name} {folds}' for name, folds in named.items())})"
