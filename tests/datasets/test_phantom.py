"""The phantom is a valid dataset, its truth agrees with the images, and no static method solves its task."""

import filecmp
import os

import nibabel as nib
import numpy as np
import pandas as pd
import pytest
from bids_validator import BIDSValidator
from joblib import parallel_config
from scipy.ndimage import map_coordinates
from scipy.stats import skew
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.svm import SVC

from bolt.config import Config, Simulate, load_dataset
from bolt.datasets import index, phantom
from bolt.datasets.phantom import anatomy, scan
from bolt.datasets.phantom.signal import make_series, patterns, random_stream, rois
from bolt.io.errors import ConfigError, DataError
from bolt.io.files import read_json, read_table
from bolt.truth import Truth
from tests.phantoms import TINY


@pytest.fixture(scope="module", autouse=True)
def coarse_deformations():
    """Write deformations on a coarse grid: the fine one takes as long as all else."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(phantom, "TRUTH_GRID", 8)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("phantom") / "bids"
    with pytest.MonkeyPatch.context() as patch:  # other processes would import everything again
        patch.setattr(phantom, "parallel_config", lambda *_, **__: parallel_config(backend="threading"))
        phantom.simulate(out, TINY, n_jobs=2)
    return out


def truth(folder, name, ending):
    return folder / "derivatives" / "truth" / name / f"{name}_{ending}"


def sample(points_image, points):
    """Interpolate an image of points linearly at world coordinates (n, 3)."""
    voxels = anatomy.transform_points(np.linalg.inv(points_image.affine), points).T
    return np.stack([map_coordinates(c, voxels, order=1) for c in np.moveaxis(points_image.get_fdata(), -1, 0)], -1)


def grey_points():
    """World coordinates of grey matter on the template's 8-mm grid, and which of its voxels they are."""
    maps, affine = anatomy.icbm152(8)
    inside = maps["gm"] > 0.5
    return anatomy.world_coordinates(affine, inside.shape)[inside], inside


def test_processes_do_not_compete_by_threads(tmp_path, monkeypatch):
    def remember(out, settings, person):
        (out / f"{person.name}_threads").write_text(os.environ["OPENBLAS_NUM_THREADS"])

    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "4")  # as the option --threads of the command
    monkeypatch.setattr(phantom, "_write_subject", remember)
    phantom.simulate(tmp_path / "bids", TINY, n_jobs=2)
    assert {path.read_text() for path in (tmp_path / "bids").glob("*_threads")} == {"1"}


# ---- the dataset -----------------------------------------------------------------------------
def test_is_a_valid_dataset_of_which_every_scan_is_indexed(folder):
    files = [p for p in folder.rglob("*") if p.is_file() and "derivatives" not in p.parts]
    names = ["/" + p.relative_to(folder).as_posix() for p in files]
    assert len(names) == 5 - 1 + 4 * TINY.n_subjects
    assert [n for n in names if not BIDSValidator().is_bids(n)] == []
    scans = index(Config(dataset="phantom"), load_dataset("phantom").model_copy(update={"path": folder}))
    assert scans.exclude_reason.isna().all()
    assert sorted(scans.label) == ["control", "control", "patient", "patient"]


def test_headers_and_sidecars_have_geometry_and_timing(folder):
    people = read_table(folder / "participants.tsv")
    for name, site in zip(people.participant_id, people.site, strict=True):
        i = ["north", "south"].index(site)
        bold = nib.load(folder / name / "func" / f"{name}_task-rest_bold.nii.gz")
        assert bold.header["sform_code"] > 0 and bold.header["qform_code"] > 0
        assert bold.header.get_xyzt_units() == ("mm", "sec") and bold.get_data_dtype() == np.int16
        np.testing.assert_allclose(bold.header.get_zooms(), [TINY.bold_resolution[i]] * 3 + [TINY.tr[i]], rtol=1e-5)
        assert bold.shape[3] == TINY.n_volumes[i] and bold.get_fdata().std(-1).max() > 0
        times = read_json(folder / name / "func" / f"{name}_task-rest_bold.json")["SliceTiming"]
        assert len(times) == bold.shape[2] and 0 <= min(times) < max(times) < TINY.tr[i]
        t1w = nib.load(folder / name / "anat" / f"{name}_T1w.nii.gz")
        np.testing.assert_allclose(t1w.header.get_zooms(), TINY.t1w_resolution)


