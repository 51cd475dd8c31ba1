"""Texts for messages."""

from __future__ import annotations

from collections.abc import Iterable


def shorten_list(items: Iterable[object], at_most: int = 5) -> str:
    """Return the first items and the number of those that are not shown, such as "a, b and 3 more"."""
    texts = [str(item) for item in items]
    more = f" and {len(texts) - at_most} more" if len(texts) > at_most else ""
    return ", ".join(texts[:at_most]) + more
