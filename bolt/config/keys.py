"""Groups of keys, and the reading of one: an unknown key is an error that names the nearest known one."""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from bolt.io.credentials import without_credentials
from bolt.io.errors import ConfigError


class Keys(BaseModel):
    """A group of keys; unknown ones are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


T = TypeVar("T", bound=Keys)


def parse(keys: type[T], data: dict[str, Any], where: str | Path) -> T:
    """Check `data` against `keys`; the first problem becomes a `ConfigError` with a remedy."""
    if re.search(r"://[^/\s'\"]*@(?!sha256:)", repr(data)):  # of any key: descriptions too are copied beside results
        raise ConfigError(
            "it holds an address with a password, which would be written to logs and results",
            where=where,
            hint="Give the address without one",
        )
    try:
        return keys.model_validate(data)
    except ValidationError as error:
        problems = error.errors()  # a key that is misspelt is missing too: the spelling is what to mend
        problem = next((one for one in problems if one["type"] == "extra_forbidden"), problems[0])
    place = [str(part) for part in problem["loc"]]
    key = ".".join(place) or "the file"
    if problem["type"] == "extra_forbidden":
        siblings = _keys_beside(keys, place)
        raise ConfigError(
            f"unknown key '{key}'",
            where=where,
            hint=f"Known here: {', '.join(siblings)}{nearest(place[-1], siblings)}",
        )
    if problem["type"] == "missing":
        raise ConfigError(f"key '{key}' is missing", where=where, hint="Add it")
    found = without_credentials(repr(problem["input"]))
    raise ConfigError(f"'{key}': {problem['msg']} (found {found})", where=where, hint="Correct the value")


def _keys_beside(keys: type[Keys], place: list[str]) -> list[str]:
    group: Any = keys
    for part in place[:-1]:
        if part in group.model_fields:  # else a place in a list of groups, or a name in a table of them
            group = _group_in(group.model_fields[part].annotation)
    return list(group.model_fields)


def _group_in(annotation: Any) -> type[Keys] | None:
    """The group of keys that an annotation holds, however deep."""
    if isinstance(annotation, type) and issubclass(annotation, Keys):
        return annotation
    return next(filter(None, map(_group_in, getattr(annotation, "__args__", ()))), None)


def nearest(name: str, candidates: list[str]) -> str:
    """A hint for an error line: `` (did you mean 'x'?)``, or nothing where no candidate is near."""
    near = difflib.get_close_matches(name, candidates, n=1)
    return f" (did you mean '{near[0]}'?)" if near else ""
