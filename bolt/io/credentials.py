"""Masking of passwords, tokens and keys in logs, provenance and crash reports."""

from __future__ import annotations

import logging
import re
import sys
import traceback
from types import TracebackType

MASK = "***"
_NAMES = (
    r"password|passwd|pwd|secret|token|signature|credentials?|api[_-]?key|access[_-]?key(?:[_-]?id)?|secret[_-]?key"
)
_AUTHORIZATION = r"(authorization[\"']?\s*[=:]\s*[\"']?(?:\w+ )?)[^\s\"']+"
_MASKED = (
    (re.compile(r"(?<=://)[^/\s]*@"), f"{MASK}@"),  # https://user:password@host
    (re.compile(_AUTHORIZATION, re.IGNORECASE), rf"\g<1>{MASK}"),
    (re.compile(rf"((?:{_NAMES})[\"']?\s*[=:]\s*[\"']?)[^\s&\"',;]+", re.IGNORECASE), rf"\g<1>{MASK}"),  # token=…
    (re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"), MASK),  # identifiers of Amazon keys
)


def without_credentials(text: str) -> str:
    """Replace every recognisable credential in a text with ``***``.

    Recognised are the user and password of an address, values after names such as ``token=``, authorisation headers,
    and identifiers of Amazon keys.
    """
    for pattern, replacement in _MASKED:
        text = pattern.sub(replacement, text)
    return text


class Masked(logging.Formatter):
    """Log formatter that masks credentials."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record and mask its credentials."""
        return without_credentials(super().format(record))


def show_exception(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print a traceback without credentials, in place of `sys.excepthook`."""
    print(without_credentials("".join(traceback.format_exception(kind, error, trace))), end="", file=sys.stderr)
