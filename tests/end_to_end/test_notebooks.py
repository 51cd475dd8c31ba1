"""The notebooks in docs/examples: executed, with their outputs stored for readers."""

from __future__ import annotations

import os
import re

import nbformat
import pytest
from nbclient import NotebookClient

from bolt.io.places import ROOT

NOTEBOOKS = sorted((ROOT / "docs" / "examples").glob("*.ipynb"))


def outputs(notebook):
    return [output for cell in notebook.cells for output in cell.get("outputs", [])]


def text(notebook):
    return "".join(output.get("text", "") for output in outputs(notebook))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_are_stored_without_warnings(path):
    notebook = nbformat.read(path, 4)
    nbformat.validate(notebook)
    assert any("image/png" in output.get("data", {}) for output in outputs(notebook)), "make notebooks"
    assert not [output for output in outputs(notebook) if output.get("name") == "stderr"]
    assert not re.search(r"/(home|root|tmp|work)/", nbformat.writes(notebook))


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_they_run_and_find_what_is_stored(path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    stored = nbformat.read(path, 4)
    executed = NotebookClient(nbformat.read(path, 4), timeout=600, kernel_name="python3").execute()
    kinds = [[output["output_type"] for output in cell.get("outputs", [])] for cell in executed.cells]
    assert kinds == [[output["output_type"] for output in cell.get("outputs", [])] for cell in stored.cells]
    numbers, expected = (re.findall(r"\d+\.\d+", text(notebook)) for notebook in (executed, stored))
    assert [float(n) for n in numbers] == pytest.approx([float(n) for n in expected], abs=0.06)
