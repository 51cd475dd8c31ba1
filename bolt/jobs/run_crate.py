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
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

from bolt.io.files import sha256, write_json
from bolt.jobs.ledger import provenance_files

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
PARTS = (
    "Region-of-interest series, trained models, predictions and explanations of fMRI scans, with the jobs that made "
    "them. Files of jobs that failed are not listed."
)
LICENCE = "Whoever publishes these results chooses a licence that the licence of the scans allows."
NOTE = "Provenance: versions, hashes, time and memory of a job"

Entity = dict[str, Any]


def refresh_run_crate(results: Path, dataset: str) -> None:
    """Write the crate of a dataset's results at the end of a run; an error is only logged."""
    try:
        write_run_crate(results, dataset)
    except Exception as error:
        log.warning("%s was not written: %s", NAME, error)


def write_run_crate(results: Path, dataset: str) -> None:
    """Write ``ro-crate-metadata.json`` into the folder of a dataset's results.

    Each entity is listed once; references are to entities or to the profile's own identifiers.

    Parameters
    ----------
    results : Path
    dataset : str
        Its name.
    """
    crate, records = _Crate(results), []
    for path in sorted(provenance_files(results)):
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            _ = record["stage"], record["command"], record["inputs"], record["bolt"]
            records.append((datetime.strptime(record["date"], "%Y-%m-%dT%H:%M:%S%z"), path, record))
        except (OSError, ValueError, KeyError, TypeError):  # of another program, or damaged
            continue
    records.sort(key=lambda entry: entry[:2])
    published = max((end for end, *_ in records), default=datetime.now().astimezone())
    about = {"conformsTo": {"@id": "https://w3id.org/ro/crate/1.1"}, "about": {"@id": "./"}}
    crate.add(NAME, "CreativeWork", **about)
    root = {
        "name": f"BolT's results on dataset {dataset}",
        "description": PARTS,
        "datePublished": published.isoformat(timespec="seconds"),
        "license": {"@id": "#licence"},
        "conformsTo": {"@id": PROFILE},
    }
    crate.add("./", "Dataset", **root)
    crate.add(PROFILE, "CreativeWork", name="Process Run Crate", version="0.5")
    crate.add("#licence", "CreativeWork", name="No licence stated", description=LICENCE)
    if (config := results / "config.yaml").is_file():
        crate.add_file(config, sha256(config), "The merged configuration of the run")
    for _, path, record in records:  # in the order of time: of a file that two jobs wrote, the later hash holds
        for name, digest in record.get("outputs", {}).items():
            crate.add_file(path.parent / name, digest)
    for end, path, record in records:
        crate.add_action(path, record, end)
    found = list(crate.entities.values())
    parts = {"hasPart": "File", "mentions": "CreateAction"}
    listed = {key: [{"@id": e["@id"]} for e in found if e["@type"] == kind] for key, kind in parts.items()}
    crate.add("./", "Dataset", **listed)
    write_json({"@context": CONTEXT, "@graph": list(crate.entities.values())}, results / NAME)


class _Crate:
    """The entities of a crate by their identifiers."""

    def __init__(self, results: Path) -> None:
        self.results = results
        self.entities: dict[str, Entity] = {}

    def add(self, identifier: str, kind: str, **facts: Any) -> Entity:
        """Add an entity, or facts to the one that is there; return a reference to it."""
        self.entities[identifier] = self.entities.get(identifier, {"@id": identifier, "@type": kind}) | facts
        return {"@id": identifier}

    def add_file(self, path: Path, digest: str | None = None, description: str = "") -> Entity | None:
        """Add a file of the results, and return a reference to it; None if it is missing or elsewhere."""
        if not (path.is_file() and path.is_relative_to(self.results)):
            return None
        name = path.relative_to(self.results).as_posix()
        known = {"sha256": digest, "description": description}
        return self.add(
            quote(name),
            "File",
            name=name,
            contentSize=str(path.stat().st_size),
            encodingFormat=FORMATS.get(path.suffix) or mimetypes.guess_type(name)[0] or "application/octet-stream",
            **{key: text for key, text in known.items() if text},
        )

    def add_action(self, path: Path, record: dict[str, Any], end: datetime) -> None:
        """Add a job, with its program, the files it read, and those of its outputs that are there."""
        inputs = [self._input(name, digest) for name, digest in record["inputs"].items() if digest]
        outputs = [self.add_file(path.parent / name) for name in record.get("outputs", {})]
        note, place = self.add_file(path, description=NOTE), path.relative_to(self.results)
        folder = "./" if place.parent == Path() else quote(place.parent.as_posix())
        self.add(
            f"#{quote(place.as_posix())}",
            "CreateAction",
            name=f"{record['stage']}: {folder}",
            description=record["command"],
            startTime=(end - timedelta(seconds=record.get("wall_seconds", 0))).isoformat(timespec="seconds"),
            endTime=end.isoformat(),
            actionStatus={"@id": "http://schema.org/CompletedActionStatus"},
            instrument=self._program(record),
            object=inputs,
            result=[reference for reference in outputs if reference] or [note],
            subjectOf=note,
        )

    def _input(self, name: str, digest: str) -> Entity:
        """Return a reference to a file that a job read: one of the results if it still is that, else its hash."""
        path = self.results / os.path.relpath(name, self.results)
        if ".." not in path.relative_to(self.results).parts and (reference := self.add_file(path)):
            entity = self.entities[reference["@id"]]
            if (entity.get("sha256") or sha256(path)) == digest:
                entity["sha256"] = digest
                return reference
        identifier = f"#sha256-{digest}"
        if identifier not in self.entities:
            self.add(identifier, "CreativeWork", name=Path(name).name, sha256=digest)
        return {"@id": identifier}

    def _program(self, record: dict[str, Any]) -> Entity:
        """Add BolT in the version that did a job, and what it was built on; return a reference."""
        commit, changed = record.get("commit"), record.get("changed")
        built_on = [("generic", "python", record["python"])] if "python" in record else []
        built_on += [("pypi", *package) for package in record.get("packages", {}).items()]
        version = record["bolt"] + (f"+{commit[:10]}{'.changed' if changed else ''}" if commit else "")
        about = {"description": f"Commit {commit}{' with local changes' if changed else ''}"} if commit else {}
        needed = [self._software(*program) for program in built_on]
        return self._software("generic", "bolt-fmri", version, softwareRequirements=needed, **about)

    def _software(self, kind: str, name: str, version: str, **facts: Any) -> Entity:
        """Add a program, and return a reference: its package URL (https://github.com/package-url/purl-spec)."""
        identifier = f"pkg:{kind}/{quote(name)}@{quote(version, safe='')}"
        return self.add(identifier, "SoftwareApplication", name=name, softwareVersion=version, **facts)
