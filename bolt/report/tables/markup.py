"""Tables of strings as Markdown and LaTeX."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from bolt.config import Experiment
from bolt.io.files import write_text

PACKAGES = "% \\usepackage{amssymb,booktabs,graphicx}\n\n"
"""What a LaTeX document needs for these tables, as a comment."""
LATEX = {sign: f"\\{sign}" for sign in "&%$#_{}"} | {sign: f"${sign}$" for sign in "<>|"}
LATEX |= {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
LATEX |= {"[": "{[}", "*": "{*}"}  # at the start of a row they would be options of the line before
LATEX |= {"−": "$-$", "±": r"$\pm$", "×": r"$\times$", "·": r"$\cdot$", "≤": r"$\leq$", "≥": r"$\geq$", "→": r"$\to$"}
LATEX |= {"✓": r"$\checkmark$", "✗": r"$\times$", "†": r"$\dagger$"}
LATEX |= {"°": r"${}^\circ$", "–": "--", "—": "---", "“": "``", "”": "''", "‘": "`", "’": "'", "…": r"\ldots{}"}
LATEX |= {"≈": r"$\approx$", "∞": r"$\infty$", "ß": r"\ss{}", "ø": r"\o{}", "Ø": r"\O{}"}
GREEK = "αβγδεζηθικλμνξπρςστυφχψωΓΔΘΛΞΠΣΥΦΨΩ"
"""Letters with a LaTeX command of their own, which is what Unicode calls them."""
ACCENTS = dict(zip("\u0300\u0301\u0302\u0303\u0308\u0327\u030a\u030c", "`'^~\"crv", strict=True))


@dataclass
class Sheet:
    """A table for readers.

    Attributes
    ----------
    title : str
    frame : DataFrame
        Strings; columns are one level.
    caption : str
    bold : set of (row position, column)
    notes : list of str
        Lines below the table.
    """

    title: str
    frame: pd.DataFrame
    caption: str
    bold: set[tuple[int, str]] = field(default_factory=set)
    notes: Sequence[str] = ()


def write_sheets(
    experiment: Experiment, sheets: Sequence[Sheet], out: Path, figures: Mapping[str, str] | None = None, first: int = 0
) -> None:
    """Write ``<name>.md`` and ``<name>.tex``; `figures`: PNG and what they show; labels count from `first`."""
    name = experiment.name
    head = f"# {experiment.title}\n\n{experiment.description}\n\n"
    head += "".join(f"![{text}]({file})\n\n" for file, text in (figures or {}).items())
    tables = [latex(sheet, f"tab:{name}-{i}") for i, sheet in enumerate(sheets, first)]
    write_text(PACKAGES + "\n".join(tables), out / f"{name}.tex")
    write_text(head + "\n".join(map(markdown, sheets)), out / f"{name}.md")


def escape(text: str) -> str:
    """Return text as ASCII LaTeX; a character without a LaTeX command is replaced by its Unicode name."""
    return "".join(map(_escape_sign, text))


def _escape_sign(sign: str) -> str:
    if sign in LATEX:
        return LATEX[sign]
    if sign.isascii():
        return sign
    simpler = unicodedata.normalize("NFKD", sign)
    if unicodedata.decomposition(sign).startswith("<super>"):
        return rf"\textsuperscript{{{escape(simpler)}}}"
    if simpler[1:] in ACCENTS:
        return rf"\{ACCENTS[simpler[1:]]}{{{_escape_sign(simpler[0])}}}"
    if simpler != sign:
        return escape(simpler)
    name = unicodedata.name(sign, "sign").lower()
    if sign not in GREEK:
        return f"({name})"
    command = name.split()[-1].replace("lamda", "lambda")  # Unicode's spelling
    return f"$\\{command.capitalize() if sign.isupper() else command}$"


def markdown(sheet: Sheet) -> str:
    """Return the table as Markdown, below its title and caption."""
    columns = list(sheet.frame)
    rows = [
        [f"**{_plain(value)}**" if (i, name) in sheet.bold else _plain(value) for name, value in row.items()]
        for i, row in enumerate(sheet.frame.to_dict("records"))
    ]
    rules = ["---:" if numbers else "---" for numbers in _hold_numbers(sheet.frame)]
    lines = [list(map(_plain, columns)), rules, *rows]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    notes = "".join(f"- {note}\n" for note in sheet.notes)
    return f"### {sheet.title}\n\n{sheet.caption}\n\n{table}\n" + (f"\n{notes}" if notes else "")


def _hold_numbers(frame: pd.DataFrame) -> list[bool]:
    """Return which columns are aligned to the right: all but the first and those without any digit."""
    return [i > 0 and any(any(map(str.isdigit, cell)) for cell in frame.iloc[:, i]) for i in range(frame.shape[1])]


def _plain(value: str) -> str:
    return value.replace("|", "\\|")


def latex(sheet: Sheet, label: str) -> str:
    """Return the table as a booktabs float, no wider than the text."""
    styler = sheet.frame.style.hide(axis="index").format(escape)

    def weight(frame: pd.DataFrame) -> pd.DataFrame:
        marks = [["textbf:--rwrap;" if (i, name) in sheet.bold else "" for name in frame] for i in range(len(frame))]
        return pd.DataFrame(marks, index=frame.index, columns=frame.columns)

    body = styler.apply(weight, axis=None).format_index(escape, axis=1)
    table = body.to_latex(
        hrules=True, column_format="".join("r" if numbers else "l" for numbers in _hold_numbers(sheet.frame))
    )
    words = " ".join([f"{sheet.title}.", sheet.caption, *(f"{note}." for note in sheet.notes)])
    lines = [r"\begin{table}", r"\centering", f"\\caption{{{escape(words)}}}", f"\\label{{{label}}}"]
    lines += [r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%", table.strip() + "}", r"\end{table}"]
    return "\n".join(lines) + "\n"
