"""Training of ensembles: members as if alone, pooled by validation scans only, and resumed where they were stopped."""

import numpy as np
import pytest

from bolt.config import Model, load_model
from bolt.config.models import FoldSettings
from bolt.explain.importance import explain_fold, importance_of, load_bolt
from bolt.explain.weights import read_importance
from bolt.io.errors import ConfigError, DataError
from bolt.io.files import read_json, read_table
from bolt.models.suitability import check_members, shortest_scan
from bolt.series.cache import SeriesCache
from bolt.training import trainers, training_modules
from bolt.training.ensembles import load_member, predict_each
from bolt.training.features import train_features
from bolt.training.outputs import Training
from bolt.training.trainers import train_fold
from tests.models.conformance import small_model
from tests.training.test_features import dataset, files_of, make_cache, svm

SMALL_BOLT = small_model(load_model("bolt"))
BOLT = SMALL_BOLT.model_copy(update={"training": SMALL_BOLT.training.model_copy(update={"epochs": 1})})


def pool(*members, **settings):
    return Model(name="pool", model="ensemble", members=list(members), **settings)


def train(folder, model, out="pool", fold=0, seed=0):
    target = folder / out / f"fold-{fold}"
    place = {"fold": fold, "seed": seed, "out": target, "device": "cpu", "progress": False}
    train_fold(*files_of(folder), model, dataset(), **place)
    return target


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_cache(
        tmp_path_factory.mktemp("ensembles"), site=lambda scans: scans["site"].map({"x": "01", "y": "02"})
    )


@pytest.fixture(scope="module")
def hybrid(folder):
    return train(folder, pool(BOLT, svm(), BOLT), "hybrid")


def probabilities(folder):
    return read_table(folder / "predictions.tsv")[["p_A", "p_B"]].to_numpy()


def test_members_are_trained_as_if_alone_and_one_named_twice_has_two_seeds(folder, hybrid):
    alone = folder / "alone/fold-0"
    assert train_features(*files_of(folder), svm(), dataset(), [Training(0, 0, alone)]) == [None]
    first, vectors, again = (hybrid / "members" / name for name in ("0-bolt", "1-svm", "2-bolt"))
    np.testing.assert_array_equal(probabilities(alone), probabilities(vectors))
    assert set(read_table(hybrid / "predictions.tsv", text=("site",))["site"]) == {"01", "02"}
    seeds = [read_json(member / "checkpoint.json")["seed"] for member in (first, again)]
    assert seeds[0] != seeds[1] and not np.allclose(probabilities(first), probabilities(again))


def test_all_members_learn_from_the_same_share_of_the_subjects(folder, hybrid):
    """Although each has its own seed, by which it would draw another share."""
    part = train(folder, pool(BOLT, svm(), BOLT, train_share=0.5), "share")
    tables = [read_table(path) for path in sorted(part.glob("members/*/predictions.tsv"))]
    tables.append(read_table(part / "predictions.tsv"))
    used = [set(table.loc[table["role"] == "train", "scan_id"]) for table in tables]
    whole = set(read_table(hybrid / "predictions.tsv").query("role == 'train'")["scan_id"])
    assert len(tables) == 4 and all(scans == used[0] for scans in used)
    assert used[0] < whole and 0.4 < len(used[0]) / len(whole) < 0.6  # families are kept together


def test_test_scans_change_nothing_that_is_learned(folder, hybrid, tmp_path):
    """Other labels of test scans leave temperatures and weights as they are."""
    table = read_table(hybrid / "predictions.tsv")
    validation = (table["role"] == "validation").to_numpy()
    features = np.concatenate([probabilities(path) for path in sorted((hybrid / "members").iterdir())], axis=1)
    model = load_member(hybrid).model.model
    learned = {name: value.copy() for name, value in model.state().items()}
    model.fit(features[validation], (table["label"] == "B").to_numpy(int)[validation], np.empty(0))
    for name, value in model.state().items():
        np.testing.assert_allclose(value, learned[name], rtol=1e-6)


