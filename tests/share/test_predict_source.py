"""Images to predict: the workflow is asked for series like the model's."""

from __future__ import annotations

import argparse
import subprocess
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest

from bolt.cli import run_app
from bolt.cli.predict import scans_to_predict, wishes_of
from bolt.config import load_config, load_denoise
from bolt.io.errors import DataError
from bolt.io.files import write_json
from bolt.share.models import Pack
from bolt.share.predict import read_new_scans, require_image
from tests.fake_fmriprep import write_fmriprep

SPACE = "MNI152NLin6Asym"
MADE = {"space": SPACE, "made_by": "fMRIPrep", "output": "template", "coverage": 0.4, "preprocessing": None}


def described(atlas, denoising, classes=None, sha256=None, **series):
    """A pack of one model of two ROIs."""
    made = MADE | {"denoising": load_denoise(denoising).model_dump(mode="json")} | series
    about = {"series": made, "rois": {"value": [1, 2], "name": ["a", "b"]}, "atlas": {"name": atlas, "sha256": sha256}}
    member = SimpleNamespace(info={"rois": [1, 2], "classes": classes}, shortest=2)
    return Pack(SimpleNamespace(members_=[member]), about)


@pytest.mark.parametrize("fetch", [False, True])
def test_series_are_made_with_the_settings_of_the_model(tmp_path, monkeypatch, fetch):
    targets = []

    def run(command, env, check):
        targets.append(command[3])
        return subprocess.CompletedProcess(command, int(command[3] == "series"))

    monkeypatch.setattr(run_app.subprocess, "run", run)
    pack = described("dosenbach160", "24p", ["control", "patient"])
    source = [write_fmriprep(tmp_path / "study", n_subjects=2)]
    given = {"source": source, "label": None, "atlas": None, "out": tmp_path / "new.tsv", "model": tmp_path}
    options = argparse.Namespace(**given, work_dir=None, n_cpus=1, fetch=fetch, tr=None)
    with pytest.raises(DataError, match="could not be made.*the same command resumes"):
        scans_to_predict(options, pack)
    assert targets == (["resources", "series"] if fetch else ["series"])
    config = load_config(tmp_path / "new_work/new.yaml")
    assert (config.atlases, config.denoise, config.parcellate.coverage) == (["dosenbach160"], "24p", 0.4)


def test_series_in_native_space_fit_models_of_such_series(tmp_path):
    """Their sidecars state `native`, while the template's space is kept for making more of them."""
    pack = described("toy", "none", output="native")
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(20, 2)))
    for space, excluded in (("native", 0), (SPACE, 1)):
        write_json({"Space": space, "RepetitionTime": 2.0}, tmp_path / "x.json")
        scans = read_new_scans([tmp_path / "x.npy"], pack, None, None)
        assert len(scans.excluded) == excluded, scans.excluded
    wishes = wishes_of(argparse.Namespace(label=None, atlas="dosenbach160"), pack, tmp_path)
    assert wishes.settings["preprocess"] == {"space": SPACE, "output": "native"}


def test_results_of_another_image_of_the_models_atlas_are_refused(tmp_path):
    write_json({"AtlasSHA256": "theirs"}, tmp_path / "x/x_atlas-toy_timeseries.json")
    for sha256, refused in (("theirs", False), (None, False), ("ours", True)):
        pack = described("toy", "none", sha256=sha256)
        with pytest.raises(DataError, match="another image of atlas 'toy'") if refused else nullcontext():
            require_image(tmp_path, ["x"], pack)
