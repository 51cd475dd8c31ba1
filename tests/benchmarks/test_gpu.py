"""The benchmark of GPUs, on a CPU at a tiny size: every measurement and check is made."""

import subprocess
import sys

import pytest

from bolt.config import ROOT, known, load_model
from bolt.io.files import read_table
from bolt.models.registry import has_epochs
from tests.shared import SHARED


@pytest.mark.slow
def test_everything_is_measured_and_checked(tmp_path):
    series = SHARED / "data/abide1/cc200_nofilt_noglobal_871.npz"
    options = ["--device", "cpu", "--tiny", "--out", tmp_path / "gpu.tsv"]
    options += ["--abide", series] if series.is_file() else []
    subprocess.run([sys.executable, "-m", "benchmarks.gpu", *options], check=True, cwd=ROOT)
    table = read_table(tmp_path / "gpu.tsv")
    of = table.groupby("measure")
    assert of.get_group("training step")["precision"].tolist() == ["float32", "tf32", "bfloat16", "float32"]
    assert set(of.get_group("largest difference of gradients")["size"]) == {
        name for name in known("model") if has_epochs(load_model(name).model)
    }
    assert {"prediction", "relevance of one scan", "folds one by one", "folds side by side"} <= set(of.groups)
    of_abide = {"folds, start to last file", "AUC of test scans", "correlation with the CPU's probabilities"}
    assert of_abide <= set(of.groups) or not series.is_file()
    assert (
        len(of.get_group("folds side by side, same weights")) == 3
        and len(of.get_group("a step never waits for the host")) == 3
    )
    assert {"killed and resumed, same weights"} <= set(of.groups)
    assert table["value"].notna().all() and table["failed"].isna().all()
