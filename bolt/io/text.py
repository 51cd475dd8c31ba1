"""Texts for messages."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterable
from typing import Any


def shorten_list(items: Iterable[object], at_most: int = 5) -> str:
    """Return the first items and the number of those that are not shown, such as "a, b and 3 more"."""
    texts = [str(item) for item in items]
    more = f" and {len(texts) - at_most} more" if len(texts) > at_most else ""
    return ", ".join(texts[:at_most]) + more


def list_entry(head: str, *paragraphs: str) -> str:
    """Return an entry of a list, a line and indented paragraphs, as wide as the terminal and 100 columns at most."""
    width = min(shutil.get_terminal_size().columns, 100)
    how: dict[str, Any] = {"width": width, "break_long_words": False, "break_on_hyphens": False}  # paths stay whole
    indented = (textwrap.fill(text, initial_indent="    ", subsequent_indent="    ", **how) for text in paragraphs)
    return "\n".join([textwrap.fill(head, subsequent_indent="  ", **how), *indented])
