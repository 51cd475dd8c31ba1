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


def test_without_a_configuration_the_one_that_comes_with_bolt_is_read_unless_the_folder_has_its_own(here):
    shipped = job()
    assert shipped.config_file == ROOT / "config/config.yaml"
    assert shipped.config.dataset == shipped.dataset.name == "phantom"
    CONFIG.parent.mkdir()
    CONFIG.write_text("{dataset: phantom, atlases: [cc200]}")
    assert job().config_file == CONFIG and job().config.atlases == ["cc200"]


def test_a_given_configuration_must_exist(here):
    given = here / "my_study.yaml"
    with pytest.raises(DataError, match="my_study.yaml: file not found"):
        job(given)
    given.write_text("{dataset: phantom, atlases: [aal116]}")
    assert job(given).config.atlases == ["aal116"]
