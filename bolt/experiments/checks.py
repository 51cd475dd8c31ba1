"""Checks of experiment files before any work."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from bolt.config import Config, Experiment, Model, Row
from bolt.config.layout import Layout
from bolt.config.study import paper_table
from bolt.experiments.entries import searched_model
from bolt.explain.explainable import has_importance
from bolt.io.errors import ConfigError
from bolt.io.files import read_table
from bolt.models.registry import check_model, inputs_of

VALUES = ("metric", "mean_percent", "sd_percent", "formula", "exponent", "remark")
"""Columns of the paper's tables that do not identify a row."""

Rows = Sequence[tuple[Row, Model]]


def check_experiment_names(config: Config, reserved: Collection[str]) -> None:
    """Refuse names of experiments that cannot be targets of the workflow, and duplicate names.

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
            problem = "has other characters than letters, digits, - and _"
        elif name in reserved:
            problem = "is already a target of the workflow"
        elif names.count(name) > 1:
            problem = "is the name of two files"
        if problem:
            what = f"'{place}': the name of an experiment becomes a target, but '{name}' {problem}"
            raise ConfigError(what, where="configuration: experiments", hint="Rename the file")


def check_experiment(experiment: Experiment, rows: Rows) -> None:
    """Refuse a reference, values of the paper, models or settings that an experiment cannot have.

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
        raise ConfigError(f"'reference': no row is named '{experiment.reference}'", where=where, hint=f"Rows: {names}")
    for row, model in rows:
        of_row = f"{where}, row '{row.row}'"
        try:
            check_model(model.model, model.hyper)
        except ConfigError as error:
            raise ConfigError(error.what, where=f"{of_row}, {error.where}", hint=error.hint) from None
        inputs, problem = inputs_of(model.model), ""
        if experiment.kind == "complexity" and inputs != "series":
            problem = f"only the cost of models of series depends on scan length; '{model.model}' takes {inputs}"
        elif experiment.explains is not None and not has_importance(model):
            problem = "only BolT with CLS tokens and without covariates has importance weights, and can be explained"
        if problem:
            raise ConfigError(problem, where=of_row, hint="Remove the row")
    _check_paper(experiment, {row.row: row.paper for row, _ in rows if row.paper}, where)


def check_choices(config: Config, rows: Rows) -> str:
    """Refuse to use values that no search has chosen yet (`search: use`); a run's models depend on them.

    Parameters
    ----------
    config : Config
    rows : sequence of (Row, Model)
        Of all experiments that are asked for.

    Returns
    -------
    str
        Which models have such values, and which keep those of their own files; empty without `search: use`.

    Raises
    ------
    ConfigError
        None of the rows' models has such values, or one that 'search: models' names lacks them.
    """
    models = sorted({Path(row.model).stem for row, _ in rows})
    if not (config.search.use and models):
        return ""
    lacking = [name for name in models if searched_model(name, config) is None]
    named = [name for name in (Path(place).stem for place in config.search.models) if name in lacking]
    if named or lacking == models:
        wanted = ", ".join(named or (["bolt"] if "bolt" in models else models))
        what = f"no search has chosen values for model {wanted} (in {Layout(config).shared_choice('<model>').parent}), "
        what += "so 'search: use' would train the values of config/models"
        hint = "First ask for the target 'search', for every dataset, with "
        hint += f"--config 'search={{scheme: shared, models: [{wanted}]}}'"
        raise ConfigError(what, where="search: use", hint=hint)
    used = ", ".join(name for name in models if name not in lacking)
    own = f"; {', '.join(lacking)} {'has' if len(lacking) == 1 else 'have'} those of config/models" if lacking else ""
    return f"Note: values that a search chose are used for {used}{own}."


def lacks_reference(experiment: Experiment, rows: Rows) -> bool:
    """Return whether there are no paired tests because the reference row is missing."""
    return experiment.kind == "training" and experiment.reference not in [row.row for row, _ in rows]


def _check_paper(experiment: Experiment, paper_rows: Mapping[str, Mapping[str, str]], where: str) -> None:
    """Refuse rows that the paper's own table does not have."""
    file = paper_table(experiment.name)
    if not paper_rows:
        return
    if not file.is_file():
        tables = ", ".join(sorted(table.stem for table in file.parent.glob("*.tsv")))
        hint = f"Remove it, or name the file after one of its tables: {tables}"
        raise ConfigError(f"'paper': the paper has no table '{experiment.name}'", where=where, hint=hint)
    table = read_table(file, text=tuple({key for keys in paper_rows.values() for key in keys}))
    known = [column for column in table if column not in VALUES]
    for row, keys in paper_rows.items():
        lacking, hint = "", ""
        unknown = [key for key in keys if key not in known]
        if unknown:
            lacking, hint = f"column '{unknown[0]}'", f"Columns of {file.name}: {', '.join(known)}"
        elif not (table[list(keys)] == list(keys.values())).all(axis=1).any():
            available = table[list(keys)].drop_duplicates().agg(", ".join, axis=1)
            lacking, hint = f"row with {', '.join(keys.values())}", f"Rows of {file.name}: {'; '.join(available)}"
        if lacking:
            raise ConfigError(f"the paper's table has no {lacking}", where=f"{where}, row '{row}', paper", hint=hint)
