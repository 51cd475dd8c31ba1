"""Estimators: scikit-learn's conventions, and the workflow's weights."""

from __future__ import annotations

import copy
import fcntl
import pickle
import sys
import threading
from types import ModuleType
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from sklearn.utils import estimator_checks

import bolt
from bolt.config import known, load_model
from bolt.explain.explainable import has_importance
from bolt.io.errors import BoltError, ConfigError, DataError
from bolt.io.files import read_json, read_table, write_json, write_yaml
from bolt.training import loop
from bolt.training.checkpoint import load_checkpoint
from bolt.training.trainers import train_fold
from tests.caches import dataset, pack, scan_table, split
from tests.models.conformance import small as small_model

SMALL = {"hidden": 16, "n_blocks": 1, "n_heads": 2, "head_dim": 8, "window": 10}
QUICK = {"epochs": 2, "batch_size": 8, "crop": 30, "progress": False, "device": "cpu"}


def scans(n=24, n_rois=6, seed=0):
    """Series whose first ROIs vary together in class b."""
    rng = np.random.default_rng(seed)
    labels = np.array(["a", "b"])[rng.permutation(np.arange(n) % 2)]
    series = [rng.normal(size=(int(rng.integers(35, 50)), n_rois)).astype(np.float32) for _ in range(n)]
    for values, label in zip(series, labels, strict=True):
        if label == "b":
            values[:, :3] += 2 * rng.normal(size=(len(values), 1))
    return series, labels


SERIES, LABELS = scans()


def small(**settings):
    return bolt.BolTClassifier(**SMALL | QUICK | settings)


