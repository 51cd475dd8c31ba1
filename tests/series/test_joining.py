"""Scans of one person joined into one, and predictions averaged per person."""

import warnings

import numpy as np
import pandas as pd
import pytest

from bolt.config import read_yaml
from bolt.config.study import Study
from bolt.evaluate.metrics import by_subject, fold_metrics, pooled, write_metrics
from bolt.io.errors import BoltWarning, DataError
from bolt.io.files import read_json, read_table, write_json, write_status
from bolt.report.pages.cohort import with_lengths
from bolt.series.cache import SeriesCache, volumes_of, zscore
from bolt.series.gather import build_cache, plan_joins
from tests.snake import series_dataset, write_yaml
from tests.stages import stage

ROIS = pd.DataFrame({"value": [1, 2, 3], "name": list("abc"), "network": "n", "hemisphere": "L"})


def scan(name, **facts):
    subject = name.split("_")[0]
    defaults = {"subject": subject, "group": subject, "task": "rest", "session": None, "run": None, "label": "x"}
    return {"scan_id": name, "kind": "series", "site": None, "tr": 2.0, "mean_fd": 0.1, **defaults, **facts}


ODD = {
    "s1_ses-1_run-10": {"session": "1", "run": "10"},
    "s1_ses-1_run-2": {"session": "1", "run": "2"},
    "s1_ses-2_run-1": {"session": "2", "run": "1"},
    "s1_ses-2_task-nback": {"session": "2", "task": "nback"},
    **{"s2_a": {}, "s2_b": {"tr": 0.8}, "s3_a": {"tr": np.nan}, "s3_b": {}},
    **{"s4_a": {}, "s4_b": {"label": "y"}, "s4_c": {"site": "elsewhere"}},
}
SCANS = pd.DataFrame([scan(name, **facts) for name, facts in ODD.items()])


@pytest.mark.parametrize(("rule", "first"), [("session", [1, 0]), ("subject", [1, 0, 2])])
def test_scans_of_a_person_are_joined_in_their_order(rule, first):
    parts, excluded = plan_joins(SCANS, range(len(SCANS)), rule)
    assert [rows for rows in parts.values() if len(rows) > 1] == [first, [6, 7]]
    assert all(key == rows[0] for key, rows in parts.items())
    reasons = {name: reason for name, _, reason in excluded}
    assert "repetition times of 0.8 and 2 s" in reasons.pop("s2_b")
    assert reasons.pop("s3_b") == f"its series is part of s3_a ('join_scans: {rule}')"
    assert set(reasons) == {SCANS.scan_id[row] for row in first[1:]}
    used = sorted(row for rows in parts.values() for row in rows)
    assert used == [row for row in range(len(SCANS)) if SCANS.scan_id[row] != "s2_b"]


def test_series_of_another_configured_atlas_stay_out_of_a_cache(tmp_path):
    """Of as many ROIs; the index has let them pass, because they are of one of the atlases."""
    scans = SCANS[:2].assign(n_volumes=20, events=None)
    for name, atlas in zip(scans.scan_id, ("toy", "other"), strict=True):
        np.save(tmp_path / f"{name}.npy", np.random.default_rng(0).normal(size=(20, 3)))
        write_json({"Atlas": atlas}, tmp_path / f"{name}.json")
    place = lambda row: tmp_path / f"{row.scan_id}.npy"  # noqa: E731
    excluded = build_cache(scans, "toy", ROIS, place, tmp_path / "cache", others=["other"])
    assert excluded.scan_id.tolist() == [scans.scan_id[1]] and "series of atlas 'other'" in excluded.reason[0]


def test_only_usable_scans_are_joined():
    parts, excluded = plan_joins(SCANS, [0, 2, 8], "subject")
    assert parts == {0: [0, 2], 8: [8]} and [name for name, *_ in excluded] == ["s1_ses-2_run-1"]


def test_two_reconstructions_of_an_acquisition_are_not_joined():
    names = [f"s1_rec-{rec}_run-{run}" for rec, run in (("raw", "1"), ("moco", "1"), ("moco", "2"), ("raw", "2"))]
    scans = pd.DataFrame([scan(name, run=name[-1]) for name in [*names, "s1_run-3"]])
    parts, excluded = plan_joins(scans, range(5), "session")
    assert parts == {1: [1, 2, 4]}
    reasons = {name: reason for name, _, reason in excluded}
    for run in "12":
        reason = reasons[f"s1_rec-raw_run-{run}"]
        assert reason.startswith(f"the same acquisition as s1_rec-moco_run-{run}, in another reconstruction (rec-). Ch")
        assert "'bids_filter: {bold: {reconstruction: …}}'" in reason


