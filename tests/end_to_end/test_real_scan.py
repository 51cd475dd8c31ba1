"""A person's raw 3T scan, from the scanner's files to ROI series that follow the task.

Registration is judged by evidence that no brain mask can bring about, and against affine alone.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
from nilearn.glm.contrasts import compute_contrast
from nilearn.glm.first_level import make_first_level_design_matrix, run_glm

from benchmarks.registration import affine_alone, evidence
from bolt.atlases.image import load_atlas
from bolt.cohort.quality import failed_cutoffs
from bolt.config import Quality, load_denoise, load_registration
from bolt.config.derivatives import anatomical_names
from bolt.io.files import read_json, read_table
from bolt.preprocess import images, registration
from bolt.preprocess.anatomical import preprocess_anatomical
from bolt.preprocess.functional import workflow as functional
from bolt.preprocess.functional.confounds import MOTION
from bolt.preprocess.functional.workflow import functional_names, preprocess_functional
from bolt.preprocess.quality.compute import coregistration_numbers
from bolt.preprocess.steps import Step
from bolt.preprocess.templates import stage_template
from bolt.series.native_space import Transforms, parcellate_native
from bolt.series.parcellate import Parcellated, parcellate
from bolt.truth import correlation
from tests.shared import shared_data

pytestmark = pytest.mark.slow

SPACE = "MNI152NLin6Asym"
SCAN = "sub-02_task-oneback_run-01"
COREGISTRATION = functional_names(SCAN, SPACE)["bold_to_t1w"]
TR = 2.0
NAMES = {"scan_id": SCAN, "prefix": "sub-02_", "tr": TR}
STEPS = {"make_reference", "estimate_motion", "coregister"}
"""Steps that come before resampling, whatever the space of the output."""
NETWORKS = {"Vis", "SomMot", "DorsAttn", "SalVentAttn", "Limbic", "Cont", "Default"}


class Real(NamedTuple):
    bold: Path
    func: Path
    anat: Path
    template: Path
    events: pd.DataFrame
    confounds: pd.DataFrame
    rois: dict[str, Parcellated]
    networks: pd.Series
    steps: dict[str, dict[str, Any]]
    """Outputs of `STEPS`."""


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
    with pytest.MonkeyPatch.context() as patch:
        steps = recorded_steps(patch)
        preprocess_functional(bold, anat, template, SPACE, 2.0, settings, func, out / "work" / "func", **NAMES)
    names = functional_names(SCAN, SPACE)
    atlases = [load_atlas(name, atlas_dir=atlas_dir) for name in ("schaefer400", "aal116")]
    rois = parcellate(func / names["bold"], atlases, mask=func / names["mask"], denoise=load_denoise("none"), tr=TR)
    events, table = pd.read_csv(bold.with_name(f"{SCAN}_events.tsv"), sep="\t"), read_table(func / names["confounds"])
    return Real(bold, func, anat, template, events, table, rois, atlases[0].labels["network"], steps)


def recorded_steps(patch: pytest.MonkeyPatch) -> dict[str, dict[str, Any]]:
    """Record the outputs of `STEPS`, and keep their files."""
    outputs: dict[str, dict[str, Any]] = {}

    def recorded(step, runtime, run=Step._run_interface):
        runtime = run(step, runtime)
        if step.function.__name__ in STEPS:
            outputs[step.function.__name__] = dict(step._results)
        return runtime

    patch.setattr(Step, "_run_interface", recorded)
    patch.setattr(functional, "shutil", SimpleNamespace(rmtree=lambda _: None))
    return outputs


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
    assert failed_cutoffs(anatomical | functional, Quality()) == []


def test_normalisation_is_better_than_affine_alone(real, tmp_path):
    """By grey matter in the cortex's labels, by the ventricles, and by brightness within the brain."""
    load_atlas("schaefer400", atlas_dir=shared_data("atlases")).image.to_filename(tmp_path / "atlas.nii.gz")
    paths = {port: real.anat / name for port, name in anatomical_names("sub-02_", SPACE).items()}
    found = evidence(paths, real.template, tmp_path / "atlas.nii.gz")
    affine = affine_alone(real.anat, real.template, SPACE, "sub-02_", tmp_path)
    before = evidence(paths | {"forward": affine}, real.template, tmp_path / "atlas.nii.gz")
    gain = pd.Series(found) - pd.Series(before)
    least = pd.Series({"gm_in_atlas": 0.03, "ventricle_dice": 0.05, "template_correlation": 0.08})
    assert (gain[least.index] > least).all(), (found, before)


