"""Fingerprints of code: a changed function repeats the stages that depend on it, and no others."""

from __future__ import annotations

import ast
import hashlib
from functools import cache
from pathlib import Path

from bolt.io.places import PACKAGE


@cache
def fingerprint(*modules: str) -> str:
    """Return eight characters that change with the code of modules and of all `bolt` modules that they import.

    C++ sources beside a module count. Comments, docstrings and formatting do not; nor do the package's version and the
    definitions of configuration keys, because stages depend on the values of keys.
    """
    seen: dict[str, str] = {"bolt": "", "bolt.config": ""}
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        imported, seen[name] = _code(name)
        waiting += imported
    text = "\n".join(f"{name} {seen[name]}" for name in sorted(seen))
    return hashlib.sha256(text.encode()).hexdigest()[:8]


@cache
def _code(module: str) -> tuple[list[str], str]:
    """Return the `bolt` modules that a module imports, and its code."""
    tree = ast.parse(_source(module).read_text(encoding="utf-8"))
    imported = [name for name in _imports(tree) if _is_module(name)]
    code = ast.dump(_without_docstrings(tree))
    kernel = _source(module).with_suffix(".cpp")
    return imported, code + (kernel.read_text(encoding="utf-8") if kernel.is_file() else "")


def _source(module: str) -> Path:
    path = PACKAGE.parent.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _is_module(name: str) -> bool:
    return name.split(".")[0] == "bolt" and _source(name).is_file()


def _imports(tree: ast.Module) -> list[str]:
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return names


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return tree
