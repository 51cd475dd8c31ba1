"""The search finds planted values, reads no test scan, and is not changed by interruptions; or cannot start."""

from pathlib import Path

import numpy as np
import optuna
import pandas as pd
import pytest

import bolt.training.search
from bolt.config import (
    Config,
    FoldSettings,
    Model,
    Space,
    Training,
    load_dataset,
    load_experiment,
    load_model,
    load_space,
)
from bolt.config.layout import Layout
from bolt.experiments.entries import rows_of
from bolt.io.errors import ConfigError, DataError
from bolt.io.files import read_json, read_table, write_json, write_table
from bolt.series.cache import SeriesCache
from bolt.training.choice import write_shared
from bolt.training.search import Objective, search_fold
from bolt.training.space import (
    check_search,
    highest_rate,
    keys_with,
    narrow,
    settings_of,
    spans_of,
    values_of,
)
from tests.experiments.test_entries import configured
from tests.snake import write_yaml
from tests.training.test_runner import DATASET, HYPER, run, write_toy

SLOW = {"warmup_epochs": 1, "learning_rate": 1e-6, "peak_learning_rate": 2e-6, "final_learning_rate": 1e-6}
TOO_SLOW = Model(name="toy", model="bolt", hyper=HYPER, training=Training(epochs=3, batch_size=3, **SLOW))
SPACE = Space(
    name="toy",
    training={"learning_rate": {"low": 1e-6, "high": 0.1, "log": True}, "batch_size": {"low": 1, "high": 100}},
    hyper={"bolt": {"window": {"low": 4, "high": 200}}},
)
SVM_SPACE = Space(
    name="svm",
    hyper={"svm": {"C": {"low": 1e-4, "high": 1e3, "log": True}, "kernel": {"choices": ["linear", "rbf"]}}},
)


def search(toy, out: Path, n_trials=6, model=TOO_SLOW, space=SPACE, seed=0, dataset=DATASET):
    objective = Objective(*toy, model, dataset, 1, seed, "cpu")
    return search_fold(objective, model, space, n_trials, out, out / "scratch")


@pytest.fixture(scope="module")
def searched(toy, tmp_path_factory):
    out = tmp_path_factory.mktemp("search")
    return out, search(toy, out)


def trials(out: Path) -> pd.DataFrame:
    return read_table(out / "trials.tsv", text=("state", "reason"))


def assert_same(out: Path, other: Path):
    for name in ("trials.tsv", "best.json"):
        assert (out / name).read_bytes() == (other / name).read_bytes()


def test_it_finds_the_planted_better_rate(searched, toy, tmp_path):
    out, best = searched
    table = trials(out)
    assert table["trial"].tolist() == list(range(1, 7))
    assert table["training.learning_rate"][0] == 2e-6  # the model's own come first
    assert best["first_loss"] == pytest.approx(table["validation_loss"][0])
    assert best["validation_loss"] == pytest.approx(table["validation_loss"].min())
    assert best["validation_loss"] < 0.6 * best["first_loss"]
    assert best["values"]["training.learning_rate"] > 1e-3
    chosen = TOO_SLOW.model_copy(update={"by_fold": {1: FoldSettings(**best["settings"])}})
    folder = run(toy, tmp_path, chosen)
    loss = read_table(folder / "history.tsv")["validation_loss"].iloc[-1]
    assert loss == pytest.approx(best["validation_loss"], rel=1e-6)  # training by the result repeats the trial
    trained = read_json(folder / "checkpoint.json")["model"]
    assert trained["by_fold"] == {} and trained["hyper"]["window"] == best["values"]["hyper.window"]
    assert trained["training"]["peak_learning_rate"] == best["values"]["training.learning_rate"]


