"""Keys of a hyper-parameter search: the block `search` of a run, and the ranges in `config/search/<name>.yaml`."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from bolt.config.keys import Keys, Seed
from bolt.config.models import Training
from bolt.io.names import Name


class Span(Keys):
    """Values to try for one setting: a range (of whole numbers if both ends are), or a list."""

    low: int | float | None = Field(None, description="lowest value")
    high: int | float | None = Field(None, description="highest value")
    log: bool = Field(False, description="search the range on a logarithmic scale")
    choices: list[Any] | None = Field(None, description="values to choose from, instead of a range")

    @model_validator(mode="after")
    def _is_range_or_list(self) -> Span:
        if self.choices is not None:
            if not self.choices or self.low is not None or self.high is not None or self.log:
                raise ValueError("'choices' must be a non-empty list, without 'low', 'high' and 'log'")
        elif self.low is None or self.high is None or self.low > self.high:
            raise ValueError("needs 'choices', or 'low' and 'high' with low <= high")
        elif self.log and self.low <= 0:
            raise ValueError("with 'log', the range must be above 0")
        return self

    @property
    def whole(self) -> bool:
        """Return whether the range is one of whole numbers."""
        return isinstance(self.low, int) and isinstance(self.high, int)


class Space(Keys):
    """Settings that a search may change: `config/search/<name>.yaml`."""

    name: Name = Field(description="set by the file's name")
    description: str = Field("", description="one sentence")
    training: dict[str, Span] = Field({}, description="keys of `training`, for every model with epochs")
    hyper: dict[str, dict[str, Span]] = Field({}, description="module in bolt/models to settings of such models")

    @model_validator(mode="after")
    def _known_keys(self) -> Space:
        unknown = sorted(set(self.training) - set(Training.model_fields))
        if unknown:
            raise ValueError(f"'training' has no key '{unknown[0]}'; known: {', '.join(Training.model_fields)}")
        return self


class Search(Keys):
    """The target `search` of the workflow."""

    models: list[str] = Field([], description="files in config/models (or paths); empty: those in `models`")
    space: str = Field("paper", description="file in config/search (or a path)")
    scheme: Literal["per-fold", "paper", "both", "shared"] = "per-fold"
    use: bool = Field(False, description="experiments train models with the values of the scheme `shared`")
    n_trials: int = Field(30, ge=1, description="trials per searched fold")
    seed: Seed = Field(0, description="of the search and of its trial trainings")

    @property
    def schemes(self) -> list[str]:
        """Return the schemes that are run."""
        return ["paper", "per-fold"] if self.scheme == "both" else [self.scheme]

    @property
    def shared(self) -> bool:
        """Return whether all datasets and atlases try the same candidates, of which one is chosen for all."""
        return self.scheme == "shared"
