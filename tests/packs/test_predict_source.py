"""Images to predict: the workflow is asked for series like the model's."""

from __future__ import annotations

import argparse
import subprocess
from types import SimpleNamespace

import pandas as pd
import pytest

from bolt.cli import predict_source
from bolt.cli.predict_source import scans_to_predict
from bolt.config import load_config, load_denoise
from bolt.io.errors import DataError
from bolt.packs.sources import Wanted
from tests.fake_fmriprep import write_fmriprep

SPACE = "MNI152NLin6Asym"
MADE = {"space": SPACE, "made_by": "fMRIPrep", "output": "template", "coverage": 0.4, "preprocessing": None}


@pytest.mark.parametrize("fetch", [False, True])
def test_series_are_made_with_the_settings_of_the_model(tmp_path, monkeypatch, fetch):
    targets = []

    def run(command, check):
        targets.append(command[3])
        return subprocess.CompletedProcess(command, int(command[3] == "series"))

    monkeypatch.setattr(predict_source.subprocess, "run", run)
    series = MADE | {"denoising": load_denoise("24p").model_dump(mode="json")}
    pack = SimpleNamespace(about={"series": series}, classes=["control", "patient"])
    rois = pd.DataFrame({"value": [1], "name": ["a"]})
    wanted = Wanted(rois, "dosenbach160", None, SPACE, "24p", 2)
    source = [write_fmriprep(tmp_path / "study", n_subjects=2)]
    given = {"source": source, "label": None, "atlas": None, "out": tmp_path / "new.tsv", "model": tmp_path}
    options = argparse.Namespace(**given, work_dir=None, n_cpus=1, fetch=fetch, tr=None)
    with pytest.raises(DataError, match="could not be made.*the same command resumes"):
        scans_to_predict(options, pack, wanted)
    assert targets == (["resources", "series"] if fetch else ["series"])
    config = load_config(tmp_path / "new_work/new.yaml")
    assert (config.atlases, config.denoise, config.parcellate.coverage) == (["dosenbach160"], "24p", 0.4)
