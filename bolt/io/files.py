"""Reading and writing of the small files that pass between stages.

Everything is written under a temporary name in the same folder and then renamed, so that a killed job never leaves half
a file that looks complete.
"""

from __future__ import annotations

import codecs
import csv
import hashlib
import json
import os
import platform
import re
import shutil
import time
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from numpy.typing import NDArray

from bolt.io.errors import BoltError, DataError, readable

MISSING = "n/a"  # a missing value in BIDS tables
UMASK = os.umask(0)
os.umask(UMASK)  # it can only be read by setting it
PERMISSIONS = 0o666 & ~UMASK
HOST = re.sub(r"[^A-Za-z0-9-]", "", platform.node().split(".")[0])
TEMPORARY = re.compile(r"\.(\d+)-([^.]*)\.(.+)")
"""Process, host and final name of a temporary file."""
ABANDONED = 86400.0
"""Seconds after which a temporary file counts as left by a killed job, on whichever host that ran."""
WRITTEN: set[Path] = set()
"""Files that this process has written; its provenance has their hashes."""
SAFE_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml is ten times as fast, where PyYAML has it
MAX_YAML, MAX_ALIASES, MAX_DEPTH = 10_000_000, 30, 100
"""Largest size in characters, number of aliases, and levels of lists and mappings."""


