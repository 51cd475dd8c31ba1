"""Results of a search as files: a model's configuration for further runs, and the table of all trials."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from bolt.config import FoldSettings, Model
from bolt.io.errors import ConfigError, DataError
from bolt.io.files import columns, read_json, read_table, read_yaml, write_table, write_text
from bolt.training.space import keys_with, rounded, settings_of

TITLES = {"per-fold": "search per fold", "paper": "search on one fold"}
HEADS = read_yaml(Path(__file__).with_suffix(".yaml"))
"""Comments by scheme."""
TEXT = ("state", "reason")
"""Columns of ``trials.tsv`` that are text."""
COLUMNS = columns("training", "shared_trials")


def write_choice(studies: Mapping[int, Path], model: Model, scheme: str, out: Path) -> None:
    """Write a model with the chosen values, and its trials.

    Parameters
    ----------
    studies : mapping
        Fold to the folder written by `bolt.training.search.search_fold`; a single one for the scheme ``paper``.
    model : Model
        The model that was searched.
    scheme : {"per-fold", "paper"}
    out : Path
        ``<model>.yaml``; ``<model>_trials.tsv`` is written beside it.
    """
    best = {fold: read_json(folder / "best.json") for fold, folder in sorted(studies.items())}
    tables = [
        read_table(folder / "trials.tsv", text=TEXT).assign(fold=fold) for fold, folder in sorted(studies.items())
    ]
    table = pd.concat(tables, ignore_index=True)
    table.insert(0, "fold", table.pop("fold"))
    columns = {"fold": "Fold whose training and validation scans were used"}
    for folder in studies.values():
        columns |= {name: column["Description"] for name, column in read_json(folder / "trials.json").items()}
    write_table(table, trials_of(out), columns)
    title, first, origin, narrowed = model.shown, next(iter(best.values())), {}, []
    for fold, trial in best.items():
        before = trial["first_loss"]
        own = "" if before is None else f"; with the model's own values: {before:.4f}"
        place = f"trial {trial['trial']} of {trial['n_trials']}, {trial['n_validation']} scans"
        origin[fold] = f"validation loss {trial['validation_loss']:.4f} ({place}){own}"
        if trial["narrowed"]:
            narrowed.append(f"# Fold {fold}, ranges narrowed to fit the data: {', '.join(trial['narrowed'])}.")
    lines = [HEADS[scheme].format(title=title, **first).rstrip(), *narrowed]
    if scheme == "paper":
        searched = ", ".join(first["values"])
        lines.append(f"# Fold {first['fold']}: {origin[next(iter(best))]}. Searched values: {searched}.")
    keys = keys_with(model, scheme, FoldSettings(**first["settings"]) if scheme == "paper" else FoldSettings())
    name = f"{model.name}_search_{scheme.replace('-', '_')}"
    lines.append(_dump({"name": name, "title": f"{title} ({TITLES[scheme]})", **keys}))
    if scheme == "per-fold":
        lines.append("by_fold:")
        for fold, trial in best.items():
            settings = {group: values for group, values in trial["settings"].items() if values}
            lines += [f"  {fold}:  # {origin[fold]}", *(f"    {line}" for line in _dump(settings).splitlines())]
    write_text("\n".join(lines).rstrip("\n") + "\n", out)


def write_shared(studies: Mapping[str, Path], model: Model, out: Path) -> None:
    """Write one choice for all datasets and atlases, as in the paper: near the best on each of them.

    It is the candidate whose loss is nearest to the lowest of each study, in the worst of them.

    Parameters
    ----------
    studies : mapping
        Name (dataset and atlas) to the folder written by `bolt.training.search.search_fold`; all tried the same
        candidates.
    model : Model
        The model that was searched.
    out : Path
        ``<model>.yaml``; ``<model>_trials.tsv`` is written beside it.

    Raises
    ------
    DataError
        The studies tried different candidates.
    ConfigError
        No candidate was completed in all studies.
    """
    tables = {name: read_table(folder / "trials.tsv", text=TEXT).set_index("trial") for name, folder in studies.items()}
    first = next(iter(tables))
    results = [name for name in tables[first] if str(name).startswith("validation_")]
    searched = list(tables[first].columns.drop(["state", "reason", *results]))
    for name, table in tables.items():
        if not set(searched) <= set(table) or not table[searched].equals(tables[first][searched]):
            problem = f"{first} and {name} tried different candidates"
            hint = "Search all datasets with the same 'search' (scheme: shared; space, n_trials, seed)"
            raise DataError(problem, where=studies[name] / "trials.tsv", hint=hint)
    losses = pd.DataFrame({name: table["validation_loss"].astype(float) for name, table in tables.items()})
    excess = losses / losses.min() - 1
    worst = excess.max(axis=1, skipna=False)
    if worst.isna().all():
        problem = f"no candidate of model '{model.name}' was completed in all studies: {', '.join(studies)}"
        hint = "Raise 'search: n_trials', or narrow the ranges to what fits all datasets (config/search)"
        raise ConfigError(problem, where=out, hint=hint)
    chosen, title = int(worst.idxmin()), model.shown
    table = losses.stack(future_stack=True).rename("validation_loss").rename_axis(["trial", "study"]).reset_index()
    table["excess"] = excess.stack(future_stack=True).to_numpy()
    table["worst_excess"] = table["trial"].map(worst)
    table = table.merge(tables[first][searched], left_on="trial", right_index=True)
    write_table(table, trials_of(out), COLUMNS | {name: f"Value of {name}" for name in searched})
    row = tables[first][searched].astype(object).loc[chosen]  # whole numbers stay whole
    values = rounded(row.where(row.notna(), None).to_dict())  # none is missing: n/a is a chosen null
    about = read_json(studies[first] / "best.json")
    keys = keys_with(model, "shared", settings_of(model, values))
    lines = [
        HEADS["shared"].format(title=title, chosen=chosen, **about).rstrip(),
        *(f"#   {name}: {100 * excess.loc[chosen, name]:.1f} %" for name in studies),
        _dump({"name": f"{model.name}_search_shared", "title": title, **keys}),
    ]
    write_text("\n".join(lines) + "\n", out)


def trials_of(choice: Path) -> Path:
    """Return the path of the trials behind a configuration that a search wrote."""
    return choice.with_name(f"{choice.stem}_trials.tsv")


def _dump(data: Mapping[str, Any]) -> str:
    """Format a mapping as YAML."""
    return yaml.safe_dump(dict(data), sort_keys=False, allow_unicode=True, width=110).rstrip("\n")
