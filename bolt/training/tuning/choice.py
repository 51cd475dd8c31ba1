"""Results of a search as files: a model's configuration for further runs, and the table of all trials."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from bolt.config import FoldSettings, Model
from bolt.io.files import read_json, read_table, write_table, write_text
from bolt.training.tuning.space import keys_with

TITLES = {"per-fold": "search per fold", "paper": "search on one fold"}
MEANING = {
    "per-fold": "Each fold has the values chosen by its own validation scans.",
    "paper": "All folds have the values chosen by the validation scans of the first, as in the paper. These are\n"
    "# test scans of other folds, whose results are therefore slightly optimistic.",
}


def write_choice(studies: Mapping[int, Path], model: Model, scheme: str, out: Path) -> None:
    """Write a model with the chosen values, and its trials.

    Parameters
    ----------
    studies : mapping
        Fold to the folder written by `bolt.training.tuning.search.search_fold`; a single one for the scheme ``paper``.
    model : Model
        The model that was searched.
    scheme : {"per-fold", "paper"}
    out : Path
        ``<model>.yaml``; ``<model>_trials.tsv`` is written beside it.
    """
    best = {fold: read_json(folder / "best.json") for fold, folder in sorted(studies.items())}
    tables = [read_trials(folder / "trials.tsv").assign(fold=fold) for fold, folder in sorted(studies.items())]
    table = pd.concat(tables, ignore_index=True)
    table.insert(0, "fold", table.pop("fold"))
    columns = {"fold": "Fold whose training and validation scans were used"}
    for folder in studies.values():
        columns |= {name: column["Description"] for name, column in read_json(folder / "trials.json").items()}
    write_table(table, trials_of(out), columns)
    write_text(_text(best, model, scheme), out)


def trials_of(choice: Path) -> Path:
    """Return the path of the trials behind a configuration that a search wrote."""
    return choice.with_name(f"{choice.stem}_trials.tsv")


def read_trials(path: Path) -> pd.DataFrame:
    """Read a ``trials.tsv``."""
    return read_table(path, text=("state", "reason"))


def _text(best: Mapping[int, dict[str, Any]], model: Model, scheme: str) -> str:
    """Compose the YAML file from the best trial of each fold."""
    first = next(iter(best.values()))
    title = model.shown
    keys = keys_with(model, scheme, FoldSettings(**first["settings"]) if scheme == "paper" else FoldSettings())
    lines = [
        f"# {title} with hyper-parameters found by a search (scheme {scheme}). {MEANING[scheme]}",
        "# Chosen by the smallest mean loss of the validation scans; test scans were not used.",
        f"# {first['n_trials']} trials per fold, the first with the model's own values; seed {first['seed']}; Optuna "
        f"{first['optuna']}, TPE, median pruning.",
        *(
            f"# Fold {fold}, ranges narrowed to fit the data: {', '.join(trial['narrowed'])}."
            for fold, trial in best.items()
            if trial["narrowed"]
        ),
    ]
    if scheme == "paper":
        lines.append(f"# Fold {first['fold']}: {_origin(first)}. Searched values: {', '.join(first['values'])}.")
    name = f"{model.name}_search_{scheme.replace('-', '_')}"
    lines.append(dump({"name": name, "title": f"{title} ({TITLES[scheme]})", **keys}))
    if scheme == "per-fold":
        lines.append("by_fold:")
        for fold, trial in best.items():
            settings = {group: values for group, values in trial["settings"].items() if values}
            lines += [f"  {fold}:  # {_origin(trial)}", *(f"    {line}" for line in dump(settings).splitlines())]
    return "\n".join(lines).rstrip("\n") + "\n"


def _origin(best: Mapping[str, Any]) -> str:
    """Describe how the values of a fold were found."""
    before = "" if best["first_loss"] is None else f"; with the model's own values: {best['first_loss']:.4f}"
    trial = f"trial {best['trial']} of {best['n_trials']}"
    return f"validation loss {best['validation_loss']:.4f} ({trial}, {best['n_validation']} scans){before}"


def dump(data: Mapping[str, Any]) -> str:
    """Format a mapping as YAML."""
    return yaml.safe_dump(dict(data), sort_keys=False, allow_unicode=True, width=110).rstrip("\n")
