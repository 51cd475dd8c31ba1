"""Packages that can be called, where a function for users has the name of a room."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    """A package whose call is that of a function in another module, imported when it is called."""

    _target: tuple[str, str]

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        module, function = self._target
        return getattr(import_module(module), function)(*arguments, **options)


def make_callable(package: str, module: str, function: str) -> None:
    """Let ``package(…)`` call a function of a module; PEP 8's ``__class__`` of modules, Python's reference 3.3.2.

    Parameters
    ----------
    package : str
        Its ``__name__``.
    module, function : str
    """
    this = sys.modules[package]
    this.__class__ = _Callable
    this._target = (module, function)  # type: ignore[attr-defined]
