"""Only the demo's evaluation opens the truth, and its measures know right from wrong."""

import re
from math import comb

import nibabel as nib
import numpy as np
import pandas as pd
import pytest

from bolt import truth
from bolt.config import ROOT, Config, Model, Range, load_dataset
from bolt.config.layout import ORACLE, Layout
from bolt.explain.regions import ROI_COLUMNS
from bolt.explain.weights import read_importance, write_importance
from bolt.io.files import write_json, write_status, write_table
from bolt.preprocess import images

LENGTH, SCANS, FOLDS = 60, 12, 3
MODEL = Model(name="tiny", model="bolt")
CENTRE = np.array([3.0, -20.0, 11.0])


@pytest.fixture
def layout(tmp_path):
    return Layout(Config(dataset="own", paths={"results": tmp_path, "work": tmp_path}))


def test_nobody_else_knows_where_the_truth_lies():
    """The simulator writes it, the layout names it, `bolt/truth/__init__.py` reads it."""
    allowed = {"bolt/datasets/phantom/__init__.py", "bolt/config/layout.py", "bolt/truth/__init__.py"}
    mentions = re.compile(
        r"derivatives/truth|layout\.truth\(|TRUTH\b|bolt\.truth import|import bolt\.truth|bolt import .*\btruth\b"
    )
    found = {
        str(path.relative_to(ROOT)): lines
        for path in sorted((ROOT / "bolt").rglob("*.py"))
        if (lines := [line for line in path.read_text().splitlines() if mentions.search(line)])
    }
    lines = found.pop("bolt/workflow/stages/series.py") + found.pop("bolt/workflow/stages/report.py")
    imports = [line for line in lines if "from bolt.truth import" in line]
    (hashed,) = (line for line in lines if line not in imports)  # what the oracle's cache was made of
    assert len(imports) == 2 and "layout.truth(" in hashed
    (simulated,) = found.pop("bolt/workflow/stages/dataset.py")  # the simulator notes there what made it
    assert "provenance.json" in simulated
    assert set(found) <= allowed


def test_only_the_rules_of_truth_smk_run_what_opens_it():
    for path in sorted((ROOT / "workflow/rules").glob("*.smk")):
        commands = set(re.findall(r"python -m bolt ([\w-]+)", path.read_text()))
        assert bool(commands & {"truth", "oracle-cache"}) == (path.name == "truth.smk"), path.name
        assert ("ORACLE" in path.read_text()) == (path.name == "truth.smk"), path.name


def test_a_value_out_of_range_or_missing_has_not_passed():
    low, both, high = Range(low=0.8), Range(low=0.4, high=0.6), Range(high=2.0)
    values = (0.9, low), (0.55, both), (0.7, low), (np.nan, low), (2.1, high), (2.1, Range())
    passed = [truth._row("m", truth.Measure(value, "mm"), expected)["passed"] for value, expected in values]
    assert passed == ["true", "true", "false", "false", "false", None]


def test_true_landmarks_are_rows_of_the_series(layout):
    """Of volumes 0 to 9 the first three and the sixth were dropped."""
    kept = {"NumberOfVolumes": 10, "NumberOfVolumesKept": 6, "KeptVolumes": [3, 4, 6, 7, 8, 9]}
    write_json(kept, layout.series_file("a", "x").with_suffix(".json"))
    write_json({"NumberOfVolumes": 10}, layout.series_file("b", "x").with_suffix(".json"))
    marks = np.isin(np.arange(10), [2, 4, 5, 6])
    rows = truth._landmark_rows({"a": marks, "b": marks}, layout, "x")
    assert rows.volume[rows.scan_id == "a"].tolist() == [1, 2]
    assert rows.volume[rows.scan_id == "b"].tolist() == [2, 4, 5, 6]


def planted_run(layout: Layout, *, told: bool) -> dict[str, np.ndarray]:
    """Importance of three folds' scans; of test scans it lies on each scan's events (`told`), or at one place for all.

    Training scans' importance says the opposite, so that a measure which reads it fails.
    """
    random = np.random.default_rng(0)
    names = [f"s{i:02d}" for i in range(SCANS)]
    marks = {scan: np.isin(np.arange(LENGTH), random.choice(LENGTH, 6, replace=False)) for scan in names}
    bump = np.exp(-((np.arange(LENGTH) - 20) ** 2) / 50)  # a shape that all scans share
    for scan in names:
        write_json({"NumberOfVolumes": LENGTH}, layout.series_file(scan, "x").with_suffix(".json"))
    for fold in range(FOLDS):
        roles = ["test" if i % FOLDS == fold else "train" for i in range(SCANS)]
        weights = [
            bump + 0.3 * random.uniform(size=LENGTH) + (2.0 * told if role == "test" else -2.0) * marks[scan]
            for scan, role in zip(names, roles, strict=True)
        ]
        for variant in (None, ORACLE):
            folder = layout.run("x", MODEL, 0, variant).fold(fold)
            write_importance(pd.DataFrame({"scan_id": names, "role": roles, "predicted": "a"}), weights, folder)
            write_status(folder / "status.json", "ok", "train")
    return marks