@pytest.fixture(scope="module")
def fitted():
    return small(epochs=3).fit(SERIES, LABELS, groups=np.arange(24) // 2, validation=0.2)


def test_one_seed_and_one_fold_give_the_workflows_weights_bit_for_bit(tmp_path):
    table = scan_table(LABELS)
    cache, folds = pack(tmp_path, SERIES, table), split(tmp_path, table, outer=3)
    model = load_model("bolt").model_copy(update={"hyper": {**load_model("bolt").hyper, **SMALL}})
    model = model.model_copy(update={"training": model.training.model_copy(update={"epochs": 2, "batch_size": 8})})
    train_fold(cache, folds, model, dataset(["a", "b"], 30), fold=0, seed=3, out=tmp_path / "fold-0", device="cpu")
    expected = load_checkpoint(tmp_path / "fold-0")[0].state_dict()

    roles = read_table(folds, text=("scan_id",)).query("fold == 0").set_index("scan_id")["role"]
    roles = roles.reindex(table["scan_id"]).to_numpy()
    learned, tested = np.flatnonzero(roles != "test"), np.flatnonzero(roles == "test")
    given = [SERIES[i] for i in learned], LABELS[learned]  # the order of scans is that of their names
    mine = small(seed=3).fit(*given, validation=roles[learned] == "validation")
    weights, others = (of.members_[0].model.state_dict() for of in (mine, small(seed=4).fit(*given)))
    torch.testing.assert_close(weights, expected, rtol=0, atol=0)
    assert any(not torch.equal(others[name], value) for name, value in weights.items())
    predicted = read_table(tmp_path / "fold-0" / "predictions.tsv", text=("scan_id",)).set_index("scan_id")
    probabilities = mine.predict_proba([SERIES[i] for i in tested])
    np.testing.assert_allclose(probabilities, predicted.loc[table["scan_id"][tested], ["p_a", "p_b"]], rtol=1e-6)


def test_predictions(fitted):
    probabilities = fitted.predict_proba(SERIES)
    assert probabilities.shape == (24, 2) and probabilities.dtype == np.float64
    assert fitted.classes_.tolist() == ["a", "b"]
    np.testing.assert_array_equal(fitted.predict(SERIES), np.array(["a", "b"])[probabilities.argmax(axis=1)])
    assert list(fitted.history_["epoch"]) == [1, 2, 3] and fitted.history_["validation_loss"].notna().all()
    stacked = np.stack([s[:35] for s in SERIES])
    np.testing.assert_allclose(fitted.predict_proba(stacked), fitted.predict_proba(list(stacked)))
    scaled = [7 * values + 1000 for values in SERIES[:3]]
    np.testing.assert_allclose(fitted.predict_proba(scaled), probabilities[:3], atol=1e-3)
    partly, constant = ([values.copy() for values in SERIES[:2]] for _ in range(2))
    for missing, steady in zip(partly, constant, strict=True):
        missing[:, 2], steady[:, 2] = np.nan, 5
    np.testing.assert_array_equal(fitted.predict_proba(partly), fitted.predict_proba(constant))


@pytest.mark.parametrize("classes", [[True, False], ["x", "y"], [3, 1], [1.0, 0.0]])
def test_labels_keep_their_type(classes, tmp_path):
    labels = np.array(classes)[(LABELS == "b").astype(int)]
    model = bolt.estimator("svm").fit(SERIES, labels)
    model.save(tmp_path / "model")
    for fitted in (model, bolt.load(tmp_path / "model")):
        assert set(fitted.predict(SERIES)) <= set(classes)
        assert fitted.classes_.dtype == labels.dtype and fitted.classes_.tolist() == sorted(classes)


def test_a_regressor_predicts_in_the_unit_of_the_labels(tmp_path):
    ages = 40 + 10 * (LABELS == "b") + np.arange(24) / 24
    model = bolt.BolTRegressor(**SMALL | QUICK).fit(SERIES, ages, validation=0.2)
    predicted = model.predict(SERIES)
    assert predicted.shape == (24,) and 30 < predicted.min() < predicted.max() < 60
    assert model.score(SERIES, ages) <= 1 and "validation_r2" in model.history_
    assert model.importance(SERIES[0]).shape == (len(SERIES[0]),)
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(bolt.load(tmp_path / "model").predict(SERIES), predicted)


def test_conventions():
    for check in (
        "check_estimator_cloneable", "check_estimator_repr", "check_no_attributes_set_in_init",
        "check_get_params_invariance", "check_set_params", "check_parameters_default_constructible",
        "check_estimator_tags_renamed", "check_valid_tag_types",
    ):  # fmt: skip
        getattr(estimator_checks, check)("BolTClassifier", small(seed=5))
    assert "seed=5" in repr(small(seed=5)) and "epochs=20" not in repr(bolt.BolTClassifier())
    shipped, parameters = load_model("bolt"), bolt.BolTClassifier().get_params()
    assert (shipped.hyper | shipped.training.model_dump()).items() <= parameters.items(), "defaults of the file"


def small_hybrid(folder):
    """The shipped ensemble with a small member, as a user's files."""
    small = load_model("bolt_small").model_dump(mode="json", exclude_unset=True)
    write_yaml({**small, "hyper": SMALL, "training": {"epochs": 1, "batch_size": 8}}, folder / "my_bolt.yaml")
    mine = load_model("bolt_hybrid").model_dump(mode="json", exclude_unset=True)
    write_yaml({**mine, "members": [str(folder / "my_bolt.yaml"), "ridge"]}, folder / "my_hybrid.yaml")
    return str(folder / "my_hybrid.yaml")


@pytest.mark.parametrize("name", known("model"))
def test_every_model_is_an_estimator(name, tmp_path):
    shipped = bolt.estimator(name).get_params()
    settings = {"epochs": 1, "batch_size": 16, "progress": False} if "epochs" in shipped else {}
    settings |= small_model(name).hyper
    if name == "bolt_hybrid":
        name = small_hybrid(tmp_path)
    about = {"tr": np.full(16, 2.0), "mean_fd": np.linspace(0, 1, 16), "site": np.array(["A", "B"] * 8)}
    series = [scan[:35] for scan in SERIES[:16]]  # scans of one length are predicted together
    model = bolt.estimator(name, crop=30, **settings).fit(series, LABELS[:16], scans=about)
    probabilities = model.predict_proba(series, scans=about)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(bolt.load(tmp_path / "model").predict_proba(series, scans=about), probabilities)
    if has_importance(model.configuration):
        assert model.importance(SERIES[0]).shape == (len(SERIES[0]),)
    else:
        with pytest.raises(ConfigError, match="importance is defined for BolT"):
            model.importance(SERIES[0])


def test_cross_validation_and_search_leave_the_random_state_alone_and_draw_no_bar(capsys):
    """In log files and in notebooks that are run by scripts there is no terminal to draw it on."""
    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    groups = np.arange(24) // 2
    scores = cross_val_score(small(epochs=1, progress=True), SERIES, LABELS, groups=groups, cv=GroupKFold(2))
    assert scores.shape == (2,) and np.isfinite(scores).all()
    assert torch.equal(torch.random.get_rng_state(), before) and "\r" not in capsys.readouterr().err
    svm = GridSearchCV(bolt.estimator("svm"), {"C": [0.1, 1.0]}, cv=GroupKFold(2)).fit(SERIES, LABELS, groups=groups)
    assert svm.best_score_ > 0.8


def test_copies_predict_alike(fitted):
    for twin in (pickle.loads(pickle.dumps(fitted)), copy.deepcopy(fitted)):
        np.testing.assert_array_equal(twin.predict_proba(SERIES), fitted.predict_proba(SERIES))
        assert type(twin) is type(fitted)


def test_an_interrupted_fit_resumes(tmp_path, monkeypatch, every_epoch_saved):
    whole = small(epochs=3).fit(SERIES, LABELS)
    save, epochs = loop.save_resume, []

    def stop_after_two(*arguments):
        save(*arguments)
        epochs.append(1)
        if len(epochs) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(loop, "save_resume", stop_after_two)
    with pytest.raises(KeyboardInterrupt):
        small(epochs=3, folder=tmp_path).fit(SERIES, LABELS)
    epochs[:] = [1, 1]  # from now on count only
    resumed = small(epochs=3, folder=tmp_path).fit(SERIES, LABELS)
    assert len(epochs) == 3, "one epoch was left"
    again = small(epochs=3, folder=tmp_path).fit(SERIES, LABELS)
    assert len(epochs) == 3, "a finished training is not repeated"
    for model in (resumed, again):
        np.testing.assert_array_equal(model.predict_proba(SERIES), whole.predict_proba(SERIES))
    small(epochs=3, folder=tmp_path, seed=1).fit(SERIES, LABELS)
    assert len(epochs) == 6, "other settings are another training"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"X": []}, "no scans"),
        ({"X": SERIES[0]}, r"one scan x is \[x\]"),
        ({"X": [*SERIES[:-1], SERIES[-1][:, :5]]}, "scan 23 has 5 ROIs, but scan 0 has 6"),
        ({"X": [*SERIES[:-1], np.full((40, 6), np.inf)]}, "scan 23: inf in row 0, column 0"),
        ({"X": [*SERIES[:-1], [["a"] * 6] * 40]}, "scan 23: not an array of numbers"),
        ({"X": "series.npy"}, "a str, not a list of scans"),
        ({"y": LABELS[:-1]}, r"labels have shape \(23,\) for 24 scans"),
        ({"y": ["a"] * 24}, "only one class: a"),
        ({"y": [None, *LABELS[1:]]}, "labels: number 0 is missing"),
        ({"groups": np.array(["F1", None] * 12).astype(str)}, "groups: number 1 is missing"),
        ({"groups": np.arange(5)}, r"groups have shape \(5,\)"),
        ({"validation": 0.7}, "validation is 0.7"),
        ({"validation": np.arange(24)}, "one True or False per scan"),
        ({"validation": np.ones(24, bool)}, "all scans are for validation"),
        ({"validation": np.arange(24) < 3, "groups": np.arange(24) // 2}, "group '1' is in training and"),
        ({"X": [np.ma.masked_less(values, -1) for values in SERIES]}, "scan 0: nan in row"),
        ({"X": [torch.tensor(values, requires_grad=True) for values in SERIES]}, "requires grad"),
        ({"X": [values.astype("datetime64[s]") for values in SERIES]}, "scan 0: not an array of numbers"),
        ({"y": np.where(LABELS == "a", "a", "a ")}, "labels: 'a ' .* has spaces around it"),
        ({"y": np.where(LABELS == "a", "a", "n/a")}, "labels: 'n/a' is empty"),
        ({"y": np.where(LABELS == "a", "a", "b\rc")}, "characters that do not print"),
        ({"y": np.where(LABELS == "a", b"a", b"b")}, "labels of type bytes_"),
        ({"y": np.where(LABELS == "a", "1", "1.0")}, "labels that are one class in tables: 1, 1"),
        ({"y": np.array([1 if label == "a" else "1" for label in LABELS], object)}, "labels of several types"),
        ({"y": np.linspace(0, 1, 24)}, "Use a regressor"),
        ({"groups": [""] * 24}, "groups: '' is empty"),
        ({"validation": "0.1"}, "validation is 0.1"),
        ({"scans": "x"}, "scans: not a table"),
        ({"scans": {"age": ["old"] * 24}}, "scans: age 'old' is not a number"),
        ({"scans": {"height": np.arange(24)}}, "unknown column 'height'. Known: site"),
        ({"scans": {"age": [1.0]}}, "1 rows for 24 scans"),
    ],
)
def test_what_cannot_be_fitted_is_refused(change, message):
    with pytest.raises(DataError, match=message):
        small().fit(**{"X": SERIES, "y": LABELS} | change)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"epoch": 3}, TypeError, r"BolTClassifier has no setting 'epoch' \(did you mean 'epochs'\?\)"),
        ({"epochs": 0}, ConfigError, "epochs"),
        ({"hidden": -1}, ConfigError, "'hidden' is -1"),
        ({"hidden": 1.5}, ConfigError, "must be a whole number"),
        ({"crop": 0}, ConfigError, "'crop': Input should be greater than or equal to 1"),
        ({"window": 32}, ConfigError, "crops of 30 volumes are shorter than the 32 that"),
        ({"window": 60}, DataError, "scan 0 has 41 volumes, but the model needs at least 60"),
        ({"device": "tpu"}, ConfigError, "device"),
        ({"seed": -1}, ConfigError, "seed"),
        ({"covariates": ["age"]}, DataError, "missing for all training scans"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings, error, message):
    with pytest.raises(error, match=message):
        small(**settings).fit(SERIES, LABELS)


