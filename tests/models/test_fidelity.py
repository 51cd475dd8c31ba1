"""Every model states how close it is to the method that it is named after."""

import re

import pytest

from bolt.config import Config, known, load_experiment, load_model
from bolt.experiments.entries import rows_of
from bolt.io.places import ROOT
from bolt.report.sections.training_text import network_text
from tests.training.test_runner import DATASET

RECONSTRUCTED = {"cnn_lstm", "gc_lstm", "hatnet", "ift_net"}
"""Methods of which neither article nor code tells what the paper ran."""


@pytest.mark.parametrize("name", known("model"))
def test_every_model_states_its_fidelity_in_one_sentence(name):
    fidelity = load_model(name).fidelity
    assert fidelity is not None and fidelity.note.endswith(".") and not re.search(r"[.!?] [A-Z]", fidelity.note)


def test_reconstructed_models_are_named_in_the_documentation_too():
    stated = {name: load_model(name).fidelity for name in known("model")}
    assert {name for name, fidelity in stated.items() if fidelity.level == "reconstructed"} == RECONSTRUCTED
    lines = (ROOT / "docs/models.md").read_text().splitlines()
    for name, fidelity in stated.items():
        assert f"| `{name}` | {fidelity.level} | {fidelity.note} |" in lines


def test_the_methods_text_names_reconstructions():
    texts = {name: network_text(load_model(name), DATASET) for name in ("ift_net", "swint")}
    note = load_model("ift_net").fidelity.note
    assert texts["ift_net"].endswith(f"It is a reconstruction, not the original method: {note}")
    assert "reconstruct" not in texts["swint"]


def test_a_row_with_other_settings_may_state_another_fidelity():
    rows = {row.row: model for row, model in rows_of(load_experiment("baselines"), Config(dataset="abide1"))}
    assert all(model.fidelity for model in rows.values())
    assert rows["SVM, published code"].fidelity != rows["SVM, crops"].fidelity
