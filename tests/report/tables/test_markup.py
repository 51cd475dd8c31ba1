"""Tests of tables as Markdown and LaTeX."""

import pandas as pd

from bolt.report.tables.markup import Sheet, latex, markdown


def test_numbers_are_aligned_to_the_right_and_words_to_the_left() -> None:
    rows = {"": ["BolT", "SVM"], "fidelity": ["exact", "core"], "AUC": ["75.0 ± 1.5", "–"], "note": ["", ""]}
    sheet = Sheet("Models", pd.DataFrame(rows), "Per cent.")
    assert "| --- | --- | ---: | --- |" in markdown(sheet)
    assert r"\begin{tabular}{llrl}" in latex(sheet, "tab:models")
