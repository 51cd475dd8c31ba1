"""Tables of strings as Markdown and LaTeX; of both the same cells are bold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pandas as pd

LATEX = {"±": r"$\pm$", "−": "$-$", "–": "--", "²": r"\textsuperscript{2}", "×": r"$\times$"}
ESCAPED = str.maketrans(
    {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {sign: f"\\{sign}" for sign in "&%$#_{}"}
    | LATEX
)


@dataclass
class Sheet:
    """A table for people.

    Attributes
    ----------
    title : str
    frame : DataFrame
        Strings; columns are one level.
    caption : str
        What the numbers are.
    bold : set of (row position, column)
        Cells that stand out.
    notes : list of str
        Lines below the table.
    """

    title: str
    frame: pd.DataFrame
    caption: str
    bold: set[tuple[int, str]] = field(default_factory=set)
    notes: Sequence[str] = ()


def escape(text: str) -> str:
    """Text as LaTeX takes it: its special characters are escaped, signs beyond ASCII spelled out."""
    return text.translate(ESCAPED)


def markdown(sheet: Sheet) -> str:
    """The table under its title, the caption above it."""
    columns = list(sheet.frame)
    rows = [
        [f"**{_plain(value)}**" if (i, name) in sheet.bold else _plain(value) for name, value in row.items()]
        for i, row in enumerate(sheet.frame.to_dict("records"))
    ]
    lines = [list(map(_plain, columns)), ["---"] + ["---:"] * (len(columns) - 1), *rows]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    notes = "".join(f"- {note}\n" for note in sheet.notes)
    return f"### {sheet.title}\n\n{sheet.caption}\n\n{table}\n" + (f"\n{notes}" if notes else "")


def latex(sheet: Sheet, label: str) -> str:
    """The table as a float of booktabs, no wider than the text."""
    styler = sheet.frame.style.hide(axis="index").format(escape)

    def weight(frame: pd.DataFrame) -> pd.DataFrame:
        marks = [["textbf:--rwrap;" if (i, name) in sheet.bold else "" for name in frame] for i in range(len(frame))]
        return pd.DataFrame(marks, index=frame.index, columns=frame.columns)

    body = styler.apply(weight, axis=None).format_index(escape, axis=1)
    table = body.to_latex(hrules=True, column_format="l" + "r" * (sheet.frame.shape[1] - 1))
    words = " ".join([f"{sheet.title}.", sheet.caption, *(f"{note}." for note in sheet.notes)])
    lines = [r"\begin{table}", r"\centering", f"\\caption{{{escape(words)}}}", f"\\label{{{label}}}"]
    lines += [r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%", table.strip() + "}", r"\end{table}"]
    return "\n".join(lines) + "\n"


def _plain(value: str) -> str:
    return value.replace("|", "\\|")
