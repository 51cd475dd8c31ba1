"""A person's raw 3T scan, from the scanner's files to ROI series that follow the task."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
from nilearn.glm.contrasts import compute_contrast
from nilearn.glm.first_level import make_first_level_design_matrix, run_glm

from bolt.atlases import load_atlas
from bolt.config import load_denoise, load_registration
from bolt.files import read_json, read_table
from bolt.parcellate import Parcellated, parcellate
from bolt.preprocess.anatomical import preprocess_anatomical
from bolt.preprocess.confounds import MOTION
from bolt.preprocess.functional import functional_names, preprocess_functional
from bolt.templates import stage_template
from tests.shared import shared_data

pytestmark = pytest.mark.slow

SPACE = "MNI152NLin6Asym"
SCAN = "sub-02_task-oneback_run-01"
TR = 2.0
NETWORKS = {"Vis", "SomMot", "DorsAttn", "SalVentAttn", "Limbic", "Cont", "Default"}


class Real(NamedTuple):
    func: Path
    anat: Path
    events: pd.DataFrame
    confounds: pd.DataFrame
    rois: dict[str, Parcellated]
    networks: pd.Series


@pytest.fixture(scope="module")
def real(tmp_path_factory) -> Real:
    raw, home, atlas_dir = (shared_data(name) for name in ("bids_real", "templateflow", "atlases"))
    out = tmp_path_factory.mktemp("real")
    anat, func, template = out / "sub-02" / "anat", out / "sub-02" / "func", out / "template"
    settings = load_registration("fast")
    stage_template(SPACE, 2.0, template, home)
    t1w = raw / "sub-02" / "anat" / "sub-02_T1w.nii.gz"
    preprocess_anatomical(t1w, template, SPACE, settings, anat, out / "work" / "anat", prefix="sub-02_")
    bold = raw / "sub-02" / "func" / f"{SCAN}_bold.nii.gz"
    preprocess_functional(
        bold, anat, template, SPACE, 2.0, settings, func, out / "work" / "func", scan_id=SCAN, prefix="sub-02_", tr=TR
    )
    names = functional_names(SCAN, SPACE)
    atlases = [load_atlas(name, atlas_dir=atlas_dir) for name in ("schaefer400", "aal116")]
    rois = parcellate(func / names["bold"], atlases, mask=func / names["mask"], denoise=load_denoise("none"), tr=TR)
    return Real(
        func,
        anat,
        pd.read_csv(bold.with_name(f"{SCAN}_events.tsv"), sep="\t"),
        read_table(func / names["confounds"]),
        rois,
        atlases[0].labels["network"],
    )


def largest_t(real: Real, shift: float = 0.0) -> pd.Series:
    """Largest t of each network's ROIs for all pictures against rest, events moved by `shift` seconds."""
    events = real.events[["onset", "duration"]].assign(trial_type="picture")
    events["onset"] += shift
    motion = real.confounds[list(MOTION)].to_numpy()
    frames = np.arange(len(motion)) * TR
    design = make_first_level_design_matrix(frames, events, add_regs=motion, high_pass=1 / 128)
    series = real.rois["schaefer400"].series
    labels, results = run_glm(series.astype(float), design.to_numpy(), noise_model="ar1")
    weights = np.array([column == "picture" for column in design.columns], dtype=float)
    t = compute_contrast(labels, results, weights, stat_type="t").stat()
    return pd.Series(t).groupby(real.networks.to_numpy()).max()


def test_registration_is_good(real):
    anatomical = read_json(real.anat / "sub-02_desc-quality.json")
    functional = read_json(real.func / f"{SCAN}_desc-quality.json")
    assert anatomical["template_mask_dice"] > 0.95
    assert anatomical["template_correlation"] > 0.65
    assert functional["coregistration_mask_dice"] > 0.90
    assert 50 < functional["median_tsnr"] < 120
    assert 0.05 < functional["mean_fd"] < 0.25


def test_all_of_schaefer_is_covered(real):
    coverage = real.rois["schaefer400"].coverage
    assert len(coverage) == 400
    assert coverage["coverage"].min() >= 0.5
    assert np.isfinite(real.rois["schaefer400"].series).all()


def test_only_the_lower_cerebellum_is_cut_off(real):
    coverage = real.rois["aal116"].coverage
    below = coverage[coverage["coverage"] < 0.5]
    assert 8 <= len(below) <= 16, sorted(below["name"])
    assert below["name"].str.contains("Cerebel|Vermis").all(), sorted(below["name"])


def test_the_visual_network_follows_the_pictures(real):
    block = 16.0
    t = largest_t(real)
    assert set(t.index) == NETWORKS
    assert t.idxmax() == "Vis", t
    assert t["Vis"] > largest_t(real, shift=block / 2)["Vis"]
