"""What users are told: lists are cut after a few items, and credentials are masked."""

import numpy as np
import pytest

from bolt.io.errors import shorten_list, without_credentials


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


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("s3://bucket/key", "s3://bucket/key"),
        ("https://me:pass@host/a", "https://***@host/a"),
        ("https://me:p@ss@host/a?x=1", "https://***@host/a?x=1"),
        ("mail me@host.org", "mail me@host.org"),
        ("https://host/a?token=abc&x=1", "https://host/a?token=***&x=1"),
        (
            "https://host/a?X-Amz-Signature=0f3a&X-Amz-Credential=AB/C",
            "https://host/a?X-Amz-Signature=***&X-Amz-Credential=***",
        ),
        ("{'password': 'abc', 'user': 'me'}", "{'password': '***', 'user': 'me'}"),
        ("aws_secret_access_key = abc/def+g", "aws_secret_access_key = ***"),
        ("key AKIAABCDEFGHIJKLMNOP.", "key ***."),
        ("Authorization: Bearer abc.def", "Authorization: Bearer ***"),
        ("bolt explain --tokens 5 --config a.yaml", "bolt explain --tokens 5 --config a.yaml"),
        ("tokens=5", "tokens=5"),
    ],
)
def test_credentials_are_masked(text, kept):
    assert without_credentials(text) == kept
    assert without_credentials(kept) == kept
