"""The list of tables and figures in docs/paper.md: which files each command makes."""

from __future__ import annotations

import re
from fnmatch import fnmatch

from bolt.config import ROOT

FIGURE, TABLE = (".png", ".svg", ".pdf"), (".md", ".tex", ".tsv", ".json")
BESIDE = ("{}_provenance.json", "{}_*.tsv", "{}_*.json", "{}/*.tsv", "{}/*.json")
"""What every command leaves besides what is listed: further tables, what they were made of, and measures per atlas."""
DRAWN = ("{}.png", "{}_sites.png")
"""Figures of tables of trained rows."""


def listed(dataset: str, text: str | None = None) -> dict[str, list[str]]:
    """Return the patterns of a dataset's files that the list names, by command: tables as .md, figures as .png."""
    text = (ROOT / "docs/paper.md").read_text() if text is None else text
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        command = re.fullmatch(r"`(\w+)`", cells[1]) if len(cells) >= 3 else None
        if command is None or not line.startswith("| "):
            continue
        last = ""
        for name in re.findall(r"`([^`]+)`", cells[2]):
            if name.startswith("…"):  # as the file before, with another end
                name = last[: last.index("…")] + name
            elif name.startswith("."):  # as the file before, of another kind
                name = last.rpartition(".")[0] + name
            last = name
            pattern = name.replace("<dataset>", dataset).replace("…", "*")
            if pattern not in found.setdefault(command[1], []):
                found[command[1]].append(pattern)
    return found


def with_formats(pattern: str) -> list[str]:
    """Return the patterns of all files of a table, or of a figure."""
    stem, _, ending = pattern.rpartition(".")
    kinds = {"md": TABLE, "png": FIGURE, "tsv": (".tsv", ".json")}
    return [stem + kind for kind in kinds[ending]]


def belongs(name: str, command: str, patterns: list[str], *, trained: bool) -> bool:
    """Return whether a file is one that a command may leave: a listed one, or one beside."""
    drawn = [form.format(command) for form in (DRAWN if trained else ())]
    known = [each for pattern in [f"{command}.md", *patterns, *drawn] for each in with_formats(pattern)]
    return any(fnmatch(name, each) for each in [*known, *(form.format(command) for form in BESIDE)])
