"""Conda environments without conda: what their files hold, and a `conda` that makes them.

An environment is a virtual environment of its own, into which the file's `pip:` section is really installed. What conda
itself would bring, Python and a compiler, is this machine's.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from bolt.config import ROOT

PYTHON = """#!/bin/sh
echo "$*" >> {calls}
export PYTHONNOUSERSITE=1
exec {python} "$@"
"""
MAIN = """from pathlib import Path
from tests.conda import main
main(sys.argv[1:], Path(sys.argv[0]).parent.parent)
"""
ACTIVATE = """export PATH="$1/bin:$PATH"
export CONDA_PREFIX="$1"
"""


def by_pip(file: Path) -> list[Requirement]:
    """Requirements that pip installs into an environment."""
    (block,) = (one for one in yaml.safe_load(file.read_text())["dependencies"] if isinstance(one, dict))
    return [Requirement(one) for one in block["pip"]]


@cache
def brought(file: Path) -> set[str]:
    """Distributions that an environment brings."""
    return {canonicalize_name(one.name) for one in by_pip(file)}


def make(file: Path, prefix: Path) -> None:
    """Make an environment; `calls` lists what its Python ran."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", prefix], check=True)
    listed = prefix / "requirements.txt"
    listed.write_text("\n".join(map(str, by_pip(file))))
    (real,) = (prefix / "bin").glob("python3.*")
    spec = importlib.util.spec_from_file_location("install", ROOT / "workflow/install.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    words, variables = module.uv_options(module.pip_settings(), ["--no-deps", "-r", str(listed)])
    words = [str(real) if word == sys.executable else word for word in words if word != "--compile-bytecode"]
    uv = Path(sys.executable).with_name("uv")
    subprocess.run([uv, *words], env=module.os.environ | variables, check=True)
    (prefix / "bin/python").unlink()
    (prefix / "bin/python").write_text(PYTHON.format(calls=prefix / "calls", python=real))
    (prefix / "bin/python").chmod(0o755)


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
