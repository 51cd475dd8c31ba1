"""The pages of `docs/` that tell how to do something are followed to the letter."""

import re
import shlex

import nibabel as nib
import numpy as np
import pytest
from nilearn import datasets
from sklearn.utils import Bunch

from bolt.atlases.image import load_atlas
from bolt.cli.main import main
from bolt.config import ROOT, Config
from bolt.io.files import read_table
from docs.generate import HERE, PAGES
from tests.series.test_parcellate import save


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / "docs" / page).read_text(), re.DOTALL)


def test_an_atlas_made_as_the_page_says_works(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BOLT_ATLAS_DIR", raising=False)
    folder = tmp_path / "my_atlases" / "motor"
    folder.mkdir(parents=True)
    (table,), (description,), (command,) = (blocks("atlases.md", kind) for kind in ("tsv", "yaml", "bash"))
    (folder / "labels.tsv").write_text(table)
    (folder / "atlas.yaml").write_text(description)
    labels = np.zeros((8, 8, 8), np.int16)
    labels[1:3, 2:6, 2:6], labels[3:5, 2:6, 2:6], labels[5:7, 2:6, 2:6] = 12, 13, 700
    affine = np.diag([2.0, 2, 2, 1])
    nib.save(nib.Nifti1Image(labels, affine), folder / "motor.nii.gz")
    program, *words = shlex.split(command)
    data = np.random.default_rng(0).normal(100, 5, (8, 8, 8, 6)).astype(np.float32)
    save(tmp_path / words[1], data, affine)
    assert program == "bolt"
    assert main(words) == 0
    assert np.load("series.npy").shape == (6, 3)
    coverage = read_table("series_coverage.tsv")
    assert coverage.name.tolist() == ["Hand_L", "Hand_R", "SMA"]
    assert coverage.covered.tolist() == [1, 1, 1]
    named = re.search(r"`atlases: \[(.*?)\]`", (ROOT / "docs/atlases.md").read_text())[1].split(", ")
    assert Config(dataset="phantom", atlases=named).atlas_places["motor"] == "my_atlases/motor"


def test_msdl_as_the_page_fetches_it(tmp_path, monkeypatch):
    """With an atlas of nilearn's form in place of the download."""
    monkeypatch.chdir(tmp_path)
    maps = np.random.default_rng(0).random((4, 4, 4, 39)).astype(np.float32)
    nib.save(nib.Nifti1Image(maps, np.diag([4.0, 4, 4, 1])), tmp_path / "msdl.nii")
    names = [f"region {k}" for k in range(39)]
    fetched = Bunch(maps=str(tmp_path / "msdl.nii"), labels=names, networks=["Aud"] * 39)
    monkeypatch.setattr(datasets, "fetch_atlas_msdl", lambda: fetched)
    (program,) = blocks("atlases.md", "python")
    exec(program, {})  # a page of the project
    atlas = load_atlas("my_atlases/msdl")
    assert atlas.is_maps and atlas.labels["name"].tolist() == names and set(atlas.labels["network"]) == {"Aud"}


@pytest.mark.parametrize("page", PAGES)
def test_the_reference_says_what_the_code_says(page):
    assert (HERE / f"{page}.md").read_text() == "\n".join(PAGES[page]()) + "\n", "run `make reference`"
