"""What a search has chosen, as files: a model's configuration that runs can take, and all trials beside it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from bolt.config import Model
from bolt.io.files import read_json, read_table, write_table, write_text

TITLES = {"per-fold": "search per fold", "paper": "search on one fold"}
MEANING = {
    "per-fold": "Each fold has the values that its own validation scans chose.",
    "paper": "All folds have the values that the validation scans of the first chose, as in the paper; these are test\n"
    "# scans of other folds, so results of those are not quite unseen.",
}


def write_choice(studies: Mapping[int, Path], model: Model, scheme: str, out: Path) -> None:
    """Write a model with the values that were found, and its trials.

    Parameters
    ----------
    studies : mapping
        Fold to the folder that `bolt.training.tuning.search.search_fold` wrote; of the scheme ``paper`` one.
    model : Model
        What was searched.
    scheme : {"per-fold", "paper"}
    out : Path
        ``<model>.yaml``; ``<model>_trials.tsv`` comes beside it.
    """
    found = {fold: read_json(folder / "best.json") for fold, folder in sorted(studies.items())}
    tables = [read_trials(folder / "trials.tsv").assign(fold=fold) for fold, folder in sorted(studies.items())]
    table = pd.concat(tables, ignore_index=True)
    table.insert(0, "fold", table.pop("fold"))
    columns = {"fold": "Fold whose training and validation scans were used"}
    for folder in studies.values():
        columns |= {name: about["Description"] for name, about in read_json(folder / "trials.json").items()}
    write_table(table, trials_of(out), columns)
    write_text(_text(found, model, scheme), out)


def trials_of(choice: Path) -> Path:
    """The table of all trials behind a configuration that a search wrote."""
    return choice.with_name(f"{choice.stem}_trials.tsv")


def read_trials(path: Path) -> pd.DataFrame:
    """A ``trials.tsv``."""
    return read_table(path, text=("state", "reason"))


def _text(found: Mapping[int, dict[str, Any]], model: Model, scheme: str) -> str:
    some = next(iter(found.values()))
    title = model.title or model.name
    about = model.model_dump(mode="json", exclude_unset=True, exclude={"name", "title", "by_fold"})
    if scheme == "paper":
        for group, values in some["settings"].items():
            about |= {group: {**about.get(group, {}), **values}} if values else {}
    lines = [
        f"# {title} with hyper-parameters found by a search (scheme {scheme}). {MEANING[scheme]}",
        "# Chosen by the smallest mean loss of the validation scans; test scans were not looked at.",
        f"# {some['n_trials']} trials a fold, the first with the model's own values; seed {some['seed']}; Optuna "
        f"{some['optuna']}, TPE, median pruning.",
        *(
            f"# Fold {fold}, narrowed by the data: {', '.join(best['narrowed'])}."
            for fold, best in found.items()
            if best["narrowed"]
        ),
    ]
    if scheme == "paper":
        lines.append(f"# Fold {some['fold']}: {_origin(some)}. What was searched: {', '.join(some['values'])}.")
    name = f"{model.name}_search_{scheme.replace('-', '_')}"
    lines.append(_dump({"name": name, "title": f"{title} ({TITLES[scheme]})", **about}))
    if scheme == "per-fold":
        lines.append("by_fold:")
        for fold, best in found.items():
            settings = {group: values for group, values in best["settings"].items() if values}
            lines += [f"  {fold}:  # {_origin(best)}", *(f"    {line}" for line in _dump(settings).splitlines())]
    return "\n".join(lines).rstrip("\n") + "\n"


def _origin(best: Mapping[str, Any]) -> str:
    """Where the values of a fold came from, in words."""
    own = "" if best["first_loss"] is None else f"; the model's own values: {best['first_loss']:.4f}"
    trial = f"trial {best['trial']} of {best['n_trials']}"
    return f"validation loss {best['validation_loss']:.4f} ({trial}, {best['n_validation']} scans){own}"


def _dump(data: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(data), sort_keys=False, allow_unicode=True, width=110).rstrip("\n")