def test_the_best_epoch_is_chosen_on_held_out_groups():
    chosen = small(epochs=6, epoch_choice="best_validation", peak_learning_rate=5e-3).fit(SERIES, LABELS)
    best = chosen.history_["validation_loss"].to_numpy()[::-1].argmin()
    assert chosen.members_[0].info["epoch"] == 6 - best
    with pytest.raises(ConfigError, match="needs validation scans"):
        small(epoch_choice="best_validation").fit(SERIES, LABELS, validation=0)


def test_scans_that_do_not_fit_the_model_are_refused(fitted):
    with pytest.raises(DataError, match="5 ROIs, but the model was trained on 6"):
        fitted.predict([s[:, :5] for s in SERIES])
    with pytest.raises(DataError, match="scan 1 has 8 volumes, but the model needs at least"):
        fitted.predict([SERIES[0], SERIES[1][:8]])
    with pytest.raises(Exception, match="not fitted"):
        small().predict(SERIES)
    with pytest.raises(ConfigError, match="predicts classes only"):
        bolt.estimator("svm", regressor=True).fit(SERIES, np.arange(24.0))
    with pytest.raises(ConfigError, match=r"unknown model 'svn'.*did you mean 'svm'"):
        bolt.estimator("svn")


def test_a_saved_model_holds_no_participant_and_replaces_nothing_else(fitted, tmp_path):
    fitted.save(tmp_path / "model")
    fitted.save(tmp_path / "model")  # again, over itself
    files = sorted(path.relative_to(tmp_path / "model").as_posix() for path in (tmp_path / "model").rglob("*.*"))
    assert files == [
        "history.json", "history.tsv", "member-0/checkpoint.json", "member-0/checkpoint.safetensors", "model.json",
    ]  # fmt: skip
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("x")
    with pytest.raises(ConfigError, match="not an empty folder"):
        fitted.save(tmp_path / "other")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"members": ["../../etc"]}, "'members' is not a list"),
        ({"members": []}, "'members' is not a list"),
        ({"members": ["member-0"] * 10**5}, "'members' is not a list"),
        ({"format": 99}, "format 99"),
        ({"classes": ["a", "c"]}, r"classes are \['a', 'c'\]"),
        ({"classes": [{"a": 1}, "b"]}, "'classes' is not"),
        ({"settings": {"os.system": "rm"}}, "has no setting"),
        ({"model": {"name": "x"}}, "not a model's description"),
        ({"settings": None}, "not a model's description"),
    ],
)
def test_a_hostile_model_is_refused_and_runs_no_code(fitted, tmp_path, change, message):
    fitted.save(tmp_path / "model")
    about = tmp_path / "model" / "model.json"
    write_json(read_json(about) | change, about)
    with pytest.raises(DataError, match=message):
        bolt.load(tmp_path / "model")


