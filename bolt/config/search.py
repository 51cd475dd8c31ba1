"""Keys of a search of hyper-parameters: the block `search` of a run, and the ranges in `config/search/<name>.yaml`."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from bolt.config.keys import Keys
from bolt.config.models import Training


class Span(Keys):
    """What one setting may be: a range (whole numbers where both ends are), or a list."""

    low: int | float | None = None
    high: int | float | None = None
    log: bool = Field(False, description="the range is searched by its logarithm")
    choices: list[Any] | None = None

    @model_validator(mode="after")
    def _is_range_or_list(self) -> Span:
        if self.choices is not None:
            if not self.choices or self.low is not None or self.high is not None or self.log:
                raise ValueError("'choices' is a list that stands alone, without 'low', 'high' and 'log'")
        elif self.low is None or self.high is None or self.low > self.high:
            raise ValueError("needs 'low' and 'high', in this order, or 'choices'")
        elif self.log and self.low <= 0:
            raise ValueError("with 'log' the range must be above 0")
        return self

    @property
    def whole(self) -> bool:
        return isinstance(self.low, int) and isinstance(self.high, int)


class Space(Keys):
    """What a search may change: `config/search/<name>.yaml`."""

    name: str
    description: str = ""
    training: dict[str, Span] = Field({}, description="keys of a model's `training`, for every model with epochs")
    hyper: dict[str, dict[str, Span]] = Field({}, description="module in bolt/models to its settings")

    @model_validator(mode="after")
    def _known_keys(self) -> Space:
        unknown = sorted(set(self.training) - set(Training.model_fields))
        if unknown:
            raise ValueError(f"'training' has no key '{unknown[0]}'; known: {', '.join(Training.model_fields)}")
        return self


class Search(Keys):
    """The target `search` of the workflow."""

    models: list[str] = Field([], description="files in config/models (or paths); none: those of `models`")
    space: str = Field("paper", description="a file in config/search (or the path of one)")
    scheme: Literal["per-fold", "paper", "both"] = "per-fold"
    n_trials: int = Field(30, ge=1, description="of each fold that is searched")
    seed: int = Field(0, ge=0, description="of the search and of the trainings that it tries")

    @property
    def schemes(self) -> list[str]:
        return ["paper", "per-fold"] if self.scheme == "both" else [self.scheme]
