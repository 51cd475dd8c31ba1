"""What users are told: errors that describe what is wrong, where, and how to fix it; lists; nothing secret."""

from __future__ import annotations

import logging
import os
import re
import shutil
import sys
import textwrap
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any


class BoltError(Exception):
    """Bad input, described for the person who has to fix it.

    Parameters
    ----------
    what : str
        What is wrong, in one sentence.
    where : str or Path, optional
        The file (and row, key or volume) with the problem.
    hint : str, optional
        How to fix it.
    """

    def __init__(self, what: str, *, where: str | Path | None = None, hint: str = "") -> None:
        self.what = what.rstrip(".")
        self.where = str(where) if where is not None else ""
        self.hint = hint.rstrip(".")
        super().__init__(str(self))

    def __str__(self) -> str:
        line = f"{self.where}: {self.what}." if self.where else f"{self.what}."
        return f"{line} {self.hint}." if self.hint else line

    def __reduce__(self):  # default pickling loses keyword-only arguments when a worker process raises
        return partial(type(self), where=self.where or None, hint=self.hint), (self.what,)


class ConfigError(BoltError):
    """The configuration or its surroundings do not allow the run; no scan is to blame."""


class DataError(BoltError):
    """An image, table or series cannot be used."""


class MemoryShortage(BoltError):
    """A job ran out of memory; not bad data, because another attempt may be given more."""


FINAL = "The job is not tried again: it would end in the same way."
"""Last line of a job that fails again with the same input."""


class BoltWarning(UserWarning):
    """A warning about an included scan; listed in ``warnings.tsv`` (`bolt.jobs.outcome`)."""


class LeakError(BoltError):
    """Training and test data share a subject, a family or a scan."""


def require_file(path: str | Path, hint: str) -> None:
    """Refuse what is not a regular file; a pipe would be waited for."""
    if not os.path.isfile(path):  # false, too, for a name that no file can have
        what = "not a regular file" if os.path.exists(path) else "file not found"
        raise DataError(what, where=path, hint=hint)


@contextmanager
def readable(
    path: str | Path, *kinds: type[Exception], what: str = "", hint: str = "", text: bool = True
) -> Iterator[None]:
    """Turn errors of reading a file into a `DataError` that names it; errors of `kinds` are reported as `what`.

    Without `text`, an error of decoding is one of those.
    """
    undecoded = (UnicodeDecodeError,) if text else ()
    try:
        yield
    except FileNotFoundError:
        raise DataError("file not found", where=path) from None
    except undecoded as error:
        hint = "Save it as UTF-8 (older programs write Latin-1)"
        raise DataError(f"not UTF-8 text ({error})", where=path, hint=hint) from None
    except kinds as error:
        raise DataError(f"{what} ({' '.join(str(error).split())})", where=path, hint=hint) from None
    except (IsADirectoryError, NotADirectoryError, PermissionError) as error:
        hint = "Give the path of a readable file"
        raise DataError(f"cannot be read ({error.strerror})", where=path, hint=hint) from None


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
