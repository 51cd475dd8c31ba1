"""The files of conda environments are well formed, and hold the locked versions of what they need."""

import re
import subprocess
import sys

import pytest
import yaml
from packaging.requirements import Requirement

from bolt.config import ROOT
from tests import conda
from tests.workflow.test_requirements import closure, locked

ENVIRONMENTS = {"launch": ROOT / "environment.yml"}
ENVIRONMENTS |= {path.stem: path for path in sorted((ROOT / "workflow/envs").glob("*.yaml"))}
MACHINE = {"python_version": "3.11", "python_full_version": "3.11.9", "sys_platform": "linux", "os_name": "posix"}
MACHINE |= {"platform_machine": "x86_64", "platform_system": "Linux"}


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_environments_are_as_conda_reads_them(name):
    """Conda brings nothing that moves. Snakemake copies the files of rules away: a path in one would lead nowhere."""
    data = yaml.safe_load(ENVIRONMENTS[name].read_text())
    assert set(data) - {"name"} == {"channels", "dependencies"} and data["channels"] == ["conda-forge", "nodefaults"]
    *by_conda, by_pip = data["dependencies"]
    assert by_conda == ["python=3.11", *(["cxx-compiler"] if name == "learning" else []), "pip"]
    assert all(re.match(r"[a-z0-9-]+==[\w.]+( ;.*)?$", one) for one in by_pip["pip"])


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_environments_hold_the_locked_versions_of_all_that_they_need(name):
    lines = (ROOT / f"workflow/envs/{name}.in").read_text().splitlines()
    direct = [Requirement(line) for line in lines if not line.startswith("#")]
    applying = [one for one in conda.by_pip(ENVIRONMENTS[name]) if not one.marker or one.marker.evaluate(MACHINE)]
    there = {one.name: str(one.specifier) for one in applying}
    assert set(there) == set(closure(direct, MACHINE)), "run `make lock`"
    known = {name: str(one.specifier) for name, one in locked("requirements.txt").items()}
    known["torch"] = (ROOT / "requirements-torch.txt").read_text().split("torch")[-1].strip()
    assert {package: known[package] for package in there} == there


def test_a_command_imports_what_its_own_stage_needs():
    """Preprocessing's environment has no torch, which takes two seconds to import besides."""
    modules = "bolt.cli.main, bolt.workflow.job, bolt.workflow.checks, bolt.cohort.covariates"
    code = f"import sys, {modules}; print({{'torch', 'sklearn'}} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
