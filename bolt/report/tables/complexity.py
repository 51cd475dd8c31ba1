"""What models cost against scan length: the table over all atlases, and its picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from bolt.config import Experiment
from bolt.experiments.complexity import COLUMNS, exponents, upper_half
from bolt.io.errors import DataError
from bolt.io.files import read_table, write_table, write_text
from bolt.report.figures.style import INK, MANY, canvas
from bolt.report.tables.markup import PACKAGES, Sheet, latex, markdown
from bolt.report.tables.readable import DASH, number

MEASURES = {
    "operations": ("operations", 1e9, "10⁹"),
    "seconds": ("time", 1.0, "s"),
    "peak_bytes": ("memory", 1e6, "MB"),
}
"""Column to its name, the size of its unit, and the unit."""
EXPONENT_COLUMNS = {
    "atlas": "Atlas",
    "row": "What the experiment's file calls the row",
    "parameters": "Trainable parameters, built for the shortest length",
    **{
        measure: f"Exponent of {name} against length, fitted over the upper half of the lengths: 1 linear, 2 quadratic"
        for measure, (name, _, _) in MEASURES.items()
    },
}
STYLES = ("-", "--")


def write_complexity(experiment: Experiment, out: Path) -> None:
    """Write the table, the exponents, a text and a picture of an experiment.

    Parameters
    ----------
    experiment : Experiment
    out : Path
        Holds ``<experiment>/<atlas>.tsv``, as measured; receives ``<experiment>.tsv``, ``<experiment>_exponents.tsv``,
        ``<experiment>.md`` and ``.tex``, and ``.png`` and ``.svg``.

    Raises
    ------
    DataError
        No file, or not one measurement in them.
    """
    files = sorted((out / experiment.name).glob("*.tsv"))
    if not files:
        raise DataError(
            f"experiment '{experiment.name}' has no measurement of any atlas",
            where=out / experiment.name,
            hint=f"Measure: snakemake {experiment.name}",
        )
    table = pd.concat([read_table(file, text=("row", "note", "atlas", "model")) for file in files])
    if table["parameters"].isna().all():
        row = table.iloc[0]
        raise DataError(
            f"nothing of experiment '{experiment.name}' could be measured: {row['row']}, {row['length']} volumes: "
            f"{row['note']}",
            where=out / experiment.name,
            hint="Give longer scans ('complexity: lengths'), or models with shorter windows",
        )
    slopes = exponents(table, list(MEASURES))
    stem = out / experiment.name
    draw(table, stem.with_suffix(".png"))
    write_table(slopes, out / f"{experiment.name}_exponents.tsv", EXPONENT_COLUMNS)
    sheets = [_sheet(experiment, atlas, part, slopes) for atlas, part in table.groupby("atlas")]
    words = f"# {experiment.title}\n\n{experiment.description}\n\n"
    labels = [f"tab:{experiment.name}-{i}" for i in range(len(sheets))]
    write_text(PACKAGES + "\n".join(map(latex, sheets, labels)), stem.with_suffix(".tex"))
    write_text(words + "\n".join(map(markdown, sheets)), stem.with_suffix(".md"))
    write_table(table, stem.with_suffix(".tsv"), COLUMNS)


def draw(table: pd.DataFrame, out: Path) -> None:
    """Operations, time and memory against length, a row an atlas, a line a model.

    Parameters
    ----------
    table : DataFrame
        `bolt.experiments.complexity.COLUMNS`.
    out : Path
        Ends in ``.png``.
    """
    atlases = sorted(table["atlas"].unique())
    ours = list(table.loc[table["model"] == "bolt", "row"].unique())
    others = list(table.loc[table["model"] != "bolt", "row"].unique())
    looks = {name: (MANY[i % len(MANY)], STYLES[i // len(MANY) % len(STYLES)]) for i, name in enumerate(others)}
    looks |= {name: (INK, STYLES[i % len(STYLES)]) for i, name in enumerate(ours)}
    with canvas(out, height=0.6 + 2.6 * len(atlases)) as figure:
        grid = figure.subplots(len(atlases), len(MEASURES), squeeze=False, sharex=True)
        for axes, atlas in zip(grid, atlases, strict=True):
            part = table[table["atlas"] == atlas]
            axes[0].set_ylabel(f"{atlas}, {int(part['n_rois'].iloc[0])} ROIs")
            for axis, (measure, (name, size, unit)) in zip(axes, MEASURES.items(), strict=True):
                for row, line in part.groupby("row", sort=False):
                    colour, style = looks[str(row)]
                    known = line.dropna(subset=[measure])
                    axis.loglog(known["length"], known[measure] / size, style, marker="o", ms=2.5, lw=1.3, color=colour)
                axis.set_title(f"{name}, {unit}")
                lengths = sorted(table["length"].unique())
                axis.set_xticks(lengths, [str(n) for n in lengths])
                axis.minorticks_off()
        for axis in grid[-1]:
            axis.set_xlabel("volumes")
        handles = [
            figure.axes[0].plot([], [], style, color=colour, marker="o", ms=2.5, label=name)[0]
            for name, (colour, style) in looks.items()
        ]
        figure.legend(handles=handles, loc="outside right upper", labelcolor=INK)


def _sheet(experiment: Experiment, atlas: Any, table: pd.DataFrame, slopes: pd.DataFrame) -> Sheet:
    """The longest scan and the exponents, a row a model, for one atlas."""
    lengths = sorted(table["length"].unique())
    at_end = table[table["length"] == lengths[-1]].set_index("row")
    own = slopes[slopes["atlas"] == atlas].set_index("row")
    rows = []
    for name in at_end.index:
        row = {"": str(name), "parameters": number(at_end.at[name, "parameters"])}
        for measure, (what, size, unit) in MEASURES.items():
            value, slope = at_end.at[name, measure], own.at[name, measure]
            row[f"{what} ({unit})"] = number(value / size)
            row[f"{what}, exponent"] = DASH if pd.isna(slope) else f"{slope:.2f}"
        rows.append(row)
    missing = table[table["note"].notna() & (table["note"] != "")]
    return Sheet(
        f"{experiment.title}, {atlas}",
        pd.DataFrame(rows),
        f"One scan of {lengths[-1]} volumes and {int(table['n_rois'].iloc[0])} ROIs, forward and backward, on "
        f"{', '.join(sorted(table['device'].dropna().unique()))}.",
        notes=[
            "Exponents: slopes in double logarithm over the upper half of the lengths, "
            f"{', '.join(map(str, upper_half(lengths)))} volumes, as far as measured; 1 is linear, 2 quadratic",
            f"Operations: {COLUMNS['operations']}",
            "Memory: the largest sum of tensors alive at one time, beyond weights, gradients and the scan itself",
            *(f"{row.row}, {row.length} volumes: {row.note}" for row in missing.itertuples()),
        ],
    )
