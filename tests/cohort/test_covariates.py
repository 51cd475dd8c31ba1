"""Covariates are fitted to training scans alone, saved with the weights, and never include the label."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from bolt.cohort.covariates import Covariates
from bolt.config import Config, Dataset, parse
from bolt.io.errors import ConfigError, DataError
from bolt.io.files import read_json, read_table
from bolt.models.bolt import BolT
from bolt.models.suitability import check_covariates
from bolt.series.cache import SeriesCache
from bolt.training.runner import load_checkpoint, predict
from bolt.training.trainers import train_fold
from bolt.workflow.checks import check_names
from tests.snake import series_dataset
from tests.training.test_runner import TEXT, equal, toy_model, weights, write_toy

TABLE = pd.DataFrame({"age": [10.0, 20, np.nan, 30], "sex": ["F", "M", "F", np.nan], "site": ["b", "a", "b", "b"]})
ABOUT = {"name": "toy", "source": "series", "path": Path("x"), "label": "label", "classes": ["no", "yes"], "crop": 20}
DATASET = Dataset(**ABOUT, site="site", age="age")


def model(*covariates, **training):
    return toy_model(**training).model_copy(update={"covariates": list(covariates)})


# ---- the encoder -----------------------------------------------------------------------------------------------------
def test_a_fraction_that_is_constant_in_training_is_no_covariate():
    """Its standard deviation is 1e-16: another value would be 1e16."""
    encoder = Covariates.fit(pd.DataFrame({"tr": [0.72] * 30}), ["tr"])
    assert encoder.encode(pd.DataFrame({"tr": [0.72, 2.0]})).tolist() == [[0], [0]]


def test_numbers_are_z_scored_and_text_is_one_hot():
    encoder = Covariates.fit(TABLE, ["age", "sex", "site"])
    assert len(encoder) == 5
    z = 10 / np.sqrt(200 / 3)
    expected = [[-z, 1, 0, 0, 1], [0, 0, 1, 1, 0], [0, 1, 0, 0, 1], [z, 0, 0, 0, 1]]
    values = encoder.encode(TABLE)
    np.testing.assert_allclose(values, expected, rtol=1e-6)
    assert values.dtype == np.float32


def test_what_is_missing_or_new_is_counted(caplog):
    encoder = Covariates.fit(TABLE, ["age", "site"])
    new = pd.DataFrame({"age": [np.nan, np.nan, 20], "site": ["c", "a", np.nan]})
    np.testing.assert_allclose(encoder.encode(new), [[0, 0, 0], [0, 1, 0], [0, 0, 0]], atol=1e-7)
    assert "covariate 'age' of 2 of 3 scans: missing" in caplog.text
    assert "covariate 'site' of 2 of 3 scans" in caplog.text and "absent from the training scans" in caplog.text


def test_a_column_without_variance_or_values():
    encoder = Covariates.fit(pd.DataFrame({"age": [5.0, 5.0]}), ["age"])
    assert encoder.encode(pd.DataFrame({"age": [5.0, 9.0]})).tolist() == [[0], [0]]
    with pytest.raises(DataError, match="'age' is missing for all training scans"):
        Covariates.fit(TABLE.assign(age=np.nan), ["age"])


# ---- what is refused -------------------------------------------------------------------------------------------------
COLUMNS = ["scan_id", "group", "site", "label", "age", "sex", "offset", "length"]


@pytest.mark.parametrize(
    ("name", "about", "message"),
    [
        ("label", {"label": "diagnosis"}, "'label' is the label itself"),
        ("diagnosis", {"label": "diagnosis"}, "'diagnosis' is the label itself"),
        ("sex", {"label": "sex of the person", "sex": "sex of the person"}, "'sex' is the label itself"),
        ("agee", {}, r"no column 'agee'. Known: site, age, sex, length \(did you mean 'age'\?\)"),
        ("scan_id", {}, "no column 'scan_id'"),
    ],
)
def test_what_is_no_covariate(name, about, message):
    with pytest.raises(ConfigError, match=message):
        check_covariates(model(name), DATASET.model_copy(update=about), COLUMNS)


def test_they_are_checked_before_any_work(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    series_dataset(tmp_path)
    (tmp_path / "tiny.yaml").write_text("model: bolt\ncovariates: [hight]\n")
    config = {"dataset": "mine.yaml", "models": ["tiny.yaml"], "atlases": ["dosenbach160"]}
    dataset = DATASET.model_copy(update={"path": tmp_path})
    with pytest.raises(ConfigError, match="no column 'hight'"):
        check_names(parse(Config, config, "test"), dataset)


# ---- in training and prediction --------------------------------------------------------------------------------------
def with_ages(folder, ages, level=lambda age: 1):
    """Write the toy dataset with an age per scan; all series are alike, or constant at a level that the age gives."""

    def flatten(series):
        for values, age in zip(series, ages, strict=True):
            values[:] = level(age)

    cache, folds = write_toy(folder, change=flatten)
    index = pd.read_csv(cache / "index.tsv", sep="\t").assign(age=ages)
    index.to_csv(cache / "index.tsv", sep="\t", index=False, na_rep="n/a")
    return cache, folds


def train(toy, model, out):
    """Train on the first fold; return its predictions."""
    train_fold(*toy, model, DATASET, fold=1, seed=0, out=out, device="cpu")
    return read_table(out / "predictions.tsv", text=TEXT)


AGES = [20.0, 60.0] * 6


def test_a_model_learns_from_them_and_predicts_with_them(tmp_path):
    toy = with_ages(tmp_path, AGES)
    table = train(toy, model("age", "site", epochs=20), tmp_path / "run")
    assert (table["label"] == table["predicted"]).all()
    net, info = load_checkpoint(tmp_path / "run")
    columns = [{"column": "age", "mean": 40, "sd": 20}, {"column": "site", "levels": ["a"]}]
    assert net.n_covariates == 2 and info["covariates"] == columns
    predicted = predict(net, SeriesCache(toy[0]), [3, 0], info=info)
    np.testing.assert_allclose(predicted, table[["p_no", "p_yes"]].iloc[[3, 0]], atol=1e-12)
    other = SeriesCache(with_ages(tmp_path / "other", AGES[::-1])[0])
    assert (predict(net, other, range(12), info=info).argmax(1) == [1, 0] * 6).all()


def test_test_scans_do_not_touch_the_encoder(tmp_path):
    for name, ages in (("one", AGES), ("two", [*AGES[:10], None, 1e6])):
        train(with_ages(tmp_path / name, ages), model("age", epochs=2), tmp_path / name / "run")
    assert equal(weights(tmp_path / "one/run"), weights(tmp_path / "two/run"))
    assert read_json(tmp_path / "two/run/checkpoint.json")["covariates"][0]["mean"] == 40


def test_covariates_are_mixed_as_series_are(tmp_path, monkeypatch):
    seen = []
    real = BolT.forward

    def forward(self, x, covariates=None, **more):
        if self.training:
            seen.append((x.double().mean((1, 2)), covariates[:, 0]))
        return real(self, x, covariates=covariates, **more)

    monkeypatch.setattr(BolT, "forward", forward)
    toy = with_ages(tmp_path, AGES, level=lambda age: (age - 40) / 20)
    train(toy, model("age", epochs=3, mixup=1.0), tmp_path)
    series, covariates = (torch.cat(part) for part in zip(*seen, strict=True))
    assert (series.abs() < 0.99).any()  # some are mixed with the other age
    torch.testing.assert_close(covariates.double(), series, atol=1e-5, rtol=0)
