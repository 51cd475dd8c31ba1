"""What a model's class declares, read from its source: a dry run needs the settings of models, but not torch."""

from __future__ import annotations
import __future__

import ast
import sys
from functools import cache
from typing import Any

from bolt.io.places import PACKAGE
from bolt.models.parts.features import FeatureModel
from bolt.models.parts.settings import annotations_of

METHODS = ("__init__", "shortest")
"""What is kept of a class: its settings, and the shortest scan that a model with them can read."""


def declared(name: str) -> Any:
    """Return a class with the attributes, settings and `shortest` of a model's class, but without its network.

    Parameters
    ----------
    name : str
        Of the model: the stem of its file.

    Returns
    -------
    type or None
        None if the source cannot be read this way: a default that is computed, say. Then the module must be imported.
    """
    try:
        classes = [node for node in _tree(name).body if isinstance(node, ast.ClassDef) and _registers(node, name)]
        model = _class(name, classes[0].name)
        annotations_of(model)
    except Exception:  # whatever it is, importing the module settles it
        return None
    return model


@cache
def _tree(module: str) -> ast.Module:
    """Parse a module by its name below `bolt.models`."""
    return ast.parse((PACKAGE / "models" / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8"))


def _registers(node: ast.ClassDef, name: str) -> bool:
    return any(ast.unparse(decorator) == f"register({name!r})" for decorator in node.decorator_list)


@cache
def _class(module: str, name: str) -> Any:
    """Run the declaration of one class of a module of models."""
    node = next(n for n in _tree(module).body if isinstance(n, ast.ClassDef) and n.name == name)
    bases = {ast.unparse(base): _base(module, ast.unparse(base)) for base in node.bases}
    kept = [statement for statement in node.body if not isinstance(statement, ast.FunctionDef)]
    for method in node.body:
        if isinstance(method, ast.FunctionDef) and method.name in METHODS:
            body = [ast.Pass()] if method.name == "__init__" else method.body
            kept.append(ast.FunctionDef(**{**vars(method), "body": body}))
    light = ast.ClassDef(
        name=name,
        bases=[ast.Name(f"base_{i}", ast.Load()) for i in range(len(bases))],
        keywords=[],
        body=kept or [ast.Pass()],
        decorator_list=[],
    )
    source = ast.fix_missing_locations(ast.Module([*_imports(module), *_choices(module), light], []))
    names: dict[str, Any] = {f"base_{i}": base for i, base in enumerate(bases.values())} | {"__name__": module}
    exec(compile(source, f"{module}.py", "exec", flags=__future__.annotations.compiler_flag), names)
    return names[name]


def _base(module: str, name: str) -> type:
    """Return the light form of a base class."""
    if name == "nn.Module":
        return object
    if name == FeatureModel.__name__:
        return FeatureModel
    base: type = _class(_origins(module).get(name, module), name)
    return base


def _origins(module: str) -> dict[str, str]:
    """Return from which modules of models a module imports names."""
    nodes = [node for node in _tree(module).body if isinstance(node, ast.ImportFrom)]
    ours = [node for node in nodes if str(node.module).startswith("bolt.models.")]
    return {alias.name: str(node.module).removeprefix("bolt.models.") for node in ours for alias in node.names}


def _imports(module: str) -> list[ast.stmt]:
    """Return a module's imports from the standard library."""

    def is_light(node: ast.Import | ast.ImportFrom) -> bool:
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [str(node.module)]
        return all(name.split(".")[0] in sys.stdlib_module_names for name in names)

    return [node for node in _tree(module).body if isinstance(node, ast.Import | ast.ImportFrom) and is_light(node)]


def _choices(module: str) -> list[ast.stmt]:
    """Return the ``Name = Literal[...]`` of a module and of those from which it imports, for annotations."""
    modules = dict.fromkeys([module, *_origins(module).values()])
    choices = [
        node
        for name in modules
        for node in _tree(name).body
        if isinstance(node, ast.Assign) and ast.unparse(node.value).startswith("Literal[")
    ]
    return [*ast.parse("from typing import Literal").body, *choices]
