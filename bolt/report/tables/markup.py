"""Tables of strings as Markdown and LaTeX; of both the same cells are bold."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field

import pandas as pd

PACKAGES = "% \\usepackage{booktabs,graphicx}\n\n"
"""What a LaTeX document needs for these tables, as a comment."""
MATHS = {
    "<": "<",
    ">": ">",
    "|": "|",
    "±": r"\pm",
    "−": "-",
    "×": r"\times",
    "≤": r"\leq",
    "≥": r"\geq",
    "≈": r"\approx",
}
MATHS |= {"·": r"\cdot", "→": r"\to", "∞": r"\infty", "°": r"{}^\circ"}
GREEK = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma sigma tau upsilon phi chi"
)
MATHS |= {letter: f"\\{name}" for letter, name in zip("αβγδεζηθικλμνξπρςστυφχ", GREEK.split(), strict=True)}
MATHS |= {"ο": "o", "ψ": r"\psi", "ω": r"\omega"}
CAPITALS = "Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega"
MATHS |= {letter: f"\\{name}" for letter, name in zip("ΓΔΘΛΞΠΣΥΦΨΩ", CAPITALS.split(), strict=True)}
RAISED = {"⁺": "$+$", "⁻": "$-$"} | dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789", strict=True))
WORDS = {"–": "--", "—": "---", "“": "``", "”": "''", "‘": "`", "’": "'", "ß": r"\ss{}", "ø": r"\o{}", "Ø": r"\O{}"}
WORDS |= {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
WORDS |= {"[": "{[}", "*": "{*}"}  # where a row begins so, they would be an option of the line before
ACCENTS = dict(zip("\u0300\u0301\u0302\u0303\u0308\u0327\u030a\u030c", "`'^~\"crv", strict=True))
LATEX = (
    {sign: f"\\{sign}" for sign in "&%$#_{}"}
    | {sign: f"${maths}$" for sign, maths in MATHS.items()}
    | {sign: rf"\textsuperscript{{{raised}}}" for sign, raised in RAISED.items()}
    | WORDS
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
    """Text as every LaTeX takes it, in ASCII: special characters are escaped, Greek letters and signs become maths,
    what has no command is spelled out by its name."""
    return "".join(map(_sign, text))


def _sign(sign: str) -> str:
    if sign in LATEX:
        return LATEX[sign]
    if sign.isascii():
        return sign
    simpler = unicodedata.normalize("NFKD", sign)
    if simpler[1:] in ACCENTS:
        return rf"\{ACCENTS[simpler[1:]]}{{{_sign(simpler[0])}}}"
    return escape(simpler) if simpler != sign else f"({unicodedata.name(sign, 'sign').lower()})"


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
