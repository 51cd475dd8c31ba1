"""The phantom's signal has no trace in static connectivity: models of it perform at chance, BolT does not."""

from __future__ import annotations

import pandas as pd
import pytest
from scipy.stats import binom

from bolt.config import load_dataset, load_model
from bolt.datasets.phantom import simulate_series
from bolt.io.files import read_table
from bolt.models.registry import has_epochs, inputs_of
from bolt.training.outputs import Training
from bolt.training.trainers import train_folds
from tests.caches import dataset, pack, scan_table
from tests.models.conformance import ALL, small

CLASSES = ["control", "patient"]
TRAIN, TEST = 24, 40

pytestmark = pytest.mark.slow
STATIC = [name for name in ALL if inputs_of(load_model(name).model) == "connectivity"]


@pytest.fixture(scope="module")
def phantom(tmp_path_factory):
    """Series as difficult as the demo's, z-scored, and one fold: training scans first, test scans last."""
    folder = tmp_path_factory.mktemp("phantom")
    settings = load_dataset("phantom").simulate
    people, series = simulate_series(TRAIN + TEST, settings)
    scans = scan_table([CLASSES[person.positive] for person in people])
    roles = scans[["scan_id", "subject", "group"]].assign(fold=0, role=["train"] * TRAIN + ["test"] * TEST)
    roles.to_csv(folder / "folds.tsv", sep="\t", index=False)
    return folder, pack(folder, [simulated.values for simulated in series], scans)


def right(phantom, model) -> tuple[int, int]:
    """Return the number of test scans classified correctly, and the number of test scans."""
    folder, cache = phantom
    training = Training(0, 0, folder / model.name)
    assert train_folds(cache, folder / "folds.tsv", model, dataset(CLASSES, 80), [training], device="cpu") == [None]
    table: pd.DataFrame = read_table(training.folder / "predictions.tsv").query("role == 'test'")
    return int((table["label"] == table["predicted"]).sum()), len(table)


def test_bolt_finds_it(phantom):
    model = load_model("bolt_small")
    hits, n = right(phantom, model)
    assert n == TEST and hits >= 0.8 * n


@pytest.mark.parametrize("name", STATIC)
def test_static_connectivity_does_not(phantom, name):
    model = small(name)
    if has_epochs(model.model):
        training = model.training.model_copy(update={"epochs": 15, "batch_size": 8})
        model = model.model_copy(update={"training": training})
    hits, n = right(phantom, model)
    low, high = binom.interval(0.99, n, 0.5)
    assert low <= hits <= high
