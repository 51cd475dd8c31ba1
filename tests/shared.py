"""The one place that knows where real data for tests may lie; tests skip where it is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[2] / "shared"


def shared_data(name: str) -> Path:
    """Path of `../shared/data/<name>`, or skip the test with a reason."""
    path = SHARED / "data" / name
    if not path.exists():
        pytest.skip(f"real data not found: {path}")
    return path


def shared_file(name: str) -> Path:
    """Path of `../shared/<name>` (reference outputs, the paper's tables), or skip."""
    path = SHARED / name
    if not path.exists():
        pytest.skip(f"reference file not found: {path}")
    return path
