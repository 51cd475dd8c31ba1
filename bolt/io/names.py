"""Which names may become parts of paths and commands."""

from __future__ import annotations

import re
import unicodedata
from typing import Annotated

from pydantic import AfterValidator

NAME = r"\w[\w.+-]*"
"""Letters, digits and ``_``; after the first also ``.``, ``+`` and ``-``: nothing special to a shell or a path."""
FOLDER = r"sub-[a-zA-Z0-9]+(/ses-[a-zA-Z0-9]+)?"
"""Folder of an image in BIDS."""
PREFIX = FOLDER.replace("/", "_")
PLACE = r"/?[\w.][\w./+@%=:,-]*"
"""A path that can be given to commands."""
BRACES = re.compile("[{}]")
MAX_BYTES = 120
"""Of a name: file names have at most 255 bytes, and files made from a scan add up to 100 to its name."""
PATH_RULE = "Use only letters, digits and /._+-@%=:, without spaces"
RULE = f"Use letters, digits, and ._+- after the first of them; at most {MAX_BYTES} bytes"


def is_name(text: object) -> bool:
    """Return whether a text can be part of paths and commands."""
    return re.fullmatch(NAME, str(text)) is not None and len(str(text).encode()) <= MAX_BYTES


def is_path(text: object) -> bool:
    """Return whether a path can be given to commands."""
    composed = unicodedata.normalize("NFC", str(text))  # macOS decomposes accents
    return re.fullmatch(PLACE, composed) is not None


def _check_name(text: str) -> str:
    if not is_name(text):
        raise ValueError(f"cannot be used in file names and commands. {RULE}")
    return text


Name = Annotated[str, AfterValidator(_check_name)]