def test_a_checkpoint_predicts_what_the_run_did_and_can_be_moved(folder, hybrid, tmp_path):
    cache = SeriesCache(folder / "cache")
    table = read_table(hybrid / "predictions.tsv").set_index("scan_id").loc[cache.index["scan_id"]]
    member = load_member(hybrid)
    np.testing.assert_allclose(predict_each([member], cache, "cpu")[0], table[["p_A", "p_B"]], rtol=1e-5)
    member.save(tmp_path / "moved")
    moved = predict_each([load_member(tmp_path / "moved")], cache, "cpu")
    np.testing.assert_array_equal(moved, predict_each([member], cache, "cpu"))


def test_a_member_that_is_missing_or_foreign_is_an_error(folder, hybrid, tmp_path):
    load_member(hybrid).save(tmp_path / "torn")
    (tmp_path / "torn/members/1-svm/checkpoint.safetensors").unlink()
    with pytest.raises(DataError, match=r"1-svm.*file not found"):
        load_member(tmp_path / "torn")


def test_finished_members_are_kept_unless_what_they_depend_on_has_changed(folder, spied):
    trained = []
    spied(trainers, "train_folds", lambda _, cache, folds, model, *rest: trained.append(model.name))
    train(folder, pool(svm(), BOLT), "resumed")
    train(folder, pool(svm(), BOLT), "resumed")
    assert [name for name in trained if name != "pool"] == ["svm", "bolt"]
    train(folder, pool(svm(hyper={"C": 0.1}), BOLT), "resumed")
    assert [name for name in trained if name != "pool"] == ["svm", "bolt", "svm"]


def test_it_is_explained_by_its_bolt_for_the_class_that_it_predicts(folder, hybrid):
    explain_fold(SeriesCache(folder / "cache"), hybrid, "cpu")
    index, weights = read_importance(hybrid)
    bolt, info = load_bolt(hybrid)
    assert info["model"]["name"] == "bolt"
    predicted = read_table(hybrid / "predictions.tsv").set_index("scan_id")["predicted"]
    assert (index.set_index("scan_id")["predicted"] == predicted.loc[index["scan_id"]]).all()
    cache = SeriesCache(folder / "cache")
    series = [cache.series(list(cache.index["scan_id"]).index(scan)) for scan in index["scan_id"]]
    expected = importance_of(bolt, series, "cpu", [["A", "B"].index(name) for name in index["predicted"]])
    for weight, again in zip(weights, expected, strict=True):
        np.testing.assert_allclose(weight, again, rtol=1e-5)


def test_its_run_is_named_by_its_members():
    names = [pool(svm(), BOLT), pool(BOLT, svm()), pool(svm(hyper={"C": 0.1}), BOLT)]
    assert len({model.run_name for model in names}) == 3
    again = Model.model_validate(names[0].model_dump(mode="json"))
    assert again.run_name == names[0].run_name
    assert svm().run_name == Model(name="svm", model="svm", members=[]).run_name


def test_its_code_and_shortest_scan_are_those_of_its_members():
    model = load_model("bolt_hybrid")
    assert {"bolt.training.runner", "bolt.training.features", "bolt.models.bolt", "bolt.models.ridge"} < set(
        training_modules(model)
    )
    assert shortest_scan(model) == shortest_scan(load_model("bolt_tuned")) > 2


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (pool(svm()), "needs two models"),
        (pool(svm(), pool(svm(), svm())), "is an ensemble itself"),
        (svm(members=["ridge"]), "has no members"),
    ],
)
def test_what_cannot_be_combined_is_refused(model, message):
    with pytest.raises(ConfigError, match=message):
        check_members(model)


def test_members_chosen_by_validation_scans_are_warned_of(caplog):
    check_members(load_model("bolt_hybrid"))
    check_members(load_model("ensemble"))
    assert not caplog.records
    searched = BOLT.model_copy(update={"name": "searched", "by_fold": {0: FoldSettings(hyper={"window": 10})}})
    check_members(pool(load_model("meanmlp"), load_model("bnt"), searched, load_model("ridge")))
    (record,) = caplog.records
    assert "epoch or settings of 'meanmlp', 'bnt', 'searched', which" in record.getMessage()
