"""`--use-conda`: rules run in an interpreter that has the dependencies, but not this package."""

import os
import subprocess
import sys

import pytest

from tests.snake import results, series_dataset, snakemake

STUB = """#!{python}
# A conda that makes every environment out of one virtual environment: {environment}
import os, sys
words = sys.argv[1:]
if words[:1] == ["--version"]:
    print("conda 25.5.1")
elif words[:2] == ["info", "--json"] or words[:1] == ["info"]:
    print('{{"conda_prefix": "{base}", "platform": "linux-64", "root_prefix": "{base}"}}')
elif words[:2] == ["config", "--get"] or words[:1] == ["config"]:
    print('{{"get": {{"channel_priority": "strict"}}}}' if "--json" in words else "--set channel_priority 'strict'")
elif words[:1] == ["clean"]:
    pass
elif words[:2] == ["env", "create"]:
    prefix = words[words.index("--prefix") + 1]
    os.makedirs(prefix + "/conda-meta", exist_ok=True)
    os.symlink("{environment}/bin", prefix + "/bin")
else:
    sys.exit("stub conda does not know: " + " ".join(words))
"""
ACTIVATE = """export PATH="$1/bin:$PATH"
export CONDA_PREFIX="$1"
"""


@pytest.fixture
def stub(tmp_path):
    """PATH with a stub conda; its environment is an interpreter of its own without this package."""
    environment, base = tmp_path / "environment", tmp_path / "conda"
    for folder in (environment / "bin", base / "bin"):
        folder.mkdir(parents=True)
    packages = next(p for p in sys.path if p.endswith("site-packages"))
    wrapper = environment / "bin" / "python"
    # isolated from the user's folders and from editable installs; only the dependencies are on its path
    wrapper.write_text(
        f"#!/bin/sh\necho $* >> {tmp_path}/called\nexport PYTHONNOUSERSITE=1\nexec {sys.executable} -S -c "
        f'\'import sys; sys.path.append("{packages}"); '
        'import runpy; sys.argv = sys.argv[2:]; runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)'
        '\' "$@"\n'
    )
    (base / "bin" / "conda").write_text(STUB.format(python=sys.executable, environment=environment, base=base))
    (base / "bin" / "activate").write_text(ACTIVATE)
    for path in (wrapper, base / "bin" / "conda"):
        path.chmod(0o755)
    return {"PATH": f"{base / 'bin'}{os.pathsep}{os.environ['PATH']}"}


def test_rules_find_the_package_in_a_foreign_environment(tmp_path, stub):
    config = series_dataset(tmp_path)
    done = snakemake(tmp_path, "--use-conda", "series", config=config, env=stub)
    assert done.returncode == 0, done.stdout
    assert len(results(tmp_path, "folds.tsv")) == 1
    called = (tmp_path / "called").read_text()
    for command in ("index", "cache", "folds"):
        assert f"-m bolt {command} " in called, f"{command} did not run in the rule's environment"


def test_the_stub_environment_lacks_the_package(tmp_path, stub):
    """Otherwise the test above would prove nothing."""
    python = tmp_path / "environment/bin/python"
    done = subprocess.run(
        [python, "-m", "bolt", "--version"],
        cwd=tmp_path,
        text=True,
        capture_output=True,
        env={"PATH": "/usr/bin"},
        check=False,
    )
    assert done.returncode != 0 and "No module named" in done.stderr
