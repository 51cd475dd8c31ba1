"""BolT: from raw 4D fMRI to the time points and regions that drive the prediction.

For Python users: `BolTClassifier`, `BolTRegressor` and `estimator` in scikit-learn's conventions, `load` for trained
models, and the functions under the commands: `read_series`, `parcellate`, `folds`, `check_leaks`,
`compare_with_chance`, `explain`, `plot_importance` and `simulate`. docs/python.md shows them.
"""

from __future__ import annotations

import time
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bolt.io.series_files import read_series
    from bolt.share.estimators import BolTClassifier, BolTRegressor, estimator
    from bolt.share.functions import check_leaks, compare_with_chance, parcellate, plot_importance, simulate
    from bolt.share.models import load

__all__ = [
    "BolTClassifier", "BolTRegressor", "check_leaks", "compare_with_chance", "estimator", "load", "parcellate",
    "plot_importance", "read_series", "simulate",
]  # fmt: skip
__version__ = "0.1.0"

BEGUN = time.monotonic()
"""When this process began, as nearly as it knows: the start of a job's duration."""

_MODULES = {
    "BolTClassifier": "share.estimators",
    "BolTRegressor": "share.estimators",
    "check_leaks": "share.functions",
    "compare_with_chance": "share.functions",
    "estimator": "share.estimators",
    "explain": "explain",  # rooms of the package, which can be called
    "folds": "folds",
    "load": "share.models",
    "parcellate": "share.functions",
    "plot_importance": "share.functions",
    "read_series": "io.series_files",
    "simulate": "share.functions",
}


def __getattr__(name: str) -> Any:
    """Import what the package offers to others when it is asked for: jobs start without it."""
    if name not in _MODULES:
        raise AttributeError(f"module 'bolt' has no attribute '{name}'")
    module = import_module(f"bolt.{_MODULES[name]}")
    return module if _MODULES[name] == name else getattr(module, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
