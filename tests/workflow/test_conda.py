"""`--use-conda`: rules run in environments that hold what their files pin and what that needs, and not this package."""

import os
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from bolt.config import ROOT
from bolt.io.files import read_yaml
from tests import conda
from tests.snake import results, series_dataset, snakemake, write_yaml

pytestmark = pytest.mark.slow
PREPROCESSING = {"simulate", "template", "index", "anatomical", "functional", "parcellate-scan"}


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """A folder with a conda, and one for the environments that it makes out of what is installed here."""
    folder = tmp_path_factory.mktemp("conda")
    return conda.install(folder / "conda/bin"), folder / "envs"


def run(folder: Path, places: tuple[Path, Path], *target: str, config: Path) -> dict[str, set[str]]:
    """Run Snakemake with conda; return the commands that each environment has run."""
    path = {"PATH": f"{places[0]}{os.pathsep}{os.environ['PATH']}"}
    asked = ("--use-conda", "--conda-prefix", str(places[1]), *target)
    done = snakemake(folder, *asked, config=config, env=path, fresh=True)
    assert done.returncode == 0, done.stdout
    made = {file.read_text(): file.with_suffix("") for file in places[1].glob("*.yaml")}
    calls = {name: made.get((ROOT / f"workflow/envs/{name}.yaml").read_text()) for name in ("imaging", "learning")}
    return {name: set(re.findall(r"-m bolt (\S+)", (at / "calls").read_text())) for name, at in calls.items() if at}


def test_a_scan_of_the_phantom_is_preprocessed_in_the_imaging_environment(tmp_path, places):
    shipped = read_yaml(ROOT / "config/datasets/phantom.yaml")
    simulate = {"n_subjects": 2, "t1w_resolution": 6.0, "bold_resolution": [12.0, 12.0], "n_volumes": [24, 24]}
    keys = {"path": str(tmp_path / "bids"), "crop": 20, "simulate": shipped["simulate"] | simulate}
    dataset = write_yaml(tmp_path / "small.yaml", shipped | keys)
    keys = {"dataset": str(dataset), "atlases": ["dosenbach160"], "models": ["svm"], "folds": {"outer": 2}}
    keys["preprocess"] = {"space": "MNI152NLin2009aSym", "registration": "testing", "resolution": 8.0}
    name = "sub-02_task-rest/sub-02_task-rest_atlas-dosenbach160_timeseries.npy"
    target = f"results/small/series/MNI152NLin2009aSym-none/{name}"
    called = run(tmp_path, places, target, config=write_yaml(tmp_path / "config.yaml", keys))
    assert called == {"imaging": PREPROCESSING}
    series = np.load(tmp_path / target)
    assert series.shape == (24, 160) and np.isfinite(series).any()


def test_rules_run_in_the_environments_that_their_files_name(tmp_path, places):
    called = run(tmp_path, places, "folds", config=series_dataset(tmp_path))
    assert len(results(tmp_path, "folds.tsv")) == 1
    assert "index" in called["imaging"] and {"cache", "exclusions", "folds"} <= called["learning"]
    assert not {"cache", "exclusions", "folds"} & called["imaging"] and "index" not in called["learning"]


def test_such_environments_hold_their_pins_and_not_the_package(tmp_path, places):
    """Otherwise the tests above would prove nothing."""
    look = "import importlib.util as u; print([one for one in ('ants', 'torch', 'bolt') if u.find_spec(one)])"
    (tmp_path / "look.py").write_text(look)
    made = {file.read_text(): file.with_suffix("") for file in places[1].glob("*.yaml")}
    for name, holds in {"imaging": ["ants"], "learning": ["torch"]}.items():
        python = made[(ROOT / f"workflow/envs/{name}.yaml").read_text()] / "bin/python"
        env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path)}
        done = subprocess.run([python, "-m", "look"], cwd=tmp_path, env=env, text=True, capture_output=True, check=True)
        assert done.stdout.strip() == str(holds)
