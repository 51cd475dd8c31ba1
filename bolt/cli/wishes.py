"""What a user asks of a study on the command line: its label, columns, scans, atlases, models and settings."""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from bolt.io.errors import ConfigError
from bolt.io.files import read_json

FILTERS = {"task": "tasks", "session": "sessions", "run": "runs"}
"""Entities of a BIDS filter, and the dataset's keys."""


@dataclass
class Wishes:
    """What a user asks for; None or empty: decide from the data.

    Attributes
    ----------
    label : str or None
        Column to predict; None: nothing.
    classes : list of str
    positive : str or None
        The positive class of two.
    columns : dict
        group, site, age, sex → column.
    tasks, sessions, runs, participants : list of str
    bids_filter : dict
        Of T1w and BOLD, as the dataset's key.
    atlases, models : list of str
    settings : dict
        Further keys of the configuration, which are taken as they are.
    """

    label: str | None = None
    classes: list[str] = field(default_factory=list)
    positive: str | None = None
    columns: dict[str, str] = field(default_factory=dict)
    tasks: list[str] = field(default_factory=list)
    sessions: list[str] = field(default_factory=list)
    runs: list[str] = field(default_factory=list)
    participants: list[str] = field(default_factory=list)
    bids_filter: dict[str, dict[str, Any]] = field(default_factory=dict)
    atlases: list[str] = field(default_factory=list)
    models: list[str] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, options: argparse.Namespace) -> Wishes:
        """Return what the options of a study ask for (`bolt.cli.command_table`)."""
        settings: dict[str, Any] = {
            key: value for key in ("denoise", "device") if (value := getattr(options, key)) is not None
        }
        settings |= {"preprocess": {"space": options.space}} if options.space else {}
        settings |= {"seeds": options.seed} if options.seed else {}
        settings |= {"folds": {"outer": options.folds}} if options.folds is not None else {}
        for assignment in options.set or []:
            _assign(settings, assignment)
        columns = {"group": options.group_column, "site": options.site, "age": options.age, "sex": options.sex}
        return cls(
            label=options.label,
            classes=options.classes or [],
            positive=options.positive,
            columns={key: column for key, column in columns.items() if column is not None},
            tasks=options.task_id or [],
            sessions=options.session_id or [],
            runs=options.run_id or [],
            atlases=options.atlas or [],
            models=options.model or [],
            settings=settings,
        )


def _assign(settings: dict[str, Any], assignment: str) -> None:
    """Add ``a.b=value`` to nested settings."""
    key, equals, text = assignment.partition("=")
    *above, last = key.split(".")
    if not equals or not last:
        raise ConfigError(f"--set {assignment}: no assignment", hint="As in --set quality.max_mean_fd=0.5")
    group = settings
    for part in above:
        group = group.setdefault(part, {})
        if not isinstance(group, dict):
            raise ConfigError(f"--set {assignment}: '{part}' is not a group of keys", hint="See config/config.yaml")
    try:
        group[last] = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"--set {assignment}: not a value ({' '.join(str(error).split())})") from None


def read_filter(path: Path) -> dict[str, Any]:
    """Read a file as fMRIPrep's ``--bids-filter-file``: ``{"bold": {"task": "rest", "session": ["1", "2"]}}``.

    Returns
    -------
    dict
        tasks, sessions and runs of BOLD images, and bids_filter with all else.

    Raises
    ------
    ConfigError
        It filters other images than T1w and BOLD, or by something that is no value.
    """
    filters = read_json(path)
    if not isinstance(filters, dict) or not all(isinstance(value, dict) for value in filters.values()):
        raise ConfigError("not a BIDS filter", where=path, hint='As in {"bold": {"task": "rest"}}')
    wanted: dict[str, Any] = {}
    for query, entities in filters.items():
        for entity, value in entities.items():
            if query not in ("bold", "t1w"):
                raise ConfigError(f"'{query}' cannot be filtered", where=path, hint="Use 'bold' and 't1w'")
            if entity in ("datatype", "suffix"):
                continue
            values = value if isinstance(value, list) else [value]
            if not values or not all(isinstance(v, str | int) and not isinstance(v, bool) for v in values):
                raise ConfigError(f"'{query}: {entity}' is {json.dumps(value)}", where=path, hint="Give its values")
            if query == "bold" and entity in FILTERS:
                wanted[FILTERS[entity]] = [str(v) for v in values]
            else:
                wanted.setdefault("bids_filter", {}).setdefault(query, {})[entity] = value
    return wanted
