"""Atlases are looked for in no folder of the user's."""

import pytest


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    """An empty TemplateFlow home, and no folder of atlases."""
    monkeypatch.delenv("BOLT_ATLAS_DIR", raising=False)
    monkeypatch.setenv("TEMPLATEFLOW_HOME", str(tmp_path / "home"))
    return tmp_path / "home"
