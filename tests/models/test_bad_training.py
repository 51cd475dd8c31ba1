"""Each case of the section on training in `docs/bad_input.md` gives its outcome and message."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bolt.config import Dataset
from bolt.io.errors import BoltError
from bolt.io.files import read_table
from bolt.models.lstm import LSTM
from bolt.models.registry import check_model, has_epochs
from bolt.training.outputs import Training
from bolt.training.trainers import train_folds
from tests.bad_inputs import TRAINING_CASES, Case
from tests.models.conformance import CROP, small
from tests.training.test_runner import LENGTHS, write_toy

DATASET = Dataset(name="toy", source="series", path="x", label="label", classes=["no", "yes"], crop=CROP)
Said = tuple[str, str]


def checked(name: str, **hyper) -> Said:
    with pytest.raises(BoltError) as caught:
        check_model(name, hyper)
    return "refused", str(caught.value)


def trained(folder: Path, name: str, dataset: Dataset = DATASET, rate: float = 1e-3, **toy) -> Said:
    """Train one fold; return its error, or the reason why a scan is excluded."""
    model = small(name)
    if has_epochs(model.model):
        training = model.training.model_copy(update={"epochs": 2, "learning_rate": rate, "schedule": "constant"})
        model = model.model_copy(update={"training": training})
    try:
        (error,) = train_folds(
            *write_toy(folder, **toy), model, dataset, [Training(1, 0, folder / "run")], device="cpu"
        )
    except BoltError as raised:
        error = raised
    if error is not None:
        return "refused", str(error)
    return "excluded", read_table(folder / "run/exclusions.tsv")["reason"].item()


def spoil(series) -> None:
    series[3][2, 1] = np.nan


def without_memory(folder: Path, patch: pytest.MonkeyPatch) -> Said:
    def fail(*_, **__):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    patch.setattr(LSTM, "forward", fail)
    return trained(folder, "lstm")


NUMBERS = DATASET.model_copy(update={"classes": None})
SHORT = DATASET.model_copy(update={"crop": 5})
MAKERS: dict[str, Callable[[Path, pytest.MonkeyPatch], Said]] = {
    "unknown model": lambda *_: checked("stagim"),
    "unknown setting": lambda *_: checked("stagin", windwo=50),
    "setting of the wrong type": lambda *_: checked("stagin", window=50.0),
    "number that YAML reads as text": lambda *_: checked("stagin", orthogonality_weight="1e-5"),
    "size, or number of layers, heads or volumes, of 0": lambda *_: checked("stagin", n_heads=0),
    "dropout of 1 or more": lambda *_: checked("lstm", dropout=1.5),
    "numeric labels for a classification-only model": lambda folder, _: trained(
        folder, "svm", NUMBERS, labels=[20.5 + i for i in range(12)]
    ),
    "class without a training scan in a fold": lambda folder, _: trained(
        folder, "lstm", labels=["no"] * 8 + ["yes"] * 4
    ),
    "scan shorter than the model can read": lambda folder, _: trained(folder, "bolt", lengths=[*LENGTHS[:10], 40, 5]),
    "crops shorter than the model can read": lambda folder, _: trained(folder, "bolt", SHORT),
    "NaN in a cache": lambda folder, _: trained(folder, "lstm", change=spoil),
    "loss or weights that are not finite": lambda folder, _: trained(folder, "meanmlp", rate=1e38),
    "too little memory for a batch on a CPU": without_memory,
}


@pytest.mark.parametrize("case", TRAINING_CASES, ids=lambda case: case.input)
def test_bad_training(case: Case, tmp_path, monkeypatch):
    outcome, text = MAKERS[case.input](tmp_path, monkeypatch)
    assert outcome == case.outcome and case.is_said(text), f"{outcome}: {text}"


@pytest.mark.parametrize("name", ["svm", "ensemble"])
def test_a_class_without_a_training_scan_ends_any_training(name, tmp_path):
    outcome, text = trained(tmp_path, name, labels=["no"] * 8 + ["yes"] * 4)
    assert outcome == "refused" and "fold 1 has no training scan of class 'yes'" in text
    assert not (tmp_path / "run/predictions.tsv").exists()


def test_every_case_is_made():
    assert set(MAKERS) == {case.input for case in TRAINING_CASES}
