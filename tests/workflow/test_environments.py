"""Every rule's conda environment holds what the rule's command imports, at once or lazily, by itself or by a name."""

import ast
import inspect
import re
import sys
import textwrap
from functools import cache
from importlib import metadata

from packaging.utils import canonicalize_name

from bolt.config import ROOT
from bolt.config.study import Study
from bolt.jobs import code_hash as fingerprint
from bolt.workflow.job import Job
from bolt.workflow.stage import STAGES
from tests import conda

BY_COMMAND = {stage.command: stage for stage in STAGES.values()}

packages_distributions = cache(metadata.packages_distributions)
START = ("bolt.__main__", "bolt.cli.main", "bolt.workflow.job")
"""What every command imports before its own stage."""
MODELS = [f"bolt.models.{path.stem}" for path in sorted((ROOT / "bolt/models").glob("[a-z]*.py"))]
SOURCES = [f"bolt.datasets.{path.stem}" for path in sorted((ROOT / "bolt/datasets").glob("[a-z]*.py"))]
BY_NAME = {"download": SOURCES, "index": SOURCES, "train": MODELS, "search-fold": MODELS}
BY_NAME |= {"measure-complexity": MODELS}
"""Modules that a command imports by names in the configuration."""


@cache
def rules() -> dict[str, tuple[str, str]]:
    """Environment and command of every rule that has a shell command."""
    found = {}
    for path in sorted((ROOT / "workflow/rules").glob("*.smk")):
        parts = re.split(r"^\s*(?:rule|checkpoint) (\w+):", path.read_text(), flags=re.MULTILINE)
        for rule, body in zip(parts[1::2], parts[2::2], strict=True):
            if "shell:" in body:
                (environment,) = re.findall(r'"\.\./envs/(\w+)\.yaml"', body)
                (command,) = re.findall(r"python -m bolt ([\w-]+)", body)
                found[rule] = (environment, command)
    return found


def is_for_types_alone(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


@cache
def imported(module: str, lazily: bool) -> list[str]:
    """What a module imports; `lazily` also within functions, which is what a stage may come to."""
    tree = ast.parse(fingerprint._source(module).read_text())
    tree.body = [node for node in tree.body if not is_for_types_alone(node)]
    if not lazily:
        tree.body = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    return fingerprint._imports(tree)


WITH_TORCH = {"triton"}
"""Comes with builds of torch for GPUs; the others do without."""


def walk(*names: str, lazily: bool) -> set[str]:
    """Packages that some modules import, and the modules of `bolt` that they import, at any depth."""
    seen: set[str] = set()
    waiting, packages = list(names), set()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        if fingerprint._is_module(name):
            waiting += imported(name, lazily)
        elif name.split(".")[0] != "bolt":
            packages.add(name.split(".")[0])
    return packages - set(sys.stdlib_module_names) - WITH_TORCH


def stage_imports(command: str) -> list[str]:
    """What the function of a stage imports, and the functions of its module and methods of its job that it calls."""
    work = BY_COMMAND[command].work
    seen, waiting, found = set(), [work], []
    while waiting:
        function = waiting.pop()
        if function in seen:
            continue
        seen.add(function)
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
        found += fingerprint._imports(tree)
        code = ast.unparse(tree)
        called = [vars(inspect.getmodule(work)).get(name) for name in re.findall(r"\b(\w+)\(", code)]
        called += [inspect.getattr_static(Job, name, None) for name in re.findall(r"job\.(\w+)", code)]
        waiting += [one for one in called if inspect.isfunction(one)]
    return found


@cache
def packages_of(command: str) -> set[str]:
    about = BY_COMMAND[command]
    stage = [*about.modules(Study.read(ROOT / "config/config.yaml")), *BY_NAME.get(command, [])]
    return walk(*START, about.work.__module__, lazily=False) | walk(*stage, *stage_imports(command), lazily=True)


def providers(package: str) -> set[str]:
    """Distributions that bring a package."""
    return {canonicalize_name(name) for name in packages_distributions()[package]}


def test_environments_hold_what_their_rules_import_and_pin_nothing_else():
    there = {name: conda.brought(ROOT / f"workflow/envs/{name}.yaml") for name in ("imaging", "learning")}
    used = {name: set() for name in there}
    assert {path.stem for path in (ROOT / "workflow/envs").glob("*.yaml")} == {name for name, _ in rules().values()}
    for rule, (environment, command) in rules().items():
        for package in sorted(packages_of(command)):
            used[environment] |= providers(package)
            assert providers(package) & there[environment], (
                f"{rule}: `bolt {command}` imports {package}, which {environment} lacks"
            )
    for environment, imported in used.items():
        lines = (ROOT / f"workflow/envs/{environment}.in").read_text().splitlines()
        assert {line for line in lines if not line.startswith("#")} <= imported


def test_the_launching_environment_holds_what_the_snakefile_imports():
    modules = re.findall(r"^from (bolt[\w.]*) import", (ROOT / "Snakefile").read_text(), re.MULTILINE)
    there = conda.brought(ROOT / "environment.yml")
    for package in sorted(walk(*modules, lazily=False)):
        assert providers(package) & there, f"the Snakefile imports {package}, which environment.yml lacks"
