"""Tables as Markdown."""

from __future__ import annotations

import pandas as pd


def markdown(table: pd.DataFrame) -> str:
    """A pipe table; text on the left, all else on the right.

    Parameters
    ----------
    table : DataFrame
        Its values as they are to be read.
    """
    rows = [[str(value).replace("|", "\\|") for value in row] for row in table.to_numpy(object)]
    marks = ["---" if i == 0 else "---:" for i in range(table.shape[1])]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [list(map(str, table.columns)), marks, *rows]) + "\n"
