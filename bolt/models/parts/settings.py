"""Values of a model's settings, held against the annotations of its class before anything is built."""

from __future__ import annotations

import types
import typing
from collections.abc import Sequence
from functools import cache
from typing import Any, Literal

from pydantic import ConfigDict, TypeAdapter, ValidationError

from bolt.io.errors import ConfigError

NONE_IS_MEANT = ("n_covariates",)
"""Whole numbers that may be 0; any other counts something that a model cannot be without."""

WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text", type(None): "null"}


@cache
def annotations_of(model: type) -> dict[str, Any]:
    """Types of a class's settings by name; a setting without an annotation is left out."""
    return typing.get_type_hints(model.__init__)  # type: ignore[misc]


def check_value(model: type, key: str, value: Any) -> None:
    """Refuse a value that a setting cannot have.

    Parameters
    ----------
    model : type
        The model's class.
    key : str
        Keyword of the class.
    value : object
        As read from YAML.

    Raises
    ------
    ConfigError
        A value of another type than the keyword's annotation, infinity, a whole number below 1 (`NONE_IS_MEANT` aside),
        or a dropout outside [0, 1).
    """
    annotation = annotations_of(model).get(key, Any)
    try:
        TypeAdapter(annotation, config=ConfigDict(strict=True, allow_inf_nan=False)).validate_python(value)
    except ValidationError:
        raise _wrong(key, value, f"must be {_in_words(annotation)}", _mend(value, annotation)) from None
    whole = type(value) is int and int in (annotation, *typing.get_args(annotation))
    if whole and value < 1 and not (key in NONE_IS_MEANT and value == 0):
        raise _wrong(key, value, "must be at least 1", "Set it to at least 1")
    if (key.endswith("dropout") or key == "drop_path") and not 0 <= value < 1:
        raise _wrong(key, value, "must be at least 0 and below 1", "Set a share of what is dropped; 0 drops nothing")


def _wrong(key: str, value: Any, problem: str, hint: str) -> ConfigError:
    return ConfigError(f"'{key}' is {value!r}, but {problem}", where=f"hyper.{key}", hint=hint)


def _mend(value: Any, annotation: Any) -> str:
    """What to write in place of a value of the wrong type."""
    wanted = typing.get_args(annotation) or (annotation,)
    if isinstance(value, str) and float in wanted:
        return "Write numbers without quotation marks, and with a point before an exponent: 1.0e-5, not 1e-5"
    if isinstance(value, float) and int in wanted and value.is_integer():
        return f"Write {int(value)}"
    if value is None:
        return "Give a value, or leave the line out for the default"
    return f"Write {_in_words(annotation)}"


def _in_words(annotation: Any) -> str:
    """A type as a user would call it."""
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Literal:
        return f"one of {', '.join(map(str, inner))}"
    if origin in (typing.Union, types.UnionType):
        return " or ".join(map(_in_words, inner))
    if origin is Sequence:
        return f"a list, each of it {_in_words(inner[0])}"
    return WORDS.get(annotation, str(annotation))