def test_reconstructions_of_one_acquisition_are_warned_of(tmp_path):
    """Unless a rule joins scans, which leaves one of each acquisition."""
    scans = pd.DataFrame([scan(name) for name in ("s1_rec-a", "s1_rec-b", "s2")]).assign(n_volumes=20, events=None)
    for name in scans.scan_id:
        np.save(tmp_path / f"{name}.npy", np.random.default_rng(0).normal(size=(20, 3)))
    for rule, names in (("none", ["s1_rec-a", "s1_rec-b"]), ("session", [])):
        build_cache(scans, "toy", ROIS, lambda row: tmp_path / f"{row.scan_id}.npy", tmp_path / rule, join=rule)
        warned = read_table(tmp_path / rule / "warnings.tsv", text=("scan_id", "warning"))
        assert warned.scan_id.tolist() == names and warned.warning.str.contains("2 reconstructions.*bids_filter").all()


@pytest.fixture
def cached(tmp_path):
    """Caches of these scans, by rule; returns also the series."""
    rng = np.random.default_rng(0)
    series = {name: (5 * i + rng.normal(size=(20 + i, 3))).astype(np.float32) for i, name in enumerate(SCANS.scan_id)}
    series["s1_ses-1_run-10"][:, 2] = np.nan
    for name, values in series.items():
        np.save(tmp_path / f"{name}.npy", values)
    scans = SCANS.assign(n_volumes=[len(values) for values in series.values()], events="events.tsv")
    scans.loc[0, "mean_fd"] = 0.4

    def cache(rule):
        folder = tmp_path / rule
        excluded = build_cache(scans, "toy", ROIS, lambda row: tmp_path / f"{row.scan_id}.npy", folder, join=rule)
        return SeriesCache(folder), excluded

    return cache, series


def test_a_joined_scan_is_its_z_scored_parts(cached):
    make, series = cached
    cache, excluded = make("session")
    assert len(cache) == 8 and len(excluded) == 3 and set(excluded.stage) == {"joined"}
    row = cache.index.set_index("scan_id").loc["s1_ses-1_run-2"]
    position = cache.index.scan_id.tolist().index("s1_ses-1_run-2")
    first, second = (series[f"s1_ses-1_run-{run}"] for run in (2, 10))
    np.testing.assert_array_equal(cache.series(position), np.concatenate([zscore(first), zscore(second)]))
    assert (cache.series(position)[len(first) :, 2] == 0).all()
    assert row.length == row.n_volumes == len(first) + len(second) and row.joined == "s1_ses-1_run-2 s1_ses-1_run-10"
    assert row.mean_fd == pytest.approx((0.1 * len(first) + 0.4 * len(second)) / row.length)
    assert pd.isna(row.events) and cache.index.events.notna().sum() == 6
    warned = read_table(cache.folder / "warnings.tsv").set_index(["scan_id", "stage"]).warning
    assert "run-10.npy: 1 of 3 ROIs not covered: c" in warned["s1_ses-1_run-2", "cache"]


def test_series_that_are_read_by_position_are_warned_of_once(tmp_path):
    scans = pd.DataFrame([scan("s1"), scan("s2")]).assign(n_volumes=20, events=None)
    for name, header in (("s1", "x,y,z"), ("s2", "b,c,a")):
        values = np.random.default_rng(0).normal(size=(20, 3))
        np.savetxt(tmp_path / f"{name}.csv", values, header=header, comments="", delimiter=",")
    with warnings.catch_warnings(action="error", category=BoltWarning):
        build_cache(scans, "toy", ROIS, lambda row: tmp_path / f"{row.scan_id}.csv", tmp_path / "cache")
    (warned,) = read_table(tmp_path / "cache/warnings.tsv").to_dict("records")
    assert warned["scan_id"] == "s1" and "such as 'x', is an ROI's" in warned["warning"]


def test_scans_of_which_none_is_usable_say_why(tmp_path):
    with pytest.raises(DataError, match="no usable scan for atlas 'toy' .*s1_ses-1_run-10: .*file not found"):
        build_cache(SCANS, "toy", ROIS, lambda row: tmp_path / f"{row.scan_id}.npy", tmp_path, join="session")


