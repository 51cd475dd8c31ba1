"""The pins of pip and conda agree, and every environment holds what its rules import."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from bolt import fingerprint
from bolt.config import ROOT
from bolt.dependencies import STAGES

CONDA_NAMES = {"python-isal": "isal", "pytorch": "torch"}
IMPORT_NAMES = {"ants": "antspyx", "bids": "pybids", "sklearn": "scikit-learn", "yaml": "pyyaml", "PIL": "pillow"}
ENVIRONMENTS = [ROOT / "environment.yml", *sorted((ROOT / "workflow/envs").glob("*.yaml"))]
ALWAYS = {"numpy", "pandas", "pydantic", "pyyaml"}  # what the command line itself imports
WITH_OTHERS = {"botocore": "boto3", "pillow": "matplotlib", "threadpoolctl": "scikit-learn"}  # installed by these


def project_pins() -> dict[str, str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    listed = project["dependencies"] + project["optional-dependencies"]["test"]
    return dict(re.fullmatch(r"([\w.-]+)==([\w.]+)", pin).groups() for pin in listed)


def conda_pins(path: Path) -> dict[str, str]:
    listed = yaml.safe_load(path.read_text())["dependencies"]
    by_pip = [pin.replace("==", "=") for block in listed if isinstance(block, dict) for pin in block["pip"]]
    plain = [pin for pin in listed if isinstance(pin, str) and pin != "pip"] + by_pip
    pins = dict(re.fullmatch(r"([\w.-]+)=([\w.]+)", pin).groups() for pin in plain)
    return {CONDA_NAMES.get(name, name): version for name, version in pins.items()}


@pytest.mark.parametrize("path", ENVIRONMENTS, ids=lambda path: path.name)
def test_conda_pins_equal_the_projects(path):
    pins, project = conda_pins(path), project_pins()
    assert pins.pop("python") == "3.11"
    pins.pop("cxx-compiler", None)  # pip brings none
    assert {name: project.get(name) for name in pins} == pins


def test_launching_environment_holds_all_dependencies():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    direct = {pin.split("==")[0] for pin in project["dependencies"]}
    assert direct <= set(conda_pins(ROOT / "environment.yml"))


def rule_environments() -> dict[str, set[str]]:
    """Stage (command) to the environments of the rules that run it."""
    found: dict[str, set[str]] = {}
    for path in sorted((ROOT / "workflow/rules").glob("*.smk")):
        for body in re.split(r"^\s*(?:rule|checkpoint) \w+:", path.read_text(), flags=re.MULTILINE)[1:]:
            environment = re.search(r'envs/(\w+)\.yaml"', body)
            command = re.search(r"python -m bolt ([\w-]+)", body)
            if environment and command:
                found.setdefault(command[1], set()).add(environment[1])
    return found


def imported_packages(*modules: str) -> set[str]:
    """Packages that these modules import, and the `bolt` modules they import, at any depth."""
    seen, waiting, packages = set(), list(modules), set()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        tree = ast.parse(fingerprint._source(name).read_text())
        for found in fingerprint._imports(tree):
            if fingerprint._is_module(found):
                waiting.append(found)
            elif not found.startswith("bolt"):
                packages.add(found.split(".")[0])
    return packages - set(sys.stdlib_module_names)


@pytest.mark.parametrize("stage", sorted(STAGES))
def test_environments_hold_what_their_stages_import(stage):
    command = stage.replace("_", "-")
    for environment in rule_environments()[command]:
        pins = set(conda_pins(ROOT / f"workflow/envs/{environment}.yaml"))
        models = ["bolt.models.bolt", "bolt.models.svm", "bolt.train_features"] if stage in ("train", "search") else []
        models += ["bolt.models.bolt"] if stage == "explain" else []
        needed = {IMPORT_NAMES.get(p, p) for p in imported_packages(*STAGES[stage], *models)} | ALWAYS
        missing = {n for n in needed if n not in pins and WITH_OTHERS.get(n) not in pins}
        assert not missing, f"{command} in {environment}: {missing}"


def test_a_command_imports_what_its_own_stage_needs():
    """Preprocessing's environment has no torch, which takes two seconds to import besides."""
    code = (
        "import sys, bolt.cli, bolt.stages, bolt.check, bolt.covariates; print({'torch', 'sklearn'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
