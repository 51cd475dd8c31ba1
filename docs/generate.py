"""Write the pages of `docs/reference/` from the code: commands, settings, and the columns of every table.

    python -m docs.generate

tests/test_docs.py fails where a page is not what this makes.
"""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any

from bolt.cli.main import COMMANDS, GROUPS, make_parser
from bolt.config import ROOT, schemas
from bolt.io.files import read_yaml, write_text
from bolt.workflow.stage import STAGES

HERE = ROOT / "docs/reference"
TITLES = {"commands": "Main commands"}
SETTINGS = {
    "dataset": "One file per dataset in `config/datasets/`; [Your data](../data.md) has complete examples.",
    "model": "One file per model in `config/models/`; `hyper` takes the settings of the model's class.",
    "denoising": "One file per strategy in `config/denoise/`.",
    "experiment": "One file per table or figure in `config/experiments/`; see [Experiments](../experiments.md).",
    "search": "One file per search space in `config/search/`; [Hyper-parameter search](../hyperparameters.md).",
    "registration": "One file per registration in `config/registration/`.",
}


def write_reference() -> None:
    """Write all pages."""
    for name, page in PAGES.items():
        write_text("\n".join(page()) + "\n", HERE / f"{name}.md")


def commands() -> Iterator[str]:
    """Yield the page of commands."""
    yield "# Commands\n\n*For everyone who uses the command line. `bolt COMMAND --help` says the same.*"
    parsers = make_parser()._subparsers._group_actions[0].choices  # argparse offers no other way
    for group in GROUPS:
        yield f"\n## {TITLES.get(group, group.capitalize())}"
        for name, command in COMMANDS.items():
            if command["group"] == group:
                parser = parsers[name]
                yield f"\n### bolt {name}\n\n{command['help']}"
                for text in (parser.description or "").removeprefix(command["help"]).strip("\n").split("\n\n"):
                    if text.startswith("  "):
                        yield f"\n<!-- not run: needs your data -->\n```bash\n{textwrap.dedent(text)}\n```\n"
                    elif text:
                        yield _line(text)
                yield from _options(parser)
    yield "\n## Stages of the workflow\n"
    yield "The workflow's rules call these, with `--config` and what the job is about.\n"
    yield "| command | what it does |\n| --- | --- |"
    yield from (f"| `bolt {stage.command}` | {_cell(stage.help)} |" for stage in STAGES.values())


def settings() -> Iterator[str]:
    """Yield the page of settings: the keys of every kind of file in `config/`."""
    yield "# Configuration\n\n*For everyone who writes configurations.*\n"
    yield (
        "The comments in [`config/config.yaml`](../../config/config.yaml) explain every key of the main configuration. "
        "Here are the keys of the files that it names. A key that is not listed is an error.\n\n"
        "Editors that know JSON Schema (`config/schemas/`) complete and check all of them."
    )
    known = schemas()
    for name, introduction in SETTINGS.items():
        yield f"\n## {name.capitalize()}\n\n{introduction}"
        yield from _keys(known[name])
        for part, schema in known[name].get("$defs", {}).items():
            if "properties" in schema:
                yield f"\n### {part}\n\n{_line(schema.get('description', ''))}"
                yield from _keys(schema)


def tables() -> Iterator[str]:
    """Yield the page of tables."""
    yield "# Tables\n\n*For everyone who reads the results with other programs.*\n"
    yield (
        "Tables are TSV files with `n/a` for missing values. Beside each is a JSON file of the same name that "
        "describes its columns, as below."
    )
    for heading, entries in read_yaml(HERE / "tables.yaml").items():
        yield f"\n## {heading}"
        for entry in entries:
            path = entry["path"] if "`" in entry["path"] else ", ".join(f"`{p}`" for p in entry["path"].split(", "))
            yield f"\n### {path}\n\nOne row is {entry['row']}."
            if entry["columns"]:
                yield "\n| column | contents |\n| --- | --- |"
            for place in entry["columns"]:
                yield from (f"| {_code(name)} | {_cell(text)} |" for name, text in described(place).items())