def test_a_hub_is_asked_only_when_told_to(fitted, tmp_path, monkeypatch):
    fitted.save(tmp_path / "model")

    def snapshot_download(name, allow_patterns):
        assert not any(pattern.endswith((".py", ".pkl", ".bin", ".pt", "*")) for pattern in allow_patterns), "code"
        if name == "no/such":
            raise OSError("404")
        return str(tmp_path / "model")

    hub = ModuleType("huggingface_hub")
    hub.snapshot_download, hub.errors = Mock(side_effect=snapshot_download), ModuleType("huggingface_hub.errors")
    hub.errors.HfHubHTTPError, hub.errors.HFValidationError = OSError, ValueError
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    monkeypatch.setitem(sys.modules, "huggingface_hub.errors", hub.errors)
    with pytest.raises(DataError, match=r"no such folder.*load\('someone/model', hub=True\)"):
        bolt.load("someone/model")
    with pytest.raises(DataError, match="no trained model in this folder"):
        bolt.load(tmp_path)
    hub.snapshot_download.assert_not_called()
    np.testing.assert_array_equal(bolt.load("someone/model", hub=True).predict(SERIES), fitted.predict(SERIES))
    with pytest.raises(BoltError, match="cannot be downloaded .404.*Check the name"):
        bolt.load("no/such", hub=True)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ConfigError, match="the package 'huggingface_hub' is missing"):
        bolt.load("someone/model", hub=True)


