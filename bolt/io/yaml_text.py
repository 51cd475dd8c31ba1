"""YAML read safely and strictly: no code is run, nothing is taken for something else, nothing exhausts memory."""

from __future__ import annotations

import re
from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from bolt.io.errors import DataError

SAFE_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml is ten times as fast, where PyYAML has it
MAX_YAML, MAX_ALIASES, MAX_DEPTH = 10_000_000, 30, 100
"""Largest size in characters, number of aliases, and levels of lists and mappings."""


def parse_yaml(text: str, path: str | Path) -> dict[str, Any]:
    """Read a YAML mapping.

    Parameters
    ----------
    text : str
    path : path
        Named in errors.

    Raises
    ------
    DataError
        The text is invalid or larger than `MAX_YAML`, or has a key twice, more than `MAX_DEPTH` levels, or more than
        `MAX_ALIASES` aliases, each of which may double what the file stands for.
    """
    return deepcopy(_parsed(text, path))


@lru_cache(maxsize=256)  # every start reads the files of models once a row of an experiment
def _parsed(text: str, path: str | Path) -> dict[str, Any]:
    if len(text) > MAX_YAML:
        raise DataError(f"{len(text) / 1e6:.0f} MB are too much for a configuration", where=path)
    try:
        _refuse_bomb(text, path)
        data = yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        raise DataError(f"not valid YAML ({' '.join(str(error).split())})", where=path) from None
    if not isinstance(data, dict):
        raise DataError("expected a mapping of keys to values", where=path)
    return data


def _refuse_bomb(text: str, path: str | Path) -> None:
    """Refuse what would exhaust memory, or the stack of libyaml, once it is built."""
    depth = aliases = 0
    for event in yaml.parse(text, Loader=_Loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        aliases += isinstance(event, yaml.AliasEvent)
        if aliases > MAX_ALIASES:
            raise DataError(f"more than {MAX_ALIASES} aliases (*)", where=path, hint="Write out what they stand for")
        if depth > MAX_DEPTH:
            raise DataError(f"lists and mappings in more than {MAX_DEPTH} levels", where=path)


class _Loader(SAFE_LOADER):  # type: ignore[misc, valid-type]
    """A safe loader that refuses what YAML silently takes for something else.

    Of a key that is there twice it would keep the last; 010 would be 8, and 1:30 would be 90.
    """

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        if re.fullmatch(r"[-+]?0[0-9_]+|.*:.*", node.value):
            problem = f"'{node.value}' would be read as another number; put it in quotes, or write a decimal number"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
        return int(super().construct_yaml_int(node))

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen - {"<<"}:
                raise yaml.constructor.ConstructorError(None, None, f"'{key.value}' is there twice", key.start_mark)
            seen.add(key.value if isinstance(key, yaml.ScalarNode) else None)
        return super().construct_mapping(node, deep=deep)


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_yaml_int)
