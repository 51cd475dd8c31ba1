"""Conda environments without conda: what their files pin, what that brings, and a `conda` that makes them of it.

No channel is needed: an environment is made of those packages installed here that its file pins, with all that they
need, and of nothing else. So a rule whose environment lacks something fails as it would at night.
"""

from __future__ import annotations

import json
import re
import sys
from functools import cache
from importlib.metadata import distribution, requires
from pathlib import Path

import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from bolt.config import ROOT

NAMES = {"python-isal": "isal", "pytorch": "torch"}
"""Packages that are called otherwise on conda-forge than on PyPI."""
NOT_OF_PYPI = {"python", "pip", "cxx-compiler"}
PYTHON = """#!/bin/sh
echo "$*" >> {calls}
export PYTHONNOUSERSITE=1 PYTHONPATH="${{PYTHONPATH:+$PYTHONPATH:}}{packages}"
exec {python} -S "$@"
"""
MAIN = """from pathlib import Path
from tests.conda import main
main(sys.argv[1:], Path(sys.argv[0]).parent.parent)
"""
ACTIVATE = """export PATH="$1/bin:$PATH"
export CONDA_PREFIX="$1"
"""


def pins(file: Path) -> dict[str, str]:
    """Versions in an environment's file, by the names on PyPI; strict: a name, =, a version, nothing else."""
    listed = yaml.safe_load(file.read_text())["dependencies"]
    by_conda = [one for one in listed if isinstance(one, str) and one != "pip"]
    by_pip = [one for block in listed if isinstance(block, dict) for one in block["pip"]]
    found = [re.fullmatch(r"([a-z][a-z0-9-]*)=(\d[\w.]*)", one) for one in by_conda]
    found += [re.fullmatch(r"([a-z][a-z0-9-]*)==(\d[\w.]*)", one) for one in by_pip]
    return {NAMES.get(one[1], one[1]): one[2] for one in found}  # type: ignore[index]


@cache
def brought(file: Path) -> set[str]:
    """Distributions that an environment brings: those that it pins, and all that these need."""
    done: set[tuple[str, str]] = set()
    waiting = [(name, "") for name in pins(file) if name not in NOT_OF_PYPI]
    while waiting:
        name, extra = one = waiting.pop()
        if one not in done:
            done.add(one)
            for need in map(Requirement, requires(name) or []):
                if not need.marker or need.marker.evaluate({"extra": extra}):
                    waiting += [(canonicalize_name(need.name), wanted) for wanted in {"", *need.extras}]
    return {name for name, _ in done}


def make(file: Path, prefix: Path) -> None:
    """Make an environment: links to its packages, and a Python that sees no others; `calls` lists what it ran."""
    packages = prefix / "packages"
    for folder in (packages, prefix / "bin"):
        folder.mkdir(parents=True)
    for name in sorted(brought(file)):
        one = distribution(name)
        for top in {path.parts[0] for path in one.files or []} - {"..", "__pycache__"}:
            if not (packages / top).exists():
                (packages / top).symlink_to(one.locate_file(top))
    python = prefix / "bin/python"
    python.write_text(PYTHON.format(calls=prefix / "calls", python=sys.executable, packages=packages))
    python.chmod(0o755)


def install(folder: Path) -> Path:
    """Put such a `conda` into a folder for PATH."""
    folder.mkdir(parents=True)
    (folder / "conda").write_text(f"#!{sys.executable}\nimport sys\nsys.path.append({str(ROOT)!r})\n{MAIN}")
    (folder / "activate").write_text(ACTIVATE)
    for name in ("conda", "activate"):
        (folder / name).chmod(0o755)
    return folder


def main(words: list[str], base: Path) -> None:
    """What Snakemake asks of conda."""
    match words:
        case ["--version"]:
            print("conda 25.5.1")
        case ["info", "--json"]:
            print(json.dumps({"conda_prefix": str(base), "platform": "linux-64", "root_prefix": str(base)}))
        case ["config", *rest]:
            strict = {"get": {"channel_priority": "strict"}}
            print(json.dumps(strict) if "--json" in rest else "--set channel_priority 'strict'")
        case ["clean", *_]:
            pass
        case ["env", "create", *rest]:
            make(Path(rest[rest.index("--file") + 1]), Path(rest[rest.index("--prefix") + 1]))
        case _:
            sys.exit(f"this conda does not know: {' '.join(words)}")
