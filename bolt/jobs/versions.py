"""Installed versions of the packages that results depend on."""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version

PACKAGES = (
    *("antspyx", "nibabel", "nilearn", "nipype", "numpy"),
    *("pandas", "scikit-learn", "snakemake", "torch"),
)


@cache
def versions() -> dict[str, str]:
    """Return the version of each installed package of `PACKAGES`."""
    installed = {}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            installed[name] = version(name)
    return installed
