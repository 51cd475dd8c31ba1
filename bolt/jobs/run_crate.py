"""The results of a dataset as an RO-Crate: what provenance recorded, in the vocabulary of repositories and tools.

``ro-crate-metadata.json`` follows RO-Crate 1.1 (https://w3id.org/ro/crate/1.1) and the profile Process Run Crate 0.5
(https://w3id.org/ro/wfrun/process/0.5): each job is an action, with BolT as its instrument, the files it read and the
files it wrote.
"""

from __future__ import annotations

import json
import logging
import mimetypes
import os
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

from bolt.io.files import sha256, write_json

log = logging.getLogger("bolt")

NAME = "ro-crate-metadata.json"
CONTEXT = ["https://w3id.org/ro/crate/1.1/context", "https://w3id.org/ro/terms/workflow-run/context"]
PROFILE = "https://w3id.org/ro/wfrun/process/0.5"
FORMATS = {
    ".tsv": "text/tab-separated-values",
    ".yaml": "application/yaml",
    ".md": "text/markdown",
    ".bib": "application/x-bibtex",
    ".gz": "application/gzip",
    ".h5": "application/x-hdf5",
}
"""Media types that Python does not know everywhere."""

Entity = dict[str, Any]


def refresh_run_crate(results: Path, dataset: str) -> None:
    """Write the crate of a dataset's results at the end of a run; an error is only logged."""
    try:
        write_run_crate(results, dataset)
    except Exception as error:
        log.warning("%s was not written: %s", NAME, error)


def write_run_crate(results: Path, dataset: str) -> None:
    """Write ``ro-crate-metadata.json`` into the folder of a dataset's results.

    Parameters
    ----------
    results : Path
    dataset : str
        Its name.
    """
    write_json({"@context": CONTEXT, "@graph": graph(results, dataset)}, results / NAME)


def graph(results: Path, dataset: str) -> list[Entity]:
    """Return the entities of a crate, each once; references are to entities or to the profile's own identifiers."""
    crate, records = _Crate(results), _records(results)
    if (config := results / "config.yaml").is_file():
        crate.add_file(config, sha256(config), "The merged configuration of the run")
    for path, record in records:  # in the order of time: of a file that two jobs wrote, the later hash holds
        for name, digest in record.get("outputs", {}).items():
            crate.add_file(path.parent / name, digest)
    for path, record in records:
        crate.add_action(path, record)
    files = [entity for entity in crate.entities.values() if entity["@type"] == "File"]
    root: Entity = {
        "@id": "./",
        "@type": "Dataset",
        "name": f"BolT's results on dataset {dataset}",
        "description": "Region-of-interest series, trained models, predictions and explanations of fMRI scans, with "
        "the jobs that made them. Files of jobs that failed are not listed.",
        "datePublished": max(crate.ends, default=datetime.now().astimezone()).isoformat(timespec="seconds"),
        "license": {"@id": "#licence"},
        "conformsTo": {"@id": PROFILE},
        "hasPart": _references(files),
        "mentions": _references([e for e in crate.entities.values() if e["@type"] == "CreateAction"]),
    }
    licence = {
        "@id": "#licence",
        "@type": "CreativeWork",
        "name": "No licence stated",
        "description": "Whoever publishes these results chooses a licence that the licence of the scans allows.",
    }
    descriptor = {
        "@id": NAME,
        "@type": "CreativeWork",
        "conformsTo": {"@id": "https://w3id.org/ro/crate/1.1"},
        "about": {"@id": "./"},
    }
    profile = {"@id": PROFILE, "@type": "CreativeWork", "name": "Process Run Crate", "version": "0.5"}
    return [descriptor, root, profile, licence, *crate.entities.values()]


def _records(results: Path) -> list[tuple[Path, Mapping[str, Any]]]:
    """Return every readable provenance file below a folder with its content, following links, by its date."""
    walked = os.walk(results, followlinks=True)
    paths = [Path(folder) / name for folder, _, names in walked for name in names if name.endswith("provenance.json")]
    records = []
    for path in sorted(paths):
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            _ = record["stage"], record["command"], record["inputs"], record["bolt"]
            records.append((_end(record), path, record))
        except (OSError, ValueError, KeyError, TypeError):  # of another program, or damaged
            continue
    return [(path, record) for _, path, record in sorted(records, key=lambda entry: entry[:2])]


