"""Stages by hand: each gets the files that its rule declares, as those of a run do."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from bolt.cli.main import main
from bolt.config import ROOT
from bolt.config.layout import ORACLE
from bolt.io.files import read_yaml
from bolt.workflow.run import Run, named_files
from bolt.workflow.stage import STAGES


class Wildcards(dict):
    """As much of Snakemake's wildcards as input functions use."""

    __getattr__ = dict.__getitem__


@cache
def declared(rule: str) -> dict[str, str]:
    """Return what a rule declares, as text, by directive."""
    texts = (path.read_text() for path in sorted((ROOT / "workflow/rules").glob("*.smk")))
    pattern = rf"^( *)(?:rule|checkpoint) {rule}:\n(.*?)(?=^\1\S|\Z)"
    (indent, body), *_ = (found.groups() for text in texts for found in re.finditer(pattern, text, re.M | re.S))
    parts = re.split(rf"^{indent}    (\w+):", body, flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def files(run: Run, rule: str, wildcards: Wildcards) -> list[str]:
    """Return the options that name a rule's files."""
    layout = run.layout
    names: dict[str, Any] = {"run": run, "layout": layout, "ORACLE": ORACLE, "report": lambda files, **_: files}
    names["RUN"] = layout.run("{atlas}", "{model}", "{seed}", "{variant}")
    names |= {"FOLD": names["RUN"].fold("{fold}"), "INNER": names["RUN"].inner("{fold}")}
    names |= {"CACHE": names["RUN"].cache / "manifest.json", "folds": run.config.folds.of("")}
    names["checkpoints"] = SimpleNamespace(index=SimpleNamespace(get=lambda: True))
    names["rules"] = SimpleNamespace(template=SimpleNamespace(output=list(layout.template_files.values())))
    names["bold"] = [] if layout.native else layout.bold("{scan}", "{folder}")
    names["unpack"] = lambda function: function(wildcards)

    def concrete(value: Any) -> Any:
        value = value(wildcards) if callable(value) else value
        if isinstance(value, list):
            return [concrete(item) for item in value]
        return str(value).format(**wildcards)

    def named(*several: Any, **one: Any) -> dict[str, Any]:
        one |= {name: value for some in several if isinstance(some, dict) for name, value in some.items()}
        return {name: concrete(value) for name, value in one.items()}

    texts, names["named"] = declared(rule), named
    return named_files(**{kind: eval(f"named({texts.get(kind, '')})", names) for kind in ("input", "output")})


def command(run: Run, config: Path, rule: str, *more: str, **wildcards: Any) -> list[str]:
    """Return the arguments of a stage's command, as its rule calls it."""
    stage = next(stage for stage in STAGES.values() if rule in stage.rules)
    given = Wildcards({"variant": run.layout.variant, **{name: str(value) for name, value in wildcards.items()}})
    options = [word for key, value in given.items() if key in stage.keys for word in (f"--{key}", value)]
    options += ["--fold", given["fold"]] if stage.name == "train" and "fold" in given else []
    return [stage.command, "--config", str(config), *options, *files(run, rule, given), *more]


def stage(config: Path, rule: str, *more: str, **wildcards: Any) -> int:
    """Do one job of a rule of the study that `config` describes, and return the exit status of its command."""
    return main(command(Run(read_yaml(config)), config, rule, *more, **wildcards))
