"""The linear SVM on all real labelled ABIDE-I series, ten folds: what others find on these data."""

from pathlib import Path

import pandas as pd
import pytest

from bolt.atlases.labels import load_labels
from bolt.config import Dataset, Folds, Model
from bolt.datasets import COLUMNS
from bolt.evaluate.metrics import pooled, summarise
from bolt.folds.check import series_contents
from bolt.folds.splits import FOLD_COLUMNS, make_folds
from bolt.io.files import write_table
from bolt.series.cache import SeriesCache
from bolt.series.gather import build_cache
from bolt.training.features import train_features
from bolt.training.runner import Training
from tests.abide import write_series
from tests.shared import shared_data


@pytest.mark.slow
def test_accuracy_and_auc_are_those_that_are_known(tmp_path):
    table = pd.read_csv(write_series(shared_data("abide1"), tmp_path / "series"), sep="\t", dtype={"subject": str})
    table = table.rename(columns={"diagnosis": "label"}).assign(kind="series", group=table["subject"])
    scans = table.assign(bold=[str(tmp_path / "series" / name) for name in table["file"]]).reindex(
        columns=list(COLUMNS)
    )
    build_cache(scans, "cc200", load_labels("cc200"), lambda scan: Path(scan.bold), tmp_path / "cache")
    cache = SeriesCache(tmp_path / "cache")
    folds = make_folds(cache.index, Folds(), {"series": series_contents(cache)})
    write_table(folds, tmp_path / "folds.tsv", FOLD_COLUMNS)
    shares = folds["role"].value_counts(normalize=True)
    assert abs(shares["train"] - 0.8) < 0.01 and abs(shares["test"] - 0.1) < 0.001
    classes = ["control", "autism"]
    dataset = Dataset(name="abide", source="series", path="scans.tsv", label="label", classes=classes)
    trainings = [Training(fold, 0, tmp_path / f"run/fold-{fold}") for fold in range(10)]
    svm = Model(name="svm", model="svm")
    errors = train_features(tmp_path / "cache", tmp_path / "folds.tsv", svm, dataset, trainings)
    assert errors == [None] * 10
    _, predictions = summarise(tmp_path / "run", range(10), classes)
    found = pooled(predictions, classes)
    assert found["n_scans"] == 871
    assert found["accuracy"]["value"] == pytest.approx(0.67, abs=0.025)
    assert found["auc"]["value"] == pytest.approx(0.74, abs=0.025)
    assert found["auc"]["low"] > 0.65 and found["accuracy"]["low"] > found["majority_accuracy"]