def test_a_fit_that_fails_leaves_what_was_fitted_and_a_foreign_model_does_not_choose_where_files_are(tmp_path):
    model = bolt.estimator("svm").fit(SERIES, LABELS)
    expected = model.predict(SERIES)
    model.save(tmp_path / "model")
    stated = read_json(tmp_path / "model/model.json")
    stated["settings"]["folder"] = str(tmp_path / "elsewhere")
    write_json(stated, tmp_path / "model/model.json")
    bolt.load(tmp_path / "model").fit(SERIES, LABELS)
    assert not (tmp_path / "elsewhere").exists()
    with pytest.raises(DataError):
        model.fit(SERIES, np.where(LABELS == "a", "c", "d"), validation=np.ones(24, bool))
    np.testing.assert_array_equal(model.predict(SERIES), expected)


@pytest.mark.parametrize(
    ("model", "column"),
    [(bolt.estimator("svm", harmonise="combat"), "site"), (small(epochs=1, covariates=("sex",)), "sex")],
)
def test_sites_and_sexes_are_the_same_as_numbers_and_as_text(model, column):
    model.fit(SERIES, LABELS, scans={column: np.array([1, 2] * 12)})
    given = (np.array([1, 2] * 12), np.array([1.0, 2.0] * 12), ["1", "2"] * 12, [" 1", "2 "] * 12)
    expected, *others = (model.predict_proba(SERIES, scans={column: values}) for values in given)
    for other in others:
        np.testing.assert_array_equal(other, expected)
    if column == "sex":
        assert not np.array_equal(model.predict_proba(SERIES, scans={"sex": ["n/a"] * 24}), expected)
    with pytest.raises(DataError, match="'scans' is not given"):
        model.predict(SERIES)


