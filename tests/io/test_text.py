"""Lists in messages are cut after a few items, and the rest is counted."""

from __future__ import annotations

import numpy as np
import pytest

from bolt.io.text import shorten_list


@pytest.mark.parametrize(
    ("items", "at_most", "text"),
    [
        ([], 2, ""),
        (["a", "b"], 2, "a, b"),
        (np.arange(20, dtype=np.int32), 3, "0, 1, 2 and 17 more"),
        ((name for name in "abcdefg"), 5, "a, b, c, d, e and 2 more"),
    ],
)
def test_items_beyond_the_limit_are_counted(items, at_most, text):
    assert shorten_list(items, at_most) == text