def test_test_scans_are_not_read(searched, tmp_path):
    def spoil(series):
        for values in series[-2:]:
            values[:] = float("nan")

    spoiled = write_toy(tmp_path / "toy", change=spoil, labels=["no", "yes"] * 5 + ["yes", "?"])
    search(spoiled, tmp_path, n_trials=3)
    columns = ["validation_loss", "validation_accuracy", "training.learning_rate", "hyper.window"]
    pd.testing.assert_frame_equal(trials(tmp_path)[columns], trials(searched[0])[columns].head(3))


def test_validation_scans_are_read_and_another_seed_searches_elsewhere(searched, toy, tmp_path):
    """With the same seed files are equal, even after an interruption (below)."""
    changed = write_toy(tmp_path / "toy", labels=["no", "yes"] * 4 + ["yes", "no"] + ["no", "yes"])
    search(changed, tmp_path / "changed", n_trials=1)
    assert trials(tmp_path / "changed")["validation_loss"][0] != trials(searched[0])["validation_loss"][0]
    search(toy, tmp_path / "other", n_trials=2, seed=1)
    rates = [trials(out)["training.learning_rate"][1] for out in (tmp_path / "other", searched[0])]
    assert rates[0] != rates[1]


def test_a_search_that_was_interrupted_or_had_fewer_trials_goes_on_unchanged(
    searched, toy, tmp_path, monkeypatch, every_epoch_saved
):
    real, calls = Objective.evaluate, []

    def stop(row):
        raise KeyboardInterrupt

    def evaluate(self, model, scratch, watch):
        calls.append(1)
        return real(self, model, scratch, stop if len(calls) == 4 else watch)

    monkeypatch.setattr(Objective, "evaluate", evaluate)
    search(toy, tmp_path, n_trials=2)
    (tmp_path / "best.json").unlink()
    with pytest.raises(KeyboardInterrupt):
        search(toy, tmp_path)
    assert not (tmp_path / "best.json").exists()
    assert (tmp_path / "scratch" / "resume.safetensors").is_file()  # its epochs are resumed too
    search(toy, tmp_path)
    assert len(calls) == 4 + 6 - 3
    assert_same(tmp_path, searched[0])
    search(toy, tmp_path)
    assert len(calls) == 7  # a finished search tries nothing more
    assert not (tmp_path / "scratch").exists()
    search(toy, tmp_path, n_trials=1, space=SPACE.model_copy(update={"hyper": {}}))
    assert "hyper.window" not in trials(tmp_path), "other ranges begin anew"


# ---- ranges ----------------------------------------------------------------------------------------------------------
def test_ranges_are_narrowed_to_what_fits(searched):
    out, best = searched
    assert best["narrowed"] == ["hyper.window up to 18 instead of 200", "training.batch_size up to 8 instead of 100"]
    table = trials(out)
    assert table["hyper.window"].between(4, 18).all() and table["training.batch_size"].between(1, 8).all()
    with pytest.raises(ConfigError, match="'hyper.window' is searched from 4, but the data allow at most 3"):
        narrow(spans_of(SPACE, TOO_SLOW), {"hyper.window": 3})


def test_the_schedule_keeps_its_shape():
    model = Model(name="toy", model="bolt", training=Training(epochs=20, warmup_epochs=10, schedule="linear"))
    own = settings_of(model, {"training.learning_rate": 2e-3, "training.epochs": 40}).training
    assert own == {
        "learning_rate": 1e-3, "peak_learning_rate": 2e-3, "final_learning_rate": 1e-4,
        "epochs": 40, "warmup_epochs": 20.0, "step_epochs": 40,
    }  # fmt: skip
    constant = Model(name="toy", model="bolt", training=Training(schedule="constant", learning_rate=1e-3))
    assert highest_rate(constant) == 1e-3
    assert settings_of(constant, {"training.learning_rate": 2e-3}).training["learning_rate"] == 2e-3


