"""The registry of models, and errors that suggest the nearest known name."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys

import pytest
import torch

from bolt.config import known, load_model
from bolt.io.errors import ConfigError
from bolt.io.places import ROOT
from bolt.models import declared as declarations
from bolt.models.base import ModelOutput
from bolt.models.declared import declared
from bolt.models.parts.features import FeatureModel
from bolt.models.parts.settings import annotations_of
from bolt.models.registry import check_model, create_model, crops_alike, ignores_tail, known_models, with_facts
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


def test_the_tail_is_ignored_only_where_there_are_windows():
    assert ignores_tail("bolt", {"tail": "drop"}) and ignores_tail("tff", {})
    assert not ignores_tail("bolt", {}) and not ignores_tail("bolt", {"tail": "drop", "windowed": False})


def test_known_models_are_sorted():
    assert "bolt" in known_models()
    assert known_models() == sorted(known_models())


def test_a_model_takes_series_and_returns_model_output():
    model = create_model("bolt", 7, 3, hidden=8, n_heads=2, head_dim=4, n_blocks=2, window=5)
    out = model(torch.randn(2, 12, 7))
    assert isinstance(out, ModelOutput)
    assert out.logits.shape == (2, 3)
    assert model.min_length == 5


def test_seed_decides_the_weights():
    def weights(seed):
        torch.manual_seed(seed)
        return torch.cat([p.flatten() for p in create_model("bolt", 7, 2, hidden=8, n_heads=1).parameters()])

    assert torch.equal(weights(1), weights(1))
    assert not torch.equal(weights(1), weights(2))


@pytest.mark.parametrize("name", known_models())
def test_the_source_declares_what_the_class_has(name):
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
    monkeypatch.setattr("bolt.models.declared.PACKAGE", tmp_path)
    assert declared("odd") is None
    (tmp_path / "models/odd.py").write_text(text.replace("compute()", "3"))
    declarations._tree.cache_clear()
    assert inspect.signature(declared("odd")).parameters["size"].default == 3


def test_unknown_model():
    with pytest.raises(ConfigError, match=r"unknown model 'bolr'.*did you mean 'bolt'"):
        create_model("bolr", 7, 2)


def test_unknown_setting():
    with pytest.raises(ConfigError, match=r"no setting 'hiden'.*did you mean 'hidden'"):
        create_model("bolt", 7, 2, hiden=3)


@pytest.mark.parametrize(
    ("name", "key", "value", "message"),
    [
        ("stagin", "orthogonality_weight", "1e-5", "is '1e-5', but must be a number.*1.0e-5, not 1e-5"),
        ("svm", "C", "1e-3", "must be a number"),
        ("svm", "gamma", "auto", "must be a number or one of scale"),
        ("svm", "kernel", "poly", "must be one of linear, rbf"),
        ("stagin", "window", 20.0, "is 20.0, but must be a whole number. Write 20"),
        ("stagin", "window", 20.5, "Write a whole number"),
        ("stagin", "window", True, "must be a whole number"),
        ("gc_lstm", "window_seconds", None, "is None, but must be a number. .*remove the line"),
        ("gc_lstm", "window_seconds", float("inf"), "must be a number"),
        ("braingnn", "complete", "yes", "must be true or false"),
        ("brainnetcnn", "linear", 30, "must be a list, each item a whole number"),
        ("bolt", "fringe", ["2"], "must be a list, each item a whole number or null"),
        ("stagin", "n_heads", 0, "Set it to at least 1"),
        ("lstm", "hidden", 0, "Set it to at least 1"),
        ("bolt", "n_covariates", -1, "Set it to at least 1"),
        ("meanmlp", "dropout", 1.5, "must be at least 0 and below 1"),
        ("hatnet", "word_dropout", -0.1, "must be at least 0 and below 1"),
        ("swint", "drop_path", 1, "must be at least 0 and below 1"),
    ],
)
def test_a_value_that_a_setting_cannot_have(name, key, value, message):
    with pytest.raises(ConfigError, match=f"hyper.{key}: '{key}' .*{message}"):
        check_model(name, {key: value})


@pytest.mark.parametrize(
    ("name", "hyper"),
    [
        ("svm", {"C": 1, "gamma": "scale"}),
        ("svm", {"gamma": 0.1}),
        ("bolt", {"stride": None, "fringe": [0, 4], "n_covariates": 0, "dropout": 0}),
        ("brainnetcnn", {"linear": (8, 8)}),
        ("swint", {"head_dim": None}),
    ],
)
def test_values_that_a_setting_can_have(name, hyper):
    check_model(name, hyper)


@pytest.mark.parametrize("name", known("model"))
def test_every_model_configuration_builds(name):
    config = load_model(name)
    create_model(config.model, 160, 2, **config.hyper)
