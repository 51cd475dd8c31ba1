"""Computational cost of models against scan length: a table over all atlases, and a figure."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from bolt.config import Experiment, load_model
from bolt.experiments.complexity import COLUMNS, exponents, upper_half
from bolt.experiments.entries import paper_table
from bolt.io.errors import DataError
from bolt.io.files import read_table, write_table
from bolt.report.figures.complexity import MEASURES, draw
from bolt.report.tables.markup import Sheet, write_sheets
from bolt.report.tables.numbers import DASH, EXPLAINED, decimal, marked, notes_of, number, reconstructed

FORMULA_COLUMNS = {
    "formula": "Order of growth that the paper states; n/a: none",
    "paper_exponent": "Power of the scan length in it, or that the paper states without a formula",
}
EXPONENT_COLUMNS = {
    "atlas": "Atlas",
    "row": "What the experiment's file calls the row",
    "parameters": "Trainable parameters, built for the shortest length",
    **{
        measure: f"Exponent of {name} against length, fitted over the upper half of the lengths: 1 linear, 2 quadratic"
        for measure, (name, _, _) in MEASURES.items()
    },
    **FORMULA_COLUMNS,
}
LETTERS = (
    "The paper's orders of growth, of a layer: N latent dimensions, T volumes, k kernel size, W window, α stride and β "
    "fringe coefficient, m block index, from 0. Of these only T changes here, so that its power is to be compared with "
    "the exponent of operations. That is lower where costs that grow more slowly with T are still large (in attention "
    "over T volumes, the linear layers, which are linear in T)"
)


def write_complexity(experiment: Experiment, out: Path) -> None:
    """Write the tables, text and figure of an experiment from its measurements, ``<out>/<experiment>/<atlas>.tsv``.

    Raises
    ------
    DataError
        No file, or no measurement in any of them.
    """
    files = sorted((out / experiment.name).glob("*.tsv"))
    if not files:
        raise DataError(
            f"experiment '{experiment.name}' has no measurement of any atlas",
            where=out / experiment.name,
            hint=f"Ask for the target '{experiment.name}'",
        )
    table = pd.concat([read_table(file, text=("row", "note", "atlas", "model")) for file in files])
    if table["parameters"].isna().all():
        row = table.iloc[0]
        raise DataError(
            f"nothing of experiment '{experiment.name}' could be measured: {row['row']}, {row['length']} volumes: "
            f"{row['note']}",
            where=out / experiment.name,
            hint="Use longer scans ('complexity: lengths'), or models with shorter windows",
        )
    slopes = with_formulas(exponents(table, list(MEASURES)), experiment)
    stem = out / experiment.name
    unknown = _reconstructed(experiment)
    draw(table.assign(row=[marked(row, unknown) for row in table["row"]]), stem.with_suffix(".png"))
    write_table(slopes, out / f"{experiment.name}_exponents.tsv", EXPONENT_COLUMNS)
    sheets = [_sheet(experiment, atlas, part, slopes, unknown) for atlas, part in table.groupby("atlas")]
    write_sheets(experiment, sheets, out)
    write_table(table, stem.with_suffix(".tsv"), COLUMNS)


def with_formulas(slopes: pd.DataFrame, experiment: Experiment) -> pd.DataFrame:
    """Add `FORMULA_COLUMNS` to exponents, for rows that the paper has."""
    known = read_table(paper_table("complexity"), text=("model", "formula")).set_index("model")
    names = {row.row or load_model(row.model).title: row.paper["model"] for row in experiment.rows if row.paper}
    of_row = {row: known.loc[name] for row, name in names.items()}
    return slopes.assign(
        formula=[of_row[row]["formula"] if row in of_row else None for row in slopes["row"]],
        paper_exponent=[of_row[row]["exponent"] if row in of_row else None for row in slopes["row"]],
    ).astype({"paper_exponent": float})


def _reconstructed(experiment: Experiment) -> dict[str, str]:
    """Return the reconstructed rows, and what was reconstructed of each."""
    models = {row.model: load_model(row.model) for row in experiment.rows}
    stated = {r.row or models[r.model].shown: r.fidelity or models[r.model].fidelity for r in experiment.rows}
    return reconstructed(stated)


def _sheet(
    experiment: Experiment, atlas: Any, table: pd.DataFrame, slopes: pd.DataFrame, unknown: Mapping[str, str]
) -> Sheet:
    """Return cost at the longest scan and the exponents, a row per model (`unknown` ones with †), for one atlas."""
    lengths = sorted(table["length"].unique())
    longest = table[table["length"] == lengths[-1]].set_index("row")
    exponent = slopes[slopes["atlas"] == atlas].set_index("row")
    rows, in_paper = [], exponent["paper_exponent"].notna().any()
    for name in longest.index:
        row = {"": marked(str(name), unknown)}
        if in_paper:
            formula, power = exponent.at[name, "formula"], exponent.at[name, "paper_exponent"]
            without = DASH if pd.isna(power) else "in words"
            row |= {"the paper": without if pd.isna(formula) else formula, "its power of T": number(power)}
        row["parameters"] = number(longest.at[name, "parameters"])
        for measure, (title, size, unit) in MEASURES.items():
            row[f"{title} ({unit})"] = number(longest.at[name, measure] / size)
            row[f"{title}, exponent"] = decimal(exponent.at[name, measure])
        rows.append(row)
    missing = table[table["note"].notna() & (table["note"] != "")]
    unknown = {row: note for row, note in unknown.items() if row in longest.index}
    return Sheet(
        f"{experiment.title}, {atlas}",
        pd.DataFrame(rows),
        f"One scan of {lengths[-1]} volumes and {int(table['n_rois'].iloc[0])} ROIs, forward and backward pass, on "
        f"{', '.join(sorted(table['device'].dropna().unique()))}.{f' {EXPLAINED}' if unknown else ''}",
        notes=[
            "Exponents: slopes on logarithmic axes over the upper half of the lengths, "
            f"{', '.join(map(str, upper_half(lengths)))} volumes, as far as measured; 1 is linear, 2 quadratic",
            *([LETTERS] if in_paper else []),
            f"Operations: {COLUMNS['operations']}",
            "Memory: peak size of all tensors alive at one time, without weights, gradients and the scan itself",
            *notes_of(unknown),
            *(f"{row.row}, {row.length} volumes: {row.note}" for row in missing.itertuples()),
        ],
    )