@pytest.mark.parametrize("highest", ["learning_rate", "peak_learning_rate", "final_learning_rate"])
@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_the_highest_rate_is_what_is_searched_wherever_it_lies(schedule, highest):
    rates = dict.fromkeys(["learning_rate", "peak_learning_rate", "final_learning_rate"], 1e-4) | {highest: 4e-4}
    model = Model(name="toy", model="bolt", training=Training(schedule=schedule, epochs=8, warmup_epochs=2.0, **rates))
    assert highest_rate(model) == 4e-4
    own = settings_of(model, {"training.learning_rate": 2e-3}).training
    assert own == {name: pytest.approx(5 * rate) for name, rate in rates.items()}


def test_the_models_own_values_are_moved_into_the_ranges():
    spans = spans_of(SPACE, TOO_SLOW.model_copy(update={"hyper": {**HYPER, "window": 2}}))
    assert values_of(TOO_SLOW, spans) == {
        "training.learning_rate": 2e-6, "training.batch_size": 3, "hyper.window": 6,
    }  # fmt: skip
    narrow_spans, _ = narrow(spans, {"hyper.window": 5})
    assert values_of(TOO_SLOW, narrow_spans)["hyper.window"] == 5


@pytest.mark.parametrize(
    ("span", "match"),
    [
        ({"low": 3, "high": 2}, "low <= high"),
        ({"low": 0, "high": 2, "log": True}, "must be above 0"),
        ({"low": 1, "high": 2, "choices": [1]}, "must be a non-empty list"),
    ],
)
def test_ranges_that_cannot_be_meant(span, match):
    with pytest.raises(ValueError, match=match):
        Space(name="x", training={"epochs": span})
    with pytest.raises(ValueError, match="no key 'learnig_rate'"):
        Space(name="x", training={"learnig_rate": {"low": 1, "high": 2}})


def test_settings_that_the_model_does_not_have():
    with pytest.raises(ConfigError, match="has no setting 'windw'.*did you mean 'window'"):
        spans_of(Space(name="x", hyper={"bolt": {"windw": {"low": 1, "high": 2}}}), TOO_SLOW)


# ---- trials that end early -------------------------------------------------------------------------------------------
def test_a_diverging_trial_is_pruned_and_the_search_continues(toy, tmp_path):
    wild = Space(name="wild", training={"learning_rate": {"choices": [1e-2, 1e30]}})
    best = search(toy, tmp_path, n_trials=6, space=wild)
    table = trials(tmp_path)
    diverged = table["training.learning_rate"] > 1
    assert 0 < diverged.sum() < 6
    assert (table.loc[diverged, "state"] == "pruned").all()
    assert table.loc[diverged, "reason"].str.contains("not finite").all()
    assert best["values"] == {"training.learning_rate": 1e-2} and best["n_complete"] == 6 - diverged.sum()


def test_trials_that_are_all_impossible(toy, tmp_path):
    impossible = Space(name="x", hyper={"bolt": {"stride_coefficient": {"low": 2.0, "high": 3.0}}})
    with pytest.raises(ConfigError, match="none of 2 trials of model 'toy' could be completed; the first: .*stride"):
        search(toy, tmp_path, n_trials=2, space=impossible)


def test_a_trial_worse_than_the_median_is_ended_early(monkeypatch):
    study, start = optuna.create_study(pruner=optuna.pruners.MedianPruner()), bolt.training.search._watch
    for _ in range(5):
        trial = study.ask()
        for epoch in range(1, 11):
            start(trial, 10)({"epoch": epoch, "validation_loss": 0.5})
        study.tell(trial, 0.5)
    watch = start(study.ask(), 100)
    for epoch in range(1, 10):
        watch({"epoch": epoch, "validation_loss": 0.7})  # not yet a tenth of its training
    with pytest.raises(optuna.TrialPruned, match="after 10 % of its epochs"):
        watch({"epoch": 10, "validation_loss": 0.7})