def test_without_a_rule_nothing_is_joined(cached, tmp_path):
    make, series = cached
    cache, excluded = make("none")
    assert len(cache) == len(series) and excluded.empty and "joined" not in cache.index
    scan = cache.index.iloc[3]
    write_json({"KeptVolumes": list(range(5, 5 + scan.length))}, tmp_path / "scan.json")
    assert volumes_of(scan, tmp_path / "scan.npy")[0] == 5
    assert volumes_of(pd.concat([scan, pd.Series({"joined": "a b"})]), tmp_path / "scan.npy")[0] == 0


def test_joined_scans_go_through_the_stages(tmp_path, monkeypatch):
    """Two runs each of twelve people are twelve scans in the folds."""
    monkeypatch.chdir(tmp_path)
    config = series_dataset(tmp_path, n_subjects=24, folds={"outer": 3})
    table = pd.read_csv(tmp_path / "series/scans.tsv", sep="\t")
    people = [f"p{i // 2:02d}" for i in range(24)]
    runs = {"subject": people, "run": [i % 2 + 1 for i in range(24)], "dx": ["ab"[i // 2 % 2] for i in range(24)]}
    table.assign(**runs).to_csv(tmp_path / "series/scans.tsv", sep="\t", index=False)
    write_yaml(tmp_path / "mine.yaml", read_yaml(tmp_path / "mine.yaml") | {"join_scans": "session"})
    for rule in ("index", "rois", "cache", "exclusions", "folds"):
        assert stage(config, rule, atlas="dosenbach160") == 0
    layout = Study.read(config).layout
    folds, cache = read_table(layout.folds), SeriesCache(layout.cache("dosenbach160"))
    assert set(folds.scan_id) == set(cache.index.scan_id) and folds.scan_id.nunique() == folds.subject.nunique() == 12
    assert set(read_table(layout.exclusions).stage) == {"joined"}
    assert cache.index.length.min() > 75
    scans = read_table(layout.scans)
    used = with_lengths(scans[scans.scan_id.isin(folds.scan_id)], layout, "dosenbach160")
    assert used.n_volumes.tolist() == cache.index.n_volumes.tolist() == cache.index.length.tolist()


# ---- predictions per person --------------------------------------------------------------------
CLASSES = ["control", "patient"]


def predicted(labels, positive, subjects):
    table = pd.DataFrame({"scan_id": [f"{s}_{i}" for i, s in enumerate(subjects)], "subject": subjects})
    positive = np.array(positive)
    table = table.assign(group=subjects, site="a", role="test", fold=0, seed=0, label=labels)
    called = np.where(positive > 0.5, *CLASSES[::-1])
    return table.assign(predicted=called, p_control=1 - positive, p_patient=positive)


def test_predictions_are_averaged_over_the_scans_of_a_person(tmp_path):
    labels = ["patient", "patient", "control", "control", "control"]
    table = predicted(labels, [0.9, 0.2, 0.6, 0.1, 0.7], ["a", "a", "b", "b", "c"])
    averaged = by_subject(table, CLASSES)
    assert averaged.subject.tolist() == list("abc")
    np.testing.assert_allclose(averaged.p_patient, [0.55, 0.35, 0.7])
    assert averaged.predicted.tolist() == ["patient", "control", "patient"]
    assert fold_metrics(averaged, CLASSES)["accuracy"] == pytest.approx(2 / 3)
    (tmp_path / "fold-0").mkdir()
    table.to_csv(tmp_path / "fold-0/predictions.tsv", sep="\t", index=False)
    write_status(tmp_path / "fold-0/status.json", "ok", "train")
    write_metrics(tmp_path, CLASSES, [0], tmp_path)
    whole = read_json(tmp_path / "summary.json")["pooled"]
    assert whole["accuracy"]["value"] == pytest.approx(2 / 5)
    assert whole["subjects"]["accuracy"]["value"] == pytest.approx(2 / 3) and whole["subjects"]["n_scans"] == 3


def test_numbers_are_averaged_and_labels_that_vary_are_not():
    table = pd.DataFrame({"subject": list("aab"), "label": ["20", "20", "30"], "predicted": ["22", "24", "28"]})
    table = table.assign(scan_id=list("xyz"), group=table.subject)
    averaged = by_subject(table, None)
    assert averaged.predicted.tolist() == [23, 28]
    assert pooled(averaged, None)["mae"]["value"] == pytest.approx(2.5)
    assert by_subject(table.assign(label=["20", "21", "30"]), None) is None
    assert by_subject(table.assign(subject=list("abc")), None) is None
