"""The functions of the package: they agree with the commands, and refuse what these refuse."""

from __future__ import annotations

import subprocess
import sys

import matplotlib as mpl
import nibabel as nib
import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import GroupKFold, KFold

import bolt
from bolt.config import Folds, Simulate
from bolt.datasets.phantom import simulate_series
from bolt.evaluate.metrics import write_metrics
from bolt.explain.relevance import relevance
from bolt.folds.splits import make_folds
from bolt.io.errors import BoltWarning, ConfigError, DataError, LeakError
from bolt.io.files import read_json, write_json, write_yaml
from bolt.models.bolt import from_reference
from tests.evaluate.test_paired import made_up
from tests.experiments.test_results import write_run
from tests.share.test_estimators import LABELS, SERIES, small

PEOPLE = np.arange(24) // 2
BY_PERSON = np.array(["a", "b"])[PEOPLE % 2]


def test_import_paths_that_are_promised():
    for function, module in ((from_reference, "bolt.models.bolt"), (relevance, "bolt.explain.relevance")):
        assert function.__module__ == module, "imported from elsewhere, it would move with that module"


def test_folds_are_the_workflows():
    names = [f"{i:08d}" for i in range(24)]
    scans = pd.DataFrame({"scan_id": names, "subject": PEOPLE.astype(str), "label": BY_PERSON, "site": ""})
    scans = scans.assign(group=scans["subject"])
    expected = make_folds(scans, Folds(outer=3, validation=0.2, seed=4))
    folds = bolt.folds(BY_PERSON, PEOPLE, outer=3, validation=0.2, seed=4)
    for number, fold in enumerate(folds):
        rows = expected[expected["fold"] == number]
        for role, positions in fold._asdict().items():
            assert [int(scan) for scan in rows["scan_id"][rows["role"] == role]] == positions.tolist()
    assert sorted(np.concatenate([fold.test for fold in folds])) == list(range(24))
    bolt.check_leaks(folds, PEOPLE)


def test_folds_of_numbers_and_sites():
    numbers = bolt.folds(np.linspace(20, 60, 24), outer=3)
    assert sorted(np.concatenate([fold.test for fold in numbers])) == list(range(24))
    sites = np.repeat(["A", "B", "C"], 8)
    by_site = bolt.folds(np.tile(["a", "b"], 12), sites=sites, outer=3, scheme="leave-site-out")
    assert [set(sites[fold.test]) for fold in by_site] == [{"A"}, {"B"}, {"C"}]
    with pytest.raises(DataError, match=r"sites have shape \(3,\) for 24 scans"):
        bolt.folds(LABELS, sites=["A", "B", "C"])
    with pytest.raises(DataError, match="only one class"):
        bolt.folds(["a"] * 24)
    for labels in (["a", None, "b"] * 4, [["a"], ["b"]] * 6, ["a", "a ", "b"] * 4):
        with pytest.raises(DataError, match="labels"):
            bolt.folds(labels, outer=2)
    with pytest.raises(ConfigError, match="outer"):
        bolt.folds(LABELS, outer=1)


def test_leaks_are_found():
    naive = list(KFold(3, shuffle=True, random_state=0).split(SERIES))
    frame = pd.DataFrame(SERIES[0], columns=list("abcdef"))
    bolt.check_leaks(naive)
    bolt.check_leaks(GroupKFold(3).split(PEOPLE, groups=PEOPLE), groups=PEOPLE)  # an iterator
    for folds, about, message in (
        (iter(naive), {"groups": PEOPLE}, "group '.*' is in test and train of fold 0"),
        (naive, {"sites": ["A"] * 24}, "site 'A'"),
        ([(np.arange(6), np.arange(5, 10))], {}, "scan_id '00000005'"),
        (
            [(np.arange(23), [23])],
            {"series": [*SERIES[:23], 3 * SERIES[0] + 1]},
            "series '00000000' and '00000023' is in test and train",
        ),
        # the same ROIs in another order
        ([([0], [1])], {"series": [frame, frame[list("fedcba")]]}, "series '00000000' and '00000001'"),
    ):
        with pytest.raises(LeakError, match=message):
            bolt.check_leaks(folds, **about)
    for refused, about, message in (
        ([], {}, "no folds"),
        ([(np.arange(6),)], {"groups": PEOPLE}, "fold 0: 1 parts"),
        ([(np.arange(6), [24])], {"groups": PEOPLE}, "test part of fold 0 is not positions of 24 scans"),
        ([([0, 1], [2])], {"groups": [1, 2, 3], "series": [np.ones((9, 2))]}, "3 and 1 scans"),
        ([([0], [1])], {"series": [frame, frame.rename(columns={"f": "g"})]}, "columns of other names than the first"),
        ([([0], [1])], {"series": [frame.rename(columns={"f": "e"})] * 2}, "columns of other names than the first"),
    ):
        with pytest.raises(DataError, match=message):
            bolt.check_leaks(refused, **about)


