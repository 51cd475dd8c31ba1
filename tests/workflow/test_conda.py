"""`--use-conda`: rules run in environments that hold what their files pin and what that needs, and not this package."""

import os
import re
import subprocess

import pytest

from bolt.config import ROOT
from tests import conda
from tests.snake import results, series_dataset, snakemake


@pytest.fixture
def path(tmp_path):
    """PATH with a conda that makes environments out of what is installed here."""
    return {"PATH": f"{conda.install(tmp_path / 'conda/bin')}{os.pathsep}{os.environ['PATH']}"}


@pytest.mark.slow
def test_rules_run_in_the_environments_that_their_files_name(tmp_path, path):
    config = series_dataset(tmp_path)
    done = snakemake(tmp_path, "--use-conda", "folds", config=config, env=path, fresh=True)
    assert done.returncode == 0, done.stdout
    assert len(results(tmp_path, "folds.tsv")) == 1
    made = {file.read_text(): file.with_suffix("") for file in (tmp_path / ".snakemake/conda").glob("*.yaml")}
    for name, commands in {"imaging": ["index"], "learning": ["cache", "exclusions", "folds"]}.items():
        called = made[(ROOT / f"workflow/envs/{name}.yaml").read_text()] / "calls"
        assert re.findall(r"-m bolt (\w+)", called.read_text()) == commands


@pytest.mark.slow
def test_such_environments_hold_their_pins_and_not_the_package(tmp_path):
    """Otherwise the test above would prove nothing."""
    look = "import importlib.util as u; print([one for one in ('ants', 'torch', 'bolt') if u.find_spec(one)])"
    (tmp_path / "look.py").write_text(look)
    for name, holds in {"imaging": ["ants"], "learning": ["torch"]}.items():
        conda.make(ROOT / f"workflow/envs/{name}.yaml", tmp_path / name)
        python, env = tmp_path / name / "bin/python", {"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path)}
        done = subprocess.run([python, "-m", "look"], cwd=tmp_path, env=env, text=True, capture_output=True, check=True)
        assert done.stdout.strip() == str(holds)