def test_what_is_wrong_with_the_data_ends_the_search(toy, tmp_path):
    nobody = write_toy(tmp_path / "a", roles=["train"] * 10 + ["test"] * 2)
    with pytest.raises(DataError, match="fold 1 has no validation scan"):
        search(nobody, tmp_path)
    one_class = write_toy(tmp_path / "b", labels=["no"] * 8 + ["no", "yes"] * 2)
    with pytest.raises(DataError, match="no training scan of class 'yes'"):
        search(one_class, tmp_path)


def test_a_window_in_other_units_is_narrowed_too(tmp_path):
    model = TOO_SLOW.model_copy(update={"model": "hatnet", "hyper": {"stride": 2}})
    assert Objective(*write_toy(tmp_path), model, DATASET, 1, 0, "cpu").limits["hyper.window"] == 9  # of 17 volumes


def test_trials_that_cannot_read_the_scans_are_pruned(tmp_path):
    """Whether a validation scan, all scans of a class, or all scans are too short."""
    space = Space(name="x", hyper={"hatnet": {"window": {"choices": [4, 8, 16]}}})
    model = TOO_SLOW.model_copy(update={"model": "hatnet", "hyper": {"hidden": 8, "channels": 8}})
    toy = write_toy(tmp_path, lengths=[30, 12] * 5 + [3, 3])
    best = search(toy, tmp_path, n_trials=6, model=model, space=space)
    table = trials(tmp_path)
    impossible = table["hyper.window"] > 4
    assert 0 < impossible.sum() < 6 and best["values"] == {"hyper.window": 4}  # which needs 7 volumes, 8 needs 15
    assert (table["state"] == "pruned").equals(impossible)


# ---- models without epochs -------------------------------------------------------------------------------------------
def test_a_model_without_epochs_is_searched_alike(toy, tmp_path):
    model = Model(name="svm", model="svm")
    best = search(toy, tmp_path, n_trials=5, model=model, space=SVM_SPACE)
    table = trials(tmp_path)
    assert table["hyper.C"][0] == 1 and set(table["hyper.kernel"]) <= {"linear", "rbf"}
    assert best["validation_loss"] == pytest.approx(table["validation_loss"].min())
    assert best["settings"]["training"] == {}


def test_a_corrected_repetition_time_begins_a_new_search(tmp_path):
    """Windows may be in seconds."""
    found = []
    for tr in (2.0, 0.72):
        cache, folds = write_toy(tmp_path / f"{tr}")
        index = cache / "index.tsv"
        read_table(index, text=("scan_id",)).assign(tr=tr).to_csv(index, sep="\t", index=False)
        model = Model(name="svm", model="svm")
        found.append(Objective(cache, folds, model, DATASET, 1, 0).fingerprint(model, {}))
    assert found[0] != found[1]


def test_a_model_of_a_file_is_searched_on_its_vectors(toy, tmp_path):
    """Which need not have test scans; the label is in the vectors of the first file only."""
    index = SeriesCache(toy[0]).index[:10]
    space = Space(name="x", hyper={"features": {"penalty": {"low": 0.1, "high": 10.0}}})
    losses = []
    for name, shift in (("a", 5), ("b", 0)):
        vectors = np.random.default_rng(0).normal(size=(10, 3)) + shift * (index[["label"]] == "yes").to_numpy()
        table = pd.DataFrame(vectors, columns=["x", "y", "z"]).assign(scan_id=index["scan_id"])
        table.to_csv(tmp_path / f"{name}.tsv", sep="\t", index=False)
        model = Model(name="own", model="features", file=tmp_path / f"{name}.tsv")
        losses.append(search(toy, tmp_path / name, n_trials=2, model=model, space=space)["validation_loss"])
    assert losses[0] < 0.5 * losses[1]


# ---- at the start of the workflow ------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"models": ["majority"]}, "no setting of model 'majority' is searched"),
        ({"models": ["ensemble"]}, "model 'ensemble' combines others"),
        ({"space": "papr"}, "unknown search 'papr'.*did you mean 'paper'"),
        ({"models": ["bol"]}, "unknown model 'bol'"),
    ],
)
def test_what_a_search_cannot_begin_with(keys, words):
    with pytest.raises(ConfigError, match=words):
        check_search(configured(search=keys))


