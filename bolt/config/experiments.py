"""Keys of an experiment: `config/experiments/<name>.yaml`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, ValidationError, model_validator

from bolt.config.datasets import PaperDataset
from bolt.config.keys import DIFFERENT, Keys
from bolt.config.models import Fidelity
from bolt.io.names import Name

Band = Annotated[list[float], Field(min_length=2, max_length=2)]
Length = Annotated[int, Field(ge=2)]
Kind = Literal["training", "complexity", "spectra", "landmarks", "brain_maps", "task_timing"]
EXPLAINING: tuple[Kind, ...] = ("landmarks", "brain_maps", "task_timing")
"""Kinds of experiments that explain their rows."""
WITH_KEY: tuple[Kind, ...] = ("complexity", "spectra", *EXPLAINING)
"""Kinds of experiments that have a key of this name; the others train."""


class Quick(Keys):
    """Settings of a cheap first look at experiments."""

    epochs: int = Field(1, ge=1, description="torch models are trained for at most this many epochs")
    max_length: int = Field(
        300, ge=2, description="complexity: volumes of the longest scan that is measured (two lengths at least)"
    )


class Row(Keys):
    """A row of an experiment: a model, and the settings that are changed."""

    model_config = ConfigDict(coerce_numbers_to_str=True)

    row: str = Field("", description="its name in tables; default: the model's title")
    model: str = Field(description="a file in config/models (or the path of one)")
    hyper: dict[str, Any] = Field({}, description="parameters changed for this row")
    training: dict[str, Any] = Field({}, description="keys of `Training` changed for this row")
    members: list[str] | None = Field(None, description="models that an ensemble combines; null: as in its file")
    connectivity: Literal["scan", "crop"] | None = Field(
        None, description="of connectivity models: from whole scans or from each crop; null: as in the model's file"
    )
    train_share: float | None = Field(
        None, gt=0, le=1, description="share of the training subjects that is used; null: all"
    )
    fidelity: Fidelity | None = Field(
        None,
        description="how close the row is to its source; null: as the model, but not stated if the model is exact and "
        "the row changes its settings and is no row of the paper",
    )
    paper: dict[str, str] = Field(
        {}, description="columns and values that identify this row in the paper's table (config/experiments/paper)"
    )
    line: str = Field("", description="in a sweep: the line of the figure to which the row belongs")
    value: float | None = Field(None, description="in a sweep: the row's position on that line")


class Sweep(Keys):
    """Rows that differ in one number: one for each model and value."""

    row: str = Field(description="name of a row in tables; may contain {model} (its title) and {value}")
    line: str = Field("{model}", description="name of a line in the figure")
    models: list[str] = Field(min_length=1, description="models that are swept")
    key: str = Field(description="the setting that changes: hyper.<setting>, training.<key> or train_share")
    values: list[float] = Field(min_length=1, description="values of the number")
    hyper: dict[str, Any] = Field({}, description="parameters changed for all values")
    training: dict[str, Any] = Field({}, description="keys of `Training` changed for all values")
    fidelity: Fidelity | None = Field(None, description="of all its rows; null: as in `rows`")
    paper: str | None = Field(None, description="column of the paper's table that holds the value")

    @model_validator(mode="after")
    def _known_key_that_makes_rows(self) -> Sweep:
        group, _, setting = self.key.partition(".")
        if self.key != "train_share" and not (group in ("hyper", "training") and setting):
            raise ValueError(f"'key' must be hyper.<setting>, training.<key> or train_share, not '{self.key}'")
        for value in self.values:
            try:
                self._row("model", "title", value)
            except ValidationError as error:
                problem = error.errors()[0]
                raise ValueError(f"'values': {problem['msg']} (found {value:g} for {self.key})") from None
            except (LookupError, ValueError, AttributeError, TypeError):
                raise ValueError(
                    f"'row' may contain {{model}} and {{value}}, 'line' only {{model}}; {value:g} cannot be filled "
                    f"in here: '{self.row}', '{self.line}'"
                ) from None
        return self

    def rows(self, titles: dict[str, str]) -> list[Row]:
        """Return one row for each model and value.

        Parameters
        ----------
        titles : dict
            Model to its title.
        """
        return [self._row(model, titles[model], value) for model in self.models for value in self.values]

    def _row(self, model: str, title: str, number: float) -> Row:
        value = int(number) if number.is_integer() and self.key != "train_share" else number
        group, _, setting = self.key.partition(".")
        changes: dict[str, Any] = {"hyper": self.hyper, "training": self.training}
        if setting:
            changes[group] = {**changes[group], setting: value}
        else:
            changes[group] = value
        return Row(
            row=self.row.format(model=title, value=value),
            line=self.line.format(model=title),
            value=number,
            model=model,
            fidelity=self.fidelity,
            paper={self.paper: str(value)} if self.paper else {},
            **changes,
        )


class Complexity(Keys):
    """Measurement of operations, time and memory."""

    lengths: Annotated[list[Length], Field(min_length=2), DIFFERENT] = Field(
        [75, 150, 300, 600, 1200], description="volumes of the scans"
    )
    repeats: int = Field(3, ge=1, description="timed passes, of which the fastest counts")
    tr: float = Field(0.72, gt=0, description="seconds, for models whose window is in seconds")

    def up_to(self, quick: Quick | None) -> list[int]:
        """Return the lengths, sorted; for a quick look only the short ones, but two at least to fit an exponent."""
        lengths = sorted(self.lengths)
        return lengths if quick is None else [n for n in lengths if n <= max(quick.max_length, lengths[1])]


class Spectra(Keys):
    """Computation of power spectra."""

    segment_seconds: float = Field(100.0, gt=0, description="length of Welch's segments")
    bands: dict[str, Band] = Field(min_length=1, description="name to lowest and highest frequency, Hz")

    @model_validator(mode="after")
    def _have_width(self) -> Spectra:
        for name, (low, high) in self.bands.items():
            if not 0 < low < high:
                raise ValueError(f"band '{name}' must be [low, high] with 0 < low < high")
        return self


class OneAtlas(Keys):
    """An experiment that explains its rows, on one atlas."""

    atlas: str = Field("schaefer400", description="used if it is configured; otherwise the first configured atlas")

    def atlas_of(self, configured: list[str]) -> str:
        """Return the atlas on which models are explained."""
        return self.atlas if self.atlas in configured else configured[0]


class InPaper(Keys):
    """What an experiment is in the paper. Such experiments are made by the target `paper`, others by `extras`."""

    shows: str = Field(description="the paper's tables or figures, such as Table 1")
    dataset: PaperDataset | None = Field(
        None, description="dataset of the paper's table, if the table has no such column"
    )
    columns: dict[str, str] = Field(
        {}, description="columns of the paper's table that name a row, with their headings; none: the row's own name"
    )


class Experiment(Keys):
    """A list of models or settings compared in one table: `config/experiments/<name>.yaml`."""

    name: Name = Field(description="set by the file's name")
    title: str = Field(description="heading of the table")
    description: str = Field("", description="one sentence below the heading")
    paper: InPaper | None = Field(None, description="what it is in the paper; null: an extra")
    reference: str = Field("BolT", description="row against which the others are tested; without it there are no tests")
    rows: list[Row] = Field([], description="rows of the table")
    sweeps: list[Sweep] = Field([], description="rows that differ in one number")
    complexity: Complexity | None = Field(None, description="measure cost instead of training the rows")
    spectra: Spectra | None = Field(None, description="power spectra of the series, without rows")
    landmarks: OneAtlas | None = Field(None, description="train and explain the rows, and compare their landmarks")
    brain_maps: OneAtlas | None = Field(None, description="train and explain the rows, and draw the ROIs that matter")
    task_timing: OneAtlas | None = Field(None, description="train and explain the rows, and draw importance over tasks")

    @property
    def kind(self) -> Kind:
        """Return what the experiment does: the key that it has, or training."""
        return next((kind for kind in WITH_KEY if getattr(self, kind) is not None), "training")

    @property
    def trains(self) -> bool:
        """Return whether its rows are runs."""
        return self.kind == "training" or self.explains is not None

    @property
    def explains(self) -> OneAtlas | None:
        """Return on which atlas its rows are explained; None if they are not."""
        return self.landmarks or self.brain_maps or self.task_timing

    @model_validator(mode="after")
    def _has_rows_of_one_kind(self) -> Experiment:
        if bool(self.rows or self.sweeps) == (self.kind == "spectra"):
            raise ValueError("an experiment needs 'rows' or 'sweeps'; one with 'spectra' has none")
        kinds = [kind for kind in WITH_KEY if getattr(self, kind) is not None]
        if len(kinds) > 1:
            raise ValueError(f"an experiment has one of {', '.join(map(repr, kinds))}")
        return self
