"""Baselines without brain data: majority class, motion and site."""

import numpy as np
import pandas as pd
import pytest
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression

from bolt.config import load_model
from bolt.io.errors import ConfigError, DataError
from bolt.io.files import read_json, read_table
from bolt.models.registry import create_model
from bolt.models.suitability import check_covariate_values
from bolt.series.cache import SeriesCache
from bolt.series.gather import build_cache
from bolt.training.features import load_trained
from tests.training.test_features import make_cache, run


def moving(scans):
    """Simulate mean displacement that differs between classes and is missing for one scan."""
    random = np.random.default_rng(1)
    values = 0.1 + 0.2 * (scans["label"] == "B") + 0.02 * random.standard_normal(len(scans))
    return values.where(scans["scan_id"] != "s05")


@pytest.mark.parametrize("n_classes", [2, 7])
def test_they_are_scikit_learns(n_classes):
    random = np.random.default_rng(0)
    features = random.standard_normal((70, 3)).astype(np.float32)
    labels = np.repeat(np.arange(n_classes), 70 // n_classes)
    for name, settings, other in [
        ("majority", {}, DummyClassifier(strategy="prior")),
        ("logistic", {"n_covariates": 3, "C": 0.5}, LogisticRegression(C=0.5)),
    ]:
        model = create_model(name, 8, n_classes, **settings)
        model.fit(features, labels, labels)
        due = other.fit(features.astype(np.float64), labels).predict_proba(features)
        np.testing.assert_allclose(model.probabilities(features), due, atol=1e-12)


def test_motion_that_goes_with_the_class_is_found_again_from_the_checkpoint_too(tmp_path):
    out, error = run(make_cache(tmp_path, mean_fd=moving), load_model("motion_only"))
    assert error is None
    table, cache = read_table(out / "predictions.tsv"), SeriesCache(tmp_path / "cache")
    again = load_trained(out).predict(cache, range(len(cache)))
    expected = table.set_index("scan_id").loc[cache.index["scan_id"], ["p_A", "p_B"]]
    np.testing.assert_allclose(again, expected, rtol=1e-12)
    held_out = table[(table["role"] != "train") & (table["scan_id"] != "s05")]
    assert (held_out["predicted"] == held_out["label"]).all()
    (column,) = read_json(out / "checkpoint.json")["covariates"]
    fd = cache.index.merge(table[["scan_id", "role"]]).query("role == 'train'")["mean_fd"]
    assert column == {"column": "mean_fd", "mean": fd.mean(), "sd": fd.std(ddof=0)}


def test_displacement_that_nobody_knows(tmp_path):
    make_cache(tmp_path, mean_fd=lambda scans: np.nan)
    _, error = run(tmp_path, load_model("motion_only"))
    assert isinstance(error, DataError) and "'mean_fd' is missing for all training scans" in str(error)
    make_cache(tmp_path / "without")
    with pytest.raises(ConfigError, match="no column 'mean_fd'"):
        run(tmp_path / "without", load_model("motion_only"))


def test_the_index_refuses_what_cannot_be_known_later():
    scans = pd.DataFrame({"kind": ["raw"] * 2, "mean_fd": [np.nan] * 2, "site": ["a", np.nan]})
    check_covariate_values([load_model("site_only"), load_model("motion_only")], scans)
    for model, name in (("site_only", "site"), ("motion_only", "mean_fd")):
        ready = scans.assign(kind="series", site=np.nan if name == "site" else "a")
        with pytest.raises(DataError, match=f"no scan has a value of '{name}'.*'{model}'"):
            check_covariate_values([load_model("site_only"), load_model("motion_only")], ready)


def test_the_cache_fills_in_the_displacement_that_confounds_say(tmp_path):
    np.save(tmp_path / "s.npy", np.random.default_rng(0).standard_normal((20, 3)).astype(np.float32))
    scans = pd.DataFrame({"scan_id": ["a", "b", "c"], "mean_fd": [0.5, np.nan, np.nan], "n_volumes": 20, "kind": "raw"})
    rois = pd.DataFrame({"value": [1, 2, 3], "name": list("abc"), "network": "n", "hemisphere": "L"})
    build_cache(scans, "toy", rois, lambda _: tmp_path / "s.npy", tmp_path / "cache", mean_fd={"a": 9.0, "b": 0.25})
    np.testing.assert_array_equal(SeriesCache(tmp_path / "cache").index["mean_fd"], [0.5, 0.25, np.nan])
