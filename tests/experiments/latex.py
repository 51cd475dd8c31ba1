"""What LaTeX would refuse or misprint, without LaTeX."""

import re


def well_formed(text):
    """Braces and environments close, and every row of a table has as many cells as it has columns."""
    bare = re.sub(r"\\[\\&%$#_{}]", "", text)
    assert bare.count("{") == bare.count("}")
    assert (
        re.findall(r"\\begin{(\w+)}", text).count("tabular") == re.findall(r"\\end{(\w+)}", text).count("tabular") > 0
    )
    for columns, body in re.findall(r"\\begin{tabular}{(\w+)}(.*?)\\end{tabular}", text, re.S):
        rows = [line for line in body.splitlines() if line.rstrip().endswith(r"\\")]
        assert rows and {len(re.split(r"(?<!\\)&", row)) for row in rows} == {len(columns)}
    body = re.sub(r"^%.*$", "", bare, flags=re.M)
    words = re.sub(r"\$[^$]*\$|\\label{.*?}|\\ifdim\\width>", "", body)  # in text, pdfLaTeX prints < > | as other signs
    assert not re.search(r"[#_$<>|]", words) and text.isascii()