@pytest.fixture(scope="module")
def fit(real) -> list[images.Image]:
    """What the fit of BOLD and T1w is judged by: both images, each with its mask."""
    names, made = anatomical_names("sub-02_", SPACE), real.steps["make_reference"]
    paths = [made["native_reference"], made["native_mask"], *(real.anat / names[port] for port in ("t1w", "mask"))]
    return [images.read(path) for path in paths]


def test_a_scan_in_the_wrong_place_is_flagged(real, fit):
    """10 mm off after registration."""
    settings, matrix = load_registration("fast"), images.read_matrix(real.func / COREGISTRATION)
    numbers = coregistration_numbers(*fit, matrix, settings)
    assert failed_cutoffs(numbers, Quality()) == [], numbers
    matrix[2, 3] += 10.0  # along the head, where the field is cut off anyway
    numbers = coregistration_numbers(*fit, matrix, settings)
    assert any("10-mm shift" in reason for reason in failed_cutoffs(numbers, Quality())), numbers


def test_a_scan_the_wrong_way_round_is_flagged(fit):
    """Left and right exchanged in the BOLD, its header unchanged; registered anew, as the pipeline would."""
    settings = load_registration("fast")
    flipped = [image.new_image_like(np.ascontiguousarray(image.numpy()[::-1])) for image in fit[:2]]
    reference = registration.bias_correct(flipped[0], settings)
    matrix = registration.coregister(reference, flipped[1], *fit[2:], settings)
    numbers = coregistration_numbers(reference, flipped[1], *fit[2:], matrix, settings)
    assert any("mirror" in reason for reason in failed_cutoffs(numbers, Quality())), numbers


def test_the_scans_own_voxels_give_the_same_series(real, tmp_path, monkeypatch):
    settings, anat = load_registration("fast"), anatomical_names("sub-02_", SPACE)
    assert set(real.steps) == STEPS

    def replayed(step, runtime, run=Step._run_interface):
        if step.function.__name__ not in STEPS:
            return run(step, runtime)
        step._results.update(real.steps[step.function.__name__])
        return runtime

    monkeypatch.setattr(Step, "_run_interface", replayed)
    places = (tmp_path / "func", tmp_path / "work")
    given = (real.bold, real.anat, real.template, SPACE, 2.0, settings, *places)
    preprocess_functional(*given, **NAMES, output="native")
    made = {port: tmp_path / "func" / name for port, name in functional_names(SCAN, SPACE, "native").items()}
    assert not list((tmp_path / "func").glob("*desc-preproc_bold.nii.gz"))
    made |= {port: real.anat / anat[port] for port in ("forward", "inverse")}
    known = Transforms(**{port: made[port] for port in Transforms.__dataclass_fields__})
    atlas = load_atlas("schaefer400", atlas_dir=shared_data("atlases"))
    keys = {"space": SPACE, "denoise": load_denoise("none"), "tr": TR, "threshold": 0.5, "slice_timing": True}
    native = parcellate_native(real.bold, [atlas], known, **keys)["schaefer400"].series
    r = correlation(native, real.rois["schaefer400"].series)
    assert np.nanmedian(r) > 0.9 and np.isfinite(r).mean() > 0.98, np.nanquantile(r, [0.01, 0.05, 0.5])


def test_all_of_schaefer_is_covered_but_for_what_lost_its_signal(real):
    """Orbitofrontal cortex and the temporal poles, above air; with another registration some more or less."""
    coverage = real.rois["schaefer400"].coverage
    lost = coverage[coverage["covered"] == 0]
    assert len(coverage) == 400 and 3 <= len(lost) <= 12
    assert lost["name"].str.contains("OFC|Temp").all(), sorted(lost["name"])
    assert {"LH_Limbic_TempPole_4", "RH_Limbic_OFC_3"} <= set(lost["name"])
    assert lost["tsnr"].max() < 30 < coverage["tsnr"].median()
    acquired = coverage["inside"] * (1 - coverage["n_masked"] / coverage["n_voxels"])
    assert acquired.min() >= 0.5
    assert (np.isfinite(real.rois["schaefer400"].series).all(axis=0) == (coverage["covered"] == 1)).all()


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
