"""Errors that describe what is wrong, where, and how to fix it."""

from __future__ import annotations

from pathlib import Path


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
        return _rebuild, (type(self), self.what, self.where, self.hint)


def _rebuild(kind: type[BoltError], what: str, where: str, hint: str) -> BoltError:
    return kind(what, where=where or None, hint=hint)


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
