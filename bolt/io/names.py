"""Names that become parts of paths and commands: which are let through."""

from __future__ import annotations

import re
import unicodedata
from typing import Annotated

from pydantic import AfterValidator

NAME = r"\w[\w.+-]*"
"""Letters, digits, ``_``, and within it ``.``, ``+`` and ``-``: nothing that a shell reads, or that leaves a folder."""
FOLDER = r"sub-[a-zA-Z0-9]+(/ses-[a-zA-Z0-9]+)?"
"""Folder of an image in BIDS."""
PREFIX = FOLDER.replace("/", "_")
PLACE = r"/?[\w.][\w./+@%=:,-]*"
"""A path, as far as commands are given it."""
LONGEST = 120
"""Bytes: names of files have 255 at most, and what is made from a scan adds up to 100 to its name."""
RULE_OF_PLACES = "Letters, digits, and /._+-@%=:, alone: no spaces"
RULE = "Letters, digits, and ._+- after the first of them, 120 bytes at most"


def is_name(text: object) -> bool:
    """Whether a text can be a part of paths and commands."""
    return re.fullmatch(NAME, str(text)) is not None and len(str(text).encode()) <= LONGEST


def is_place(text: object) -> bool:
    """Whether a path can be given to commands."""
    composed = unicodedata.normalize("NFC", str(text))  # as macOS does not write accents
    return re.fullmatch(PLACE, composed) is not None


def _name(text: str) -> str:
    if not is_name(text):
        raise ValueError(f"not fit for names of files and commands. {RULE}")
    return text


Name = Annotated[str, AfterValidator(_name)]
