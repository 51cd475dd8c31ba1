"""Fingerprints of code: a changed function repeats the stages that depend on it, and no others."""

from __future__ import annotations

import ast
import hashlib
import json
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

from bolt.io.files import write_text
from bolt.io.places import PACKAGE

STORE = f"__pycache__/code_hash.{sys.implementation.cache_tag}.json"
"""Where the hashes of modules are kept, as Python keeps its compiled modules: parsing all of them takes a second."""
RULES = Path(__file__).read_bytes()
"""What is kept by other rules is not valid."""


@cache
def fingerprint(*modules: str) -> str:
    """Return eight characters that change with the code of modules and of all `bolt` modules that they import.

    The C++ files in a module's folder count if one has its name, and so do the package's data files that a module
    reads. Comments, docstrings and formatting do not; nor do the package's version and the definitions of configuration
    keys, because stages depend on the values of keys.
    """
    seen: dict[str, str] = {"bolt": "", "bolt.config": ""}
    waiting, before = list(modules), dict(_kept())
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        imported, seen[name] = _code(name)
        waiting += imported
    if _kept() != before and not sys.dont_write_bytecode:
        with suppress(OSError):  # where the package cannot be written, it is computed again next time
            write_text(json.dumps(_kept()), PACKAGE / STORE)
    text = "\n".join(f"{name} {seen[name]}" for name in sorted(seen))
    return hashlib.sha256(text.encode()).hexdigest()[:8]


@cache
def _kept() -> dict[str, tuple[str, list[str], str]]:
    """Return content, names imported and hash of the code of each module, as an earlier process has kept them."""
    with suppress(OSError, ValueError, TypeError, AttributeError):  # missing or damaged
        kept = json.loads((PACKAGE / STORE).read_text(encoding="utf-8")).items()
        return {name: (content, names, code) for name, (content, names, code) in kept}
    return {}


@cache
def _code(module: str) -> tuple[list[str], str]:
    """Return the `bolt` modules that a module imports, and the hash of its code; kept for one content of its files."""
    path, kept = _source(module), _kept()
    source = path.read_bytes()
    kernel = sorted(path.parent.glob("*.cpp")) + sorted(path.parent.glob("*.h"))
    beside = [*(kernel if path.with_suffix(".cpp") in kernel else []), *_data_files(path, source.decode())]
    source_beside = b"".join(file.read_bytes() for file in beside)
    content = hashlib.sha256(b"\0".join([RULES, source, source_beside])).hexdigest()
    if module not in kept or kept[module][0] != content:
        tree = ast.parse(source)
        names = [name for name in _imports(tree) if name.split(".")[0] == "bolt"]
        code = ast.dump(_without_docstrings(tree)).encode() + source_beside
        kept[module] = content, names, hashlib.sha256(code).hexdigest()
    _, names, code_hash = kept[module]
    return [name for name in names if _is_module(name)], code_hash


def _source(module: str) -> Path:
    path = PACKAGE.parent.joinpath(*module.split("."))  # may be a folder of former modules' bytecode, too
    return package if (package := path / "__init__.py").is_file() else path.with_suffix(".py")


def _data_files(path: Path, source: str) -> list[Path]:
    """Return the YAML and Markdown files that a module names: of its folder, those above, or as `columns(room, …)`."""
    folders = [folder for folder in path.parents if folder.is_relative_to(PACKAGE)]
    names = [path.with_suffix(".yaml").name, *re.findall(r'"([\w./]+\.(?:yaml|md))"', source)]
    rooms = [PACKAGE / room / "columns.yaml" for room in re.findall(r'\bcolumns\("([\w/]+)", "', source)]
    return sorted({file for file in [*rooms, *(f / name for f in folders for name in names)] if file.is_file()})


@cache
def _is_module(name: str) -> bool:
    return _source(name).is_file()


def _imports(tree: ast.Module) -> list[str]:
    """Return all names that a module imports: of modules, and of what is in them."""
    names: dict[str, None] = {}
    for node in _statements(tree):
        if isinstance(node, ast.Import):
            names |= dict.fromkeys(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= dict.fromkeys([node.module, *(f"{node.module}.{alias.name}" for alias in node.names)])
    return list(names)


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in _statements(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return tree


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and all statements within, but none of the many more expressions, as `ast.walk` would."""
    yield node
    for block in ("body", "orelse", "handlers", "finalbody", "cases"):
        for statement in getattr(node, block, []):
            yield from _statements(statement)
