"""Packages: those that only some commands need (the extras of pyproject.toml), and rooms that can be called."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module, metadata
from types import ModuleType
from typing import Any

from bolt.io.errors import ConfigError

EXTRAS = {
    "imaging": ("ants", "bids", "nipype", "pathspec", "templateflow"),
    "workflow": ("snakemake", "snakemake_interface_executor_plugins"),
    "s3": ("boto3", "botocore"),
    "search": ("optuna",),
    "explain": ("captum",),
    "hub": ("huggingface_hub",),
}
"""Extras, and the modules that they bring."""
CORE = {"h5py", "isal", "jinja2", "joblib", "matplotlib", "nibabel", "nilearn", "safetensors", "scipy"}
CORE |= {"sklearn", "torch"}
"""What an environment may lack that only plans runs (environment.yml)."""


@contextmanager
def name_extra() -> Iterator[None]:
    """Turn a missing package within the block into an error that says how to install it.

    Raises
    ------
    ConfigError
        The package is of an extra.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = str(error.name).partition(".")[0]
        extras = [f"[{name}]" for name, modules in EXTRAS.items() if package in modules]
        if not extras and package not in CORE:
            raise
        wanted = "".join(["bolt-fmri", *extras])
        raise ConfigError(f"the package '{package}' is missing", hint=f"pip install '{wanted}'") from None


def refuse_other_versions() -> None:
    """Refuse an installed package whose version does not fit.

    Raises
    ------
    ConfigError
        Names the version that was found, and those that are needed.
    """
    from packaging.requirements import Requirement

    try:
        needed = [Requirement(text) for text in metadata.requires("bolt-fmri") or []]
    except metadata.PackageNotFoundError:  # a clone that is not installed, as in the rules' conda environments
        return
    for one in needed:
        if one.marker is not None and "test" in str(one.marker):
            continue
        with suppress(metadata.PackageNotFoundError):
            found = metadata.version(one.name)
            if not one.specifier.contains(found, prereleases=True):
                what = f"{one.name} {found} is installed, but BolT needs {one.specifier}"
                raise ConfigError(what, hint=f"pip install '{one.name}{one.specifier}'")


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
