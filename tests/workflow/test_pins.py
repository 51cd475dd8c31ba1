"""The files of conda environments are well formed, and their pins are the project's."""

import re
import subprocess
import sys
import tomllib

import pytest
import yaml

from bolt.config import ROOT
from tests import conda

ENVIRONMENTS = [ROOT / "environment.yml", *sorted((ROOT / "workflow/envs").glob("*.yaml"))]


def project_pins() -> dict[str, str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    listed = project["dependencies"] + project["optional-dependencies"]["test"]
    return dict(re.fullmatch(r"([\w.-]+)==([\w.]+)", pin).groups() for pin in listed)


@pytest.mark.parametrize("path", ENVIRONMENTS, ids=lambda path: path.name)
def test_environments_are_as_conda_reads_them(path):
    """Snakemake copies the files of rules away: a path in one would lead nowhere."""
    data = yaml.safe_load(path.read_text())
    assert set(data) - {"name"} == {"channels", "dependencies"}
    bioconda = ["bioconda"] if any("snakemake" in str(one) for one in data["dependencies"]) else []
    assert data["channels"] == ["conda-forge", *bioconda, "nodefaults"]
    *by_conda, pip, by_pip = data["dependencies"]
    assert pip == "pip" and set(by_pip) == {"pip"}
    for specs in (by_conda, by_pip["pip"]):
        names = [re.match(r"[a-z][a-z0-9-]*", one)[0] for one in specs if not one.startswith("python=")]
        assert names == sorted(set(names))


@pytest.mark.parametrize("path", ENVIRONMENTS, ids=lambda path: path.name)
def test_conda_pins_equal_the_projects(path):
    pins, project = conda.pins(path), project_pins()
    assert pins.pop("python") == "3.11"
    pins.pop("cxx-compiler", None)  # pip brings none
    assert {name: project.get(name) for name in pins} == pins


def test_launching_environment_holds_all_dependencies():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    direct = {pin.split("==")[0] for pin in project["dependencies"]}
    assert direct <= set(conda.pins(ROOT / "environment.yml"))


def test_a_command_imports_what_its_own_stage_needs():
    """Preprocessing's environment has no torch, which takes two seconds to import besides."""
    modules = "bolt.cli.main, bolt.workflow.job, bolt.workflow.checks, bolt.cohort.covariates"
    code = f"import sys, {modules}; print({{'torch', 'sklearn'}} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
