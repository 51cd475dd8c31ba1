"""The pages of `docs/` that tell how to do something are followed to the letter."""

import re
import shlex
import subprocess
import sys

import nibabel as nib
import numpy as np
import pytest
import torch
from nilearn import datasets
from sklearn.utils import Bunch

from bolt.atlases.image import load_atlas
from bolt.cli.main import main, make_parser
from bolt.config import ROOT, Config
from bolt.io.files import read_table
from docs.generate import HERE, PAGES
from tests.fake_fmriprep import AFFINE, SHAPE, write_fmriprep
from tests.series.test_parcellate import save

PAGES_WITH_COMMANDS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
NOT_RUN = {f"needs {what}" for what in ("your data", "the network", "a cluster", "a GPU", "an AMD processor", "conda")}
NOT_RUN |= {"needs containers", "takes days", "an excerpt of the code", "shows what is installed"}


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / "docs" / page).read_text(), re.DOTALL)


@pytest.mark.parametrize("page", PAGES_WITH_COMMANDS, ids=lambda page: page.name)
def test_every_block_of_commands_is_run_or_says_why_not(page):
    text = page.read_text()
    for block in re.finditer(r"^```(\S*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        if block[1] not in ("", "bash", "sh", "python"):
            continue
        mark = re.search(r"<!-- (run by|not run:) (.+) -->\n$", text[: block.start()])
        assert mark, f"{page.name}: no mark above {block[2].splitlines()[0]!r}"
        if mark[1] == "run by":
            assert page.stem in (ROOT / mark[2]).read_text(), f"{mark[2]} does not name {page.name}"
        else:
            assert mark[2] in NOT_RUN


@pytest.mark.parametrize("page", PAGES_WITH_COMMANDS, ids=lambda page: page.name)
def test_every_command_exists_with_its_options(page, capsys):
    made = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for block in re.findall(r"```(?:bash|sh)\n(.*?)```", page.read_text(), re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            for command in re.split(r" && |; ", line.split("  #")[0].split(" # ")[0]):
                if command.startswith("make "):
                    assert {word for word in command.split()[1:] if "=" not in word} <= made
                if command.startswith("bolt "):
                    try:
                        make_parser().parse_args(shlex.split(command)[1:])
                    except SystemExit:
                        pytest.fail(f"{command}: {capsys.readouterr().err}")


def test_the_python_page_runs(tmp_path, monkeypatch):
    """With few short scans of few ROIs, a small model and two folds."""
    monkeypatch.chdir(tmp_path)
    smaller = {"epochs=20": "epochs=1, n_blocks=1", '"bolt_small")': '"bolt_small", epochs=1)', "KFold(5)": "KFold(2)"}
    random = np.random.default_rng(0)
    scans = [random.standard_normal((40, 8)).astype(np.float32) for _ in range(20)]
    paths = [f"{number}.npy" for number in range(20)]
    for path, scan in zip(paths, scans, strict=True):
        np.save(path, scan)
    y, subjects = np.array(["a", "b"] * 10), np.arange(20).astype(str)
    names = {"paths": paths, "y": y, "subjects": subjects, "new": scans[:4], "y_new": y[:4]}
    for block in blocks("python.md", "python"):
        for words, fewer in smaller.items():
            block = block.replace(words, fewer)
        exec(block, names)
    assert names["clf"].classes_.tolist() == ["a", "b"]


def test_the_model_of_the_page_runs():
    (program,) = blocks("bolt.md", "python")
    names = {"x": torch.randn(2, 120, 400)}
    exec(program.replace("n_classes=2", "n_classes=2, n_blocks=1"), names)
    assert names["output"].logits.shape == (2, 2)


def test_the_masker_of_the_recipes_makes_a_table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    derivatives = write_fmriprep(tmp_path / "fmriprep", n_subjects=2, n_volumes=4)
    (tmp_path / "fmriprep/participants.tsv").rename("participants.tsv")
    labels = np.zeros(SHAPE, np.int16)
    labels[8:14, 10:20, 10:20], labels[16:22, 10:20, 10:20] = 1, 2
    nib.save(nib.Nifti1Image(labels, AFFINE), "atlas.nii.gz")
    (program,) = blocks("how_to.md", "python")
    exec(program, {})
    table = read_table("scans.tsv", text=("subject", "diagnosis"))
    assert table.diagnosis.tolist() == ["control", "patient"] and derivatives.is_dir()
    assert all(np.load(file).shape == (4, 2) for file in table.file)


@pytest.mark.slow
def test_the_fmriprep_page_starts(tmp_path):
    """Its dry run, on small images."""
    write_fmriprep(tmp_path / "study", n_subjects=10)
    commands = [block for block in blocks("start_fmriprep.md", "bash") if block.startswith("bolt")]
    for command in commands:
        words = shlex.split(command.replace("\\\n", " "))
        words += ["--set", "folds.outer=5"]
        done = subprocess.run([sys.executable, "-m", *words], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0 and "10 scans" in done.stdout + done.stderr, done.stdout + done.stderr


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


@pytest.mark.parametrize("page", PAGES_WITH_COMMANDS, ids=lambda page: page.stem)
def test_no_line_is_lost_as_a_comment(page):
    """A line that begins with a percent sign is a comment of MyST, and missing from the site."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
    assert not re.findall(r"^% .*", text, re.M)
