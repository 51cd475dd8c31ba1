"""Settings of models, without torch: their check against the annotations of the class, and windows in seconds."""

from __future__ import annotations

import types
import typing
from collections.abc import Sequence
from functools import cache
from typing import Any, Literal

from pydantic import ConfigDict, TypeAdapter, ValidationError

from bolt.io.errors import ConfigError

MAY_BE_ZERO = ("n_covariates", "correlations")
"""Whole numbers that may be 0; all others count something of which a model needs at least one."""

WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text", type(None): "null"}


@cache
def annotations_of(model: type) -> dict[str, Any]:
    """Return the annotated types of a class's settings, by name."""
    return typing.get_type_hints(model.__init__)  # type: ignore[misc]


def check_value(model: type, key: str, value: Any) -> None:
    """Refuse an invalid value of a setting.

    Parameters
    ----------
    model : type
        The model's class.
    key : str
        Keyword argument of the class.
    value : object
        As read from YAML.

    Raises
    ------
    ConfigError
        The type is not that of the annotation; infinity; a whole number below 1 (except `MAY_BE_ZERO`); a dropout
        outside [0, 1); a shrinkage outside (0, 1); a penalty, C or gamma of 0 or less; a negative prior.
    """
    annotation = annotations_of(model).get(key, Any)
    try:
        TypeAdapter(annotation, config=ConfigDict(strict=True, allow_inf_nan=False)).validate_python(value)
    except ValidationError:
        raise _wrong(key, value, f"must be {_in_words(annotation)}", _hint(value, annotation)) from None
    whole = type(value) is int and int in (annotation, *typing.get_args(annotation))
    if whole and value < 1 and not (key in MAY_BE_ZERO and value == 0):
        raise _wrong(key, value, "must be at least 1", "Set it to at least 1")
    if (key.endswith("dropout") or key == "drop_path") and not 0 <= value < 1:
        raise _wrong(key, value, "must be at least 0 and below 1", "Set the share that is dropped; 0 means none")
    if key == "shrinkage" and value is not None and not 0 < value < 1:
        raise _wrong(key, value, "must be above 0 and below 1", "Set the share of the identity, such as 0.5")
    if key == "prior" and value < 0:
        raise _wrong(key, value, "must not be negative", "Set it to 0 to trust the validation scans alone")
    if key in ("C", "gamma") and value != "scale" and value <= 0:
        raise _wrong(key, value, "must be above 0", "Remove the line to use the default")
    if key == "penalty" and value is not None and value <= 0:
        raise _wrong(key, value, "must be above 0", "Set it to null, and it is chosen on the training scans")


def _wrong(key: str, value: Any, problem: str, hint: str) -> ConfigError:
    return ConfigError(f"'{key}' is {value!r}, but {problem}", where=f"hyper.{key}", hint=hint)


def _hint(value: Any, annotation: Any) -> str:
    """Suggest what to write instead of a value of the wrong type."""
    types_allowed = typing.get_args(annotation) or (annotation,)
    if isinstance(value, str) and float in types_allowed:
        return "Write numbers without quotation marks, and with a point before an exponent: 1.0e-5, not 1e-5"
    if isinstance(value, float) and int in types_allowed and value.is_integer():
        return f"Write {int(value)}"
    if value is None:
        return "Give a value, or remove the line to use the default"
    return f"Write {_in_words(annotation)}"


def _in_words(annotation: Any) -> str:
    """Describe a type in plain words."""
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Literal:
        return f"one of {', '.join(map(str, inner))}"
    if origin in (typing.Union, types.UnionType):
        return " or ".join(map(_in_words, inner))
    if origin is Sequence:
        return f"a list, each item {_in_words(inner[0])}"
    return WORDS.get(annotation, str(annotation))


def stride_volumes(stride_seconds: float, tr: float) -> int:
    """Return how many volumes after one another windows begin: at least one."""
    return max(1, round(stride_seconds / tr))


def window_volumes(
    window_seconds: float, stride_seconds: float, tr: float, crop: int | None = None, least_windows: int = 1
) -> int:
    """Return the length of a window in volumes, at least 2.

    Parameters
    ----------
    window_seconds, stride_seconds : float
    tr : float
        Seconds between volumes.
    crop : int, optional
        Length of a training crop in volumes. The window is shortened until a crop holds `least_windows`, but not below
        half of the crop.
    least_windows : int
    """
    volumes = round(window_seconds / tr)
    if crop is not None:
        volumes = min(volumes, max(crop - (least_windows - 1) * stride_volumes(stride_seconds, tr), crop // 2))
    return max(2, volumes)
