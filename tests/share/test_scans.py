"""The table of scans that are given as arrays."""

import numpy as np
import pandas as pd
import pytest

from bolt.share.scans import scan_table
from tests.share.test_estimators import LABELS, SERIES, small

CODES = {
    "age": [25, -9999, 999, "NA", "-9999", "unknown", None],
    "sex": ["M", "NA", "unknown", "None", -9999, "?", None],
    "site": ["A", "-9999", -9999.0, "N/A", "none", " ", np.nan],
    "mean_fd": [0.1, -9999, -1, "n/a", "-99", "NaN", np.nan],
    "tr": [2, -9999, -1, "", "-999", "?", pd.NA],
}


@pytest.mark.parametrize("column", CODES)
def test_codes_of_missing_values_are_no_data(column, caplog):
    found = scan_table(7, {column: CODES[column]})[column]
    assert found[0] == CODES[column][0] and found[1:].isna().all()
    assert f"scans: {column}: " in caplog.text and "count as missing" in caplog.text


@pytest.mark.parametrize("values", [pd.array([30, None], "Int64"), pd.Categorical(["30", "NA"]), ["30.0", "n/a"]])
def test_columns_of_any_type_are_read(values):
    assert scan_table(2, {"age": values}).age.tolist()[0] == 30
    assert scan_table(2, {"site": values}).site.tolist() == ["30", None]


def test_an_encoder_learns_from_known_values_alone():
    codes = {"age": [-9999, *range(20, 43)], "sex": ["NA", *"MF" * 11, "M"]}
    model = small(epochs=1, covariates=("age", "sex")).fit(SERIES, LABELS, scans=codes)
    age, sex = model.members_[0].info["covariates"]
    assert age["mean"] == 31 and sex["levels"] == ["F", "M"]
