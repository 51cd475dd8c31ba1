"""Tables of an experiment, made of strings, as Markdown and LaTeX."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from bolt.config import Experiment
from bolt.io.files import read_yaml, write_text
from bolt.report.tables import Sheet

CAPTIONS: dict[str, str] = read_yaml(Path(__file__).with_name("captions.yaml"))
"""What stands above and below tables and figures."""
PACKAGES = "% \\usepackage{amssymb,booktabs,graphicx}\n\n"
"""What a LaTeX document needs for these tables, as a comment."""
LATEX: dict[str, str] = read_yaml(Path(__file__).with_name("latex.yaml"))
"""Signs to what LaTeX is given for them."""
GREEK = "αβγδεζηθικλμνξπρςστυφχψωΓΔΘΛΞΠΣΥΦΨΩ"
"""Letters with a LaTeX command of their own, which is what Unicode calls them."""
ACCENTS = dict(zip("\u0300\u0301\u0302\u0303\u0308\u0327\u030a\u030c", "`'^~\"crv", strict=True))


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


def notes_of(rows: Mapping[str, str]) -> list[str]:
    """State of each reconstructed row what was reconstructed."""
    return [f"{row} is reconstructed: {note}".rstrip(".") for row, note in rows.items()]


def escape(text: str) -> str:
    """Return text as ASCII LaTeX; a character without a LaTeX command is replaced by its Unicode name."""
    if len(text) != 1:
        return "".join(map(escape, text))
    if text in LATEX or text.isascii():
        return LATEX.get(text, text)
    simpler, name = unicodedata.normalize("NFKD", text), unicodedata.name(text, "sign").lower()
    if unicodedata.decomposition(text).startswith("<super>"):
        return rf"\textsuperscript{{{escape(simpler)}}}"
    if simpler[1:] in ACCENTS:
        return rf"\{ACCENTS[simpler[1:]]}{{{escape(simpler[0])}}}"
    if simpler != text:
        return escape(simpler)
    if text not in GREEK:
        return f"({name})"
    command = name.split()[-1].replace("lamda", "lambda")  # Unicode's spelling
    return f"$\\{command.capitalize() if text.isupper() else command}$"


def markdown(sheet: Sheet) -> str:
    """Return the table as Markdown, below its title and caption."""
    rows = [
        [f"**{value}**" if (i, name) in sheet.bold else value for name, value in row.items()]
        for i, row in enumerate(sheet.frame.to_dict("records"))
    ]
    rules = ["---:" if numbers else "---" for numbers in _hold_numbers(sheet.frame)]
    lines = [[value.replace("|", "\\|") for value in line] for line in (list(sheet.frame), rules, *rows)]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    notes = "".join(f"- {note}\n" for note in sheet.notes)
    return f"### {sheet.title}\n\n{sheet.caption}\n\n{table}\n" + (f"\n{notes}" if notes else "")


def latex(sheet: Sheet, label: str) -> str:
    """Return the table as a booktabs float, no wider than the text."""

    def weight(frame: pd.DataFrame) -> pd.DataFrame:
        marks = [["textbf:--rwrap;" if (i, name) in sheet.bold else "" for name in frame] for i in range(len(frame))]
        return pd.DataFrame(marks, index=frame.index, columns=frame.columns)

    styler = sheet.frame.style.hide(axis="index").format(escape).apply(weight, axis=None).format_index(escape, axis=1)
    columns = "".join("r" if numbers else "l" for numbers in _hold_numbers(sheet.frame))
    words = " ".join([f"{sheet.title}.", sheet.caption, *(f"{note}." for note in sheet.notes)])
    lines = [r"\begin{table}", r"\centering", f"\\caption{{{escape(words)}}}", f"\\label{{{label}}}"]
    lines.append(r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%")
    lines += [styler.to_latex(hrules=True, column_format=columns).strip() + "}", r"\end{table}"]
    return "\n".join(lines) + "\n"


def _hold_numbers(frame: pd.DataFrame) -> list[bool]:
    """Return which columns are aligned to the right: all but the first and those without any digit."""
    return [i > 0 and any(any(map(str.isdigit, cell)) for cell in frame.iloc[:, i]) for i in range(frame.shape[1])]
