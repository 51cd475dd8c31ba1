"""Images to predict: the workflow is asked for series like the model's."""

from __future__ import annotations

import argparse
import subprocess
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from bolt.cli import run_app
from bolt.cli.predict_source import _check_settings, _wishes, scans_to_predict
from bolt.config import load_config, load_denoise
from bolt.io.errors import DataError
from bolt.io.files import write_json
from bolt.packs.predict import wanted_by
from bolt.packs.sources import Wanted, read_new_scans
from tests.fake_fmriprep import write_fmriprep

SPACE = "MNI152NLin6Asym"
MADE = {"space": SPACE, "made_by": "fMRIPrep", "output": "template", "coverage": 0.4, "preprocessing": None}


@pytest.mark.parametrize("fetch", [False, True])
def test_series_are_made_with_the_settings_of_the_model(tmp_path, monkeypatch, fetch):
    targets = []

    def run(command, env, check):
        targets.append(command[3])
        return subprocess.CompletedProcess(command, int(command[3] == "series"))

    monkeypatch.setattr(run_app.subprocess, "run", run)
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


def test_series_in_native_space_fit_models_of_such_series(tmp_path):
    """Their sidecars state `native`, while the template's space is kept for making more of them."""
    rois = {"value": [1, 2], "name": ["a", "b"]}
    series = MADE | {"output": "native", "denoising": load_denoise("none").model_dump(mode="json")}
    info = {"rois": [1, 2], "classes": ["a", "b"], "model": {"model": "svm", "hyper": {}}}
    member = SimpleNamespace(info=info, shortest=2)
    about = {"series": series, "rois": rois, "atlas": {"name": "toy", "sha256": None}}
    wanted = wanted_by(SimpleNamespace(about=about, estimator=SimpleNamespace(members_=[member])))
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(20, 2)))
    for space, excluded in (("native", 0), (SPACE, 1)):
        write_json({"Space": space, "RepetitionTime": 2.0}, tmp_path / "x.json")
        scans = read_new_scans([tmp_path / "x.npy"], wanted, None, None)
        assert len(scans.excluded) == excluded, scans.excluded
    options = argparse.Namespace(label=None, atlas="dosenbach160")
    wishes = _wishes(options, SimpleNamespace(about=about, classes=None), wanted, tmp_path)
    assert wishes.settings["preprocess"] == {"space": SPACE, "output": "native"}


def test_results_of_another_image_of_the_models_atlas_are_refused(tmp_path):
    variant = tmp_path / "cache/toy/ready"
    scans = SimpleNamespace(cache=SimpleNamespace(index=pd.DataFrame({"scan_id": ["x"]})))
    write_json({"settings": {}}, variant / "manifest.json")
    write_json({"AtlasSHA256": "theirs"}, tmp_path / "series/ready/x/x_atlas-toy_timeseries.json")
    for sha256, refused in (("theirs", False), (None, False), ("ours", True)):
        wanted = Wanted(pd.DataFrame(), "toy", sha256, None, None, 2)
        with pytest.raises(DataError, match="another image of atlas 'toy'") if refused else nullcontext():
            _check_settings(tmp_path, "ready", variant / "manifest.json", scans, wanted)
