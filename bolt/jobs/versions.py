"""Installed versions of the packages that compute."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version

PACKAGES = (
    *("antspyx", "combatlearn", "nibabel", "nilearn", "nipype", "numpy"),
    *("pandas", "scikit-learn", "snakemake", "torch"),
)


@cache
def versions() -> dict[str, str]:
    """Version of each of `PACKAGES` that is installed."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
