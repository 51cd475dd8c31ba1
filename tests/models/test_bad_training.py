"""Each case of the section on training in `docs/bad_input.md` gives its outcome and message."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bolt.config import Dataset
from bolt.io.errors import BoltError
from bolt.io.files import read_table
from bolt.models.lstm import LSTM
from bolt.models.registry import check_model, fitted_at_once
from bolt.training.features import train_features
from bolt.training.runner import Training, train_folds
from tests.bad_inputs import TRAINING_CASES, Case
from tests.models.conformance import CROP, small
from tests.training.test_runner import LENGTHS, write_toy

DATASET = Dataset(name="toy", source="series", path="x", label="label", classes=["no", "yes"], crop=CROP)
Said = tuple[str, str]
MAKERS: dict[str, Callable[[Path, pytest.MonkeyPatch], Said]] = {}


def of(name: str):
    """Register the function that produces the case of this name."""

    def register(maker):
        MAKERS[name] = maker
        return maker

    return register


@pytest.mark.parametrize("case", TRAINING_CASES, ids=lambda case: case.input)
def test_bad_training(case: Case, tmp_path, monkeypatch):
    outcome, text = MAKERS[case.input](tmp_path, monkeypatch)
    assert outcome == case.outcome and case.is_said(text), f"{outcome}: {text}"


def test_every_case_is_made():
    assert set(MAKERS) == {case.input for case in TRAINING_CASES}


def checked(name: str, **hyper) -> Said:
    with pytest.raises(BoltError) as caught:
        check_model(name, hyper)
    return "refused", str(caught.value)


def trained(folder: Path, name: str, dataset: Dataset = DATASET, rate: float = 1e-3, **toy) -> Said:
    """Train one fold; return its error, or the reason why a scan is excluded."""
    model = small(name)
    runner = train_features
    if not fitted_at_once(model.model):
        runner = train_folds
        training = model.training.model_copy(update={"epochs": 2, "learning_rate": rate, "schedule": "constant"})
        model = model.model_copy(update={"training": training})
    try:
        (error,) = runner(*write_toy(folder, **toy), model, dataset, [Training(1, 0, folder / "run")], device="cpu")
    except BoltError as raised:
        error = raised
    if error is not None:
        return "refused", str(error)
    return "excluded", read_table(folder / "run/exclusions.tsv")["reason"].item()


@of("unknown model")
def _(folder, monkeypatch):
    return checked("stagim")


@of("unknown setting")
def _(folder, monkeypatch):
    return checked("stagin", windwo=50)


@of("setting of the wrong type")
def _(folder, monkeypatch):
    return checked("stagin", window=50.0)


@of("number that YAML reads as text")
def _(folder, monkeypatch):
    return checked("stagin", orthogonality_weight="1e-5")


@of("size, or number of layers, heads or volumes, of 0")
def _(folder, monkeypatch):
    return checked("stagin", n_heads=0)


@of("dropout of 1 or more")
def _(folder, monkeypatch):
    return checked("lstm", dropout=1.5)


@of("numeric labels for a classification-only model")
def _(folder, monkeypatch):
    return trained(folder, "svm", DATASET.model_copy(update={"classes": None}), labels=[20.5 + i for i in range(12)])


@of("class without a training scan in a fold")
def _(folder, monkeypatch):
    return trained(folder, "lstm", labels=["no"] * 8 + ["yes"] * 4)


@of("scan shorter than the model can read")
def _(folder, monkeypatch):
    return trained(folder, "stagin", lengths=[*LENGTHS[:10], 40, 11])


@of("crops shorter than the model can read")
def _(folder, monkeypatch):
    return trained(folder, "stagin", DATASET.model_copy(update={"crop": 11}))


@of("NaN in a cache")
def _(folder, monkeypatch):
    def spoil(series):
        series[3][2, 1] = np.nan

    return trained(folder, "lstm", change=spoil)


@of("loss or weights that are not finite")
def _(folder, monkeypatch):
    return trained(folder, "meanmlp", rate=1e38)


@of("too little memory for a batch on a CPU")
def _(folder, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr(LSTM, "forward", fail)
    return trained(folder, "lstm")
