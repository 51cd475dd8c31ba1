"""Marks and notes of methods that are reconstructed, so that no table shows their numbers as those of the originals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from bolt.config.models import Fidelity
from bolt.report.tables.markup import Sheet

RECONSTRUCTED = "reconstructed"
MARK = "†"
LEGEND = f"{MARK} reconstructed, not the original method"
EXPLAINED = (
    f"{MARK} Reconstructed: the architecture that the paper used is not known, so the row is not a result of the "
    "original."
)
Fidelities = Mapping[str, Fidelity | None]
"""Row to what is stated of its model."""


def reconstructed(fidelities: Fidelities) -> dict[str, str]:
    """Return the reconstructed rows, and what was reconstructed of each."""
    return {row: stated.note for row, stated in fidelities.items() if stated and stated.level == RECONSTRUCTED}


def marked(name: str, rows: Iterable[str]) -> str:
    """Return the name of a row, with a dagger if it is one of the reconstructed `rows`."""
    return f"{name} {MARK}" if name in rows else name


def notes_of(rows: Mapping[str, str]) -> list[str]:
    """State of each reconstructed row what was reconstructed."""
    return [f"{row} is reconstructed: {note}".rstrip(".") for row, note in rows.items()]


def with_marks(sheet: Sheet, rows: Iterable[str]) -> Sheet:
    """Return a sheet, whose first column names rows, with a dagger behind reconstructed ones and its meaning below."""
    names = list(sheet.frame[""])
    shown = [marked(name, rows) for name in names]
    if shown == names:
        return sheet
    return replace(sheet, frame=sheet.frame.assign(**{"": shown}), notes=[*sheet.notes, LEGEND])
