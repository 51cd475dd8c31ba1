"""Which configuration a command reads."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import pytest

from bolt.config import ROOT
from bolt.io.errors import DataError
from bolt.workflow.job import CONFIG, Job


def job(config: Path | None = None) -> Job:
    return Job(Namespace(stage="index", config=config))


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_without_a_configuration_the_one_that_comes_with_bolt_is_read(folder):
    here = job()
    assert here.config_file == ROOT / "config/config.yaml"
    assert here.config.dataset == here.dataset.name == "phantom"


def test_the_working_folders_own_configuration_comes_first(folder):
    CONFIG.parent.mkdir()
    CONFIG.write_text("{dataset: phantom, atlases: [cc200]}")
    here = job()
    assert here.config_file == CONFIG
    assert here.config.atlases == ["cc200"]


def test_a_given_configuration_must_exist(folder):
    given = folder / "my_study.yaml"
    with pytest.raises(DataError, match="my_study.yaml: file not found"):
        job(given)
    given.write_text("{dataset: phantom, atlases: [aal116]}")
    assert job(given).config.atlases == ["aal116"]
