"""References as BibTeX (UTF-8), for reference managers and LaTeX."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

JOURNAL = re.compile(r"(?P<journal>.+) (?P<volume>\w+)(?:\((?P<number>[^)]+)\))?:(?P<pages>[\w-]+)")
"""``NeuroImage 54(3):2033-2044``."""
SPECIAL = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
SPECIAL |= {character: f"\\{character}" for character in "&%$#_{}"}


def bibtex(keys: Sequence[str], references: Mapping[str, Mapping[str, str]]) -> str:
    """Return the entries of the cited references, numbered as in the text.

    Parameters
    ----------
    keys : sequence of str
        The first is number 1.
    references : mapping
        Authors, year, title, journal, and doi or url of each key, as in ``references.yaml``.
    """
    entries = [f"[{number}]\n{_entry(key, references[key])}" for number, key in enumerate(keys, 1)]
    return "\n".join(["References of methods.md, by their numbers in the text.\n", *entries])


def _entry(key: str, about: Mapping[str, str]) -> str:
    place = JOURNAL.fullmatch(about["journal"])
    fields = {
        "author": _authors(about["authors"]),
        "title": f"{{{_escaped(about['title'])}}}",  # a second pair of braces: styles must not change capitals
        "year": str(about["year"]),
    }
    if place:
        fields |= {name: _escaped(text) for name, text in place.groupdict().items() if text}
        fields["pages"] = fields["pages"].replace("-", "--")
    else:
        fields["howpublished"] = _escaped(about["journal"])
    if "doi" in about:
        fields["doi"] = about["doi"]  # verbatim: these two are no LaTeX
    else:
        fields["url"] = about["url"] if "://" in about["url"] else f"https://{about['url']}"
    lines = "".join(f"  {name} = {{{text}}},\n" for name, text in fields.items())
    return f"@{'article' if place else 'misc'}{{{key},\n{lines}}}\n"


def _authors(names: str) -> str:
    """Return ``Tustison NJ, Avants BB, et al.`` as ``Tustison, N. J. and Avants, B. B. and others``."""
    return " and ".join(_author(name) for name in names.rstrip(".").split(", "))


def _author(name: str) -> str:
    if name == "et al":
        return "others"
    family, _, initials = name.rpartition(" ")
    return f"{_escaped(family)}, {' '.join(f'{letter}.' for letter in initials)}"


def _escaped(text: str) -> str:
    """Return a text in which LaTeX finds no commands."""
    return "".join(SPECIAL.get(character, character) for character in text)
