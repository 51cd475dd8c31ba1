"""`make install` with uv is configured as pip is, and pip installs where uv cannot; conda-forge is asked elsewhere."""

import importlib.util
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from bolt.config import ROOT

SPEC = importlib.util.spec_from_file_location("install", ROOT / "workflow/install.py")
install = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(install)
LISTED = """\
:env:.find-links='/opt/wheels https://mirror.example/wheels'
:env:.no-index='1'
global.cert='/etc/ca.pem'
global.find-links='/elsewhere'
global.extra-index-url='https://a.example/simple\\nhttps://b.example/simple'
global.timeout='30'
install.timeout='180'
download.timeout='1'
"""


@pytest.fixture
def calls(monkeypatch, tmp_path):
    """Commands that are run, and what pip's configuration lists and uv returns."""
    known = SimpleNamespace(listed=LISTED, uv=0, run=[])

    def run(command, **options):
        if command[1:] == ["-m", "pip", "config", "list"]:
            return SimpleNamespace(stdout=known.listed)
        known.run.append((command, options.get("env", {})))
        return SimpleNamespace(returncode=known.uv if command[0].endswith("uv") else 3)

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    (tmp_path / "uv").touch()
    return known


def test_uv_has_the_settings_of_pip(calls):
    assert install.main(["-r", "requirements.txt"]) == 0
    ((command, environment),) = calls.run
    assert command[1:4] == ["pip", "install", "--quiet"] and command[-3:] == ["--no-index", "-r", "requirements.txt"]
    assert environment["UV_FIND_LINKS"] == "/opt/wheels,https://mirror.example/wheels"
    assert environment["UV_INDEX"] == "https://a.example/simple https://b.example/simple"
    assert environment["UV_HTTP_TIMEOUT"] == "180" and environment["SSL_CERT_FILE"] == "/etc/ca.pem"
    assert environment["UV_INDEX_STRATEGY"] == "unsafe-best-match" and "UV_DEFAULT_INDEX" not in environment


def test_constraints_hold_where_versions_are_not_given(calls):
    calls.listed += "global.constraint='mine.txt'\n"
    install.main(["-r", "requirements-torch.txt"])
    install.main(["--require-hashes", "-r", "requirements.txt"])
    assert [environment.get("UV_CONSTRAINT") for _, environment in calls.run] == ["mine.txt", None]


def test_variables_of_uv_come_first(calls, monkeypatch):
    monkeypatch.setenv("UV_INDEX", "https://mine.example/simple")
    install.main(["x"])
    assert calls.run[0][1]["UV_INDEX"] == "https://mine.example/simple"


def test_pip_installs_where_uv_cannot(calls, tmp_path, capsys):
    pip = [str(tmp_path / "python"), "-m", "pip", "install", "--quiet", "x"]
    calls.uv = 2
    assert install.main(["x"]) == 3
    assert [command[0] for command, _ in calls.run] == [str(tmp_path / "uv"), pip[0]]
    calls.run.clear()
    calls.listed += "global.no-binary=':all:'\n"
    assert install.main(["x"]) == 3 and [command for command, _ in calls.run] == [pip]
    assert "uv has no counterpart of pip's no-binary" in capsys.readouterr().out
    calls.run.clear()
    calls.listed = ""
    (tmp_path / "uv").unlink()
    assert install.main(["x"]) == 3 and [command for command, _ in calls.run] == [pip]


def test_what_this_pip_lists_is_read(monkeypatch):
    monkeypatch.setenv("PIP_RETRIES", "7")
    assert install.pip_settings()["retries"] == "7"


CONDA = """#!/bin/sh
echo "$CONDA_SUBDIR $*" >> {calls}
exit {status}
"""


@pytest.mark.parametrize("status", [0, 1])
def test_every_file_of_an_environment_is_solved(tmp_path, status):
    """By `check.sh`; one that cannot be made ends the check."""
    conda = tmp_path / "conda"
    conda.write_text(CONDA.format(calls=tmp_path / "calls", status=status))
    conda.chmod(0o755)
    path = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(ROOT / "workflow/envs/check.sh", env=path, capture_output=True, text=True, check=False)
    assert done.returncode == status
    calls = [line.split(" ") for line in (tmp_path / "calls").read_text().splitlines()]
    files = ["environment.yml", *sorted(str(p.relative_to(ROOT)) for p in (ROOT / "workflow/envs").glob("*.yaml"))]
    assert [call[-1] for call in calls] == files[: None if status == 0 else 1]
    assert all("--dry-run" in call and call[0] == "linux-64" for call in calls)
