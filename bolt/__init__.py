"""BolT: from raw 4D fMRI to the time points and regions that drive the prediction."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bolt.io.series_files import read_series

__all__ = ["read_series"]
__version__ = "0.1.0"

BEGUN = time.monotonic()
"""When this process began, as nearly as it knows: the start of a job's duration."""


def __getattr__(name: str) -> Any:
    """Import what the package offers to others when it is asked for: jobs start without it."""
    if name == "read_series":
        from bolt.io.series_files import read_series

        return read_series
    raise AttributeError(f"module 'bolt' has no attribute '{name}'")
