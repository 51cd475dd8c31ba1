"""What can be explained is known before any work."""

from __future__ import annotations

from pathlib import Path

import pytest

from bolt.config import Model, load_dataset
from bolt.explain.explainable import can_be_explained, has_importance
from bolt.workflow.run import Run
from tests.snake import write_yaml


@pytest.mark.parametrize(
    ("keys", "answer"),
    [
        ({}, True),
        ({"model": "lstm"}, False),
        ({"covariates": ["age"]}, False),
        ({"hyper": {"cls_token": "global"}}, True),
        ({"hyper": {"cls_token": "none"}}, False),
        ({"by_fold": {0: {"hyper": {}}, 1: {"hyper": {"cls_token": "none"}}}}, False),
        ({"hyper": {"cls_token": "none"}, "by_fold": {0: {"hyper": {"cls_token": "local"}}}}, True),
    ],
)
def test_only_bolt_with_cls_tokens_and_series_alone(keys: dict, answer: bool) -> None:
    model = Model(**{"name": "m", "model": "bolt"} | keys)
    dataset = load_dataset("series")
    assert has_importance(model) == can_be_explained(model, dataset) == answer
    assert not can_be_explained(model, dataset.model_copy(update={"classes": None}))


def test_no_explanation_is_asked_of_what_has_none(tmp_path: Path) -> None:
    path = write_yaml(tmp_path / "without.yaml", {"model": "bolt", "hyper": {"cls_token": "none"}})
    run = Run({"dataset": "series", "models": [str(path)]})
    assert run.explanations() == [] and run.explanation_pages() == []
