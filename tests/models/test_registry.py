"""The registry of models, and errors that suggest the nearest known name."""

import inspect
import re
import subprocess
import sys

import pytest
import torch

from bolt.config import load_model
from bolt.io.errors import ConfigError
from bolt.io.places import ROOT
from bolt.models import registry
from bolt.models.parts.features import FeatureModel
from bolt.models.parts.settings import annotations_of
from bolt.models.registry import (
    check_model,
    create_model,
    crops_alike,
    declared,
    ignores_tail,
    known_models,
    with_facts,
)
from bolt.models.suitability import shortest_scan
from bolt.training.batches import learns_from_batches, needs_equal_lengths

HYPER = {"logistic": {"n_covariates": 1}}
"""What a model needs to be created."""


def test_the_documentation_has_the_number_of_weights():
    text = (ROOT / "docs/models.md").read_text().split("\n| model | weights |")[1].split("\n\n")[0]
    stated = re.findall(r"(`[^|]*) \| ([\d.]+) \|", text)
    names = [(name, millions) for group, millions in stated for name in re.findall(r"`(\w+)`", group)]
    assert len(names) > 14
    for name, millions in names:
        model = load_model(name)
        with torch.device("meta"):
            net = create_model(model.model, 400, 2, **with_facts(model.model, model.hyper, {"crop": 600, "tr": 0.72}))
        weights = sum(parameter.numel() for parameter in net.parameters()) / 1e6
        assert f"{weights:.{len(millions.partition('.')[2])}f}" == millions, name


def test_every_model_needs_two_volumes():
    assert shortest_scan(load_model("longformer")) == 2


def test_the_tail_is_ignored_only_where_there_are_windows():
    assert ignores_tail("bolt", {"tail": "drop"}) and ignores_tail("tff", {})
    assert not ignores_tail("bolt", {}) and not ignores_tail("bolt", {"tail": "drop", "windowed": False})


@pytest.mark.parametrize("name", known_models())
def test_the_source_declares_what_the_class_has(name):
    with torch.device("meta"):
        net = create_model(name, 160, 2, **HYPER.get(name, {}))
    light, real = declared(name), type(net)
    assert str(inspect.signature(light)) == str(inspect.signature(real))
    assert annotations_of(light) == annotations_of(real)
    assert light.inputs == real.inputs and issubclass(light, FeatureModel) == issubclass(real, FeatureModel)
    if not issubclass(real, FeatureModel):
        settings = {key: parameter.default for key, parameter in inspect.signature(real).parameters.items()}
        assert light.shortest(settings) == real.shortest(settings) and light.min_length == real.min_length
        assert light.scans_interact == learns_from_batches(net) and crops_alike(name) == needs_equal_lengths(net)


def test_models_are_checked_without_torch():
    code = "import sys; from bolt.models.registry import check_model; check_model('bolt', {'window': 8}); "
    code += "sys.exit(bool({'torch', 'sklearn'} & set(sys.modules)))"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_source_that_computes_a_default_is_imported(tmp_path, monkeypatch):
    (tmp_path / "models").mkdir()
    text = "@register('odd')\nclass Odd(FeatureModel):\n    def __init__(self, n_rois, n_classes, size=compute()): ..."
    (tmp_path / "models/odd.py").write_text(text)
    monkeypatch.setattr("bolt.models.registry.PACKAGE", tmp_path)
    declared.cache_clear()
    assert declared("odd") is None
    (tmp_path / "models/odd.py").write_text(text.replace("compute()", "3"))
    declared.cache_clear()
    registry._tree.cache_clear()
    assert inspect.signature(declared("odd")).parameters["size"].default == 3


@pytest.mark.parametrize(
    ("name", "key", "value", "message"),
    [
        ("svm", "C", "1e-3", "must be a number"),
        ("svm", "gamma", "auto", "must be a number or one of scale"),
        ("svm", "kernel", "poly", "must be one of linear, rbf"),
        *((name, "C", 0, "must be above 0") for name in ("svm", "logistic")),
        ("svm", "gamma", -1.0, "must be above 0"),
        ("stagin", "window", 20.5, "Write a whole number"),
        ("stagin", "window", True, "must be a whole number"),
        ("gc_lstm", "window_seconds", None, "is None, but must be a number. .*remove the line"),
        ("gc_lstm", "window_seconds", float("inf"), "must be a number"),
        ("braingnn", "complete", "yes", "must be true or false"),
        ("brainnetcnn", "linear", 30, "must be a list, each item a whole number"),
        ("bolt", "fringe", ["2"], "must be a list, each item a whole number or null"),
        ("bolt", "n_covariates", -1, "Set it to at least 1"),
        ("hatnet", "word_dropout", -0.1, "must be at least 0 and below 1"),
        ("swint", "drop_path", 1, "must be at least 0 and below 1"),
        ("ensemble", "prior", -1.0, "must not be negative"),
        *(("ridge", "penalty", value, "must be above 0") for value in (0.0, -1.0)),
        *(("tangent", "shrinkage", value, "must be above 0 and below 1") for value in (0.0, 1.0)),
        # what classes check themselves
        ("tff", "stride", 21, "at most the window of 20"),
        ("ift_net", "kernel", 4, "odd"),
        ("cnn_lstm", "kernel", 4, "odd, such as 3 or 5"),
        ("hatnet", "window", 1, "at least 2"),
        ("stagin", "density", 1.0, "must be above 0 and below 1"),
        ("gc_lstm", "tr", 0.0, "must be above 0"),
        ("braingnn", "edge_share", 10.0, "must be above 0 and at most 1, not 10"),
    ],
)
def test_a_value_that_a_setting_cannot_have(name, key, value, message):
    with pytest.raises(ConfigError, match=f"hyper.{key}: '{key}' .*{message}"):
        create_model(name, 6, 2, **{key: value})


def test_a_network_of_edges_needs_a_layer_of_edges():
    with pytest.raises(ConfigError, match="at least one channel"):
        create_model("brainnetcnn", 6, 2, edge_channels=[])


def test_values_that_a_setting_can_have():
    check_model("svm", {"C": 1, "gamma": "scale"})
    check_model("svm", {"gamma": 0.1})
    check_model("bolt", {"stride": None, "fringe": [0, 4], "n_covariates": 0, "dropout": 0})
    check_model("brainnetcnn", {"linear": (8, 8)})
    check_model("swint", {"head_dim": None})
