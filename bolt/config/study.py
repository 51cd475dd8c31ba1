"""One configured study: its configuration, its dataset, and where everything made of it is kept.

Also a row of a table of models: its runs, and where the paper has the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from bolt.config import ROOT, Config, Dataset, Model, load_config, load_dataset, load_model
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

    def folds_of(self, run: ModelRun) -> list[int]:
        """Return the folds in which a run is trained."""
        return self.config.folds.of(self.models[run.model].name)

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


@dataclass(frozen=True)
class Entry:
    """A row of a table of models, on one dataset and atlas.

    Attributes
    ----------
    dataset, atlas : str
    row : str
        Name of the row in tables, and in the experiment's file.
    model : Model
    folders : list of Path
        Run folders ``seed-<s>``, one per seed, with one ``fold-<k>`` per fold.
    folds : list of int
        The folds that are trained.
    classes : list of str
        In the dataset's order; of two, the last is the positive one; empty if the label is a number.
    note : str
        Why the row cannot be run on this dataset (such as a window longer than the crop); empty if it can.
    paper : dict
        Columns and values that identify this row in the paper's own table (`paper_table`); empty if it has no such row.
    paper_dataset : str
        Which of the paper's datasets this is (`paper_dataset`); empty if it is none of them.
    line : str
        In a sweep: the line of its figure to which the row belongs; else empty.
    value : float or None
        In a sweep: the row's position on that line.
    explanations : list of Path
        Folders with the explanations of its runs, one per seed.
    outer : int
        Folds of the cross-validation; those that are not trained count as missing. 0: as many as are trained.
    """

    dataset: str
    atlas: str
    row: str
    model: Model
    folders: list[Path]
    folds: list[int]
    classes: list[str]
    note: str = ""
    paper: dict[str, str] = field(default_factory=dict)
    line: str = ""
    value: float | None = None
    explanations: list[Path] = field(default_factory=list)
    outer: int = 0
    paper_dataset: str = ""


def paper_dataset(dataset: Dataset, scheme: str = "kfold") -> str:
    """Return with which of the paper's datasets results are compared: none if label, classes or folds are others."""
    if dataset.paper is None or scheme != "kfold":
        return ""
    original = load_dataset(dataset.paper)
    same = (dataset.label, dataset.classes) == (original.label, original.classes)
    return dataset.paper if same else ""


def paper_table(name: str) -> Path:
    """Return the file with the paper's own values of an experiment; it need not exist."""
    return ROOT / "config/experiments/paper" / f"{name}.tsv"