@pytest.mark.parametrize("told", [True, False])
def test_importance_of_test_scans_is_compared_with_what_position_says(layout, told):
    """Importance that lies on the events ranks them; of a shape that all scans share, position alone says as much."""
    marks = planted_run(layout, told=told)
    found = truth._landmarks(marks, layout, layout.run("x", MODEL, 0), range(FOLDS))
    own, alone = found["landmark AUC"], found["landmark AUC of position alone"]
    expected = load_dataset("phantom").expected
    assert (truth._row("", own, expected["landmark AUC"])["passed"] == "true") == told
    assert own.null == alone.value and alone.null == 0.5
    assert truth._row("", alone, expected["landmark AUC of position alone"])["passed"] == "true"
    assert own.value - alone.value > 0.3 if told else abs(own.value - alone.value) < 0.1


def test_position_alone_ranks_marks_that_all_scans_share_though_one_scan_has_no_weight(layout):
    marks = planted_run(layout, told=False)  # importance is that of one place, volume 20, for all
    folder = layout.run("x", MODEL, 0).fold(0)
    table, weights = read_importance(folder)
    weights[0] = np.zeros(LENGTH)  # a test scan of fold 0
    write_importance(table[["scan_id", "role", "predicted"]], weights, folder)
    same = np.abs(np.arange(LENGTH) - 20) < 4
    found = truth._landmarks(dict.fromkeys(marks, same), layout, layout.run("x", MODEL, 0), range(FOLDS))
    assert found["landmark AUC of position alone"].value > 0.95
    assert 0.9 < found["landmark AUC"].value < 1


@pytest.mark.parametrize(("hits", "passed"), [(8, "true"), (1, "false")])
def test_selected_regions_are_judged_against_regions_drawn_at_random(layout, hits, passed):
    """160 ROIs of which 30 are planted; eight are selected."""
    chosen = [*range(1, 1 + hits), *range(100, 108 - hits)]
    table = pd.DataFrame({"value": range(1, 161)}).assign(**{c: 0 for c in ROI_COLUMNS if c != "value"})
    table["selected"] = table["value"].isin(chosen)
    for variant in (None, ORACLE):
        file = layout.run("x", MODEL, 0, variant).explanation / "roi_weights.tsv"
        write_table(table[list(ROI_COLUMNS)], file, ROI_COLUMNS)
    measure = truth._regions(layout.run("x", MODEL, 0), set(range(1, 31)))
    assert truth._row("", measure, load_dataset("phantom").expected["planted ROIs, p"])["passed"] == passed
    assert hits < 8 or measure.value == pytest.approx(comb(30, 8) / comb(160, 8))  # all of them


def walk(n: int = 12) -> np.ndarray:
    rng = np.random.default_rng(0)
    rows = np.cumsum(rng.normal(0, [0.3] * 3 + [0.005] * 3, (n, 6)), axis=0)
    return np.stack([images.rigid_matrix(row - rows[0], CENTRE) for row in rows])


def test_a_wrong_position_is_as_wrong_as_it_is_and_the_reference_is_forgiven():
    true, found = walk(), walk()
    found[4] = found[4] @ images.rigid_matrix(np.array([0.3, 0, -0.4, 0, np.radians(2), 0]), CENTRE)
    other = images.rigid_matrix(np.array([0.5, -0.2, 0.4, 0.01, 0, -0.02]), CENTRE)
    expected = np.zeros((2, len(true), 3))
    expected[:, 4] = [0.3, 0, -0.4], [0, 2, 0]
    np.testing.assert_allclose(truth.position_errors(found, true, CENTRE), expected, atol=1e-9)
    np.testing.assert_allclose(truth.position_errors(true @ other, true, CENTRE), 0, atol=1e-9)
    assert truth.sphere_error(true @ other, true, CENTRE) < 1e-9
    shifted = true.copy()
    shifted[1::2, 0, 3] += 2.0  # every other volume is off
    assert truth.sphere_error(shifted, true, CENTRE) == pytest.approx(1.0)


def test_normalisation_error_of_a_known_shift(tmp_path):
    affine = np.diag([4.0, 4.0, 4.0, 1.0])
    places = images.apply(affine, np.moveaxis(np.indices((12, 12, 12)), 0, -1).astype(float))
    true = nib.Nifti1Image(places + np.array([3.0, 0, 4.0]), affine)
    grey = nib.Nifti1Image(np.pad(np.ones((6, 6, 6)), 3), affine)
    shift = np.eye(4)
    shift[:3, 3] = [3.0, 0, 0]
    images.write_matrix(shift, tmp_path / "shift.mat")
    found = truth.normalisation_error(true, grey, tmp_path / "shift.mat")
    assert found == pytest.approx((4, 4, 5), abs=1e-3)  # of the transform, of its affine part, of none


def test_correlation_is_that_of_numpy_and_nan_for_constants():
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((40, 3)), rng.standard_normal((40, 3))
    a[:, 2] = 1
    found = truth.correlation(a, b)
    assert found[0] == pytest.approx(np.corrcoef(a[:, 0], b[:, 0])[0, 1])
    assert np.isnan(found[2])


def test_coregistration_is_judged_in_the_volumes_whatever_volume_is_the_reference():
    true_motion = walk(5)
    true = images.rigid_matrix(np.array([3.0, -2, 1, 0.05, 0, 0]), np.zeros(3))
    to_reference = true_motion[2] @ true  # the third volume is the reference
    positions = true_motion @ np.linalg.inv(true_motion[2])
    assert truth.coregistration_error(to_reference, positions, true, true_motion, CENTRE) == pytest.approx(0, abs=1e-9)
    wrong = images.rigid_matrix(np.array([0, 1.5, 0, 0, 0, 0]), np.zeros(3)) @ to_reference
    assert truth.coregistration_error(wrong, positions, true, true_motion, CENTRE) == pytest.approx(1.5)
