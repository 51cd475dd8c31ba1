"""Labels are permuted between the largest units with one label each."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from bolt.folds.label_permutation import label_units, people, permutations


def scans_of(width: int) -> pd.DataFrame:
    """Two scans per person, two people per family; the label changes every `width` scans."""
    i = np.arange(48)
    table = pd.DataFrame({"scan_id": [f"s{k:02d}" for k in i], "subject": [f"p{k // 2:02d}" for k in i]})
    return table.assign(group=[f"f{k // 4:02d}" for k in i], label=np.where(i // width % 2, "patient", "control"))


@pytest.mark.parametrize(("unit", "width"), [("group", 4), ("subject", 2), ("scan_id", 1)])
def test_units_are_the_largest_with_one_label_each(unit: str, width: int) -> None:
    scans = scans_of(width)
    assert label_units(scans).equals(scans[unit])
    drawn = permutations(scans, 30, np.random.default_rng(0))
    by_unit = drawn.reshape(30, -1, width)
    assert (by_unit == by_unit[..., :1]).all()  # one label per unit
    assert ((drawn == "patient").sum(axis=1) == 24).all() and len(np.unique(drawn.astype(str), axis=0)) > 20
    assert permutations(scans, 0, np.random.default_rng(0)).shape == (0, 48)


def test_where_the_family_is_unknown_it_is_the_subject() -> None:
    scans = scans_of(4)
    assert people(scans.assign(group=None)).equals(scans["subject"])
    assert label_units(scans.assign(group=None)).equals(scans["subject"])
