"""An installed wheel does what a clone does, from an empty folder: commands, configuration, workflow.

docs/environments.md shows how to install it.
"""

import os
import re
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import nbformat
import nibabel as nib
import numpy as np
import pytest

from bolt.atlases.description import known_atlases
from bolt.config import ROOT, known
from bolt.io.files import read_json, read_table, read_yaml, write_yaml
from bolt.io.places import PACKAGE
from bolt.models.compiled.build import file_name, find_compiler
from tests.atlases.test_atlases import GRID, write_own

pytestmark = pytest.mark.slow
PIP = (sys.executable, "-m", "pip", "--quiet")
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
SMALL = {"n_subjects": 2, "t1w_resolution": 6.0, "bold_resolution": [12.0, 12.0], "n_volumes": [24, 24]}
SDIST = "import sys; from setuptools import build_meta; print(build_meta.build_sdist(sys.argv[1]))"


@dataclass
class Installed:
    """A virtual environment that holds the wheel, and the test environment's packages without its `bolt`."""

    python: Path
    package: Path
    here: Path
    """An empty folder to work in."""

    def run(self, *words: object, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run Python with these arguments."""
        command = [str(self.python), *map(str, words)]
        return subprocess.run(command, cwd=self.here, env=ENVIRONMENT | variables, capture_output=True, text=True)

    def bolt(self, *words: object) -> str:
        """What a `bolt` command prints."""
        done = self.run(self.python.with_name("bolt"), *words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def snakemake(self, *words: object) -> subprocess.CompletedProcess[str]:
        return self.run("-m", "snakemake", "--snakefile", self.package / "_project/Snakefile", *words)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel of this clone."""
    out = tmp_path_factory.mktemp("wheel")
    build = (*PIP, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", out)
    subprocess.run([*build, ROOT], cwd=out, env=ENVIRONMENT, check=True)
    (path,) = out.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    folder = tmp_path_factory.mktemp("installed")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    python = folder / "venv/bin/python"
    (packages,) = (folder / "venv/lib").glob("python*/site-packages")
    # a path in a .pth file is searched, but the .pth files in it (of an editable installation, say) are not read
    (packages / "dependencies.pth").write_text("\n".join(path for path in sys.path if "site-packages" in path))
    install = (*PIP, "--python", python, "install", "--no-deps", "--no-index", wheel)
    subprocess.run(install, env=ENVIRONMENT, check=True)
    (folder / "here").mkdir()
    return Installed(python, packages / "bolt", folder / "here")


def files(folder: Path, pattern: str = "*") -> set[str]:
    """Paths of files below a folder that a wheel should hold, relative to the clone."""
    found = (path.relative_to(ROOT) for path in folder.rglob(pattern) if path.is_file())
    return {str(path) for path in found if "__pycache__" not in path.parts and not path.name.startswith(".")}


def contents(wheel: Path) -> set[str]:
    names = zipfile.ZipFile(wheel).namelist()
    return {name for name in names if ".dist-info/" not in name and not name.endswith("/")}


def test_a_wheel_holds_all_that_a_clone_reads_also_when_made_from_an_sdist(wheel, tmp_path):
    """And no image of an atlas that was downloaded into the clone."""
    atlases = set().union(*(files(ROOT / "atlases", name) for name in ("atlas.yaml", "labels.tsv", "labels.json")))
    profiles = {name.removeprefix("workflow/") for name in files(ROOT / "workflow/profiles")}
    project = {"Snakefile", *files(ROOT / "config"), *files(ROOT / "workflow"), *atlases, *profiles}
    library = {f"bolt/models/compiled/{file_name()}"} if find_compiler() else set()
    assert contents(wheel) == files(PACKAGE) | {f"bolt/_project/{name}" for name in project} | library

    done = subprocess.run([sys.executable, "-c", SDIST, tmp_path], cwd=ROOT, capture_output=True, text=True, check=True)
    sdist = tmp_path / done.stdout.splitlines()[-1]
    build = (*PIP, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", tmp_path, sdist)
    subprocess.run(build, env=ENVIRONMENT, check=True)
    assert contents(tmp_path / wheel.name) == contents(wheel)


USED = """
import logging, torch
logging.basicConfig(level="INFO")
from bolt.models.compiled.library import library
from bolt.models.bolt import BolT
BolT(5, 2, hidden=12, n_heads=2, head_dim=6, n_blocks=2)(torch.randn(2, 40, 5)).logits.sum().backward()
print(library().library._name)
"""


@pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler")
def test_the_wheels_library_computes_attention_without_a_compiler_or_a_cache(wheel, installed, tmp_path):
    assert "-py3-none-" in wheel.name and not wheel.name.endswith("-any.whl")
    nowhere = {"PATH": str(tmp_path), "CXX": "", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = installed.run("-c", USED, **nowhere)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(installed.package / "models/compiled" / file_name())
    assert not list(tmp_path.rglob("*.so"))


def test_without_a_compiler_the_wheel_is_for_any_platform(tmp_path):
    build_wheel = (*PIP, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", tmp_path, ROOT)
    subprocess.run(build_wheel, cwd=tmp_path, env=ENVIRONMENT | {"PATH": str(tmp_path), "CXX": ""}, check=True)
    (pure,) = tmp_path.glob("*.whl")
    assert pure.name.endswith("-py3-none-any.whl")
    assert not [name for name in contents(pure) if name.endswith(".so")]


def test_commands_find_configuration_and_atlases(installed):
    assert installed.run("-c", "import bolt; print(bolt.__file__)").stdout.strip() == f"{installed.package}/__init__.py"
    assert installed.bolt("where").strip() == f"{installed.package}/_project"
    for command, names in (("models", known("model")), ("atlases", known_atlases())):
        table = installed.bolt(command)
        assert all(f"\n{name}: " in f"\n{table}" for name in names)
    assert list(installed.here.iterdir()) == []


def test_an_image_is_parcellated(installed, tmp_path):
    atlas, image = write_own(tmp_path / "own"), tmp_path / "sub-01_space-MNI152NLin6Asym_bold.nii.gz"
    data = np.random.default_rng(0).normal(1000, 50, (9, 9, 9, 12)).astype(np.float32)
    nib.save(nib.Nifti1Image(data, GRID), image)
    installed.bolt("parcellate", image, "--atlas", atlas, "--tr", 2, "--out", tmp_path / "series.npy")
    assert np.load(tmp_path / "series.npy").shape == (12, 3)
    facts = read_json(tmp_path / "series_provenance.json")
    assert (facts["commit"], facts["changed"]) == (None, None)


def test_the_phantoms_workflow_is_planned_with_the_default_profile(installed):
    done = installed.snakemake("--dry-run", "--configfile", installed.package / "_project/config/config.yaml")
    assert done.returncode == 0, done.stderr
    assert f"workflow specific profile {installed.package}/_project/profiles/default" in done.stderr
    assert "A complete run: 24 scans" in done.stderr + done.stdout


def test_jobs_run_the_wheels_code_on_a_users_own_files(installed):
    """A small phantom is made and indexed; its dataset is found by name, in a folder beside the configuration."""
    study = installed.here.parent / "study"
    shipped = read_yaml(ROOT / "config/datasets/phantom.yaml")
    simulated = shipped["simulate"] | SMALL
    write_yaml(shipped | {"path": "bids", "crop": 20, "simulate": simulated}, study / "datasets/small.yaml")
    config = read_yaml(ROOT / "config/config.yaml") | {"dataset": "small", "folds": {"outer": 2}}
    write_yaml(config, study / "config.yaml")
    done = installed.snakemake("--configfile", study / "config.yaml", "--cores", 2, "results/small/scans.tsv")
    assert done.returncode == 0, done.stderr
    assert read_yaml(installed.here / "results/small/config.yaml")["dataset"] == str(study / "datasets/small.yaml")
    assert len(read_table(installed.here / "results/small/scans.tsv")) == 2
    # jobs import the package, and nothing of what is installed beside it
    code = installed.here / "work/small/code"
    assert [path.resolve() for path in code.iterdir()] == [installed.package]


def test_the_phantoms_bids_folder_is_run(installed):
    """As a BIDS App, from a folder without configuration; the data are those of the test above."""
    bids, out = installed.here.parent / "study" / "bids", installed.here / "app"
    bids = bids if bids.is_dir() else installed.here / "bids"
    options = ["--atlas", "dosenbach160", "--space", "MNI152NLin2009aSym", "--n-cpus", "2", "--set"]
    options += ["preprocess.registration=testing", "preprocess.resolution=8.0", "explain.sanity.draws=0"]
    subject = read_table(bids / "participants.tsv")["participant_id"][0]
    said = installed.run(
        installed.python.with_name("bolt"), "run", bids, out, "participant", "--participant-label", subject, *options
    )
    assert said.returncode == 0, said.stderr[-3000:]
    (series,) = out.rglob("*_atlas-dosenbach160_timeseries.npy")
    assert np.load(series).shape[1] == 160


EXECUTE = """
import sys, nbformat
from nbclient import NotebookClient
notebook = nbformat.read(sys.argv[1], 4)
NotebookClient(notebook, timeout=900, kernel_name="python3").execute()
nbformat.write(notebook, sys.argv[2])
"""


@pytest.mark.parametrize("path", sorted((ROOT / "docs/examples").glob("*.ipynb")), ids=lambda path: path.stem)
def test_notebooks_run_and_find_what_is_stored(installed, path):
    out = installed.here.parent / path.name
    inline = "module://matplotlib_inline.backend_inline"  # tests draw without a display
    done = installed.run("-c", EXECUTE, path, out, OMP_NUM_THREADS="1", MPLBACKEND=inline)
    assert done.returncode == 0, done.stderr[-3000:]
    stored, executed = (nbformat.read(place, 4) for place in (path, out))
    kinds = [[[o["output_type"] for o in c.get("outputs", [])] for c in nb.cells] for nb in (stored, executed)]
    assert kinds[0] == kinds[1]
    numbers = [[float(n) for n in re.findall(r"\d+\.\d+", printed(nb))] for nb in (stored, executed)]
    assert numbers[0] and numbers[1] == pytest.approx(numbers[0], abs=0.06)


def printed(notebook) -> str:
    return "".join(o.get("text", "") for cell in notebook.cells for o in cell.get("outputs", []))


def test_copies_are_not_mixed(installed):
    """The wheel's Snakefile with the clone's package, and a job that the wheel planned with the clone's package."""
    snakefile = ("--snakefile", str(installed.package / "_project/Snakefile"))
    clone = ENVIRONMENT | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "snakemake", *snakefile, "--dry-run"]
    done = subprocess.run(command, cwd=installed.here, env=clone, capture_output=True, text=True)
    assert done.returncode != 0
    assert f"bolt: {installed.package}/_project/Snakefile: not the Snakefile of the BolT that snakemake" in done.stderr

    job = clone | {"BOLT_PACKAGE": str(installed.package)}
    command = [sys.executable, "-m", "bolt", "where"]
    done = subprocess.run(command, cwd=installed.here, env=job, capture_output=True, text=True)
    assert done.returncode == 2 and str(installed.package) in done.stderr
