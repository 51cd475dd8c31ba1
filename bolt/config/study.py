"""One configured study: its configuration, its dataset, and where everything made of it is kept."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from bolt.config import Config, Dataset, Model, load_config, load_dataset, load_model
from bolt.config.layout import Layout, ModelRun
from bolt.config.models import told_apart


@dataclass(frozen=True)
class Study:
    """A dataset as one configuration asks to analyse it.

    Attributes
    ----------
    config : Config
    dataset : Dataset
    """

    config: Config
    dataset: Dataset

    @classmethod
    def of(cls, config: Config) -> Study:
        """Load the dataset that a configuration names."""
        return cls(config, load_dataset(config.dataset))

    @classmethod
    def read(cls, path: str | Path) -> Study:
        """Read a configuration file and the dataset that it names."""
        return cls.of(load_config(path))

    @cached_property
    def layout(self) -> Layout:
        """Return names and places of everything made."""
        return Layout(self.config, self.dataset.ready_series)

    @property
    def space(self) -> str | None:
        """Return the space in which atlases are needed: that of the images; None for ready series."""
        return None if self.dataset.ready_series else self.config.preprocess.space

    @cached_property
    def models(self) -> dict[str, Model]:
        """Return the configured models by the names of their runs."""
        return {model.run_name: model for model in told_apart(list(map(load_model, self.config.models)))}

    @cached_property
    def runs(self) -> list[ModelRun]:
        """Return the runs of every configured atlas, model and seed."""
        config = self.config
        return [
            self.layout.run(atlas, model, seed)
            for atlas in config.atlas_places
            for model in self.models
            for seed in config.seeds
        ]
