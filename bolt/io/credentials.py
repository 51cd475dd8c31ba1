"""Passwords, tokens and keys, masked wherever a text is kept: logs, provenance, crash reports."""

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
_PATTERNS = (
    re.compile(r"(?<=://)[^/\s]*@"),  # https://user:password@host
    re.compile(rf"((?:{_NAMES})[\"']?\s*[=:]\s*[\"']?)[^\s&\"',;]+", re.IGNORECASE),  # token=…, "secret": "…"
    re.compile(r"(authorization[\"']?\s*[=:]\s*[\"']?(?:\w+ )?)[^\s\"']+", re.IGNORECASE),
    re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),  # identifiers of Amazon's keys
)


def without_credentials(text: str) -> str:
    """The text with every credential that its form betrays replaced by ``***``.

    Parameters
    ----------
    text : str
        User and password of an address, values after names such as ``token=``, authorisation headers, and Amazon's key
        identifiers are masked; all else stays as it is.
    """
    address, named, header, key = _PATTERNS
    text = header.sub(rf"\g<1>{MASK}", address.sub(f"{MASK}@", text))
    return key.sub(MASK, named.sub(rf"\g<1>{MASK}", text))


class Masked(logging.Formatter):
    """Log lines without credentials."""

    def format(self, record: logging.LogRecord) -> str:
        return without_credentials(super().format(record))


def show_exception(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print a traceback without credentials, in place of `sys.excepthook`."""
    print(without_credentials("".join(traceback.format_exception(kind, error, trace))), end="", file=sys.stderr)
