"""Units between which labels may be permuted."""

from __future__ import annotations

import pandas as pd


def label_units(scans: pd.DataFrame) -> pd.Series:
    """Return the name of each scan's unit: the largest of family, subject and scan whose units have one label each.

    Parameters
    ----------
    scans : DataFrame
        scan_id, subject, group (may be missing), label.
    """
    family = scans["group"].fillna(scans["subject"])
    for unit in (family, scans["subject"]):
        if (scans.groupby(unit)["label"].nunique() == 1).all():
            return unit
    return scans["scan_id"]