@pytest.mark.parametrize(("space", "model"), [("paper", "bolt"), ("few_scans", "bolt_tuned")])
def test_the_first_trial_of_a_shipped_space_has_the_values_of_its_model(space, model):
    (searched,) = check_search(configured(search={"space": space, "models": [model]}))
    spans = spans_of(load_space(space), searched)
    values = values_of(searched, spans)
    assert values.keys() == spans.keys()
    own = settings_of(searched, values)
    assert own.training == {key: getattr(searched.training, key) for key in own.training}
    assert own.hyper == {key: searched.hyper[key] for key in own.hyper}


def test_what_a_search_chose_replaces_the_values_of_single_datasets():
    """HCP-Task has a batch size of its own in this recipe, and ABIDE-I a crop, which no search changes."""
    recipe = load_model("bolt_published")
    chosen = FoldSettings(training={"batch_size": 64, "epochs": 7}, hyper={"window": 10})
    model = Model.model_validate({"name": "searched"} | keys_with(recipe, "paper", chosen))
    for name in ("hcp_task", "abide1"):
        on, dataset = model.on(load_dataset(name))
        assert (on.training.batch_size, on.training.epochs, on.hyper["window"]) == (64, 7, 10)
        assert dataset.crop == recipe.on(load_dataset(name))[1].crop
    unchanged = Model.model_validate({"name": "same"} | keys_with(recipe, "paper", FoldSettings(hyper={"window": 20})))
    assert unchanged.hash() == recipe.hash() and unchanged.searched == "paper"


def test_models_of_the_run_that_cannot_be_searched_are_skipped(tmp_path):
    by_fold = {0: FoldSettings(hyper={"window": 10}).model_dump()}
    done = str(write_yaml(tmp_path / "done.yaml", {"model": "bolt", "by_fold": by_fold}))
    searched = check_search(configured(models=["majority", "bolt", done, "svm"]))
    assert [model.name for model in searched] == ["bolt", "svm"]
    with pytest.raises(ConfigError, match="already has settings by fold"):
        check_search(configured(search={"models": [done]}))


def test_a_setting_of_any_model_of_the_space_is_checked(tmp_path):
    space = write_yaml(tmp_path / "space.yaml", {"hyper": {"lstm": {"hiden": {"low": 1, "high": 2}}}})
    with pytest.raises(ConfigError, match="no setting 'hiden'"):
        check_search(configured(search={"space": str(space)}))


# ---- one choice of hyper-parameters for all datasets: the same candidates everywhere, and one near the best of each --
MODEL = Model(name="svm", model="svm", title="SVM", hyper={"C": 1.0})


def study(folder: Path, losses: list[float | None], values: tuple[float, ...] = (1.0, 0.1, 10.0)) -> Path:
    """A search as it is left: losses of candidates; None: pruned."""
    table = pd.DataFrame({"trial": range(1, len(losses) + 1), "validation_loss": losses, "hyper.C": values})
    table["training.epochs"], table["training.clip_gradient"] = 7, [1.0, None, None]
    table = table.assign(state=["pruned" if v is None else "complete" for v in losses], reason=None)
    table["validation_accuracy"] = 0.5
    write_table(table, folder / "trials.tsv", dict.fromkeys(table.columns, "Made up"))
    write_json({"n_trials": len(losses), "seed": 0, "fold": 0}, folder / "best.json")
    return folder