def test_same_settings_same_bytes_for_any_order_and_another_seed_other_data(folder, tmp_path):
    phantom._write_subject(tmp_path, TINY, phantom.subjects(TINY)[1])
    files = [p.relative_to(tmp_path) for p in tmp_path.rglob("*") if p.is_file()]
    assert len(files) == 4 + 11
    assert filecmp.cmpfiles(folder, tmp_path, files, shallow=False)[1:] == ([], [])
    first, second = (make_series(TINY.model_copy(update={"seed": s}), 0, 0, True).values for s in (0, 1))
    assert abs(np.corrcoef(first.ravel(), second.ravel())[0, 1]) < 0.3


def test_only_a_phantom_is_replaced_and_a_failure_leaves_it(tmp_path, monkeypatch):
    out = tmp_path / "bids"
    out.mkdir()
    (out / "thesis.txt").touch()
    with pytest.raises(DataError, match="neither empty nor a phantom"):
        phantom.simulate(out, TINY)
    (out / "derivatives" / "truth").mkdir(parents=True)
    monkeypatch.setattr(phantom, "_write_subject", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        phantom.simulate(out, TINY)
    assert (out / "thesis.txt").exists() and [p.name for p in tmp_path.iterdir()] == ["bids"]
    monkeypatch.setattr(phantom, "_write_subject", lambda *_: None)
    phantom.simulate(out, TINY)
    assert not (out / "thesis.txt").exists() and (out / "participants.tsv").exists()


@pytest.mark.parametrize("n", [2, 4, 8, 24])
def test_classes_are_balanced_over_sites_and_sexes(n):
    table = pd.DataFrame(phantom.subjects(TINY, n))
    assert table.name.is_unique and table.name.is_monotonic_increasing
    for facts in [["positive"], ["positive", "site"], ["positive", "sex"], ["positive", "site", "sex"]]:
        if n % 2 ** len(facts) == 0:
            assert table.groupby(facts).size().tolist() == [n // 2 ** len(facts)] * 2 ** len(facts)


def test_the_shipped_settings_are_the_defaults():
    assert load_dataset("phantom").simulate == Simulate()
    assert load_dataset("phantom").classes == phantom.CLASSES


# ---- heads -----------------------------------------------------------------------------------
def test_affine_registration_is_not_enough_and_nothing_folds():
    points, _ = grey_points()
    corner = nib.affines.from_matvec(np.diag([6.0, 6, 6]), [-80, -110, -70])
    cells = anatomy.world_coordinates(corner, (27, 31, 26))
    for i in range(6):
        warp = anatomy.Warp(Simulate(), i)
        inside = warp.to_subject(points)
        np.testing.assert_allclose(warp.to_template(inside), points, atol=0.05)
        design = np.c_[points, np.ones(len(points))]
        residual = inside - design @ np.linalg.lstsq(design, inside, rcond=None)[0]
        assert np.median(np.linalg.norm(residual, axis=1)) >= 2
        jacobian = np.stack(np.gradient(warp.to_template(cells), 6.0, axis=(0, 1, 2)), axis=-1)
        assert np.linalg.det(jacobian).min() > 0.1
    points = anatomy.HEAD_CENTRE + np.random.default_rng(0).uniform(-anatomy.WORLD / 2, anatomy.WORLD / 2, (100, 3))
    knots = ((points - anatomy.HEAD_CENTRE + anatomy.WORLD / 2) / anatomy.KNOTS).T
    spline = [map_coordinates(one, knots, order=3, prefilter=False) for one in warp._coefficients]
    np.testing.assert_allclose(warp._displacement(points).T, spline, atol=1e-9)
    still = anatomy.Warp(Simulate(warp_mm=0), 0)
    np.testing.assert_allclose(still.to_template(points), anatomy.transform_points(still.affine, points))


def test_template_has_a_shell_of_its_own(folder):
    template = anatomy.head_template(4.0)
    head, brain = template["T1w"].get_fdata(), template["brain_mask"].get_fdata() > 0
    assert template["T1w"].shape == template["gm"].shape
    assert (head[~brain] > 700).sum() > 0.1 * brain.sum()  # scalp
    shells = [nib.load(p).get_fdata() for p in sorted(folder.glob("sub-*/anat/*_T1w.nii.gz"))]
    assert len({round(s.sum()) for s in shells}) == TINY.n_subjects
    with pytest.raises(ConfigError, match="whole millimetres"):
        anatomy.head_template(2.5)


def test_smooth_factor_stays_in_its_range():
    affine = np.diag([8.0, 8, 8, 1])
    affine[:3, 3] = -100
    field = anatomy.smooth_factor(affine, (25, 25, 25), 0.3, np.random.default_rng(0))
    assert 0.7 <= field.min() < 0.95 and 1.05 < field.max() <= 1.3
    assert np.abs(np.diff(field, axis=0)).max() < 0.1


# ---- scans -----------------------------------------------------------------------------------
def test_motion_has_the_configured_size():
    motions = [scan.head_motion(Simulate(), 100, random_stream(Simulate(), i, "motion")) for i in range(24)]
    displacement = np.array([scan.framewise_displacement(m) for m in motions])
    assert 0.17 < displacement.mean() < 0.23
    assert displacement.mean(1).min() > 0.13 and displacement.mean(1).max() < 0.27
    jerky = (displacement > 0.9).sum(1)
    assert jerky.min() >= 1 and np.median(jerky) == 3
    assert displacement.max() < 3
    assert (motions[0][0] == 0).all()
    assert (scan.head_motion(Simulate(motion_fd=0), 50, np.random.default_rng(0)) == 0).all()


def test_heads_turn_around_their_centre_and_slices_are_interleaved():
    matrix = scan.rigid(np.array([1.0, 2, 3, 0, 0, np.pi / 2]))
    np.testing.assert_allclose(anatomy.transform_points(matrix, np.array([0.0, -17, 8])), [1, -15, 11])
    np.testing.assert_allclose(anatomy.transform_points(matrix, np.array([10.0, -17, 8])), [1, -5, 11], atol=1e-12)
    np.testing.assert_allclose(scan.slice_times(5, 2.0), [0, 1.2, 0.4, 1.6, 0.8])


def test_tsnr_is_the_configured_one(tmp_path):
    still = TINY.model_copy(update={"motion_fd": 0.0, "jerks": 0, "signal_percent": 0.0, "tsnr": [50.0, 50.0]})
    phantom._write_subject(tmp_path, still, phantom.subjects(still)[0])
    data = nib.load(next(tmp_path.glob("sub-*/func/*_bold.nii.gz"))).get_fdata()
    series = data[data.mean(-1) > 0.6 * np.percentile(data.mean(-1), 98)]
    volumes = np.linspace(-1, 1, data.shape[-1])
    trend = np.polynomial.polynomial.polyval(volumes, np.polynomial.polynomial.polyfit(volumes, series.T, 2))
    assert 38 < np.median(series.mean(1) / (series - trend).std(1)) < 58


def test_spin_history_follows_motion_across_slices_and_decays():
    motion = np.zeros((6, 6))
    motion[2:, 2] = 2.0  # up by 2 mm at once
    motion[4:, 0] = 3.0  # within the slice: no effect
    history = scan._spin_history(np.zeros((2, 2, 2, 3)), scan.rigid(motion), tr=2.0)
    assert history[0, 0, 0].tolist() == pytest.approx([0, 0, *(2 * np.exp(-2 * np.arange(4) / 1.3))])


def test_slow_physiology_follows_its_share():
    share = np.zeros((10, 10, 10))
    share[:5], share[5:8] = 1, 0.3
    affine = np.diag([20.0, 20.0, 20.0, 1.0])
    waves = scan._slow_waves(affine, share, np.arange(200) * 2.0, Simulate(), 0)
    assert waves[:5].std(-1).mean() == pytest.approx(1, abs=0.3)
    assert waves[5:8].std(-1).mean() == pytest.approx(0.3, abs=0.1)
    assert not waves[8:].any()
    spectrum = (np.abs(np.fft.rfft(waves[:5].reshape(-1, 200))) ** 2).mean(0)
    assert spectrum[np.fft.rfftfreq(200, 2.0) < 0.15].sum() > 0.95 * spectrum.sum()


# ---- truth -----------------------------------------------------------------------------------
def test_written_deformations_are_those_of_the_subject_in_both_directions(folder):
    points, inside = grey_points()
    warp = anatomy.Warp(TINY, 0)
    forth, back = (
        nib.load(truth(folder, "sub-01", f"from-{way}_points.nii.gz")) for way in ("T1w_to-template", "template_to-T1w")
    )
    np.testing.assert_allclose(warp.to_template(back.get_fdata()[inside]), points, atol=0.01)
    everywhere = anatomy.world_coordinates(forth.affine, forth.shape[:3])
    np.testing.assert_allclose(forth.get_fdata(), warp.to_template(everywhere), atol=1e-4)


@pytest.mark.parametrize("number", [0, 1])
def test_truth_finds_the_series_in_the_images(tmp_path, monkeypatch, number):
    """Test all conventions at once: deformation, repositioning, motion, order of ROIs and sampling times."""
    moving = TINY.model_copy(update={"n_subjects": 2, "motion_fd": 2.0, "tsnr": [400.0, 400.0]})
    person, used = phantom.subjects(moving)[number], []
    scan_bold = scan.scan_bold
    monkeypatch.setattr(scan, "scan_bold", lambda *given: used.append(given[2]) or scan_bold(*given))
    phantom._write_subject(tmp_path, moving, person)
    name, centres = person.name, rois()[["x", "y", "z"]].to_numpy(float)
    known = Truth(tmp_path / "derivatives/truth", f"{name}_task-rest")
    np.testing.assert_allclose(used[0], known.motion @ known.t1w_to_bold, atol=1e-9)
    in_bold = anatomy.transform_points(known.t1w_to_bold, sample(known.places, centres))
    bold = nib.load(tmp_path / name / "func" / f"{name}_task-rest_bold.nii.gz")
    volumes = np.moveaxis(bold.get_fdata(), -1, 0)
    true = np.load(known.series)

    def agreement(motion):
        places = [anatomy.transform_points(m, in_bold).T for m in np.linalg.inv(bold.affine) @ motion]
        sampled = [map_coordinates(v, p, order=1) for v, p in zip(volumes, places, strict=True)]
        return np.median([np.corrcoef(a, b)[0, 1] for a, b in zip(np.transpose(sampled), true.T, strict=True)])

    right = agreement(known.motion)
    assert right > 0.7
    assert right > agreement(np.linalg.inv(known.motion)) + 0.1
    assert right > agreement(np.broadcast_to(np.eye(4), known.motion.shape)) + 0.1


def test_tables_of_truth_agree(folder):
    planted = read_table(folder / "derivatives/truth/informative_rois.tsv")
    assert len(planted) == TINY.n_informative and planted["sign"].sum() == 0
    assert set(rois().set_index("value").network[planted.value]) == {"default"}
    people = read_table(folder / "participants.tsv").set_index("participant_id")
    _, without_images = phantom.simulate_series(TINY.n_subjects, TINY)
    for (name, person), made in zip(people.iterrows(), without_images, strict=True):
        sign = 1 if person.diagnosis == "patient" else -1
        events = read_table(truth(folder, name, "task-rest_events.tsv"))
        assert events[events.onset >= 0].kind.value_counts().to_dict() == dict.fromkeys(
            ("event", "decoy"), TINY.n_events
        )
        of_event = events.kind == "event"
        assert (events["sign"] == np.where(of_event, sign, -sign)).all()
        assert (events.context[of_event] == 0).all() and events.context[~of_event].isin([-1, 1]).all()
        landmarks = read_table(truth(folder, name, "task-rest_landmarks.tsv"))
        inside = landmarks.landmark == 1
        assert ((landmarks.response > 0.5) == inside).all()
        series = np.load(truth(folder, name, "task-rest_roiseries.npy"))
        np.testing.assert_array_equal(made.values, series)
        assert len(landmarks) == len(series) == len(read_table(truth(folder, name, "task-rest_motion.tsv")))
        projection = series[:, planted.value - 1] @ planted["sign"].to_numpy() * sign
        assert projection[inside].min() > np.median(projection[~inside])  # decoys have the opposite sign
        assert projection[inside].mean() > 0.5 * Simulate().event_amplitude * TINY.n_informative


# ---- difficulty ----------------------------------------------------------------------
def test_events_alone_separate_the_classes():
    people, series = phantom.simulate_series(200, load_dataset("phantom").simulate)
    y, planted = np.array([p.positive for p in people]), phantom.informative(Simulate())
    for statistic in (np.var, skew):  # of no informative ROI do they separate the classes, in either direction
        values = np.array([statistic(s.values[:, planted.index], axis=0) for s in series])
        areas = np.array([roc_auc_score(y, column) for column in values.T])
        assert np.maximum(areas, 1 - areas).max() <= 0.65

    upper = np.triu_indices(160, 1)  # nor does static connectivity
    connectivity = np.array([np.arctanh(np.corrcoef(s.values.T)[upper]) for s in series])
    folds, linear = StratifiedKFold(5, shuffle=True, random_state=0), connectivity @ connectivity.T
    score = cross_val_predict(SVC(kernel="precomputed"), linear, y, cv=folds, method="decision_function")
    assert roc_auc_score(y, score) <= 0.75

    # but an observer who knows the patterns, and looks when v moves without w, makes no mistake
    v, w = patterns(Simulate())
    scores = []
    for s in series:
        on_v, on_w = s.values @ v / np.abs(v).sum(), s.values @ w / np.abs(w).sum()
        scores.append(on_v[np.argmax(np.abs(on_v) - np.abs(on_w))])
    assert roc_auc_score(y, scores) >= 0.95

    # events are everywhere in a scan alike: with 200 scans, the standard error at each position is 0.026
    occupied = np.mean(
        [np.interp(np.linspace(0, 1, 10), np.linspace(0, 1, len(s.response)), s.landmarks) for s in series], 0
    )
    share = np.mean([s.landmarks.mean() for s in series])
    assert 0.08 < share < 0.25
    assert np.abs(occupied - share).max() < 0.09


def test_background_is_slow_and_ordered_by_network():
    series = [make_series(Simulate(event_amplitude=0), i, i % 2, False) for i in range(40)]
    connectivity = np.mean([np.corrcoef(s.values.T) for s in series], axis=0)
    network = rois().network.to_numpy()
    same = (network[:, None] == network) & ~np.eye(160, dtype=bool)
    assert connectivity[same].mean() > connectivity[network[:, None] != network].mean() + 0.15
    spectrum = (np.abs(np.fft.rfft(series[0].fine, axis=0)) ** 2).mean(1)
    frequency = np.fft.rfftfreq(len(series[0].fine), series[0].step)
    assert spectrum[frequency <= 0.12].sum() > 0.9 * spectrum.sum()
    assert np.mean([s.values.std() for s in series]) == pytest.approx(1, abs=0.05)


# ---- difficult scans -------------------------------------------------------------------------
def test_thick_slices_of_a_part_of_the_head_and_a_single_band_reference_of_more_contrast(tmp_path):
    keys = {"slice_thickness": 12.0, "field_height": 96.0, "distortion_mm": 8.0, "sbref": True}
    phantom._write_subject(tmp_path, TINY.model_copy(update=keys), phantom.subjects(TINY)[0])
    bold, sbref = (nib.load(tmp_path / f"sub-01/func/sub-01_task-rest_{kind}.nii.gz") for kind in ("bold", "sbref"))
    assert bold.shape[2] == 8 and bold.header.get_zooms()[2] == 12
    middle = bold.affine @ [*(np.array(bold.shape[:3]) - 1) / 2, 1]
    np.testing.assert_allclose(middle[:3], anatomy.HEAD_CENTRE)
    assert sbref.shape == bold.shape[:3] and np.array_equal(sbref.affine, bold.affine)
    mean, reference = bold.get_fdata().mean(-1), sbref.get_fdata()
    inside = mean > 0.3 * mean.max()
    assert np.corrcoef(mean[inside], reference[inside])[0, 1] > 0.6
    spread = [values[inside].std() / values[inside].mean() for values in (mean, reference)]
    assert spread[1] > 1.15 * spread[0]  # both also vary by the coils


def test_distortion_shifts_and_darkens_what_lies_above_a_source_alone():
    warp = anatomy.Warp(TINY, 0)
    head = anatomy.make_head(TINY, 0, warp)
    seen = anatomy.distorted(head, warp, 8.0)
    assert np.array_equal(seen.t1w, head.t1w)
    assert abs(head.t1w[0, 0, 0]) < 1e-3  # air
    places = warp.to_template(anatomy.world_coordinates(head.affine, head.t1w.shape))
    distance = np.min([np.linalg.norm(places - source, axis=-1) for source in anatomy.SOURCES], axis=0)
    np.testing.assert_allclose(seen.epi[distance > 60], head.epi[distance > 60], atol=0.01)
    assert seen.epi[distance < 8].mean() < 0.4 * head.epi[distance < 8].mean()
    # half the largest shift about 14 mm from a source: the profile there fits best when moved forwards by as much
    ring = (np.abs(distance - 14) < 3) & (head.activity > 0)
    size = head.affine[1, 1]
    lags = np.arange(-3, 4)
    r = [np.corrcoef(np.roll(head.epi, lag, axis=1)[ring], seen.epi[ring])[0, 1] for lag in lags]
    assert 1 < lags[np.argmax(r)] * size < 8
