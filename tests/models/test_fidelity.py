"""Every model states how close it is to the method that it is named after."""

import re

import pytest

from bolt.config import Config, Experiment, known, load_experiment, load_model
from bolt.config.models import Fidelity
from bolt.experiments.entries import rows_of
from bolt.io.places import ROOT

RECONSTRUCTED = {"cnn_lstm", "gc_lstm", "hatnet", "ift_net", "lstm"}
"""Methods of which neither article nor code tells what the paper ran."""


def test_every_model_states_its_fidelity_in_one_sentence_here_and_in_the_documentation():
    stated = {name: load_model(name).fidelity for name in known("model")}
    assert {name for name, fidelity in stated.items() if fidelity.level == "reconstructed"} == RECONSTRUCTED
    assert stated["svm"].level == stated["meanmlp"].level == "core"  # they train otherwise than published
    lines = (ROOT / "docs/models.md").read_text().splitlines()
    for name, fidelity in stated.items():
        assert fidelity.note.endswith(".") and not re.search(r"[.!?] [A-Z]", fidelity.note), name
        assert f"| `{name}` | {fidelity.level} | {fidelity.note} |" in lines


OWN = Fidelity(level="exact", note="As in another paper.")
OF_BOLT = load_model("bolt").fidelity
CHANGES = [
    ({"hyper": {"n_heads": 36}}, None),
    ({"training": {"epochs": 21}}, None),
    ({"connectivity": "crop"}, None),
    ({"hyper": {"n_heads": 40}, "training": {"epochs": 20}, "connectivity": "scan"}, OF_BOLT),
    ({"train_share": 0.5}, OF_BOLT),
    ({"hyper": {"window": 10}, "paper": {"window_size": "10"}}, OF_BOLT),
    ({"hyper": {"window": 10}, "fidelity": OWN.model_dump()}, OWN),
]


@pytest.mark.parametrize(("change", "fidelity"), CHANGES)
def test_a_row_that_changes_a_published_method_is_not_as_published_unless_it_says_so(change, fidelity):
    changed = Experiment(name="e", title="E", rows=[{"row": "changed", "model": "bolt", **change}])
    [(_, model)] = rows_of(changed, Config(dataset="abide1"))
    assert model.fidelity == fidelity and OF_BOLT.level == "exact"


def test_a_reconstruction_with_other_settings_stays_one():
    sweep = {"row": "{model} {value}", "models": ["ift_net", "bolt"], "key": "training.epochs", "values": [3]}
    swept = rows_of(Experiment(name="e", title="E", sweeps=[sweep]), Config(dataset="abide1"))
    assert [model.fidelity for _, model in swept] == [load_model("ift_net").fidelity, None]
    stated = Experiment(name="e", title="E", sweeps=[sweep | {"fidelity": {"level": "core", "note": "Short."}}])
    assert {model.fidelity.note for _, model in rows_of(stated, Config(dataset="abide1"))} == {"Short."}


@pytest.mark.parametrize("name", [*known("experiment"), "benchmarks/abide_tuning.yaml"])
def test_rows_of_experiments_state_how_close_they_are(name):
    """Rows of `config/experiments` that change settings have a note of their own, or are rows of the paper."""
    experiment = load_experiment(name)
    if experiment.kind == "spectra":
        return
    for row, model in rows_of(experiment, Config(dataset="abide1")):
        assert model.fidelity is not None, row.row
        changes = row.hyper or row.training or row.connectivity or row.members
        assert not changes or row.fidelity or row.paper or name.startswith("benchmarks/"), row.row
