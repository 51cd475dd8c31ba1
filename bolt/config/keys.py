"""Groups of keys and their parsing; an unknown key is an error that names the nearest known one."""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from bolt.io.errors import ConfigError, without_credentials


def different(values: list[Any]) -> list[Any]:
    """Return a list; refuse one in which an entry is there twice."""
    if len(set(values)) < len(values):
        raise ValueError("has duplicate entries")
    return values


DIFFERENT = AfterValidator(different)
Names = Annotated[list[str], Field(min_length=1), DIFFERENT]
Seed = Annotated[int, Field(ge=0, lt=2**32)]
"""Of random numbers: what NumPy and torch take."""


class Keys(BaseModel):
    """A group of keys; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


T = TypeVar("T", bound=Keys)


def parse(keys: type[T], data: dict[str, Any], where: str | Path) -> T:
    """Check `data` against `keys`; the first problem becomes a `ConfigError` with a hint."""
    if re.search(r"://[^/\s'\"]*@(?!sha256:)", repr(data)):  # in any key: even descriptions are copied into results
        what = "contains a URL with a password, which would be written to logs and results"
        raise ConfigError(what, where=where, hint="Remove the password from the URL")
    try:
        return keys.model_validate(data)
    except ValidationError as error:
        problems = error.errors()  # a misspelt key is reported as missing, too: the spelling comes first
        problem = next((p for p in problems if p["type"] == "extra_forbidden"), problems[0])
    place = [str(part) for part in problem["loc"]]
    key = ".".join(place) or "the file"
    if problem["type"] == "extra_forbidden":
        group: Any = keys
        for part in place[:-1]:
            if part in group.model_fields:  # else an index into a list of groups, or a name in a mapping of them
                group = _group_in(group.model_fields[part].annotation)
        siblings = list(group.model_fields)
        what = f"unknown key '{key}'"
        raise ConfigError(what, where=where, hint=f"Known here: {', '.join(siblings)}{nearest(place[-1], siblings)}")
    if problem["type"] == "missing":
        raise ConfigError(f"key '{key}' is missing", where=where, hint="Add it")
    found = f" (found {without_credentials(repr(problem['input']))})" if place else ""  # else it is the whole file
    raise ConfigError(f"'{key}': {problem['msg']}{found}", where=where, hint="Correct the value")


def _group_in(annotation: Any) -> type[Keys] | None:
    """Return the group of keys that an annotation contains, at any depth."""
    if isinstance(annotation, type) and issubclass(annotation, Keys):
        return annotation
    return next(filter(None, map(_group_in, getattr(annotation, "__args__", ()))), None)


def nearest(name: str, candidates: list[str]) -> str:
    """Return `` (did you mean 'x'?)`` for the most similar candidate, or an empty string if none is similar."""
    near = difflib.get_close_matches(name, candidates, n=1)
    return f" (did you mean '{near[0]}'?)" if near else ""
