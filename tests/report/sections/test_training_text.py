"""Each number in the text on a network is compared with what a training of it used, and none is left over."""

import numpy as np
import pytest

from bolt.config import Model, load_model
from bolt.config.models import Fidelity
from bolt.report.sections.methods import model_text
from tests.caches import dataset, pack, scan_table, split
from tests.models.conformance import TORCH, small
from tests.report.sections.claims import Claims
from tests.report.sections.training_comparisons import CLASSES, COMPARISONS, CROP, DATASET, LONG, SHORT, TR, Witness

SCANS, FOLDS, EPOCHS = 24, 3, 3


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """24 scans of 45 volumes, but one of 30, so that crops are shorter than most scans and longer than one."""
    folder, random = tmp_path_factory.mktemp("toy"), np.random.default_rng(0)
    series = [random.standard_normal((SHORT if i == 3 else LONG, 9)) for i in range(SCANS)]
    scans = scan_table([CLASSES[i % 2] for i in range(SCANS)], tr=TR, age=np.linspace(20.0, 60.0, SCANS))
    return pack(folder, series, scans), split(folder, scans, FOLDS)


def shortened(name):
    """Return a shipped model at a small size, its schedule shortened but of the same shape."""
    model, t = small(name), load_model(name).training
    fewer = {"epochs": EPOCHS, "batch_size": min(t.batch_size, 7), "step_epochs": 2}
    return model.model_copy(
        update={"training": t.model_copy(update=fewer | {"warmup_epochs": min(t.warmup_epochs, 2)})}
    )


def changed(name, hyper=None, training=None, **top):
    """Return a shortened model with other settings."""
    model = shortened(name)
    updates = {"hyper": model.hyper | (hyper or {}), "training": model.training.model_copy(update=training or {})}
    return model.model_copy(update=updates | top)


VARIANTS = {
    "everything of BolT": lambda: changed(
        "bolt",
        {"input_dropout": 0.25, "roi_dropout": 0.15, "correlations": 5, "correlations_dropout": 0.35},
        {"clip_gradient": 0.7, "label_smoothing": 0.12, "average_weights": 0.9, "weight_decay": 0.03},
        covariates=["age"],
    ),
    "mixed scans": lambda: changed("bolt_tuned", {"cls_token": "none"}, {"mixup": 0.3, "precision": "bfloat16"}),
    "several lengths": lambda: changed("meanmlp", None, {"crop_range": (0.5, 0.9), "batch_size": 1, "epochs": 6}),
    "a single epoch": lambda: changed("lstm", {}, {"epochs": 1}),
    "defaults": lambda: Model(name="plain", model="lstm", training=shortened("bolt").training),
    "only a rise": lambda: changed("stagin", {}, {"warmup_epochs": 9}),
    "a rise of one epoch": lambda: changed("hatnet", {"attention_dropout": 0.2}, {"warmup_epochs": 1}),
    "no rise in one cycle": lambda: changed("bolt_published", {}, {"warmup_epochs": 0}),
    "all edges, mixed": lambda: changed("braingnn", {"complete": True}, {"mixup": 0.5}),
    "whole scans": lambda: changed("braingnn", {"edge_share": 0.3}, connectivity="scan"),
    "windows as configured": lambda: changed("gc_lstm", {"window_seconds": 12, "least_windows": 3}),
    "shorter windows": lambda: changed("gc_lstm", {"least_windows": 5}),
    "half of the subjects": lambda: changed("lstm", train_share=0.5),
    "settings of this dataset": lambda: changed("bolt_published").model_copy(
        update={"by_dataset": {"toy": load_model("bolt_published").by_dataset["abide1"].model_copy(
            update={"crop": 33, "training": {"batch_size": 5}})}}
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", [*TORCH, *VARIANTS])
def test_every_number_is_what_the_training_used(toy, tmp_path, monkeypatch, name):
    model = VARIANTS[name]() if name in VARIANTS else shortened(name)
    used = Witness(monkeypatch)
    used.train(toy, model, DATASET, tmp_path)
    text = model_text(model, DATASET, [used.info["model"]["hyper"]])
    if model.fidelity and model.fidelity.level == "reconstructed":
        note = f" It is a reconstruction, not the original method: {model.fidelity.note}"
        assert text.endswith(note)
        text = text.removesuffix(note)
    assert text.startswith(model.shown)
    claims = Claims(text.removeprefix(model.shown))
    for compare in COMPARISONS:
        compare(claims, used)
    assert claims.left() == []


def test_settings_that_are_not_the_default_are_named():
    model = load_model("bolt")
    t = model.training.model_copy(update={"warmup_epochs": 0, "epochs": 1, "crop_range": (0.5, 1.5)})
    changes = {"training": t, "covariates": ["age", "sex"], "by_fold": {0: {}}}
    text = model_text(model.model_copy(update=changes), DATASET)
    for words in (
        "was trained for one epoch with Adam",
        "The classifier also received age and sex.",
        "The learning rate fell linearly from 0.0002 to 1 × 10⁻⁵.",
        f"random crops of {CROP // 2} to {CROP * 3 // 2} volumes",
        "values that a search had chosen replaced some of these settings",
    ):
        assert words in text, words
    fast = model.model_copy(update={"training": t.model_copy(update={"precision": "tf32"})})
    assert "in TensorFloat-32 where a GPU computed them" in model_text(fast, DATASET)


def test_what_needs_classes_is_not_said_of_numbers():
    number = DATASET.model_copy(update={"classes": None})
    model = changed("braingnn", {}, {"label_smoothing": 0.1})
    for words in ("consistency loss", "label smoothing"):
        assert words in model_text(model, DATASET) and words not in model_text(model, number)


def test_windows_in_seconds_are_those_of_the_trained_folds():
    """HCP-Task: 120 s are 167 volumes, and a crop has 150."""
    model, task = load_model("gc_lstm"), dataset(CLASSES, 150)
    said = (
        "Its windows had 123 volumes (88.6 s), not 120 s, because a training crop would otherwise hold fewer than 10."
    )
    assert said in model_text(model, task, [{"tr": 0.72, "crop": 150}] * 2)
    several = model_text(model, task, [{"tr": 2.0, "crop": 150}, {"tr": 1.5, "crop": 150}])
    assert "Its windows had 60 and 80 volumes (120 s)." in several
    assert "Its windows lasted 120 s, or less where a training crop would otherwise hold fewer than 10." in model_text(
        model, task
    )


def test_a_reconstruction_is_called_one():
    model = load_model("lstm").model_copy(update={"fidelity": Fidelity(level="reconstructed", note="Guessed.")})
    assert model_text(model, DATASET).endswith("not the original method: Guessed.")
