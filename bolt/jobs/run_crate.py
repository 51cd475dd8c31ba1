"""The results of a dataset as an RO-Crate: what provenance recorded, in the vocabulary of repositories and tools.

``ro-crate-metadata.json`` follows RO-Crate 1.1 (https://w3id.org/ro/crate/1.1) and the profile Process Run Crate 0.5
(https://w3id.org/ro/wfrun/process/0.5): each job is an action, with BolT as its instrument, the files it read and the
files it wrote.
"""

from __future__ import annotations

import json
import mimetypes
import os
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

from bolt.io.files import read_yaml, sha256, write_json
from bolt.jobs.ledger import provenance_files

NAME = "ro-crate-metadata.json"


def write_run_crate(results: Path, dataset: str) -> None:
    """Write ``ro-crate-metadata.json`` into the folder of a dataset's results.

    Each entity is listed once; references are to entities or to the profile's own identifiers.

    Parameters
    ----------
    results : Path
    dataset : str
        Its name.
    """
    jobs = []
    for path in sorted(provenance_files(results)):
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            _ = record["stage"], record["command"], record["inputs"], record["bolt"]
            jobs.append((datetime.strptime(record["date"], "%Y-%m-%dT%H:%M:%S%z"), path, record))
        except (OSError, ValueError, KeyError, TypeError):  # of another program, or damaged
            continue
    jobs.sort(key=lambda entry: entry[:2])
    fixed = read_yaml(Path(__file__).with_suffix(".yaml"))
    entities: dict[str, dict[str, Any]] = {entity["@id"]: entity for entity in fixed["@graph"]}

    def add(identifier: str, kind: str, **facts: Any) -> dict[str, str]:
        """Add an entity, or facts to the one that is there; return a reference to it."""
        entities[identifier] = entities.get(identifier, {"@id": identifier, "@type": kind}) | facts
        return {"@id": identifier}

    def add_file(path: str | Path, **facts: str) -> dict[str, str] | None:
        """Add a file of the results, and return a reference to it; None if it is missing or elsewhere."""
        name = os.path.relpath(path, results)
        if name.startswith("..") or not os.path.isfile(path):
            return None
        known = fixed["formats"].get(Path(name).suffix) or mimetypes.guess_type(name)[0]
        about = {"contentSize": str(os.path.getsize(path)), "encodingFormat": known or "application/octet-stream"}
        return add(quote(name), "File", name=name, **about, **facts)

    def add_input(name: str, digest: str) -> dict[str, str]:
        """Return a reference to a file that a job read: one of the results if it still is that, else its hash."""
        if reference := add_file(name):
            entity = entities[reference["@id"]]
            if (entity.get("sha256") or sha256(Path(name))) == digest:
                entity["sha256"] = digest
                return reference
        known = entities.get(f"#sha256-{digest}", {"name": Path(name).name, "sha256": digest})
        return add(f"#sha256-{digest}", "CreativeWork", **known)

    def add_software(kind: str, name: str, version: str, **facts: Any) -> dict[str, str]:
        """Add a program, and return a reference: its package URL (https://github.com/package-url/purl-spec)."""
        identifier = f"pkg:{kind}/{quote(name)}@{quote(version, safe='')}"
        return add(identifier, "SoftwareApplication", name=name, softwareVersion=version, **facts)

    if (config := results / "config.yaml").is_file():
        add_file(config, sha256=sha256(config), description="The merged configuration of the run")
    for _, path, record in jobs:  # in the order of time: of a file that two jobs wrote, the later hash holds
        for name, digest in record.get("outputs", {}).items():
            add_file(path.parent / name, sha256=digest)
    for end, path, record in jobs:
        version, about = record["bolt"], {}
        if commit := record.get("commit"):
            version += f"+{commit[:10]}{'.changed' if record.get('changed') else ''}"
            about["description"] = f"Commit {commit}{' with local changes' if record.get('changed') else ''}"
        built_on = [add_software("generic", "python", record["python"])] if "python" in record else []
        built_on += [add_software("pypi", *package) for package in record.get("packages", {}).items()]
        outputs = [add_file(path.parent / name) for name in record.get("outputs", {})]
        note = add_file(path, description="Provenance: versions, hashes, time and memory of a job")
        place = path.relative_to(results)
        folder = "./" if place.parent == Path() else quote(place.parent.as_posix())
        add(
            f"#{quote(place.as_posix())}",
            "CreateAction",
            name=f"{record['stage']}: {folder}",
            description=record["command"],
            startTime=(end - timedelta(seconds=record.get("wall_seconds", 0))).isoformat(timespec="seconds"),
            endTime=end.isoformat(),
            actionStatus={"@id": "http://schema.org/CompletedActionStatus"},
            instrument=add_software("generic", "bolt-fmri", version, softwareRequirements=built_on, **about),
            object=[add_input(name, digest) for name, digest in record["inputs"].items() if digest],
            result=[reference for reference in outputs if reference] or [note],
            subjectOf=note,
        )
    published = max((end for end, *_ in jobs), default=datetime.now().astimezone())
    add(
        "./",
        "Dataset",
        name=f"BolT's results on dataset {dataset}",
        datePublished=published.isoformat(timespec="seconds"),
        hasPart=[{"@id": name} for name, entity in entities.items() if entity["@type"] == "File"],
        mentions=[{"@id": name} for name, entity in entities.items() if entity["@type"] == "CreateAction"],
    )
    write_json({"@context": fixed["@context"], "@graph": list(entities.values())}, results / NAME)
