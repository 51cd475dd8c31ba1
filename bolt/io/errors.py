"""Errors that tell a user what is wrong, where, and how to mend it."""

from __future__ import annotations

from pathlib import Path


class BoltError(Exception):
    """Bad input, described for the person who has to mend it.

    Parameters
    ----------
    what : str
        What is wrong, in one sentence.
    where : str or Path, optional
        The file (and row, key or volume) in which it was found.
    hint : str, optional
        What to do about it.
    """

    def __init__(self, what: str, *, where: str | Path | None = None, hint: str = "") -> None:
        self.what = what.rstrip(".")
        self.where = str(where) if where is not None else ""
        self.hint = hint.rstrip(".")
        super().__init__(str(self))

    def __str__(self) -> str:
        line = f"{self.where}: {self.what}." if self.where else f"{self.what}."
        return f"{line} {self.hint}." if self.hint else line

    def __reduce__(self):  # keyword-only arguments would be lost on the way out of a worker process
        return _rebuild, (type(self), self.what, self.where, self.hint)


def _rebuild(kind: type[BoltError], what: str, where: str, hint: str) -> BoltError:
    return kind(what, where=where or None, hint=hint)


class ConfigError(BoltError):
    """The configuration names something that does not exist or has the wrong type."""


class DataError(BoltError):
    """An image, table or series cannot be used."""


class MemoryShortage(BoltError):
    """Memory was not enough: another attempt may be given more, so that this is no bad data."""


class BoltWarning(UserWarning):
    """Something odd about a scan that is used all the same; listed in ``warnings.tsv`` (`bolt.jobs.outcome`)."""


class LeakError(BoltError):
    """Training and test data share a subject, a family or a scan."""