@pytest.fixture(scope="module")
def models():
    return [small(seed=seed).fit(SERIES, LABELS) for seed in (0, 1)]


def test_explain_z_scores_the_scan_and_explains_the_predicted_class_or_another(models):
    """What it finds, and that it is what `bolt explain` finds: tests/share/test_one_scan.py."""
    model, scan = models[0], SERIES[2]
    explained, scaled = (bolt.explain(model, values, n_landmarks=3) for values in (scan, 5 * scan))
    assert explained.target == model.predict([scan])[0] and len(explained.landmarks) == 3
    np.testing.assert_allclose(scaled.contributions, explained.contributions, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(explained.importance, model.importance(scan), rtol=1e-6)
    np.testing.assert_allclose(explained.probabilities, model.predict_proba([scan])[0], rtol=1e-6)
    assert explained.importance.shape == (len(scan),) and explained.importance.min() >= 0
    other = ({"a", "b"} - {explained.target}).pop()
    against = bolt.explain(model, scan, other, n_landmarks=3)
    assert against.target == other and not np.allclose(against.contributions, explained.contributions)
    np.testing.assert_array_equal(model.importance(scan, explained.target), model.importance(scan))
    assert not np.array_equal(model.importance(scan, other), model.importance(scan))
    with pytest.raises(ConfigError, match="no such class. Its classes: a, b"):
        model.importance(scan, "c")
    with pytest.raises(ConfigError, match="n_landmarks is 0"):
        bolt.explain(model, scan, n_landmarks=0)


def test_explain_averages_over_members(models):
    one, other = models
    both = small().set_params()
    both.members_, both.classes_, both.n_features_in_ = [*one.members_, *other.members_], one.classes_, 6
    target = both.predict(SERIES[:1])[0]
    expected = (one.importance(SERIES[0], target) + other.importance(SERIES[0], target)) / 2
    np.testing.assert_allclose(both.importance(SERIES[0]), expected, rtol=1e-6)
    explained = bolt.explain(both, SERIES[0])
    np.testing.assert_array_equal(explained.landmarks, np.argsort(-expected, kind="stable")[:5])
    averaged = (one.predict_proba(SERIES) + other.predict_proba(SERIES)) / 2
    np.testing.assert_allclose(both.predict_proba(SERIES), averaged)


def test_parcellate_averages_images_on_disk_and_in_memory(tmp_path):
    """A scan in MNI space, and an atlas of three ROIs of which one is outside the scan."""
    random, affine = np.random.default_rng(0), np.diag([4.0, 4, 4, 1])
    values = random.normal(100, 1, (6, 6, 6, 20)).astype(np.float32)
    bold = nib.Nifti1Image(values, affine)
    bold.header.set_zooms((4, 4, 4, 2.0))
    bold.header.set_xyzt_units("mm", "sec")
    labels = np.zeros((6, 6, 9), np.int16)
    labels[:2, :, :6], labels[3:, :, :6], labels[:, :, 7:] = 1, 2, 3
    atlas = tmp_path / "tpl-MNI152NLin6Asym_atlas-Toy_dseg.nii.gz"
    nib.save(nib.Nifti1Image(labels, affine), atlas)
    path = tmp_path / "sub-1_space-MNI152NLin6Asym_bold.nii.gz"
    nib.save(bold, path)
    with pytest.warns(BoltWarning, match="1 ROIs are not covered, NaN"):
        series = bolt.parcellate(path, atlas)
    assert series.shape == (20, 3) and series.dtype == np.float32 and np.isnan(series[:, 2]).all()
    for column, value in enumerate((1, 2)):
        np.testing.assert_allclose(series[:, column], values[labels[:, :, :6] == value].mean(axis=0), rtol=1e-6)
    with pytest.warns(BoltWarning):
        np.testing.assert_array_equal(bolt.parcellate(bold, atlas, space="MNI152NLin6Asym"), series)
    confounds = pd.DataFrame({"x": np.linspace(-1, 1, 20)})
    with pytest.warns(BoltWarning):
        cleaned = bolt.parcellate(path, atlas, confounds=confounds)
    assert abs(np.corrcoef(cleaned[:, 0], confounds["x"])[0, 1]) < 1e-5
    with pytest.raises(ConfigError, match="reads no confounds"):
        bolt.parcellate(path, atlas, confounds=confounds, denoise="none")
    with pytest.raises(DataError, match="not an image"):
        bolt.parcellate(values, atlas)


def test_parcellate_reads_space_and_repetition_time_of_the_images_name(tmp_path, monkeypatch):
    """An atlas with an image in each of two spaces, whose labels are swapped; scans in the second."""
    affine, halves = np.diag([4.0, 4, 4, 1]), np.repeat([1, 2], 3)[:, None, None] * np.ones((6, 6, 6), np.int16)
    for name, labels in (("a", halves), ("b", halves[::-1])):
        nib.save(nib.Nifti1Image(labels.astype(np.int16), affine), tmp_path / f"{name}.nii.gz")
    images = {"MNI152NLin6Asym": {"file": "a.nii.gz"}, "MNI152NLin2009cAsym": {"file": "b.nii.gz"}}
    write_yaml({"name": tmp_path.name, "images": images}, tmp_path / "atlas.yaml")
    (tmp_path / "labels.tsv").write_text("value\tname\tnetwork\themisphere\n1\tx\tn/a\tn/a\n2\ty\tn/a\tn/a\n")
    values = np.random.default_rng(0).normal(100, 1, (6, 6, 6, 20)).astype(np.float32)
    bold = nib.Nifti1Image(values, affine)
    path = tmp_path / "sub-1_space-MNI152NLin2009cAsym_bold.nii.gz"
    nib.save(bold, path)
    write_json({"RepetitionTime": 2.0}, tmp_path / "sub-1_space-MNI152NLin2009cAsym_bold.json")
    unnamed = {"space": "MNI152NLin2009cAsym", "tr": 2.0}
    for image, options in ((path, {}), (nib.load(path), {}), (bold, unnamed)):
        series = bolt.parcellate(image, tmp_path, **options)
        np.testing.assert_allclose(series[:, 0], values[3:].mean(axis=(0, 1, 2)), rtol=1e-6)


def test_the_plot_shows_the_weights():
    mpl.use("agg")
    weights = np.array([1.0, 2, 3, 4, 5, 6, 7])
    axis = bolt.plot_importance(weights, tr=2.0, n_landmarks=2)
    line = axis.get_lines()[0]
    np.testing.assert_allclose(line.get_xdata(), 2.0 * np.arange(7))
    np.testing.assert_allclose(line.get_ydata(), weights / 4)
    assert axis.get_xlabel() == "time (s)" and len(axis.patches) == 2
    _, given = mpl.pyplot.subplots()
    assert bolt.plot_importance(weights, ax=given) is given and given.get_xlabel() == "volume"
    mpl.pyplot.close("all")
    with pytest.raises(DataError, match=r"shape \(2, 2\)"):
        bolt.plot_importance(np.ones((2, 2)))


def test_simulated_series_are_the_phantoms():
    data, other = bolt.simulate(8, seed=1), bolt.simulate(8, seed=2)
    people, expected = simulate_series(8, Simulate(n_subjects=8, seed=1))
    for values, scan in zip(data.series, expected, strict=True):
        np.testing.assert_array_equal(values, scan.values)
    assert not all(np.array_equal(*pair) for pair in zip(data.series, other.series, strict=True))
    assert (data.y == "patient").tolist() == [person.positive for person in people]
    assert [len(marks) for marks in data.landmarks] == [len(values) for values in data.series]
    assert sorted(set(data.tr)) == [2.0, 2.2] and len(data.rois) == data.series[0].shape[1] == 160
    assert (data.rois["sign"] != 0).sum() == 30 and set(data.rois["network"][data.rois["sign"] != 0]) == {"default"}
    with pytest.raises(ConfigError, match="n_subjects"):
        bolt.simulate(1)


def test_import_is_lazy():
    code = (
        "import sys, bolt; heavy = {'torch', 'sklearn', 'pandas', 'nilearn', 'numpy'} & set(sys.modules);"
        "assert not heavy, heavy; assert 'BolTClassifier' in dir(bolt);"
        "assert callable(bolt.explain) and callable(bolt.folds)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert bolt.explain is sys.modules["bolt.explain"] and bolt.explain.relevance.relevance
    with pytest.raises(AttributeError, match="no attribute 'classify'"):
        _ = bolt.classify


def test_the_comparison_with_chance_is_that_of_the_report(tmp_path):
    table = made_up(0.4, seed=2, n=60, folds=4)
    run = write_run(tmp_path, table)
    write_metrics(run, ["control", "patient"], range(4), run)
    reported = read_json(run / "summary.json")["chance"]
    files = [run / f"fold-{fold}/predictions.tsv" for fold in range(4)]
    rows = pd.concat([pd.read_csv(file, sep="\t", dtype={"subject": str, "group": str}) for file in files])
    for given in (run, files, rows, rows.sample(frac=1, random_state=0)):
        found = bolt.compare_with_chance(given)
        assert (found["value"], found["p"], found["bar"]) == (reported["value"], reported["p"], reported["bar"])
    assert 0.001 < found["p"] < 1
    with pytest.raises(DataError, match="without training"):
        bolt.compare_with_chance(rows[rows["role"] == "test"])
    with pytest.raises(DataError, match="no fold-"):
        bolt.compare_with_chance(tmp_path)
