"""What can be wrong in the files of experiments, found before any work."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from bolt.config import Config, Experiment, Model, Row
from bolt.experiments.entries import paper_table
from bolt.explain.explainable import has_importance
from bolt.io.errors import ConfigError
from bolt.io.files import read_table
from bolt.models.registry import check_model, inputs_of

VALUES = ("metric", "mean_percent", "sd_percent")
"""Columns of the paper's tables that say nothing of a row."""

Rows = Sequence[tuple[Row, Model]]


def check_experiment_names(config: Config, reserved: Collection[str]) -> None:
    """Refuse names that are no target, or two of one name.

    Parameters
    ----------
    config : Config
    reserved : collection of str
        Names of rules and targets.

    Raises
    ------
    ConfigError
        Names the experiment.
    """
    names = [Path(place).stem for place in config.experiments]
    for name, place in zip(names, config.experiments, strict=True):
        problem = ""
        if not re.fullmatch(r"[A-Za-z0-9_-]+", name):
            problem = "may have letters, digits, - and _ only"
        elif name in reserved:
            problem = f"is a target already: snakemake {name}"
        elif names.count(name) > 1:
            problem = "is the name of two files"
        if problem:
            raise ConfigError(
                f"'{place}': the name of an experiment is a target, and '{name}' {problem}",
                where="configuration: experiments",
                hint="Rename the file",
            )


def check_experiment(experiment: Experiment, rows: Rows) -> None:
    """Refuse a reference, values of the paper, models or settings of models that an experiment cannot have.

    Parameters
    ----------
    experiment : Experiment
    rows : sequence of (Row, Model)
        From `bolt.experiments.entries.rows_of`.

    Raises
    ------
    ConfigError
        Names experiment and row.
    """
    where = f"experiment '{experiment.name}'"
    if "reference" in experiment.model_fields_set and lacks_reference(experiment, rows):
        names = ", ".join(f"'{row.row}'" for row, _ in rows)
        raise ConfigError(f"'reference': no row is called '{experiment.reference}'", where=where, hint=f"Rows: {names}")
    for row, model in rows:
        _check_settings(model, f"{where}, row '{row.row}'")
        inputs = inputs_of(model.model)
        if experiment.kind == "complexity" and inputs != "series":
            raise ConfigError(
                f"only models of series have a cost that depends on the length; '{model.model}' takes {inputs}",
                where=f"{where}, row '{row.row}'",
                hint="Remove the row",
            )
        if experiment.kind == "landmarks" and not has_importance(model):
            raise ConfigError(
                "only BolT with CLS tokens and without covariates has importance weights, and so landmarks",
                where=f"{where}, row '{row.row}'",
                hint="Remove the row",
            )
    _check_paper(experiment, {row.row: row.paper for row, _ in rows if row.paper}, where)


def _check_settings(model: Model, where: str) -> None:
    """Refuse settings that the model does not have, or values that they cannot have."""
    try:
        check_model(model.model, model.hyper)
    except ConfigError as error:
        raise ConfigError(error.what, where=f"{where}, {error.where}", hint=error.hint) from None


def lacks_reference(experiment: Experiment, rows: Rows) -> bool:
    """Whether nothing is tested, for the row that is tested against is not there."""
    return experiment.kind == "training" and experiment.reference not in [row.row for row, _ in rows]


def _check_paper(experiment: Experiment, theirs: Mapping[str, Mapping[str, str]], where: str) -> None:
    """Refuse what the paper's own table does not have."""
    file = paper_table(experiment.name)
    if not theirs:
        return
    if not file.is_file():
        tables = sorted(one.stem for one in file.parent.glob("*.tsv"))
        raise ConfigError(
            f"'paper': the paper has no table '{experiment.name}'",
            where=where,
            hint=f"Remove it, or give the file the name of one: {', '.join(tables)}",
        )
    table = read_table(file, text=tuple({key for keys in theirs.values() for key in keys}))
    known = [column for column in table if column not in VALUES]
    for row, keys in theirs.items():
        strangers = [key for key in keys if key not in known]
        if strangers:
            raise ConfigError(
                f"the paper's table has no column '{strangers[0]}'",
                where=f"{where}, row '{row}', paper",
                hint=f"Columns of {file.name}: {', '.join(known)}",
            )
        if not (table[list(keys)] == list(keys.values())).all(axis=1).any():
            found = table[list(keys)].drop_duplicates().agg(", ".join, axis=1)
            raise ConfigError(
                f"the paper's table has no row with {', '.join(keys.values())}",
                where=f"{where}, row '{row}', paper",
                hint=f"Rows of {file.name}: {'; '.join(found)}",
            )
