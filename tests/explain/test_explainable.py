"""What can be explained is known before any work."""

from bolt.config import Model, load_dataset
from bolt.explain.explainable import can_be_explained, has_importance
from bolt.workflow.run import Run
from tests.snake import write_yaml

NONE, LOCAL, GLOBAL = ({"hyper": {"cls_token": kind}} for kind in ("none", "local", "global"))


def test_only_bolt_with_cls_tokens_and_series_alone():
    dataset = load_dataset("series")
    for keys, answer in (
        ({}, True),
        ({"model": "lstm"}, False),
        ({"covariates": ["age"]}, False),
        (GLOBAL, True),
        (NONE, False),
        ({"by_fold": {0: {"hyper": {}}, 1: NONE}}, False),
        (NONE | {"by_fold": {0: LOCAL}}, True),
    ):
        model = Model(**{"name": "m", "model": "bolt"} | keys)
        assert has_importance(model) == can_be_explained(model, dataset) == answer, keys
        assert not can_be_explained(model, dataset.model_copy(update={"classes": None}))


def test_no_explanation_is_asked_of_what_has_none(tmp_path):
    run = Run({"dataset": "series", "models": [str(write_yaml(tmp_path / "without.yaml", {"model": "bolt"} | NONE))]})
    assert run.explanations() == [] and run.explanation_pages() == []
