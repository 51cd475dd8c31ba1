"""One choice of hyper-parameters for all datasets and atlases, as in the paper: near the best on each of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from bolt.config import Model
from bolt.io.errors import ConfigError, DataError
from bolt.io.files import read_json, write_table, write_text
from bolt.training.tuning.choice import dump, read_trials, trials_of
from bolt.training.tuning.space import keys_with, rounded, settings_of

COLUMNS = {
    "trial": "Candidate, from 1; the same values in every study. The first has the model's own",
    "study": "Dataset and atlas",
    "validation_loss": "Mean loss of the validation scans of the first fold; n/a: pruned",
    "excess": "How much higher this loss is than the study's lowest, as a share of the latter",
    "worst_excess": "Highest excess of the candidate over all studies, which is minimised; n/a: pruned in one of them",
}


def write_shared(studies: Mapping[str, Path], model: Model, out: Path) -> None:
    """Write a model with the candidate whose loss is nearest to the lowest of each study, in the worst of them.

    Parameters
    ----------
    studies : mapping
        Name (dataset and atlas) to the folder written by `bolt.training.tuning.search.search_fold`; all tried the same
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
    tables = {name: read_trials(folder / "trials.tsv").set_index("trial") for name, folder in studies.items()}
    searched = list(next(iter(tables.values())).columns.drop(["state", "reason"]).drop(_measures(tables)))
    _require_equal(tables, searched, studies)
    losses = pd.DataFrame({name: table["validation_loss"].astype(float) for name, table in tables.items()})
    excess = losses / losses.min() - 1
    worst = excess.max(axis=1, skipna=False)
    if worst.isna().all():
        raise ConfigError(
            f"no candidate of model '{model.name}' was completed in all studies: {', '.join(studies)}",
            where=out,
            hint="Raise 'search: n_trials', or narrow the ranges to what fits all datasets (config/search)",
        )
    chosen = int(worst.idxmin())
    table = losses.stack(future_stack=True).rename("validation_loss").rename_axis(["trial", "study"]).reset_index()
    table["excess"] = excess.stack(future_stack=True).to_numpy()
    table["worst_excess"] = table["trial"].map(worst)
    values = next(iter(tables.values()))[searched]
    table = table.merge(values, left_on="trial", right_index=True)
    write_table(table, trials_of(out), COLUMNS | {name: f"Value of {name}" for name in searched})
    write_text(_text(model, studies, values.loc[chosen].to_dict(), excess.loc[chosen], chosen), out)


def _measures(tables: Mapping[str, pd.DataFrame]) -> list[str]:
    """Return the columns of results."""
    return [name for name in next(iter(tables.values())) if str(name).startswith("validation_")]


def _require_equal(tables: Mapping[str, pd.DataFrame], searched: list[str], studies: Mapping[str, Path]) -> None:
    """Refuse studies that did not try the same candidates."""
    first, *others = tables
    for name in others:
        if not all(column in tables[name] for column in searched) or not tables[name][searched].equals(
            tables[first][searched]
        ):
            raise DataError(
                f"{first} and {name} tried different candidates",
                where=studies[name] / "trials.tsv",
                hint="Search all datasets with the same 'search' (scheme: shared; space, n_trials, seed)",
            )


def _text(model: Model, studies: Mapping[str, Path], values: dict[str, Any], excess: pd.Series, chosen: int) -> str:
    """Compose the YAML file."""
    title = model.shown
    drawn = rounded({name: value for name, value in values.items() if pd.notna(value)})
    keys = keys_with(model, "shared", settings_of(model, drawn))
    about = read_json(next(iter(studies.values())) / "best.json")
    lines = [
        f"# {title} with one choice of hyper-parameters for all datasets and atlases searched so far, as in the paper.",
        "# Chosen by the loss of the validation scans of the first fold; its test scans were not used. These scans are",
        "# test scans of other folds, whose results are therefore slightly optimistic.",
        f"# Candidate {chosen} of {about['n_trials']}, seed {about['seed']}. Loss above the study's lowest:",
        *(f"#   {name}: {100 * excess[name]:.1f} %" for name in studies),
        dump({"name": f"{model.name}_search_shared", "title": title, **keys}),
    ]
    return "\n".join(lines) + "\n"
