"""Packages of extras: those that are missing, or have another version, are named."""

import subprocess
import sys
import tomllib
from importlib import metadata

import pytest

from bolt.config import ROOT
from bolt.io.errors import ConfigError
from bolt.io.packages import EXTRAS, name_extra, refuse_other_versions


def test_a_missing_package_is_one_line_with_its_extra(monkeypatch):
    for extra, module in [(extra, module) for extra, found in EXTRAS.items() for module in found]:
        monkeypatch.setitem(sys.modules, module, None)
        said = rf"'{module}' is missing. pip install 'bolt-fmri\[{extra}\]'"
        with pytest.raises(ConfigError, match=said), name_extra():
            __import__(f"{module}.x")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ConfigError, match="'torch' is missing. pip install 'bolt-fmri'"), name_extra():
        __import__("torch.nn")
    with pytest.raises(ModuleNotFoundError, match="nowhere"), name_extra():
        __import__("nowhere")


def test_extras_are_those_of_the_project():
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(EXTRAS) <= set(listed) and f"[{','.join(sorted(set(EXTRAS) - {'hub'}))}]" in listed["all"][0]


@pytest.mark.slow
def test_what_predicts_and_trains_in_python_needs_no_extra():
    """Nor does reading series, and the command line."""
    blocked = [module for found in EXTRAS.values() for module in found]
    code = f"""
import sys
sys.modules.update(dict.fromkeys({blocked}))
import numpy as np, bolt, bolt.cli.main, bolt.cli.predict, bolt.report.pages.report
from bolt.cli.main import main
x = np.random.default_rng(0).standard_normal((8, 40, 5))
small = dict(hidden=8, n_blocks=1, n_heads=2, head_dim=4, window=10, epochs=1, crop=20)
model = bolt.estimator("bolt", **small).fit(x, [*"abababab"])
assert model.predict(x).shape == (8,) and model.importance(x[0]).shape == (40,)
sys.exit(main(["models"]))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_version_that_does_not_fit_is_named(monkeypatch):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    monkeypatch.setattr(metadata, "requires", lambda name: project["optional-dependencies"]["workflow"])
    refuse_other_versions()
    real = metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: "10.1" if name == "snakemake" else real(name))
    with pytest.raises(ConfigError, match=r"snakemake 10.1 is installed, but BolT needs <10,>=9"):
        refuse_other_versions()