@contextmanager
def atomic(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; rename it to `path` if the block succeeds.

    The temporary name keeps the file's suffixes, because image libraries choose formats by them.

    Raises
    ------
    DataError
        The path is a device or a pipe, such as ``/dev/null``: to rename a file to it would remove it from the machine.
    """
    path = Path(path)
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise DataError("is a device or a pipe, not a file", where=path, hint="Choose a file name")
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{os.getpid()}-{HOST}.{path.name}")
    for leftover in _temporary_files(os.path.abspath(path.parent)).get(path.name, ()):
        if _is_abandoned(leftover):  # other jobs may be writing the same file right now
            leftover.unlink(missing_ok=True)
    temporary.unlink(missing_ok=True)  # of an earlier process with the same number
    try:
        yield temporary
        if temporary.stat().st_nlink == 1:  # some libraries write files that only their owner may read
            temporary.chmod(temporary.stat().st_mode | PERMISSIONS)
        os.replace(temporary, path)
        WRITTEN.add(path)
    finally:
        temporary.unlink(missing_ok=True)


def holds_something(path: Path) -> bool:
    """Return whether a file exists and is not empty, as a stage leaves it when it fails."""
    return path.is_file() and path.stat().st_size > 0


@lru_cache(maxsize=32)
def _temporary_files(folder: str) -> dict[str, list[Path]]:
    """Return the temporary files of other processes in a folder by their final names.

    It is listed once: with every write, thousands of files in one folder would take the square of their number.
    """
    files: dict[str, list[Path]] = {}
    for name in os.listdir(folder):
        if match := TEMPORARY.fullmatch(name):
            files.setdefault(match[3], []).append(Path(folder, name))
    return files


def _is_abandoned(temporary: Path) -> bool:
    """Return whether the job that was writing a temporary file is gone."""
    name = TEMPORARY.fullmatch(temporary.name)
    if name and name[2] == HOST and not is_alive(int(name[1])):
        return True
    try:  # ctime, because a hard link keeps the old mtime
        return time.time() - temporary.stat().st_ctime > ABANDONED
    except FileNotFoundError:  # it has just got its final name
        return False


def is_alive(pid: int) -> bool:
    """Return whether a process with this number runs on this host."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # another user's
        return True
    return True


def link_or_copy(made: str | Path, path: Path) -> None:
    """Give a file its final name as a hard link, or as a copy on another disk."""
    with atomic(path) as temporary:
        try:
            os.link(made, temporary)
        except OSError:  # another disk
            shutil.copyfile(made, temporary)


def write_bytes(data: bytes, path: str | Path) -> None:
    """Write bytes, atomically."""
    with atomic(path) as temporary:
        temporary.write_bytes(data)


def write_text(text: str, path: str | Path) -> None:
    """Write UTF-8 text, atomically."""
    with atomic(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_if_new(text: str, path: str | Path) -> None:
    """Write a text unless the file already holds it; for files that several jobs share."""
    try:
        if Path(path).read_text(encoding="utf-8") == text:
            return
    except FileNotFoundError:
        pass
    write_text(text, path)


def write_json(data: Any, path: str | Path) -> None:
    """Write data as JSON, atomically."""
    write_text(json_text(data), path)


def json_text(data: Any) -> str:
    """Format data as indented JSON; NumPy values and paths are allowed."""
    return json.dumps(data, indent=2, default=_plain) + "\n"


def read_json(path: str | Path) -> Any:
    """Read a JSON file; a missing or invalid one is a `DataError`."""
    with readable(path, ValueError, RecursionError, what="not valid JSON"):
        return json.loads(Path(path).read_text(encoding="utf-8-sig"))


def read_yaml(path: str | Path) -> dict[str, Any]:
    """Read a YAML mapping, safely (no code is run).

    Raises
    ------
    DataError
        The file is missing, or as `parse_yaml`.
    """
    with readable(path):
        return parse_yaml(Path(path).read_text(encoding="utf-8"), path)


def columns(room: str, table: str, **numbers: float | str) -> dict[str, str]:
    """Return the columns of a table and what they hold, in order, from ``columns.yaml`` of a room of the package.

    Texts name `numbers` in braces.
    """
    described = read_yaml(Path(__file__).parents[1] / room / "columns.yaml")[table]
    return {name: text.format(**numbers) if numbers else text for name, text in described.items()}


def parse_yaml(text: str, path: str | Path) -> dict[str, Any]:
    """Read a YAML mapping safely and strictly: no code is run, and nothing is taken for something else.

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


@lru_cache(maxsize=256)  # a report reads its words once a paragraph, a room its columns once a table
def _parsed(text: str, path: str | Path) -> dict[str, Any]:
    if len(text) > MAX_YAML:
        raise DataError(f"{len(text) / 1e6:.0f} MB are too much for a configuration", where=path)
    depth = aliases = 0
    with readable(path, yaml.YAMLError, what="not valid YAML"):
        for event in yaml.parse(text, Loader=_Loader):  # what would exhaust memory, or libyaml's stack, is never built
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            aliases += isinstance(event, yaml.AliasEvent)
            if aliases > MAX_ALIASES:
                what, hint = f"more than {MAX_ALIASES} aliases (*)", "Write out what they stand for"
                raise DataError(what, where=path, hint=hint)
            if depth > MAX_DEPTH:
                raise DataError(f"lists and mappings in more than {MAX_DEPTH} levels", where=path)
        data = yaml.load(text, Loader=_Loader)  # noqa: S506, TID251 (a safe loader)
    if not isinstance(data, dict):
        raise DataError("expected a mapping of keys to values", where=path)
    return data


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


def write_yaml(data: Mapping[str, Any], path: str | Path) -> None:
    """Write a mapping as YAML in its own order, atomically."""
    write_text(yaml.safe_dump(dict(data), sort_keys=False, allow_unicode=True), path)


def write_table(
    table: pd.DataFrame,
    path: str | Path,
    columns: Mapping[str, str | Mapping[str, Any]],
    digits: int | None = None,
) -> None:
    """Write a TSV with a JSON sidecar that describes its columns.

    Parameters
    ----------
    table : DataFrame
        Missing values are written as ``n/a``.
    path : path
        Ends in ``.tsv``; the sidecar gets the same name with ``.json``.
    columns : mapping
        Column name to its description, or to its whole sidecar entry. Every column of `table` must be described.
    digits : int, optional
        Significant digits of numbers; default: all.
    """
    undescribed = [c for c in table.columns if c not in columns]
    if undescribed:
        raise ValueError(f"columns without a description: {undescribed}")
    path = Path(path)
    with atomic(path) as temporary:
        precision = None if digits is None else f"%.{digits}g"
        table.to_csv(temporary, sep="\t", index=False, na_rep=MISSING, float_format=precision)
    entries = {c: {"Description": entry} if isinstance(entry := columns[c], str) else entry for c in table.columns}
    write_json(entries, path.with_suffix(".json"))


def read_table(path: str | Path, text: tuple[str, ...] = (), columns: Collection[str] | None = None) -> pd.DataFrame:
    """Read a TSV; ``n/a`` and empty cells are missing.

    Parameters
    ----------
    path : path
    text : tuple of str
        Columns that stay strings (labels such as ``001`` would otherwise become numbers), without surrounding spaces.
    columns : collection of str, optional
        Columns to read, as far as the table has them; default: all.

    Raises
    ------
    DataError
        The file is missing or not a table, a row has more cells than the header, or a column is there twice.
    """
    table = _parse_table(
        path,
        "\t",
        usecols=None if columns is None else lambda name: name in columns,
        dtype=dict.fromkeys(text, str),
    )
    for name in set(text).intersection(table):
        table[name] = table[name].str.strip()  # or a stray space would separate a person from their family
    return table


SEPARATORS = "Columns are separated by tabs in a .tsv, by commas or semicolons in a .csv"


def read_text(path: str | Path) -> pd.DataFrame:
    """Read a user's table as `read_table` does, with all cells and names of columns as text without surrounding spaces.

    Cells are separated by tabs; in a ``.csv`` by commas, or by semicolons, as spreadsheets do in many languages. UTF-16
    (Excel's "Unicode text") is read as well as UTF-8.
    """
    start = b""
    if os.path.isfile(path):
        with suppress(OSError), open(path, "rb") as file:
            start = file.read(100_000)
    encoding = "utf-16" if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig"
    header = start.decode(encoding, "replace").split("\n")[0]
    commas = ";" if ";" in header and "," not in header else ","
    separator = commas if str(path).endswith(".csv") else "\t"
    table = _parse_table(path, separator, dtype=str, encoding=encoding)
    return table.rename(columns=str.strip).apply(lambda column: column.str.strip())


def _parse_table(path: str | Path, separator: str, **options: Any) -> pd.DataFrame:
    if os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path)):  # a pipe would be waited for
        raise DataError("not a regular file", where=path)
    kinds = (pd.errors.ParserError, pd.errors.EmptyDataError, csv.Error)
    kind = "tab-separated " if separator == "\t" else ""
    with readable(path, *kinds, what=f"not a readable {kind}table"), warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)  # cells beyond the header, which would be lost
        with open(path, encoding=options.get("encoding", "utf-8-sig"), newline="") as file:
            header = [name.strip() for name in next(filter(None, csv.reader(file, delimiter=separator)), [])]
        unnamed = ("", "na", "n/a", "nan")
        twins = sorted({name for name in header if name.lower() not in unnamed and header.count(name) > 1})
        if twins:  # pandas would rename the second, `age` to `age.1`
            raise DataError(f"duplicate columns: {', '.join(twins)}", where=path, hint="Rename or remove one")
        try:
            return pd.read_csv(
                path,
                sep=separator,
                na_values=[MISSING, ""],
                keep_default_na=False,
                index_col=False,  # or such cells would shift all columns
                **options,
            )
        except pd.errors.ParserWarning:
            what, hint = "rows have more cells than the header", "Add or remove separators"
            raise DataError(what, where=path, hint=hint) from None


def read_columns(path: str | Path, names: Sequence[str]) -> list[list[str]]:
    """Read columns of a TSV as text; much faster than `read_table` for the small tables of many scans.

    Raises
    ------
    DataError
        The file is missing, lacks a column, or is not a table.
    """
    what = f"not a readable tab-separated table with {', '.join(names)}"
    with readable(path, ValueError, IndexError, csv.Error, what=what), open(path, encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file, delimiter="\t")
        places = [header.index(name) for name in names]
        return [[row[place].strip() for row in rows] for place in places]


def to_numbers(cells: Sequence[str]) -> NDArray[np.floating]:
    """Convert cells of a table to numbers; ``n/a`` and empty cells are NaN."""
    return np.array([np.nan if cell in (MISSING, "") else cell for cell in cells], float)


def sha256(path: str | Path) -> str:
    """Return the SHA-256 digest of a file, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_status(
    path: str | Path,
    state: str,
    stage: str,
    error: BoltError | None = None,
    warnings: Sequence[Mapping[str, str]] = (),
    report: Path | None = None,
) -> None:
    """Write a ``status.json``.

    Parameters
    ----------
    path : path
    state : str
        ``ok``, ``excluded`` or ``failed``.
    stage : str
    error : BoltError, optional
        Gives reason and hint.
    warnings : sequence of mapping
        Stage and text of each warning about an included scan.
    report : Path, optional
        Crash report of a failure.
    """
    reason = {"reason": str(error), "hint": error.hint} if error else {"reason": "", "hint": ""}
    optional = ({"warnings": list(warnings)} if warnings else {}) | ({"report": report} if report else {})
    write_json({"state": state, "stage": stage, **reason, **optional}, path)


def _plain(value: Any) -> Any:
    """Convert NumPy scalars, arrays and paths to JSON types."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")
