"""The locked requirements: by hash, as pyproject.toml pins them, and all that is needed on every machine.

The files of conda environments hold the locked versions of what they need.
"""

import re
import subprocess
import sys
import tomllib
from functools import cache
from importlib.metadata import requires

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from bolt.config import ROOT
from tests import conda

LOCKS = ("requirements.txt", "requirements-test.txt")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
MACHINES = [
    {"python_version": python, "python_full_version": f"{python}.9", "sys_platform": system, "platform_machine": cpu}
    | {"platform_system": system.capitalize(), "os_name": "posix"}
    for python in ("3.11", "3.12")
    for system, cpu in (("linux", "x86_64"), ("linux", "aarch64"), ("darwin", "arm64"))
]


def blocks(name: str) -> list[str]:
    """A lock's requirements, each with the options on its continued lines."""
    text = (ROOT / name).read_text().replace("\\\n", " ")
    return [line for line in text.splitlines() if not line.startswith("#")]


@cache
def locked(name: str) -> dict[str, Requirement]:
    """Requirements by canonical name."""
    found = [Requirement(block.split(" --hash")[0]) for block in blocks(name)]
    assert len({canonicalize_name(one.name) for one in found}) == len(found)
    return {canonicalize_name(one.name): one for one in found}


def project_requirements(extra: str = "") -> list[Requirement]:
    listed = PROJECT["project"]["optional-dependencies"][extra] if extra else PROJECT["project"]["dependencies"]
    return [Requirement(one) for one in listed]


def runtime_requirements() -> list[Requirement]:
    """What `pip install bolt-fmri[all]` asks for."""
    (everything,) = project_requirements("all")
    return project_requirements() + [one for extra in sorted(everything.extras) for one in project_requirements(extra)]


@cache
def needs(name: str) -> list[Requirement]:
    """What an installed package needs; of torch, what every build of it needs."""
    if name == "torch":
        (torch,) = PROJECT["tool"]["uv"]["dependency-metadata"]
        return [Requirement(one) for one in torch["requires-dist"]]
    if any(name in locked(lock) and not applies_here(locked(lock)[name]) for lock in LOCKS):
        return []  # for other systems alone, so it cannot be asked here
    return [Requirement(one) for one in requires(name) or []]


def applies_here(one: Requirement) -> bool:
    return one.marker is None or one.marker.evaluate()


def closure(roots: list[Requirement], machine: dict[str, str]) -> dict[str, list[Requirement]]:
    """All that is needed on a machine: each package with what is asked of it."""
    found: dict[str, list[Requirement]] = {}
    done, waiting = set(), [(one, "") for one in roots]
    while waiting:
        one, extra = waiting.pop()
        if one.marker and not one.marker.evaluate(machine | {"extra": extra}):
            continue
        name = canonicalize_name(one.name)
        found.setdefault(name, []).append(one)
        for wanted in {"", *one.extras}:
            if (name, wanted) not in done:
                done.add((name, wanted))
                waiting += [(need, wanted) for need in needs(name)]
    return found


@pytest.mark.parametrize("name", [*LOCKS, "requirements-install.txt"])
def test_every_requirement_is_one_version_with_hashes(name):
    for block in blocks(name):
        requirement, *hashes = block.split(" --hash=")
        assert re.fullmatch(r"[a-z0-9-]+==[\w.]+ *(;.*)?", requirement), requirement
        assert hashes, f"{requirement} has no hash"
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64} *", one) for one in hashes), requirement


def test_torch_is_apart_by_its_version_alone():
    """The CPU wheel and a CUDA build share a version, but no hash."""
    (line,) = blocks("requirements-torch.txt")
    assert re.fullmatch(r"torch==[\w.]+ *", line)
    torch = Requirement(line)
    (asked,) = (one for one in project_requirements() if one.name == "torch")
    assert asked.specifier.contains(str(torch.specifier).removeprefix("=="))
    assert not any("torch" in locked(name) for name in LOCKS)


@pytest.mark.parametrize("machine", MACHINES, ids=lambda one: "-".join(list(one.values())[1:4]))
def test_locks_are_all_that_is_needed_and_nothing_else(machine):
    """On every kind of machine, walking the metadata of what is installed here."""
    runtime = closure(runtime_requirements(), machine)
    everything = closure(runtime_requirements() + project_requirements("test"), machine)
    test = {name: asked for name, asked in everything.items() if name not in runtime}
    for lock, needed in zip(LOCKS, (runtime, test), strict=True):
        there = {n: one for n, one in locked(lock).items() if one.marker is None or one.marker.evaluate(machine)}
        assert set(there) == set(needed) - {"torch"}
        for name, one in there.items():
            (pin,) = one.specifier
            for asked in needed[name]:
                assert asked.specifier.contains(pin.version, prereleases=True), f"{asked} is needed, {one} is locked"


def test_what_torch_needs_is_what_the_lock_was_made_with():
    """The lock is made for any build of torch; what this one needs beyond that is CUDA's."""
    declared = {canonicalize_name(one.name): str(one.specifier) for one in needs("torch")}
    installed = [Requirement(one) for one in requires("torch") or []]
    here = {canonicalize_name(one.name): str(one.specifier) for one in installed if "extra ==" not in str(one.marker)}
    others = {name for name in here if name not in declared}
    assert all(re.match("nvidia-|cuda-|triton", name) for name in others)
    assert {name: here[name] for name in declared} == declared
    (torch,) = PROJECT["tool"]["uv"]["dependency-metadata"]
    assert f"torch=={torch['version']}" in blocks("requirements-torch.txt")


ENVIRONMENTS = {"launch": ROOT / "environment.yml"}
ENVIRONMENTS |= {path.stem: path for path in sorted((ROOT / "workflow/envs").glob("*.yaml"))}
LINUX = {"python_version": "3.11", "python_full_version": "3.11.9", "sys_platform": "linux", "os_name": "posix"}
LINUX |= {"platform_machine": "x86_64", "platform_system": "Linux"}


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
    applying = [one for one in conda.by_pip(ENVIRONMENTS[name]) if not one.marker or one.marker.evaluate(LINUX)]
    there = {one.name: str(one.specifier) for one in applying}
    assert set(there) == set(closure(direct, LINUX)), "run `make lock`"
    known = {name: str(one.specifier) for name, one in locked("requirements.txt").items()}
    known["torch"] = (ROOT / "requirements-torch.txt").read_text().split("torch")[-1].strip()
    assert {package: known[package] for package in there} == there


def test_a_command_imports_what_its_own_stage_needs():
    """Preprocessing's environment has no torch, which takes two seconds to import besides."""
    modules = "bolt.cli.main, bolt.workflow.job, bolt.workflow.checks, bolt.cohort.covariates, bolt.workflow.readiness"
    code = f"import sys, {modules}; print({{'torch', 'sklearn'}} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
