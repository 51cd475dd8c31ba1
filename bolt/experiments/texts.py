"""The words of tables: what columns hold (`columns.yaml`), and what stands above and below (`captions.yaml`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bolt.io.files import read_yaml

COLUMNS: dict[str, dict[str, Any]] = read_yaml(Path(__file__).with_name("columns.yaml"))
"""Table to its columns, as JSON files beside tables describe them."""
CAPTIONS: dict[str, str] = read_yaml(Path(__file__).with_name("captions.yaml"))
