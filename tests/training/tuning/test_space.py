"""A search that cannot start is refused at the start of the workflow."""

import pytest

from bolt.config import FoldSettings, Model, load_dataset, load_model, load_space
from bolt.io.errors import ConfigError
from bolt.training.tuning.space import check_search, keys_with, settings_of, spans_of, values_of
from tests.experiments.test_entries import configured
from tests.snake import write_yaml


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"models": ["majority"]}, "no setting of model 'majority' is searched"),
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
