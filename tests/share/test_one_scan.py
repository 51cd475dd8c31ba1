"""One scan by hand: what comes out of a tiny checkpoint, what is noted, and what is refused with what to do."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import matplotlib.pyplot as plt
import nibabel as nib
import numpy as np
import pandas as pd
import pytest
import torch

import bolt
from bolt.atlases.description import ATLASES
from bolt.cli.main import main
from bolt.explain.relevance import importance
from bolt.io.errors import DataError
from bolt.io.files import read_json, read_table, write_json, write_yaml
from bolt.models.registry import create_model, with_covariates
from bolt.series.cache import zscore
from bolt.share.cohort import RunPlace
from bolt.share.explanation import log_odds
from bolt.share.models import Pack
from bolt.share.one_scan import GivenScan, atlas_of, standardize
from bolt.training.checkpoint import load_checkpoint, save_checkpoint
from tests.atlases.test_atlases import write_own
from tests.bad_inputs import SCAN_CASES, Case
from tests.report.results import words_only

HYPER = {"hidden": 8, "n_blocks": 2, "n_heads": 2, "head_dim": 4, "window": 10}
VALUES = [5, 17, 300]
CLASSES = ["control", "patient"]


def checkpoint(folder: Path, n_covariates: int = 0, **change: object) -> Path:
    torch.manual_seed(1)
    n_outputs = len(change.get("classes", CLASSES) or "1")
    model = create_model("bolt", 3, n_outputs, **with_covariates(HYPER, n_covariates))
    about = {"name": "tiny", "model": "bolt", "hyper": HYPER}
    info = {"model": about, "fold": 1, "seed": 0, "n_rois": 3, "classes": CLASSES, "rois": VALUES, **change}
    save_checkpoint(folder, model, info)
    return folder


@pytest.fixture
def scan(tmp_path: Path) -> Path:
    series = np.random.default_rng(0).normal(100, 7, (40, 3)).astype(np.float32)
    np.save(tmp_path / "scan.npy", series)
    return tmp_path / "scan.npy"


def run(*words: object) -> int:
    return main(["explain", *map(str, words)])


def test_everything_of_one_scan(tmp_path: Path, scan: Path) -> None:
    folder, atlas, out = checkpoint(tmp_path / "fold-1"), write_own(tmp_path / "own"), tmp_path / "out"
    (tmp_path / "events.tsv").write_text("onset\tduration\ttrial_type\n4\t10\tgo\n")
    about = {"RepetitionTime": 2.0, "KeptVolumes": list(range(3, 43)), "Atlas": "own", "Space": "native"}
    write_json(about, scan.with_suffix(".json"))
    words = [folder, scan, "--atlas", atlas, "--events", tmp_path / "events.tsv"]
    assert run(*words, "--out", out) == 0
    found = read_json(out / "explanation.json")
    x = torch.from_numpy(zscore(np.load(scan)))[None]
    model = load_checkpoint(folder)[0]
    p = model(x).logits.softmax(-1)[0].detach()
    assert found["explained"] == found["predicted"] == CLASSES[int(p.argmax())]
    assert found["probability"] == pytest.approx(float(p.max()), rel=1e-4)
    curve = read_table(out / "importance.tsv")
    np.testing.assert_allclose(curve["importance"], importance(model, x)[0].detach(), rtol=1e-4)
    assert curve["volume"].tolist() == list(range(3, 43)) and curve["seconds"].iloc[0] == 6  # of the acquisition
    landmarks = read_table(out / "landmarks.tsv")
    assert landmarks["importance"].tolist() == sorted(curve["importance"], reverse=True)[:5]
    rois, total = read_table(out / "rois.tsv").set_index("value"), found["sum_of_contributions"]
    assert sorted(rois.index) == VALUES and rois["contribution"].sum() == pytest.approx(total, abs=1e-5)
    assert total == pytest.approx(found["log_odds"] - found["log_odds_without"], abs=1e-3)
    painted, labels = (nib.load(path).get_fdata() for path in (out / found["map"], Path(atlas) / "labels.nii.gz"))
    for value in VALUES:
        np.testing.assert_allclose(painted[labels == value], rois.loc[value, "contribution"], rtol=1e-5)
    assert (painted[labels == 0] == 0).all()
    glass = plt.imread(out / "map.png")[:300]  # above the slices
    redness = (glass[..., 0] - glass[..., 2]) * (1 if found["explained"] == CLASSES[0] else -1)
    assert rois["contribution"].iloc[0] < 0 and redness.max() > 0.2 and redness.min() > -0.2  # against it
    page = (out / "index.html").read_text()
    assert "should add up to this difference of" in page and f"they add up to {total:+.2f}." in page
    assert all((out / place).is_file() for place in re.findall(r'(?:src|href)="([^"#]+)"', page))
    shown = ("events.png", found["explained"], f"{found['probability']:.2f}")
    assert all(text in page for text in shown) and "http" not in page
    assert f"{'red' if found['explained'] == CLASSES[1] else 'blue'} is evidence for it" in page
    assert found["tested"] is None and "right in its test scans" not in page


@words_only()
def test_another_class_without_atlas_or_repetition_time(tmp_path: Path, scan: Path) -> None:
    folder = checkpoint(tmp_path / "fold-1")
    assert run(folder, scan, "--out", tmp_path / "a") == 0
    predicted = read_json(tmp_path / "a/explanation.json")
    other = CLASSES[1 - CLASSES.index(predicted["predicted"])]
    assert run(folder, scan, "--class", other, "--tokens", 3, "--out", tmp_path / "b") == 0
    found = read_json(tmp_path / "b/explanation.json")
    assert found["explained"] == other and found["predicted"] == predicted["predicted"]
    assert found["probability"] == pytest.approx(1 - predicted["probability"])
    assert found["log_odds"] == pytest.approx(-predicted["log_odds"], abs=1e-5)
    assert found["map"] is None and "seconds" not in found["landmarks"] and len(found["landmarks"]["rank"]) == 3
    assert any("No map: the atlas is not known" in note for note in found["notes"])
    assert read_table(tmp_path / "b/rois.tsv")["name"].str.startswith("ROI ").all()
    assert "as requested" in (tmp_path / "b/index.html").read_text()


def test_contributions_are_those_of_the_landmarks_alone(tmp_path: Path) -> None:
    estimator = bolt.load(checkpoint(tmp_path, classes=["a", "b", "c"]))
    series = zscore(np.random.default_rng(1).standard_normal((30, 3)))
    series[:, 2] = 0
    found = bolt.explain(estimator, series, "c", n_landmarks=5)
    without = series.copy()
    without[found.landmarks] = 0
    logits = estimator.members_[0].model(torch.from_numpy(np.stack([series, without]))).logits
    p = logits.softmax(-1)[:, 2].double()
    np.testing.assert_allclose(log_odds(logits, 2).detach(), (p / (1 - p)).log().detach(), rtol=1e-4)
    np.testing.assert_allclose([found.log_odds, found.log_odds_without], log_odds(logits, 2).detach(), rtol=1e-4)
    assert found.contributions.sum() == pytest.approx(found.log_odds - found.log_odds_without, abs=1e-4)
    assert found.contributions[2] == 0 and (found.contributions[:2] != 0).all()


@words_only()
def test_an_atlas_of_more_rois_and_names_from_a_table(tmp_path: Path, scan: Path) -> None:
    """A cache may have dropped ROIs everywhere: series of the whole atlas still fit."""
    folder = checkpoint(tmp_path / "fold-1")
    series = np.load(scan)
    np.save(tmp_path / "whole.npy", np.insert(series, 1, 7.5, axis=1))
    labels = "value\tname\tnetwork\themisphere\n300\ty\tB\tR\n5\tfive\tA\tL\n9\tnine\tA\tL\n17\tx\tB\tR\n"
    (tmp_path / "labels.tsv").write_text(labels)
    found = {}
    for name in ("scan", "whole"):
        words = [folder, tmp_path / f"{name}.npy", "--labels", tmp_path / "labels.tsv"]
        assert run(*words, "--out", tmp_path / name) == 0
        found[name] = read_table(tmp_path / name / "rois.tsv")
    assert set(found["whole"]["name"]) == {"five", "x", "y"}
    np.testing.assert_allclose(found["whole"]["contribution"], found["scan"]["contribution"])


@words_only()
def test_what_is_odd_is_said(tmp_path: Path, scan: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = checkpoint(tmp_path / "fold-1")
    series = np.load(scan)
    series[:, 0], series[:, 1] = np.nan, 3
    np.save(tmp_path / "sub-01.npy", series)
    write_json({"Space": "MNIInfant"}, tmp_path / "sub-01.json")
    words = ["--atlas", write_own(tmp_path / "own"), "--no-standardize", "--out", tmp_path / "out"]
    assert run(folder, tmp_path / "sub-01.npy", *words) == 0
    for said in ("No map: ", "1 of 3 ROIs are not covered", "1 of 3 ROIs are constant", "not z-scored"):
        assert said in caplog.text and said in (tmp_path / "out/index.html").read_text()


def save_other(place: Path, series: np.ndarray) -> None:
    """An SVM in place of BolT."""
    shutil.rmtree(place)
    bolt.estimator("svm").fit([series + 9 * np.roll(series, i, 0) for i in range(8)], [*"abababab"]).save(place)


def save_with_age(place: Path) -> None:
    about = read_json(place / "checkpoint.json")["model"] | {"covariates": ["age"]}
    checkpoint(place, 1, model=about, covariates=[{"column": "age", "mean": 30.0, "sd": 5.0}])


OPTIONS = {
    "atlas that lacks an ROI of the model": ["--atlas", "own"],
    "series from another atlas by their JSON file": ["--atlas", "own"],
    "unknown class": ["--class", "patent"],
    "events without a repetition time": ["--events", "events.tsv"],
    "repetition time of 0": ["--tr", 0],
    "no landmarks": ["--tokens", 0],
}
SERIES = {
    "series with another number of ROIs": lambda series: series[:, :2],
    "transposed series of one scan": lambda series: series.T,
    "scan shorter than the model's window": lambda series: series[:6],
    "single NaN in the series of one scan": lambda series: np.where(series == series[4, 1], np.nan, series),
    "constant series": lambda series: 0 * series,
}
FILES = {
    "folder without a model": lambda place, _: (place / "checkpoint.json").unlink(),
    "checkpoint of another model": lambda place, scan: save_other(place, np.load(scan)),
    "model that predicts a number": lambda place, _: checkpoint(place, classes=None),
    "model that uses covariates": lambda place, _: save_with_age(place),
    "weights not in safetensors format": lambda place, _: (place / "checkpoint.safetensors").write_bytes(b"import os"),
    "series from another atlas by their JSON file": lambda _, scan: scan.with_suffix(".json").write_text(
        '{"Atlas": "aal116"}'
    ),
    "missing series": lambda _, scan: scan.unlink(),
}


@pytest.mark.parametrize("case", SCAN_CASES, ids=lambda case: case.input)
def test_refused(tmp_path: Path, scan: Path, capsys: pytest.CaptureFixture, monkeypatch, case: Case) -> None:
    name, place = case.input, checkpoint(tmp_path / "fold-1")
    monkeypatch.chdir(tmp_path)
    write_own(tmp_path / "own", values=(5, 17, 301 if "lacks" in name else 300))
    (tmp_path / "events.tsv").write_text("onset\tduration\n1\t1\n")
    np.save(scan, SERIES.get(name, lambda series: series)(np.load(scan)))
    if name in FILES:
        FILES[name](place, scan)
    given = "own/labels.nii.gz" if name == "image in place of series" else scan
    assert run(place, given, "--out", "out", *OPTIONS.get(name, [])) == 2
    error = capsys.readouterr().err
    assert case.is_said(error) and "Traceback" not in error
    assert not (tmp_path / "out").exists()


def nan_weights(folder: Path) -> None:
    model = load_checkpoint(folder)[0]
    next(model.parameters()).data[0] = float("nan")
    save_checkpoint(folder, model, read_json(folder / "checkpoint.json"))


def state(folder: Path, **changes: object) -> None:
    write_json(read_json(folder / "checkpoint.json") | changes, folder / "checkpoint.json")


MANY = {"name": "tiny", "model": "bolt", "hyper": HYPER | {"n_blocks": 10_000_000}}


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (nan_weights, "NaN or infinite weights"),
        (lambda folder: state(folder, model=MANY), "n_blocks is 10000000, but there are"),
        (lambda folder: state(folder, n_rois=7), "its weights do not fit checkpoint.json"),
        (lambda folder: write_json([1, 2], folder / "checkpoint.json"), "not a model's description"),
    ],
    ids=["NaN", "many blocks", "another size", "a list"],
)
def test_a_damaged_checkpoint_is_one_line(tmp_path: Path, scan: Path, capsys, damage, message: str) -> None:
    damage(checkpoint(tmp_path / "fold-1"))
    assert run(tmp_path / "fold-1", scan, "--out", tmp_path / "out") == 2
    line = capsys.readouterr().err
    assert message in line and line.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_paths_that_cannot_be_used_are_one_line(tmp_path: Path, scan: Path, capsys) -> None:
    folder, file = checkpoint(tmp_path / "fold-1"), tmp_path / "taken"
    file.touch()
    places = [(scan, file), (scan, file / "below"), (scan, tmp_path / ("a" * 300)), (tmp_path, tmp_path / "out")]
    for series, out in places:
        assert run(folder, series, "--out", out) == 2
        assert capsys.readouterr().err.count("\n") == 1


ROIS = pd.DataFrame({"value": [3, 5, 8], "name": ["a", "b", "c"], "network": "n", "hemisphere": "L"})
NOTE = "The series are not z-scored, but the model was trained on series that are."


def test_series_that_are_not_z_scored_are_noted():
    """Three ROIs over 40 volumes: one with this mean and standard deviation, one z-scored, one constant."""
    wave = np.tile([-1.0, 1.0], 20)
    for mean, sd, noted in (
        *((0, 1, False), (0.15, 1, False), (0.25, 1, True), (-0.25, 1, True)),
        *((0, 0.85, False), (0, 0.75, True), (0, 1.25, True)),
    ):
        series = np.stack([mean + sd * wave, np.roll(wave, 1), np.full(40, 7.0)], axis=1).astype(np.float32)
        kept, changed = (GivenScan("scan", series.copy(), np.arange(40), 2.0, rois=ROIS) for _ in range(2))
        standardize(kept, wanted=False)
        assert kept.notes == ["1 of 3 ROIs are constant and are set to zero: c.", *([NOTE] if noted else [])]
        np.testing.assert_array_equal(kept.series, series)
        standardize(changed, wanted=True)
        np.testing.assert_allclose(changed.series[:, 0], wave, atol=1e-5)
        assert NOTE not in changed.notes and not changed.series[:, 2].any()


def test_the_atlas_is_that_of_the_results_which_hold_the_models(tmp_path):
    place, results = str(ATLASES / "dosenbach160"), tmp_path / "results/phantom"
    write_yaml({"dataset": "phantom", "atlases": [place]}, results / "config.yaml")
    run = RunPlace(results / "runs/dosenbach160/variant/model")

    def found(place, *values, given=None, labels=None):
        estimator = SimpleNamespace(members_=[SimpleNamespace(info={"rois": list(values)})])
        return atlas_of(Pack(estimator, place=place), Path("model"), given, labels)

    atlas = found(run, 1, 8)
    assert (atlas.name, atlas.place) == ("dosenbach160", place)
    assert atlas.labels is not None and atlas.labels["value"].tolist() == list(range(1, 161))
    assert found(run, 1, 999).labels is None  # an atlas that has changed: ROIs go by their values
    elsewhere = found(None, 1, 8)
    assert elsewhere.name == "" and elsewhere.labels is None
    (tmp_path / "labels.tsv").write_text("value\tname\n1\tV1\n")
    for given, labels, said in (
        (place, None, "model: the model was trained on an ROI with the value 999"),
        (None, tmp_path / "labels.tsv", "labels.tsv: columns missing: network, hemisphere"),
    ):
        with pytest.raises(DataError, match=said):
            found(None, 1, 999, given=given, labels=labels)
