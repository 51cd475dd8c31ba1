"""The notebooks in docs/examples have their outputs stored for readers; `test_wheel` executes them."""

from __future__ import annotations

import re

import nbformat
import pytest

from bolt.io.places import ROOT

NOTEBOOKS = sorted((ROOT / "docs" / "examples").glob("*.ipynb"))


def outputs(notebook):
    return [output for cell in notebook.cells for output in cell.get("outputs", [])]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_are_stored_without_warnings(path):
    notebook = nbformat.read(path, 4)
    nbformat.validate(notebook)
    assert any("image/png" in output.get("data", {}) for output in outputs(notebook)), "make notebooks"
    assert not [output for output in outputs(notebook) if output.get("name") == "stderr"]
    assert not re.search(r"/(home|root|tmp|work)/", nbformat.writes(notebook))
