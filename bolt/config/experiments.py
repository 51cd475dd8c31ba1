"""Keys of an experiment: `config/experiments/<name>.yaml`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, ValidationError, model_validator

from bolt.config.keys import Keys

Band = Annotated[list[float], Field(min_length=2, max_length=2)]
Length = Annotated[int, Field(ge=2)]


class Quick(Keys):
    """How a first look at the experiments is made cheap."""

    epochs: int = Field(1, ge=1, description="torch models are trained for at most so many epochs")
    max_length: int = Field(
        300,
        ge=2,
        description="volumes of the longest scan of the complexity, or the two shortest",
    )


class Row(Keys):
    """A row of an experiment: a model, and what is changed of it."""

    model_config = ConfigDict(coerce_numbers_to_str=True)

    row: str = Field(description="what the tables call it; default: the model's title", default="")
    model: str = Field(description="a file in config/models (or the path of one)")
    hyper: dict[str, Any] = {}
    training: dict[str, Any] = {}
    connectivity: Literal["scan", "crop"] | None = None
    train_share: float | None = Field(None, gt=0, le=1)
    paper: dict[str, str] = Field(
        {}, description="columns and values of the paper's own table (config/experiments/paper) that are this row's"
    )
    line: str = Field("", description="of a sweep: what its rows have in common, one line of its figure")
    value: float | None = Field(None, description="of a sweep: where on that line the row lies")


class Sweep(Keys):
    """Rows that differ in one number: a row for each model and value."""

    row: str = Field(description="with {model}, its title, and {value}")
    line: str = Field("{model}", description="what the figure calls the line")
    models: list[str] = Field(min_length=1)
    key: str = Field(description="what is changed: hyper.<setting>, training.<key> or train_share")
    values: list[float] = Field(min_length=1)
    hyper: dict[str, Any] = {}
    training: dict[str, Any] = {}
    paper: str | None = Field(None, description="column of the paper's own table that holds the value")

    @model_validator(mode="after")
    def _known_key(self) -> Sweep:
        group, _, setting = self.key.partition(".")
        if self.key != "train_share" and not (group in ("hyper", "training") and setting):
            raise ValueError(f"'key' must be hyper.<setting>, training.<key> or train_share, not '{self.key}'")
        return self

    @model_validator(mode="after")
    def _makes_rows(self) -> Sweep:
        for value in self.values:
            try:
                self._row("model", "title", value)
            except ValidationError as error:
                problem = error.errors()[0]
                raise ValueError(f"'values': {problem['msg']} (found {value:g} for {self.key})") from None
            except (LookupError, ValueError, AttributeError, TypeError):
                raise ValueError(
                    f"'row' and 'line' may name {{model}}, and 'row' {{value}}; with {value:g} this cannot be read: "
                    f"'{self.row}', '{self.line}'"
                ) from None
        return self

    def rows(self, titles: dict[str, str]) -> list[Row]:
        """One row for each model and value.

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
            paper={self.paper: str(value)} if self.paper else {},
            **changes,
        )


class Complexity(Keys):
    """How operations, time and memory are measured."""

    lengths: list[Length] = Field([75, 150, 300, 600, 1200], min_length=2, description="volumes of the scans")
    repeats: int = Field(3, ge=1, description="passes that are timed; the fastest counts")
    tr: float = Field(0.72, gt=0, description="seconds, for models whose window is in seconds")

    def up_to(self, quick: Quick | None) -> list[int]:
        """The lengths, each once, of a first look only the short ones: two at least, for an exponent needs them."""
        lengths = sorted(set(self.lengths))
        return lengths if quick is None else [n for n in lengths if n <= max(quick.max_length, lengths[1])]

    @model_validator(mode="after")
    def _differ(self) -> Complexity:
        if len(set(self.lengths)) < 2:
            raise ValueError("'lengths' must be two different numbers at least")
        return self


class Spectra(Keys):
    """How power spectra are taken."""

    segment_seconds: float = Field(100.0, gt=0, description="length of Welch's segments")
    bands: dict[str, Band] = Field(min_length=1, description="name to lowest and highest frequency, Hz")

    @model_validator(mode="after")
    def _have_width(self) -> Spectra:
        for name, (low, high) in self.bands.items():
            if not 0 < low < high:
                raise ValueError(f"band '{name}' must go from a frequency above 0 to a higher one")
        return self


class Landmarks(Keys):
    """Whose landmarks are looked at."""

    atlas: str = Field("schaefer400", description="where it is configured; else the first that is")

    def atlas_of(self, configured: list[str]) -> str:
        return self.atlas if self.atlas in configured else configured[0]


class Experiment(Keys):
    """A table of the paper, or a question of one's own: `config/experiments/<name>.yaml`."""

    name: str
    title: str
    description: str = ""
    paper_dataset: str | None = Field(None, description="the dataset of the paper's table, where it has no such column")
    reference: str = Field("BolT", description="the row that every other is tested against; no tests without it")
    rows: list[Row] = []
    sweeps: list[Sweep] = []
    complexity: Complexity | None = Field(None, description="the rows are not trained but measured")
    spectra: Spectra | None = Field(None, description="no rows: the series themselves are looked at")

    landmarks: Landmarks | None = Field(None, description="the rows are trained and explained, and landmarks compared")

    @property
    def kind(self) -> Literal["training", "complexity", "spectra", "landmarks"]:
        if self.spectra:
            return "spectra"
        if self.landmarks:
            return "landmarks"
        return "complexity" if self.complexity else "training"

    @property
    def trains(self) -> bool:
        """Whether its rows are runs."""
        return self.kind in ("training", "landmarks")

    @model_validator(mode="after")
    def _has_rows(self) -> Experiment:
        if bool(self.rows or self.sweeps) == (self.kind == "spectra"):
            raise ValueError("an experiment needs 'rows' or 'sweeps'; one with 'spectra' has none")
        return self