def listed_tables() -> dict[str, set[str]]:
    """Return the columns of every listed table by a pattern of its path."""
    columns: dict[str, set[str]] = {}
    for entries in read_yaml(HERE / "tables.yaml").values():
        for entry in entries:
            places = [*entry["columns"], *entry.get("besides", [])]
            known = {column for place in places for column in described(place)}
            for path in re.findall(r"[\w<>/-]+\.tsv", entry["path"].replace("results/", "")):
                pattern = re.sub("<[^>]*>", "[^/]+", path)
                columns[pattern] = columns.get(pattern, set()) | known
    return columns


def described(place: str) -> dict[str, str]:
    """Return the columns with their descriptions at a place in the code: ``module:NAME`` of a mapping or function."""
    module, _, name = place.partition(":")
    found = getattr(import_module(module), name)
    columns: Mapping[str, Any] = found() if callable(found) else found
    return {column: _description(about) for column, about in columns.items()}


def _description(about: str | Mapping[str, Any]) -> str:
    if isinstance(about, str):
        return about
    return about["Description"] + (f" ({about['Units']})" if "Units" in about else "")


def _options(parser: argparse.ArgumentParser) -> Iterator[str]:
    actions = [action for action in parser._actions if action.help != argparse.SUPPRESS and action.dest != "help"]
    if actions:
        yield "\n| option | meaning |\n| --- | --- |"
    for action in actions:
        names = ", ".join(action.option_strings) or _value(action, action.dest)
        value = "" if not action.option_strings or action.nargs == 0 else f" {_value(action, action.dest.upper())}"
        words = [_line(action.help or "")] + (["(required)"] if action.required and action.option_strings else [])
        yield f"| {_code(names + value)} | {_cell(' '.join(words))} |"


def _value(action: argparse.Action, otherwise: str) -> str:
    choices = "{" + ",".join(map(str, action.choices)) + "}" if action.choices else ""
    name = action.metavar or choices or otherwise
    return " ".join(name) if isinstance(name, tuple) else name + (" …" if action.nargs in ("+", "*") else "")


def _keys(schema: Mapping[str, Any]) -> Iterator[str]:
    yield "\n| key | values | default | meaning |\n| --- | --- | --- | --- |"
    required = schema.get("required", [])
    for name, key in schema["properties"].items():
        default = "required" if name in required else "" if "$ref" in key else _code(_plain(key.get("default")))
        yield f"| `{name}` | {_cell(_values(key))} | {_cell(default)} | {_cell(_line(key.get('description', '')))} |"


def _values(key: Mapping[str, Any]) -> str:
    """Say what a key of a schema takes."""
    if "anyOf" in key:
        return " or ".join(dict.fromkeys(map(_values, key["anyOf"])))
    if "$ref" in key:
        return key["$ref"].rpartition("/")[2]
    if "enum" in key:
        return ", ".join(map(_plain, key["enum"]))
    if "const" in key:
        return _plain(key["const"])
    kind = key.get("type", "any")
    if kind == "array":
        return f"list of {_values(key['items'])}" if "items" in key else "list"
    if kind == "object":
        inner = key.get("additionalProperties")
        return f"mapping to {_values(inner)}" if isinstance(inner, Mapping) and inner else "mapping"
    bounds = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    limits = [f"{sign} {key[bound]:g}" for bound, sign in bounds.items() if bound in key]
    names = {"string": key.get("format", "text"), "integer": "whole number", "boolean": "true, false"}
    return names.get(kind, kind) + (f" {', '.join(limits)}" if limits else "")


def _plain(value: Any) -> str:
    """Write a value as YAML does."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}: {_plain(inner)}" for name, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_plain, value)) + "]"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _line(text: str) -> str:
    """Return text on one line, argparse's `%%` and docstrings' double backquotes as they are meant."""
    return re.sub(r"\s+", " ", text).replace("%%", "%").replace("``", "`").strip()


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def _cell(text: str) -> str:
    """Escape what would end a cell or be taken for markup."""
    parts = text.split("`")  # within backquotes, only the bar needs an escape
    parts[::2] = [part.replace("<", "&lt;").replace("*", "\\*") for part in parts[::2]]
    return "`".join(parts).replace("|", "\\|")


PAGES: dict[str, Callable[[], Iterator[str]]] = {"commands": commands, "settings": settings, "tables": tables}

if __name__ == "__main__":
    write_reference()
