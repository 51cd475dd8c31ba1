"""Columns of the explanations' tables, which ``columns.yaml`` describes."""

from __future__ import annotations

from pathlib import Path

from bolt.io.files import read_yaml

DESCRIBED = read_yaml(Path(__file__).with_suffix(".yaml"))


def columns(table: str, **numbers: float) -> dict[str, str]:
    """Return a table's columns and what they hold; `numbers` are those that the text names in braces."""
    return {name: text.format(**numbers) for name, text in DESCRIBED[table].items()}