def test_the_choice_is_near_the_best_of_every_study(tmp_path: Path) -> None:
    """Candidate 1 is best in the first study, 2 in the second; 3 is never best, but 4 % from it in both."""
    first = study(tmp_path / "a", [0.50, 0.80, 0.52])
    second = study(tmp_path / "b", [0.90, 0.50, 0.52])
    write_shared({"one, x": first, "two, y": second}, MODEL, tmp_path / "svm.yaml")
    chosen = load_model(str(tmp_path / "svm.yaml"))
    assert chosen.hyper["C"] == 10.0 and chosen.by_fold == {} and chosen.title == "SVM"
    text = (tmp_path / "svm.yaml").read_text()
    assert "clip_gradient: null\n" in text  # which was chosen, too
    assert "epochs: 7\n" in text  # a whole number, although the others are not
    assert "#   one, x: 4.0 %" in text and "#   two, y: 4.0 %" in text and "Candidate 3 of 3" in text
    table = read_table(tmp_path / "svm_trials.tsv", text=("study",))
    assert len(table) == 6 and table.groupby("trial")["worst_excess"].first().round(2).tolist() == [0.8, 0.6, 0.04]


def test_a_candidate_that_failed_anywhere_is_not_chosen(tmp_path: Path) -> None:
    studies = {"a": study(tmp_path / "a", [0.9, 0.5, 0.5]), "b": study(tmp_path / "b", [0.9, 0.5, None])}
    write_shared(studies, MODEL, tmp_path / "svm.yaml")
    assert load_model(str(tmp_path / "svm.yaml")).hyper["C"] == 0.1
    studies["c"] = study(tmp_path / "c", [None, None, 0.5])
    with pytest.raises(ConfigError, match="no candidate of model 'svm' was completed in all studies: a, b, c"):
        write_shared(studies, MODEL, tmp_path / "svm.yaml")


def test_studies_of_other_candidates_are_refused(tmp_path: Path) -> None:
    studies = {"a": study(tmp_path / "a", [1.0] * 3), "b": study(tmp_path / "b", [1.0] * 3, (1.0, 0.1, 9.0))}
    with pytest.raises(DataError, match="a and b tried different candidates"):
        write_shared(studies, MODEL, tmp_path / "svm.yaml")


def test_all_datasets_try_the_same_candidates(tmp_path: Path) -> None:
    """Although other scans, or shorter ones, allow other windows and batches."""
    tables = []
    for name, crop in (("a", DATASET.crop), ("b", 6)):
        toy = write_toy(tmp_path / name)
        objective = Objective(*toy, TOO_SLOW, DATASET.model_copy(update={"crop": crop}), 1, 0, "cpu")
        search_fold(objective, TOO_SLOW, SPACE, 6, tmp_path / name / "out", tmp_path / name / "s", shared=True)
        tables.append(trials(tmp_path / name / "out"))
    drawn = [table.filter(regex=r"\.") for table in tables]
    pd.testing.assert_frame_equal(*drawn)
    assert drawn[0]["hyper.window"].max() > 100  # the ranges are not narrowed
    too_long = tables[1][tables[1]["hyper.window"] > 6]
    assert len(too_long) and (too_long["state"] == "pruned").all()
    assert too_long["reason"].str.contains("the data allow at most").all()
    assert tables[1]["state"][0] == "complete"  # the model's own values


def test_experiments_use_the_choice_where_it_is_switched_on(tmp_path: Path) -> None:
    config = Config(dataset="abide1", atlases=["cc200"], paths={"results": tmp_path})
    on = config.model_copy(update={"search": config.search.model_copy(update={"use": True})})
    write_shared({"a": study(tmp_path / "a", [1.0, 0.5, 0.8])}, load_model("svm"), Layout(config).shared_choice("svm"))
    comparison = load_experiment("comparison")
    plain, searched = ({row.row: model for row, model in rows_of(comparison, c)} for c in (config, on))
    assert list(plain) == list(searched)  # titles, and so the paper's rows, are the same
    assert searched["SVM"].hyper["C"] == 0.1 and plain["SVM"].hyper.get("C", 1.0) == 1.0
    assert searched["SVM"].run_name != plain["SVM"].run_name and searched["SVM"].run_name.startswith("svm-")
    assert searched["BolT"].run_name == plain["BolT"].run_name  # was not searched