def test_an_ensemble_refuses_to_predict_without_the_sites_it_learned_from(tmp_path):
    write_yaml({"model": "ensemble", "members": ["ridge", "site_only"]}, tmp_path / "both.yaml")
    model = bolt.estimator(str(tmp_path / "both.yaml")).fit(SERIES, LABELS, scans={"site": ["1", "2"] * 12})
    with pytest.raises(DataError, match="'scans' is not given"):
        model.predict_proba(SERIES)


def test_a_repetition_time_that_is_given_goes_before_that_of_the_scans():
    for given, used in (({"tr": 2.0}, 2.0), ({}, 0.72)):
        model = bolt.estimator("gc_lstm", window_seconds=20.0, **QUICK | {"epochs": 1} | given)
        model.fit(SERIES, LABELS, scans={"tr": [0.72] * 24})
        assert model.members_[0].info["model"]["hyper"]["tr"] == used


def test_threads_of_a_training_are_not_those_of_the_next():
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        small(threads=1, epochs=1).fit(SERIES, LABELS)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_the_same_fit_in_another_process_is_waited_for(tmp_path):
    expected = bolt.estimator("svm", folder=tmp_path).fit(SERIES, LABELS).predict_proba(SERIES)
    (folder,) = tmp_path.iterdir()
    (folder / "fold-0" / "status.json").unlink()
    again = bolt.estimator("svm", folder=tmp_path)
    with (folder / ".lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        thread = threading.Thread(target=again.fit, args=(SERIES, LABELS))
        thread.start()
        thread.join(1)
        assert thread.is_alive() and not hasattr(again, "members_")
    thread.join()
    np.testing.assert_array_equal(again.predict_proba(SERIES), expected)


def test_named_columns_are_put_in_the_order_of_fit(tmp_path):
    names = [f"roi{i}" for i in range(6)]
    scans = [pd.DataFrame(scan, columns=names) for scan in SERIES]
    mixed = [scan[names[::-1]] if i % 2 else scan for i, scan in enumerate(scans)]
    model = bolt.estimator("svm").fit(mixed, LABELS)
    assert model.feature_names_in_.tolist() == names
    expected = bolt.estimator("svm").fit(SERIES, LABELS).predict_proba(SERIES)
    model.save(tmp_path / "model")
    for fitted in (model, bolt.load(tmp_path / "model")):
        for given in (scans, mixed, SERIES, np.array([None, *scans], object)[1:]):  # the last as a search hands them on
            np.testing.assert_array_equal(fitted.predict_proba(given), expected)
        with pytest.raises(DataError, match="columns of other names.*such as 'roi0'"):
            fitted.predict([scan.add_prefix("x") for scan in scans])
    with pytest.raises(DataError, match="scan 1: columns of other names"):
        bolt.estimator("svm").fit([scans[0], scans[1].iloc[:, :-1], *scans[2:]], LABELS)
    assert not hasattr(model.fit(SERIES, LABELS), "feature_names_in_")


def test_numbers_of_numpy_are_settings(tmp_path):
    model = small(epochs=np.int64(1), seed=np.int32(3), window=np.int64(10), learning_rate=np.float32(1e-4))
    plain = small(epochs=1, seed=3, window=10, learning_rate=float(np.float32(1e-4)))
    model.fit(SERIES, LABELS).save(tmp_path / "model")
    expected = plain.fit(SERIES, LABELS).predict_proba(SERIES)
    for fitted in (model, bolt.load(tmp_path / "model")):
        np.testing.assert_array_equal(fitted.predict_proba(SERIES), expected)
