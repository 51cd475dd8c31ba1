"""One scan by hand: what comes out of a tiny checkpoint, and what is refused with what to do."""

from __future__ import annotations

import re
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import torch

import bolt
from bolt.cli.main import main
from bolt.explain.relevance import importance
from bolt.io.files import read_json, read_table, write_json
from bolt.models.registry import create_model, with_covariates
from bolt.series.cache import zscore
from bolt.share.explanation import explain_models, log_odds
from bolt.training.checkpoint import load_checkpoint, save_checkpoint
from tests.atlases.test_atlases import write_own
from tests.bad_inputs import SCAN_CASES, Case
from tests.report.results import words_only

HYPER = {"hidden": 8, "n_blocks": 2, "n_heads": 2, "head_dim": 4, "window": 10}
VALUES = [5, 17, 300]
CLASSES = ["control", "patient"]


def checkpoint(folder: Path, n_covariates: int = 0, **change: object) -> Path:
    torch.manual_seed(0)
    n_outputs = 1 if "classes" in change else 2
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
    write_json({"RepetitionTime": 2.0, "KeptVolumes": list(range(3, 43)), "Atlas": "own"}, scan.with_suffix(".json"))
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
    page = (out / "index.html").read_text()
    assert all((out / place).is_file() for place in re.findall(r'(?:src|href)="([^"#]+)"', page))
    shown = ("events.png", found["explained"], f"{found['probability']:.2f}")
    assert all(text in page for text in shown) and "http" not in page
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


def test_contributions_are_those_of_the_landmarks_alone() -> None:
    torch.manual_seed(1)
    model = create_model("bolt", 4, 3, **HYPER).eval()
    series = zscore(np.random.default_rng(1).standard_normal((30, 4)))
    series[:, 2] = 0
    found = explain_models([model], series, position=2, n_landmarks=5)
    without = series.copy()
    without[found.landmarks] = 0
    logits = model(torch.from_numpy(np.stack([series, without]))).logits
    p = logits.softmax(-1)[:, 2].double()
    np.testing.assert_allclose(log_odds(logits, 2).detach(), (p / (1 - p)).log().detach(), rtol=1e-4)
    assert found.contributions.sum() == pytest.approx(found.log_odds - found.log_odds_without, abs=1e-4)
    assert found.contributions[2] == 0 and (found.contributions[[0, 1, 3]] != 0).all()


@words_only()
def test_an_atlas_of_more_rois_and_names_from_a_table(tmp_path: Path, scan: Path) -> None:
    """A cache may have dropped ROIs everywhere: series of the whole atlas still fit."""
    folder = checkpoint(tmp_path / "fold-1")
    series = np.load(scan)
    np.save(tmp_path / "whole.npy", np.insert(series, 1, 7.5, axis=1))
    labels = "value\tname\tnetwork\themisphere\n5\tfive\tA\tL\n9\tnine\tA\tL\n17\tx\tB\tR\n300\ty\tB\tR\n"
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
    assert run(folder, tmp_path / "sub-01.npy", "--no-standardize", "--out", tmp_path / "out") == 0
    for said in ("1 of 3 ROIs are not covered", "1 of 3 ROIs are constant", "not z-scored"):
        assert said in caplog.text and said in (tmp_path / "out/index.html").read_text()


MADE = {
    "series with another number of ROIs": lambda series: series[:, :2],
    "transposed series of one scan": lambda series: series.T,
    "scan shorter than the model's window": lambda series: series[:6],
    "single NaN in the series of one scan": lambda series: np.where(series == series[4, 1], np.nan, series),
    "constant series": lambda series: 0 * series,
}


def bad(name: str, folder: Path, scan: Path) -> list[object]:
    """Words of a command that must be refused."""
    series, place = np.load(scan), folder / "fold-1"
    own = write_own(folder / "own", values=(5, 17, 301 if "lacks" in name else 300))
    options: dict[str, list[object]] = {
        "atlas that lacks an ROI of the model": ["--atlas", own],
        "series from another atlas by their JSON file": ["--atlas", own],
        "unknown class": ["--class", "patent"],
        "events without a repetition time": ["--events", folder / "events.tsv"],
        "repetition time of 0": ["--tr", 0],
        "no landmarks": ["--tokens", 0],
    }
    words: list[object] = [scan, "--out", folder / "out", *options.get(name, [])]
    (folder / "events.tsv").write_text("onset\tduration\n1\t1\n")
    if name == "folder without a model":
        place = folder / "empty"
        place.mkdir()
    elif name == "checkpoint of another model":
        place = folder / "svm"
        bolt.estimator("svm").fit([series + 9 * np.roll(series, i, 0) for i in range(8)], [*"abababab"]).save(place)
    elif name == "model that predicts a number":
        checkpoint(place, classes=None)
    elif name == "model that uses covariates":
        about = read_json(place / "checkpoint.json")["model"] | {"covariates": ["age"]}
        checkpoint(place, 1, model=about, covariates=[{"column": "age", "mean": 30.0, "sd": 5.0}])
    elif name == "weights not in safetensors format":
        (place / "checkpoint.safetensors").write_bytes(b"import os")
    elif name in MADE:
        np.save(scan, MADE[name](series))
    elif name == "series from another atlas by their JSON file":
        write_json({"Atlas": "aal116"}, scan.with_suffix(".json"))
    elif name == "image in place of series":
        words[0] = folder / "own/labels.nii.gz"
    elif name == "missing series":
        scan.unlink()
    return [place, *words]


@pytest.mark.parametrize("case", SCAN_CASES, ids=lambda case: case.input)
def test_refused(tmp_path: Path, scan: Path, capsys: pytest.CaptureFixture, case: Case) -> None:
    checkpoint(tmp_path / "fold-1")
    words = bad(case.input, tmp_path, scan)
    assert run(*words) == 2
    error = capsys.readouterr().err
    assert case.is_said(error) and "Traceback" not in error
    assert not (tmp_path / "out").exists()


def nan_weights(folder: Path) -> None:
    model = load_checkpoint(folder)[0]
    next(model.parameters()).data[0] = float("nan")
    save_checkpoint(folder, model, read_json(folder / "checkpoint.json"))


def described(text: str) -> object:
    return lambda folder: (folder / "checkpoint.json").write_text(text)


def with_model(**change: object) -> object:
    def write(folder: Path) -> None:
        info = read_json(folder / "checkpoint.json")
        write_json(info | {"model": info["model"] | change}, folder / "checkpoint.json")

    return write


DAMAGE = {
    "NaN weights": (nan_weights, "NaN or infinite weights"),
    "many blocks": (with_model(hyper=HYPER | {"n_blocks": 10_000_000}), "n_blocks is 10000000, but there are"),
    "a hundred thousand levels": (described("[" * 100_000), "not valid JSON"),
    "a list": (described("[1, 2]"), "not a model's description"),
    "null": (described("null"), "not a model's description"),
    "null model": (with_model(model=None), "not a model's description"),
    "no settings": (with_model(hyper=None), "not a model's description"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_checkpoint_is_one_line(tmp_path: Path, scan: Path, capsys, name: str) -> None:
    folder, (change, message) = checkpoint(tmp_path / "fold-1"), DAMAGE[name]
    change(folder)
    assert run(folder, scan, "--out", tmp_path / "out") == 2
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
