"""The listing of what is computed sees every change of content, and none of the place or the container."""

import shutil

import nibabel as nib
import numpy as np
import pytest
from safetensors.numpy import save_file

from bolt.io.files import read_table
from tests.golden.__main__ import differences, main


@pytest.fixture
def made(tmp_path):
    """A part's files, in two places."""
    for name in ("one", "other"):
        part = tmp_path / name / "demo"
        (part / "results").mkdir(parents=True)
        np.save(part / "results/series.npy", np.arange(6.0))
        save_file({"weight": np.ones(3, np.float32)}, part / "results/checkpoint.safetensors")
        nib.save(nib.Nifti1Image(np.zeros((2, 2, 2)), np.eye(4)), part / "results/mask.nii.gz")
        (part / "results/table.tsv").write_text(f"path\n{part}/bids\n")
        (part / "results/page.html").write_text(f"<style>a{{}}</style><p>{name == 'never'}</p><script>1</script>")
        (part / "results/provenance.json").write_text(name)
    return tmp_path / "one", tmp_path / "other"


def test_places_and_what_tells_of_a_run_do_not_count(made):
    assert differences(*made) == []


@pytest.mark.parametrize(
    ("name", "change", "expected"),
    [
        ("series.npy", lambda path: np.save(path, np.arange(6.0) + 1e-12), "series.npy"),
        ("checkpoint.safetensors", lambda path: save_file({"weight": np.zeros(3, np.float32)}, path), "weight"),
        ("mask.nii.gz", lambda path: nib.save(nib.Nifti1Image(np.ones((2, 2, 2)), np.eye(4)), path), "image"),
        ("table.tsv", lambda path: path.write_text("path\nelsewhere\n"), "table.tsv"),
        ("page.html", lambda path: path.write_text("<p>True</p>"), "page.html text"),
        ("table.tsv", lambda path: path.unlink(), "table.tsv"),
    ],
)
def test_a_change_is_seen(made, name, change, expected):
    change(made[1] / "demo/results" / name)
    (found,) = differences(*made)
    assert found.startswith(f"demo/results/{name}") and found.endswith(expected)


@pytest.mark.slow
def test_the_python_api_computes_the_same_twice(tmp_path):
    for name in ("one", "other"):
        main([str(tmp_path / name), "--parts", "api"])
    assert len(read_table(tmp_path / "one/golden.tsv")) == 4 and differences(tmp_path / "one", tmp_path / "other") == []
    shutil.copy(tmp_path / "one/api/svm.npy", tmp_path / "one/api/lstm.npy")
    assert differences(tmp_path / "one", tmp_path / "other") == ["api/lstm.npy"]