def _end(record: Mapping[str, Any]) -> datetime:
    return datetime.strptime(record["date"], "%Y-%m-%dT%H:%M:%S%z")


class _Crate:
    """The entities of a crate by their identifiers."""

    def __init__(self, results: Path) -> None:
        self.results = results
        self.entities: dict[str, Entity] = {}
        self.ends: list[datetime] = []

    def add_action(self, path: Path, record: Mapping[str, Any]) -> None:
        """Add a job, with its program, the files it read, and those of its outputs that are there."""
        end = _end(record)
        self.ends.append(end)
        inputs = [self._input(name, digest) for name, digest in record["inputs"].items() if digest]
        outputs = [self.add_file(path.parent / name) for name in record.get("outputs", {})]
        identifier = f"#{self._relative(path)}"
        note = self.add_file(path, description="Provenance: versions, hashes, time and memory of a job")
        self.entities[identifier] = {
            "@id": identifier,
            "@type": "CreateAction",
            "name": f"{record['stage']}: {self._relative(path.parent) or './'}",
            "description": record["command"],
            "startTime": (end - timedelta(seconds=record.get("wall_seconds", 0))).isoformat(timespec="seconds"),
            "endTime": end.isoformat(),
            "actionStatus": {"@id": "http://schema.org/CompletedActionStatus"},
            "instrument": self._program(record),
            "object": inputs,
            "result": [reference for reference in outputs if reference] or [note],
            "subjectOf": note,
        }

    def add_file(self, path: Path, digest: str | None = None, description: str = "") -> Entity | None:
        """Add a file of the results, and return a reference to it; None if it is missing or elsewhere."""
        if not (path.is_file() and path.is_relative_to(self.results)):
            return None
        relative = path.relative_to(self.results)
        suffix = path.suffix
        entity = {
            "@id": quote(relative.as_posix()),
            "@type": "File",
            "name": relative.as_posix(),
            "contentSize": str(path.stat().st_size),
            "encodingFormat": FORMATS.get(suffix) or mimetypes.guess_type(path.name)[0] or "application/octet-stream",
        }
        known = {"sha256": digest, "description": description}
        entity |= {name: text for name, text in known.items() if text}
        self.entities[entity["@id"]] = self.entities.get(entity["@id"], {}) | entity
        return {"@id": entity["@id"]}

    def _input(self, name: str, digest: str) -> Entity:
        """Return a reference to a file that a job read: one of the results if it still is that, else its hash."""
        path = self.results / os.path.relpath(name, self.results)
        if ".." not in path.relative_to(self.results).parts and (reference := self.add_file(path)):
            entity = self.entities[reference["@id"]]
            if (entity.get("sha256") or sha256(path)) == digest:
                entity["sha256"] = digest
                return reference
        identifier = f"#sha256-{digest}"
        what = {"@id": identifier, "@type": "CreativeWork", "name": Path(name).name, "sha256": digest}
        self.entities.setdefault(identifier, what)
        return {"@id": identifier}

    def _program(self, record: Mapping[str, Any]) -> Entity:
        """Add BolT in the version that did a job, and what it was built on; return a reference."""
        python = [self._software("generic", "python", record["python"])] if "python" in record else []
        packages = [self._software("pypi", *package) for package in record.get("packages", {}).items()]
        commit = record.get("commit")
        state = " with local changes" if record.get("changed") else ""
        version = record["bolt"] + (f"+{commit[:10]}{'.changed' if state else ''}" if commit else "")
        reference = self._software("generic", "bolt-fmri", version)
        source = {"description": f"Commit {commit}{state}"} if commit else {}
        self.entities[reference["@id"]] |= {**source, "softwareRequirements": [*python, *packages]}
        return reference

    def _software(self, kind: str, name: str, version: str) -> Entity:
        """Add a program, and return a reference: its package URL (https://github.com/package-url/purl-spec)."""
        identifier = f"pkg:{kind}/{quote(name)}@{quote(version, safe='')}"
        what = {"@id": identifier, "@type": "SoftwareApplication", "name": name, "softwareVersion": version}
        self.entities.setdefault(identifier, what)
        return {"@id": identifier}

    def _relative(self, path: Path) -> str:
        relative = path.relative_to(self.results).as_posix()
        return "" if relative == "." else quote(relative)


def _references(entities: list[Entity]) -> list[Entity]:
    return [{"@id": entity["@id"]} for entity in entities]
