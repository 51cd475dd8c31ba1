"""The RO-Crate of a dataset's results, by the rules of RO-Crate 1.1 and of the profile Process Run Crate 0.5."""

import json
import re
from datetime import datetime
from urllib.parse import unquote

import pytest

from bolt.io.files import sha256, write_json
from bolt.jobs.run_crate import NAME, write_run_crate

PROFILE = "https://w3id.org/ro/wfrun/process/0.5"
DAY = "2026-11-2{}T06:00:23+0000"
KNOWN_ELSEWHERE = ("https://w3id.org/ro/crate/", "http://schema.org/")
"""Identifiers of the standards themselves, which need no entity."""


def note(path, stage, inputs, outputs, day=1, **facts):
    """Write the provenance of a job."""
    record = {
        "stage": stage,
        "command": f"bolt {stage} --config results/mine/config.yaml",
        "date": DAY.format(day),
        "bolt": "0.1.0",
        "commit": "a" * 40,
        "changed": False,
        "python": "3.11.7",
        "packages": {"numpy": "2.3.5", "torch": "2.13.0+cpu"},
        "inputs": {str(name): sha256(name) if name.is_file() else "e" * 64 for name in inputs},
        "outputs": {name: sha256(path.parent / name) for name in outputs},
        "wall_seconds": 83.0,
    }
    write_json(record | facts, path)


@pytest.fixture
def results(tmp_path):
    """Two jobs, the second of which reads what the first wrote; and what does not count."""
    folder = tmp_path / "results/mine"
    (folder / "fold 0").mkdir(parents=True)
    config, scans, people = folder / "config.yaml", folder / "scans.tsv", tmp_path / "participants.tsv"
    for path in (config, scans, people, folder / "fold 0/predictions.tsv", folder / "x.html"):
        path.write_text(path.name)
    note(folder / "scans_provenance.json", "index", [config, people], ["scans.tsv"])
    listed = [config, scans, tmp_path / "gone (120 files)"]
    note(folder / "fold 0/provenance.json", "train", listed, ["predictions.tsv"], day=2, changed=True)
    (folder / "damaged_provenance.json").write_text('{"stage": "tra')
    (folder / "other_provenance.json").write_text("[]")
    return folder


def references(value):
    """Yield every identifier that a value refers to."""
    if isinstance(value, dict):
        yield value["@id"]
        assert set(value) == {"@id"}, value  # RO-Crate is flat
    elif isinstance(value, list):
        for part in value:
            yield from references(part)


def written(results):
    """Write a crate, and check it; returns its entities."""
    write_run_crate(results, "mine")
    return check_crate(results)


def check_crate(results):
    """What RO-Crate 1.1 and the profile require of every crate; returns its entities."""
    content = json.loads((results / NAME).read_text())
    entities = {entity["@id"]: entity for entity in content["@graph"]}
    assert len(entities) == len(content["@graph"])
    assert content["@context"][0] == "https://w3id.org/ro/crate/1.1/context"
    assert "https://w3id.org/ro/terms/workflow-run/context" in content["@context"]
    descriptor, root = entities["ro-crate-metadata.json"], entities["./"]
    assert descriptor["@type"] == "CreativeWork" and descriptor["about"] == {"@id": "./"}
    assert descriptor["conformsTo"] == {"@id": "https://w3id.org/ro/crate/1.1"}
    assert root["@type"] == "Dataset" and {"name", "description", "license"} <= set(root)
    assert datetime.fromisoformat(root["datePublished"])
    assert root["conformsTo"] == {"@id": PROFILE} and entities[PROFILE]["@type"] == "CreativeWork"
    for entity in entities.values():
        assert entity["@type"] and re.fullmatch(r"[\w./#:@%+~-]+", entity["@id"]), entity
        for name, value in entity.items():
            lost = [i for i in references(value) if i not in entities and not i.startswith(KNOWN_ELSEWHERE)]
            assert name.startswith("@") or not lost, (entity["@id"], name, lost)
    files = {name: entity for name, entity in entities.items() if entity["@type"] == "File"}
    assert {part["@id"] for part in root["hasPart"]} == set(files)
    for name, entity in files.items():
        path = results / unquote(name)
        assert path.is_file() and str(path.stat().st_size) == entity["contentSize"] and "/" in entity["encodingFormat"]
        assert entity.get("sha256") in (None, sha256(path)), name
    actions = {name: entity for name, entity in entities.items() if entity["@type"] == "CreateAction"}
    assert {action["@id"] for action in root["mentions"]} == set(actions)
    for action in actions.values():
        assert entities[action["instrument"]["@id"]]["@type"] == "SoftwareApplication"
        assert entities[action["instrument"]["@id"]]["softwareVersion"] and action["name"] and action["description"]
        assert datetime.fromisoformat(action["startTime"]) <= datetime.fromisoformat(action["endTime"])
        assert action["result"] and all(entities[result["@id"]]["@type"] == "File" for result in action["result"])
        assert all(entities[read["@id"]]["@type"] in ("File", "CreativeWork") for read in action["object"])
    return entities


def test_jobs_are_actions_with_what_they_read_and_wrote(results):
    entities = written(results)
    index, train = entities["#scans_provenance.json"], entities["#fold%200/provenance.json"]
    assert index["result"] == [{"@id": "scans.tsv"}] and {"@id": "scans.tsv"} in train["object"]
    assert train["result"] == [{"@id": "fold%200/predictions.tsv"}]
    assert train["description"] == "bolt train --config results/mine/config.yaml"
    assert index["startTime"] == "2026-11-21T05:59:00+00:00"
    assert {"@id": "pkg:pypi/torch@2.13.0%2Bcpu"} in entities[index["instrument"]["@id"]]["softwareRequirements"]
    assert entities["./"]["datePublished"] == "2026-11-22T06:00:23+00:00"
    assert entities[train["instrument"]["@id"]]["softwareVersion"] == "0.1.0+aaaaaaaaaa.changed"
    assert entities[index["instrument"]["@id"]]["softwareVersion"] == "0.1.0+aaaaaaaaaa"
    assert "x.html" not in entities  # no job noted it

    outside = {entity["name"] for name, entity in entities.items() if name.startswith("#sha256-")}
    assert outside == {"participants.tsv", "gone (120 files)"}
    assert str(results.parents[1]) not in json.dumps(list(entities.values()))


def test_a_file_that_has_changed_since_a_job_read_it_is_not_called_its_input(results):
    (results / "config.yaml").write_text("a: 2")
    entities = written(results)
    assert {"@id": "config.yaml"} not in entities["#scans_provenance.json"]["object"]
    assert [e["name"] for i, e in entities.items() if i.startswith("#sha256-")].count("config.yaml") == 1


def test_outputs_that_were_deleted_are_not_listed(results):
    (results / "scans.tsv").unlink()
    entities = written(results)
    assert "scans.tsv" not in entities
    assert entities["#scans_provenance.json"]["result"] == [{"@id": "scans_provenance.json"}]


def test_results_without_any_job_are_a_crate(tmp_path):
    written(tmp_path)
